"""Errors of identified modes over their standard deviations, where the machine is described with errors.

    python experiments/uncertainty/modes.py [--draws 20] [--first 0]

Studies of `run.py` of the 3R manipulator. True modes are those of the machine with the errors: at the posture of each
test (`modes` of the result), and at five postures of the second joint (maps).
"""

import argparse
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from run import CASES, POSTURE, Errors, all_tolerances

import jaxmb
from jaxmb.maps import identified, modal_maps
from jaxmb.studies import make_study

SERIES = (("frf-3r", "mass_percent"), ("frf-3r", "all"), ("modes-3r", "mass_percent"), ("modes-3r", "all"))
OVER = {"z2": np.linspace(-2.0, 2.0, 5)}
HELD = {name: value for name, value in POSTURE.items() if name not in OVER}


def errors_of_draw(name: str, kind: str, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of frequency and damping ratio over their standard deviations, of modes and of maps [k, 2]."""
    rng = np.random.default_rng([draw, *kind.encode()])
    stated = {key: (value if kind in (key, "all") else 0.0) for key, value in all_tolerances().items()}
    with tempfile.TemporaryDirectory() as folder:
        file, _, true = CASES[name].study(Path(folder), Errors(kind, rng, 1.0), rng)
        result = jaxmb.identify(make_study(file | {"tolerances": stated}, "draw", folder))
    own = []
    vibrations = {test.name: test.vibration for test in result.study.tests if test.vibration is not None}
    for name_of_test, vibration in vibrations.items():
        right = jaxmb.modes(jaxmb.linearize(true, jnp.asarray(vibration.test.q)))
        found = [mode for mode in result.modes if mode.posture == name_of_test]
        for mode, hz, ratio in zip(found, right.frequency_hz, right.damping_ratio, strict=False):
            own.append((
                (mode.frequency_hz - float(hz)) / mode.frequency_std_hz,
                (mode.damping_ratio - float(ratio)) / mode.damping_ratio_std,
            ))  # fmt: skip
    maps, right = (modal_maps(machine, OVER, held=HELD).maps for machine in (identified(result), true))
    pairs = [(maps[key].values - right[key].values) / maps[key].std for key in ("frequency", "damping")]
    return np.array(own), np.stack([part.ravel() for part in pairs], axis=1)


def main() -> None:
    """Print one line for each series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    given = parser.parse_args()
    for name, kind in SERIES:
        numbers = range(given.first, given.first + given.draws)
        each = zip(*(errors_of_draw(name, kind, draw) for draw in numbers), strict=True)
        for what, errors in zip(("modes", "maps"), map(np.concatenate, each), strict=True):
            size, held = np.sqrt(np.mean(errors**2, axis=0)), 100.0 * np.mean(np.abs(errors) < 1.96, axis=0)
            print(f"{name:9} {kind:13} {what:6} error / std {size[0]:5.2f} (Hz) {size[1]:5.2f} (damping),", end=" ")
            print(f"within 95 % intervals {held[0]:3.0f} %, {held[1]:3.0f} %", flush=True)


if __name__ == "__main__":
    main()
