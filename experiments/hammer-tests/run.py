"""How many modes modal analysis finds in roving hammer tests whose frequencies move from hit to hit.

    python experiments/hammer-tests/run.py [--draws 20] [--seed 0] [--out results/hammer-tests]

Each draw is a random structure of 4 to 20 modes in 20-400 Hz with 0.2 to 1 % of damping, up to three pairs of them
0.3 or 1 % apart with shapes of their own, 20 to 80 hits and 1 or 3 accelerometers, accelerance every 0.25 Hz. From
hit to hit every frequency moves by a scatter, half of its variance common to all modes; hits differ by 3 % in
strength and 5 % in direction, the spectrum of the force is wrong by 1 % in long waves, noise is 1 % of every value
and of each FRF's RMS. Under one accelerometer, modes within a half-power bandwidth count as one.
"""

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import jaxmb

LOW_HZ, HIGH_HZ, STEP_HZ = 20.0, 400.0, 0.25
SCATTERS = (0.0, 0.0005, 0.002, 0.005)
"""Standard deviation of a frequency from hit to hit, as a part of it."""


class Structure(NamedTuple):
    """Modes of a structure: shapes [hit, r] at the places that are hit."""

    frequency_hz: np.ndarray
    damping_ratio: np.ndarray
    shape: np.ndarray
    sensors: np.ndarray
    """Places of the accelerometers."""


def structure(rng: np.random.Generator) -> Structure:
    """A random one, single modes and pairs at least 2.5 % apart."""
    count, hits, references = int(rng.integers(4, 21)), int(rng.integers(20, 81)), int(rng.choice([1, 3]))
    pairs = int(rng.integers(0, min(3, count // 3) + 1))
    while True:
        place = np.sort(np.exp(rng.uniform(np.log(1.05 * LOW_HZ), np.log(0.95 * HIGH_HZ), count - pairs)))
        if np.all(np.diff(place) > 0.025 * place[1:]):
            break
    apart = np.where(np.arange(pairs) % 2 == 0, 0.003, 0.01)
    frequency_hz = np.concatenate([place, place[rng.choice(count - pairs, pairs, replace=False)] * (1.0 + apart)])
    damping = rng.uniform(0.002, 0.01, count)
    return Structure(frequency_hz, damping, rng.normal(size=(hits, count)), rng.choice(hits, references, replace=False))


def measured(truth: Structure, scatter: float, rng: np.random.Generator) -> jaxmb.FrfSet:
    """Accelerance of the accelerometers for every hit, two modes more above the band."""
    line_hz = np.arange(LOW_HZ, HIGH_HZ + 1e-9, STEP_HZ)
    s = 2j * np.pi * line_hz[:, None]
    frequency_hz = np.append(truth.frequency_hz, rng.uniform(1.15, 1.6, 2) * HIGH_HZ)
    damping = np.append(truth.damping_ratio, [0.005, 0.005])
    shape = np.hstack([truth.shape, rng.normal(size=(len(truth.shape), 2))])
    pole = 2 * np.pi * frequency_hz * (-damping + 1j * np.sqrt(1.0 - damping**2))
    participation = shape[truth.sensors].T / (2j * pole.imag[:, None])
    hits = len(shape)
    moved = scatter * np.sqrt(0.5) * (rng.normal(size=hits)[:, None] + rng.normal(size=shape.shape))
    wave = np.exp(2j * np.pi * np.outer(np.linspace(0.0, 1.0, line_hz.size), np.arange(1, 12)))
    h = np.zeros((line_hz.size, truth.sensors.size, hits), complex)
    for k in range(hits):
        own = pole * (1.0 + moved[k])
        hit = (shape[k] + 0.05 * rng.normal(size=own.size)) * (1.0 + 0.03 * rng.normal())
        residue = participation * hit[:, None]
        h[:, :, k] = ((1.0 / (s - own)) @ residue + (1.0 / (s - own.conj())) @ residue.conj()) * s**2
        h[:, :, k] *= 1.0 + 0.003 * np.real(wave @ (rng.normal(size=11) + 1j * rng.normal(size=11)))[:, None]
    level = 0.01 * np.hypot(np.abs(h), np.sqrt(np.mean(np.abs(h) ** 2, axis=0))) / np.sqrt(2.0)
    return jaxmb.FrfSet(line_hz, h + level * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape)), "accelerance")


def distinguishable(truth: Structure, scatter: float) -> list[np.ndarray]:
    """The modes, those together that one reference does not distinguish: they lie within a half-power bandwidth, that
    of the damping and that of the scatter (2.35 standard deviations)."""
    width = (2.0 * truth.damping_ratio + 2.35 * scatter) * truth.frequency_hz
    sets: list[np.ndarray] = []
    for mode in np.argsort(truth.frequency_hz):
        near = sets and truth.sensors.size == 1
        last = sets[-1] if near else np.array([mode])
        apart = truth.frequency_hz[mode] - truth.frequency_hz[last[-1]]
        if near and apart < max(width[mode], width[last[-1]]):
            sets[-1] = np.append(last, mode)
        else:
            sets.append(np.array([mode]))
    return sets


def found_and_false(truth: Structure, scatter: float, analysis: jaxmb.ModalAnalysis) -> tuple[int, int, int]:
    """Number of modes; of those with a pole within 1 % whose shape over the hits has a MAC above 0.5, one to one; and
    of poles without one. Of modes that count as one, the frequency of either and the plane of their shapes count."""
    modes, shape = distinguishable(truth, scatter), analysis.model.participation.T
    shape = shape / np.linalg.norm(shape, axis=0)
    mac = np.array([np.sum(np.abs(np.linalg.qr(truth.shape[:, k])[0].T @ shape) ** 2, axis=0) for k in modes])
    off = np.array([np.abs(analysis.frequency_hz / truth.frequency_hz[k][:, None] - 1.0).min(axis=0) for k in modes])
    good = (off < 0.01) & (mac > 0.5)
    rows, columns = linear_sum_assignment(np.where(good, off + 1.0 - mac, 1e3))
    found = int(good[rows, columns].sum())
    return len(modes), found, analysis.frequency_hz.size - found


def main() -> None:
    """Run all, print it, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/hammer-tests"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = []
    print("scatter   found            false     median s  longest s")
    for scatter in SCATTERS:
        rows = []
        for draw in range(options.draws):
            rng = np.random.default_rng([options.seed, draw])
            truth = structure(rng)
            frfs = measured(truth, scatter, rng)
            began = time.process_time()
            analysis = jaxmb.modal_analysis(frfs)
            seconds = time.process_time() - began
            rows.append((*found_and_false(truth, scatter, analysis), seconds))
        modes, found, false, _ = (sum(column) for column in zip(*rows, strict=True))
        seconds = [row[3] for row in rows]
        print(
            f"{scatter:6.2%}  {found:4d} of {modes:4d} ({found / modes:5.1%}) {false:4d} ({false / modes:5.1%})"
            f"  {np.median(seconds):7.1f}  {max(seconds):8.1f}",
            flush=True,
        )
        numbers.append({"scatter": scatter, "draws": rows})
    (options.out / "hammer-tests.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    main()
