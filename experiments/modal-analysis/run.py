"""How many known modes modal analysis finds in synthetic FRFs and how exactly, and what it makes of the DaISy subframe.

    python experiments/modal-analysis/run.py [--draws 10] [--seed 31] [--out results/modal-analysis]

Each draw has 3 inputs, 28 outputs, accelerance from 20 to 480 Hz every 0.25 Hz, 12 modes of 0.3 to 1 % damping in
20-200 Hz of which three pairs lie close together with independent shapes, and six modes above.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jaxmb

LINES = np.arange(20.0, 480.01, 0.25)
MODES, PAIRS, OUTPUTS, INPUTS = 12, 3, 28, 3
CASES = ((0.005, 0.003), (0.05, 0.003), (0.005, 0.0005))
"""Noise as a part of each FRF's RMS, and how far apart the frequencies of a pair are."""
BANDS = ((20.0, 200.0), (20.0, 480.0))
PEAKS_HZ = (62, 119, 155, 193, 215, 230, 239, 287, 321, 334, 352, 398, 417, 468)
"""Of the complex mode indicator of the DaISy subframe."""


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """Known modes: poles [r], shapes [output, r], participations [r, input]; the first MODES are to be found."""

    eigenvalue: np.ndarray
    shape: np.ndarray
    participation: np.ndarray


@dataclasses.dataclass(frozen=True)
class Score:
    """Of the modes to be found in one draw: how many were, and the worst of them."""

    found: int
    false: int
    frequency: float
    """Largest relative error."""
    damping: float
    mac: float
    """The least one."""
    seconds: float


def structure(rng: np.random.Generator, apart: float, outputs: int = OUTPUTS, inputs: int = INPUTS) -> Structure:
    """Random real modes; forces act at outputs. Single modes and pairs are at least 2 % apart from each other."""
    count = MODES - PAIRS
    while True:
        place = np.sort(rng.uniform(20.4, 196.0, count))
        if np.all(np.diff(place) > 0.02 * place[1:]):
            break
    double = rng.choice(count, PAIRS, replace=False)
    inside = np.sort(np.concatenate([place, place[double] * (1.0 + apart)]))
    frequency_hz = np.concatenate([inside, rng.uniform(215.0, 700.0, 6)])
    damping = rng.uniform(0.003, 0.01, frequency_hz.size)
    eigenvalue = 2 * np.pi * frequency_hz * (-damping + 1j * np.sqrt(1.0 - damping**2))
    shape = rng.normal(size=(outputs, frequency_hz.size))
    participation = shape[rng.choice(outputs, inputs, replace=False)].T / (2j * eigenvalue.imag[:, None])
    return Structure(eigenvalue, shape, participation)


def measured(truth: Structure, noise: float, rng: np.random.Generator, frequency_hz: np.ndarray) -> jaxmb.FrfSet:
    """Its accelerance with complex white noise, a part of each FRF's RMS."""
    s = 2j * np.pi * frequency_hz[:, None]
    residue = truth.shape[:, None, :] * truth.participation.T
    h = np.tensordot(1.0 / (s - truth.eigenvalue), residue, axes=(1, 2))
    h = h + np.tensordot(1.0 / (s - truth.eigenvalue.conj()), residue.conj(), axes=(1, 2))
    h = h * s[:, :, None] ** 2
    level = noise * np.sqrt(np.mean(np.abs(h) ** 2, axis=0) / 2.0)
    return jaxmb.FrfSet(
        frequency_hz, h + level * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape)), "accelerance"
    )


