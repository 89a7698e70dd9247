"""How often 95 % intervals hold the true value, for the ways in which tests say how large their noise is.

    python experiments/coverage/run.py [--draws 200] [--out results/coverage] [--together] [WAY ...]

The 3R manipulator of Huynh et al. 2020, section 4.1: stiffness and damping of its three joints, noise drawn anew for
each fit: 1.5 % on every line of its FRFs where nothing else is said. A fit starts at the initial values of the study, a
factor of two and more away. With --together the ways whose noise is stated are fitted by `jaxmb.monte_carlo`: from the
true values, all draws in one program.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import kstest

import jaxmb
from jaxmb.results import Outcome as FitOutcome, versions
from jaxmb.studies import study_data

NOISE = 0.015
LINES = {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 0.5}
COARSE = {"first_hz": 6.0, "last_hz": 26.0, "step_hz": 4.0}
POSTURES = (
    {}, {"z1": "40 deg"}, {"z2": "60 deg"}, {"z3": "-70 deg"}, {"z1": "-30 deg", "z2": "20 deg"},
    {"z2": "-45 deg", "z3": "50 deg"}, {"z1": "15 deg", "z3": "35 deg"}, {"z2": "80 deg", "z3": "-20 deg"},
)  # fmt: skip
AXES = ("tool x", "tool y", "tool z")
RATE_HZ, SAMPLES = 256.0, 4096
"""Of a hit's record: 16 s, behind which nothing rings any more."""

Test = dict[str, Any]
Way = Callable[[Path, int], list[Test]]
"""Tests of a way of use, as a study file has them: from a folder for their data, and the number of the draw."""


def study_test() -> Test:
    """The test of the study."""
    (test,) = study_data("validation-3r")["test"]
    return test


def frf(posture: int = 0, lines: dict[str, float] = LINES, noise: float = NOISE, **changes: Any) -> Test:
    """An FRF test of the study with noise that is stated as it is."""
    test = study_test()
    simulate = {"lines": lines, "noise_log_std": noise}
    own = {"posture": test["posture"] | POSTURES[posture], "simulate": simulate, "noise_log_std": noise}
    return {"kind": "frf", "name": f"posture {posture}", "frame": "tool"} | own | changes


def stated(*tests: Test) -> Way:
    """Tests that the study simulates itself."""
    return lambda folder, draw: list(tests)


