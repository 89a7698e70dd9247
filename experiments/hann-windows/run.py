"""Errors over stated standard deviations of parameters, from FRFs whose noise a Hann window correlates.

python experiments/hann-windows/run.py [--draws 30]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import jaxmb

SEGMENTS, SAMPLES, NOISE = 16, 1024, 0.04
LINES = slice(8, 200)
POINTS = ["tool x", "tool y", "tool z"]


def relative_noise(rng: np.random.Generator, window: np.ndarray) -> np.ndarray:
    """Relative errors of H1 [f, output, input] of white forces and white noise, each input measured by itself."""
    force, noise = (
        np.fft.rfft(rng.normal(size=(*shape, SEGMENTS, SAMPLES)) * window)[..., LINES] for shape in ((3, 1), (3, 3))
    )
    return (np.sum(noise * force.conj(), axis=2) / np.sum(np.abs(force) ** 2, axis=2)).transpose(2, 1, 0)


def main() -> None:
    """Print the root mean square of errors over standard deviations, for both windows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=30)
    draws = parser.parse_args().draws
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    true = {name: x for name, x in jaxmb.parameters(model).items() if name.startswith(("stiffness.", "damping."))}
    frequency = np.arange(LINES.start, LINES.stop) * 0.5
    exact = np.asarray(jaxmb.frf(model, jaxmb.posture(model, {}), frequency))
    test = {"kind": "frf", "name": "a", "file": "frf.npz", "noise_log_std": NOISE / np.sqrt(2.0 * (SEGMENTS - 1))}
    free = {name: {"lower": 0.3 * x, "upper": 3.0 * x} for name, x in true.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, window in (("boxcar", np.ones(SAMPLES)), ("Hann", np.hanning(SAMPLES + 1)[:-1])):
            errors = []
            for seed in range(draws):
                noisy = exact * np.exp(NOISE * relative_noise(np.random.default_rng(seed), window))
                labels = {"kind": "accelerance", "outputs": POINTS, "inputs": POINTS}
                np.savez(Path(folder) / "frf.npz", frequency_hz=frequency, frf=noisy, **labels)
                study = {"machine": "manipulator-3r", "test": [test], "free": free, "tolerances": "exact"}
                table = jaxmb.identify(jaxmb.make_study(study, "hann", folder)).table("parameters")
                rows = zip(table["name"], table["value"], table["std"], strict=True)
                errors.append([(value - true[parameter]) / std for parameter, value, std in rows])
            rms = np.sqrt(np.mean(np.square(errors), axis=0))
            total = np.sqrt(np.mean(np.square(errors)))
            covered = 100.0 * np.mean(np.abs(errors) < 1.96)
            print(f"{name:7s}{total:6.2f}   in 95 % intervals {covered:.0f} %   each {np.round(rms, 2)}")


if __name__ == "__main__":
    main()