def score(truth: Structure, analysis: jaxmb.ModalAnalysis, seconds: float = 0.0) -> Score:
    """Poles in 20-200 Hz matched one to one with known modes by shape, at most 1 % away in frequency; MAC over 0.5."""
    from scipy.optimize import linear_sum_assignment

    known = truth.eigenvalue[:MODES]
    true_hz, true_damping = np.abs(known) / (2 * np.pi), -np.real(known) / np.abs(known)
    inside = (analysis.frequency_hz >= 20.0) & (analysis.frequency_hz <= 200.0)
    hz, damping = analysis.frequency_hz[inside], analysis.damping_ratio[inside]
    mac = np.asarray(jaxmb.mac(jnp.asarray(truth.shape[:, :MODES] + 0j), jnp.asarray(analysis.shape[:, inside])))
    off = np.abs(hz / true_hz[:, None] - 1.0)
    good = (off < 0.01) & (mac > 0.5)
    rows, columns = linear_sum_assignment(np.where(good, off + 1.0 - mac, 1e3))
    rows, columns = rows[good[rows, columns]], columns[good[rows, columns]]
    return Score(
        found=rows.size,
        false=int(inside.sum()) - rows.size,
        frequency=float(off[rows, columns].max(initial=0.0)),
        damping=float(np.abs(damping[columns] / true_damping[rows] - 1.0).max(initial=0.0)),
        mac=float(mac[rows, columns].min(initial=1.0)),
        seconds=seconds,
    )


def one_draw(seed: int, draw: int, noise: float, apart: float, band_hz: tuple[float, float]) -> Score:
    """Draw, measure, analyse with the options as they stand, and compare."""
    rng = np.random.default_rng([seed, draw])
    truth = structure(rng, apart)
    frf_set = measured(truth, noise, rng, LINES)
    began = time.perf_counter()
    analysis = jaxmb.modal_analysis(frf_set, band_hz=band_hz)
    return score(truth, analysis, time.perf_counter() - began)


def synthetic(seed: int, draws: int) -> list[dict]:
    """All cases in both bands, a line each."""
    rows = []
    print("noise  apart    band Hz      found   false  frequency   damping   least MAC   median s  longest s")
    for noise, apart in CASES:
        for band in BANDS:
            scores = [one_draw(seed, draw, noise, apart, band) for draw in range(draws)]
            seconds = [s.seconds for s in scores]
            print(
                f"{noise:5.1%}  {apart:5.2%}  {band[0]:3.0f} to {band[1]:3.0f}  {sum(s.found for s in scores):4d} of"
                f" {MODES * draws:<4d} {sum(s.false for s in scores):4d}  {max(s.frequency for s in scores):9.5%}"
                f"  {max(s.damping for s in scores):8.3%}   {min(s.mac for s in scores):9.6f}"
                f"   {np.median(seconds):8.2f}  {max(seconds):9.2f}",
                flush=True,
            )
            rows.append({"noise": noise, "apart": apart, "band_hz": band, "scores": [vars(s) for s in scores]})
    return rows


def daisy() -> list[dict]:
    """Poles of the DaISy subframe by both estimators, and how well they explain what was measured."""
    frf_set = jaxmb.in_band(jaxmb.frf_of_records("daisy-subframe"), (20.0, 480.0))
    rows = []
    for method in ("polyreference", "lsce"):
        began = time.perf_counter()
        analysis = jaxmb.modal_analysis(frf_set, band_hz=(20.0, 480.0), method=method)
        seconds = time.perf_counter() - began
        agreement = jaxmb.frac(jaxmb.synthesize(analysis.model, frf_set.frequency_hz).frf, frf_set.frf)
        near = np.abs(analysis.frequency_hz[:, None] / np.array(PEAKS_HZ) - 1.0) < 0.01
        print(
            f"DaISy subframe, {method}: {near.any(axis=0).sum()} of {len(PEAKS_HZ)} peaks have a pole within 1 %,"
            f" {near.shape[0]} poles, FRAC median {np.median(agreement):.4f}, least {agreement.min():.3f},"
            f" {seconds:.1f} s"
        )
        for frequency_hz, damping, shape in zip(
            analysis.frequency_hz, analysis.damping_ratio, analysis.shape.T, strict=True
        ):
            print(f"    {frequency_hz:7.2f} Hz  {damping:7.3%}  MPC {jaxmb.modal_phase_collinearity(shape):.3f}")
        rows.append({"method": method, "frequency_hz": analysis.frequency_hz.tolist(), "frac": agreement.tolist()})
    return rows


def main() -> None:
    """Run all, print it, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--out", type=Path, default=Path("results/modal-analysis"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = {"seed": options.seed, "synthetic": synthetic(options.seed, options.draws)}
    if os.environ.get("JAXMB_DATA"):
        numbers["daisy"] = daisy()
    else:
        print("DaISy subframe left out: JAXMB_DATA names no folder with its data")
    (options.out / "modal-analysis.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    main()