def deflections(noise_mm: float = 0.02) -> Test:
    """Deflections under loads at the tool, by a tracker."""
    how = {
        "tests": 6, "zones": {"all": {"z1": [-1.0, 1.0], "z2": [0.3, 1.4], "z3": [-2.0, -0.8]}},
        "force_n": [200.0, 400.0], "directions": [[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
    }  # fmt: skip
    return {"kind": "deflection", "name": "loads", "simulate": how, "instruments": {"tracker_mm": noise_mm}}


def true_responses() -> tuple[np.ndarray, np.ndarray]:
    """Accelerances of the tool [f, o, i] at the lines of a record, and the lines, Hz."""
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    posture = jaxmb.posture(
        model, {name: np.deg2rad(float(v.split()[0])) for name, v in study_test()["posture"].items()}
    )
    frequency_hz = np.fft.rfftfreq(SAMPLES, 1.0 / RATE_HZ)
    points = [("tool", axis) for axis in "xyz"]
    response = np.zeros((frequency_hz.size, 3, 3), complex)
    response[1:] = np.asarray(jaxmb.frf(model, posture, jnp.asarray(frequency_hz[1:]), outputs=points, inputs=points))
    return response, frequency_hz


def hammer(hits: int, decay_1_s: float = 0.0, **changes: Any) -> Way:
    """FRFs and coherence from hits that are recorded in time, each with a force of its own, accelerometers of 0.02
    m/s^2 noise; H1, and an exponential window where asked for."""
    response, _ = true_responses()
    time = np.arange(SAMPLES) / RATE_HZ
    pulse = np.where((time >= 0.1) & (time < 0.12), np.sin(np.pi * (time - 0.1) / 0.02), 0.0)

    def tests(folder: Path, draw: int) -> list[Test]:
        rng, columns = np.random.default_rng(1000 + draw), []
        for i, axis in enumerate(AXES):
            records = []
            for _ in range(hits):
                force = 400.0 * np.exp(0.3 * rng.normal()) * pulse
                motion = np.fft.irfft(np.fft.rfft(force)[:, None] * response[:, :, i], n=SAMPLES, axis=0)
                records.append((force, motion + 0.02 * rng.normal(size=(SAMPLES, 3))))
            test = jaxmb.estimate_frf_from_hits(records, RATE_HZ, decay_1_s=decay_1_s, outputs=AXES, inputs=(axis,))
            columns.append(test.frf_set)
        jaxmb.write_frf(folder / "hits.npz", jaxmb.stack_inputs(columns))
        own = {"file": "hits.npz", "posture": study_test()["posture"], "band_hz": [2.0, 30.0], "noise_log_std": 1e-4}
        return [{"kind": "frf", "name": "hits"} | own | changes]

    return tests


def floor(noise_log_std: float | str, symmetrize: str | None = None) -> Way:
    """FRFs with 0.2 % of noise and a floor, 1e-4 m/s^2/N, which a coherence of ten averages tells."""
    response, frequency_hz = true_responses()
    band = (frequency_hz >= 2.0) & (frequency_hz <= 30.0)

    def tests(folder: Path, draw: int) -> list[Test]:
        rng, h = np.random.default_rng(1000 + draw), response[band][::4]
        averages, size = 10, 1e-4

        def noise(*shape: int) -> np.ndarray:
            return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) * size * np.sqrt(averages)

        single = h[None] + noise(averages, *h.shape)  # of each average, force 1
        mean = single.mean(axis=0)
        coherence = np.abs(mean) ** 2 / np.mean(np.abs(single) ** 2, axis=0)
        mean = mean * np.exp(0.002 * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape)))
        measured = jaxmb.FrfSet(
            frequency_hz[band][::4], mean, "accelerance", AXES, AXES, coherence=coherence, averages=averages
        )
        jaxmb.write_frf(folder / "floor.npz", measured)
        own = {"file": "floor.npz", "posture": study_test()["posture"], "noise_log_std": noise_log_std}
        return [{"kind": "frf", "name": "floor"} | own | ({"symmetrize": symmetrize} if symmetrize else {})]

    return tests


ONE = {"outputs": [["tool", "y"]], "inputs": [["tool", "y"]]}
WAYS: dict[str, Way] = {
    "stated": stated(frf()),
    "stated, peaks weighted up": stated(frf(weights=study_test()["weights"])),
    "estimated": stated(frf(noise_log_std="estimate")),
    "mirrored (upper)": stated(frf(symmetrize="upper")),
    "mirrored (lower)": stated(frf(symmetrize="lower")),
    "mean of pairs": stated(frf(symmetrize="mean")),
    "mirrored, estimated": stated(frf(symmetrize="upper", noise_log_std="estimate")),
    "two tests of different size": stated(frf(0), frf(1, COARSE)),
    "eight tests of 12 rows": stated(*(frf(p, COARSE, 0.003, **ONE) for p in range(8))),
    "two mirrored tests": stated(frf(0, symmetrize="upper"), frf(2, symmetrize="upper")),
    "FRFs and deflections": stated(frf(), deflections()),
    "FRFs, estimated, and deflections": stated(frf(noise_log_std="estimate"), deflections()),
    "3 hits": hammer(3),
    "5 hits": hammer(5),
    "10 hits": hammer(10),
    "50 hits": hammer(50),
    "10 hits, exponential window": hammer(10, 0.5),
    "10 hits, noise estimated beside": hammer(10, noise_log_std="estimate"),
    "floor, rest stated": floor(0.002),
    "floor, rest estimated": floor("estimate"),
    "floor, rest estimated, mirrored": floor("estimate", "upper"),
}


class Outcome(NamedTuple):
    """What the fits of one way gave."""

    covered: dict[str, float]
    """Share of the fits whose 95 % interval holds the true value, by parameter."""
    ratio: float
    """Scatter of the values over the stated standard deviation, root mean square over the parameters."""
    alarms: float
    """Share of the fits that are said not to follow data which they do follow."""
    p_uniform: float | None
    """KS probability of the p-values of the test of one model, where there are several tests."""


def outcome(way: Way, draws: int) -> Outcome:
    """Fit tests with as many draws of their noise."""
    data = {name: part for name, part in study_data("validation-3r").items() if name != "test"}
    truth = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine("manipulator-3r")))
    inside, errors, alarms, p = [], [], [], []
    for draw in range(draws):
        with tempfile.TemporaryDirectory() as folder:
            tests = way(Path(folder), draw)
            study = jaxmb.make_study(data | {"test": tests}, "coverage", Path(folder), noise_seed=1000 + draw)
            result = jaxmb.identify(study, seed=draw)
        found = result.parameters
        ends = [(found[n].interval_95 or (-np.inf, np.inf), truth[n]) for n in found]
        inside.append([low <= true <= high for (low, high), true in ends])
        errors.append([np.log(found[n].value / truth[n]) / found[n].std_log for n in found])
        alarms.append(result.outcome is FitOutcome.NOT_REPRODUCED)
        one = result.metrics.one_model
        if one is not None and one.separate.p is not None and len(tests) > 1:
            p.append(one.separate.p)
    return Outcome(
        dict(zip(found, np.mean(inside, axis=0).tolist(), strict=True)),
        float(np.sqrt(np.mean(np.square(errors)))),
        float(np.mean(alarms)),
        float(kstest(p, "uniform").pvalue) if p else None,
    )


def outcome_together(way: Way, draws: int) -> Outcome:
    """The same by one program for all draws."""
    data = {name: part for name, part in study_data("validation-3r").items() if name != "test"}
    with tempfile.TemporaryDirectory() as folder:
        study = jaxmb.make_study(data | {"test": way(Path(folder), 0)}, "coverage", Path(folder), noise_seed=1000)
    if not all(test.noise.is_known and not test.noise.follows_fit for test in study.tests):
        raise ValueError("the noise of this way follows from each fit: expected a way with stated noise for --together")
    found = jaxmb.monte_carlo(study, draws, seed=1000)
    covered = dict(zip(found.names, found.coverage.tolist(), strict=True))
    return Outcome(covered, found.ratio, float(np.mean(~found.converged)), None)


def main() -> None:
    """Fit every way, print a line for each, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    parser.add_argument("--together", action="store_true", help="all draws in one program, of stated noise")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(WAYS)}; all where none is named")
    options = parser.parse_args()
    heads = {"": 30, "covered %, least and greatest": 32, "scatter / std": 15, "alarms %": 10, "KS p": 8, "CPU s": 10}
    print("".join(f"{head:>{width}s}" for head, width in heads.items()))
    found = {}
    for way in options.ways or WAYS:
        began = time.process_time()
        found[way] = one = (outcome_together if options.together else outcome)(WAYS[way], options.draws)
        spent = time.process_time() - began
        share = 100.0 * np.array(list(one.covered.values()))
        covered = f"{share.mean():.1f} ({share.min():.1f} to {share.max():.1f})"
        p = "" if one.p_uniform is None else f"{one.p_uniform:.2g}"
        print(f"{way:30s}{covered:>32s}{one.ratio:>15.2f}{100.0 * one.alarms:>10.1f}{p:>8s}{spent:>10.1f}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    text = {"draws": options.draws, "versions": versions(), "ways": {way: one._asdict() for way, one in found.items()}}
    (options.out / "coverage.json").write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
