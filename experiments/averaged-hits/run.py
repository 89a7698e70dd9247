"""How many modes modal analysis finds in averaged hammer hits whose natural frequencies vary from hit to hit.

    python experiments/averaged-hits/run.py [--draws 200] [--first 0] [--seed 0] [--out results/averaged-hits]

Each draw is a random structure that is hit in the time domain: a half-sine pulse of 0.4 to 1.5 ms excites second-order
systems, one a mode, integrated exactly for a force that is linear between samples. Natural frequencies differ from hit
to hit with a standard deviation of 0, 0.05, 0.1 or 0.3 % (half of the variance common to all modes). Every point is
hit 3 or 4 times; hammer and accelerometers have noise, records have an exponential window or decay freely, and
the FRFs are the H1 averages of the hits of a point, as an analyser computes them; they are analysed with and without
the responses to the single hits.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.signal import lfilter

import jaxmb

VARIATIONS = (0.0, 0.0005, 0.001, 0.003)
"""Standard deviation of a natural frequency from hit to hit, relative."""
SAMPLE_RATE_HZ = 2048.0
LOW_HZ, HIGH_HZ = 20.0, 256.0


class Structure(NamedTuple):
    """Modes with real shapes [point, r], sensors among the points; the first `inside` modes are in the band."""

    frequency_hz: np.ndarray
    damping_ratio: np.ndarray
    shape: np.ndarray
    sensors: np.ndarray
    inside: int


def structure(rng: np.random.Generator) -> Structure:
    """A beam, whose frequencies and shapes are those of an Euler-Bernoulli beam on springs, or a random one."""
    if rng.random() < 0.3:
        frequency_hz, shape = beam(rng)
    else:
        frequency_hz, shape = random_modes(rng)
    damping = np.exp(rng.uniform(np.log(0.002), np.log(0.012), frequency_hz.size))
    points = len(shape)
    inside = int(np.sum(frequency_hz < HIGH_HZ))
    seen = np.abs(shape[:, :inside]) / np.sqrt(np.mean(shape[:, :inside] ** 2, axis=0))
    count = int(rng.choice([1, 2, 3]))
    while True:  # not all in nodes of a mode
        sensors = rng.choice(points, count, replace=False)
        if seen[sensors].max(axis=0).min() > 0.1 or rng.random() < 0.002:
            break
    return Structure(frequency_hz, damping, shape, sensors, inside)


def beam(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies and shapes of 30 finite elements of a free beam with two to four springs and masses along it."""
    elements, points = 30, int(rng.integers(8, 25))
    n = 2 * (elements + 1)
    K, M = np.zeros((n, n)), np.zeros((n, n))
    h = 1.0 / elements
    k = np.array([[12, 6 * h, -12, 6 * h], [6 * h, 4 * h * h, -6 * h, 2 * h * h]])
    k = np.vstack([k, [-12, -6 * h, 12, -6 * h], [6 * h, 2 * h * h, -6 * h, 4 * h * h]]) / h**3
    m = np.array([[156, 22 * h, 54, -13 * h], [22 * h, 4 * h * h, 13 * h, -3 * h * h]])
    m = np.vstack([m, [54, 13 * h, 156, -22 * h], [-13 * h, -3 * h * h, -22 * h, 4 * h * h]]) * h / 420.0
    for e in range(elements):
        part = slice(2 * e, 2 * e + 4)
        K[part, part] += k
        M[part, part] += m
    for node in rng.choice(elements + 1, int(rng.integers(2, 5)), replace=False):
        K[2 * node, 2 * node] += np.exp(rng.uniform(np.log(1e2), np.log(1e5)))
        M[2 * node, 2 * node] += rng.uniform(0.0, 0.3)
    root = np.linalg.inv(np.linalg.cholesky(M))
    squares, vectors = np.linalg.eigh(root @ K @ root.T)
    shapes = (root.T @ vectors)[::2]
    frequency = np.sqrt(np.maximum(squares, 0.0))
    # the third to sixth mode near the upper end
    frequency_hz = frequency / frequency[int(rng.integers(4, 9))] * rng.uniform(0.9, 1.1) * HIGH_HZ
    keep = (frequency_hz > 1.1 * LOW_HZ) & (frequency_hz < 1.6 * HIGH_HZ)
    keep &= np.abs(frequency_hz / HIGH_HZ - 1.0) > 0.03
    place = np.round(np.linspace(0, elements, points)).astype(int)
    return frequency_hz[keep], shapes[place][:, keep]


def random_modes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Modes at random, at least 3 % apart, with smooth random shapes over a surface."""
    count, points = int(rng.integers(3, 13)), int(rng.integers(12, 49))
    while True:
        frequency_hz = np.sort(np.exp(rng.uniform(np.log(1.15 * LOW_HZ), np.log(0.95 * HIGH_HZ), count)))
        if np.all(np.diff(frequency_hz) > 0.03 * frequency_hz[1:]):
            break
    frequency_hz = np.append(frequency_hz, rng.uniform(1.1, 1.5, 2) * HIGH_HZ)
    place = rng.uniform(0.0, 1.0, (points, 2))
    waves = rng.normal(0.0, 1.5, (2, frequency_hz.size, 3))
    shape = np.sum(np.cos(2 * np.pi * (place @ waves.reshape(2, -1)).reshape(points, -1, 3) + rng.uniform(0, 6, 3)), -1)
    return frequency_hz, shape / np.sqrt(np.mean(shape**2, axis=0))


def accelerations(
    force: np.ndarray, frequency_hz: np.ndarray, damping_ratio: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Accelerations [sample, sensor] of modes for a force [sample] that is linear between samples.

    The weights [sensor, r] are shape at the sensor times shape at the point that is hit.
    """
    # the second derivative of such a force is an impulse at each sample, and the acceleration of a mode the sum of its
    # displacement responses to these: h(t) = exp(-zeta omega t) sin(damped t) / damped, here as a recursion
    impulse = np.diff(np.pad(force, 1), 2) * SAMPLE_RATE_HZ
    answer = np.zeros((force.size, len(weight)))
    for omega, zeta, row in zip(2 * np.pi * frequency_hz, damping_ratio, weight.T, strict=True):
        damped = omega * np.sqrt(1.0 - zeta**2)
        decay, turn = np.exp(-zeta * omega / SAMPLE_RATE_HZ), damped / SAMPLE_RATE_HZ
        back = [1.0, -2.0 * decay * np.cos(turn), decay**2]
        answer += np.outer(lfilter([0.0, decay * np.sin(turn) / damped], back, impulse), row)
    return answer


def hammer_test(
    truth: Structure, variation: float, rng: np.random.Generator
) -> tuple[jaxmb.FrfSet, list[jaxmb.FrfSet]]:
    """H1 averages of 3 or 4 hits at every point, under the accelerometers, and the responses to each hit alone."""
    samples = int(rng.choice([4096, 8192]))
    length_s = samples / SAMPLE_RATE_HZ
    start = int(0.02 * samples)
    hits, noise = int(rng.choice([3, 4])), np.exp(rng.uniform(np.log(1e-4), np.log(3e-3)))
    # free decay where all modes die within the record, an exponential window to 1 % otherwise
    slowest = 2 * np.pi * np.min(truth.frequency_hz * truth.damping_ratio)
    windowed = slowest * length_s < 5.0 or rng.random() < 0.3
    decay = float(np.log(100.0)) / length_s if windowed else 0.0
    time_s = (np.arange(samples) - start) / SAMPLE_RATE_HZ
    window = np.where(time_s >= 0.0, np.exp(-decay * np.maximum(time_s, 0.0)), 1.0)
    line_hz = np.fft.rfftfreq(samples, 1.0 / SAMPLE_RATE_HZ)
    lines = (line_hz >= LOW_HZ) & (line_hz <= HIGH_HZ)
    points, sensors = len(truth.shape), truth.sensors.size
    frf = np.zeros((int(lines.sum()), sensors, points), complex)
    coherence = np.zeros(frf.shape)
    names, single = tuple(f"{k + 1} z" for k in range(points)), []
    outputs = tuple(names[k] for k in truth.sensors)
    for point in range(points):
        yf, ff, yy = np.zeros(frf.shape[:2], complex), np.zeros(len(frf)), np.zeros(frf.shape[:2])
        for _ in range(hits):
            moved = np.sqrt(0.5) * variation * (rng.normal() + rng.normal(size=truth.frequency_hz.size))
            pulse_s = rng.uniform(0.0015, 0.003)
            force = np.zeros(samples)
            inside = (time_s >= 0.0) & (time_s <= pulse_s)
            offset = rng.uniform(0.0, 1.0 / SAMPLE_RATE_HZ)
            force[inside] = rng.uniform(50.0, 150.0) * np.sin(np.pi * (time_s[inside] + offset) / (pulse_s + offset))
            force = np.maximum(force, 0.0)
            weight = truth.shape[truth.sensors] * truth.shape[point]
            y = accelerations(force, truth.frequency_hz * (1.0 + moved), truth.damping_ratio, weight)
            force = force + noise * force.max() * 0.1 * rng.normal(size=samples)
            y = y + noise * np.abs(y).max(axis=0) * rng.normal(size=y.shape)
            force = np.where(np.abs(time_s - 0.005) < 0.02, force, 0.0)
            F = np.fft.rfft(force * window)[lines]
            Y = np.fft.rfft(y * window[:, None], axis=0)[lines]
            h = (Y / F[:, None])[:, :, None]
            single.append(
                jaxmb.FrfSet(line_hz[lines], h, "accelerance", outputs, names[point : point + 1], decay_1_s=decay)
            )
            yf, ff, yy = yf + Y * F.conj()[:, None], ff + np.abs(F) ** 2, yy + np.abs(Y) ** 2
        frf[:, :, point] = yf / ff[:, None]
        coherence[:, :, point] = np.abs(yf) ** 2 / (ff[:, None] * yy)
    averaged = jaxmb.FrfSet(line_hz[lines], frf, "accelerance", outputs, names, coherence=coherence, decay_1_s=decay)
    return averaged, single


def analysed(truth: Structure, analysis: jaxmb.ModalAnalysis) -> dict[str, Any]:
    """Modes with a pole within 1 % and a MAC over the points of more than 0.8, poles without one, true intervals, and
    the relative errors of the damping ratios."""
    known, shape = truth.shape[:, : truth.inside], analysis.shape
    unit = [each / np.linalg.norm(each, axis=0) for each in (known, shape)]
    mac = np.abs(unit[0].T @ unit[1]) ** 2
    frequency_hz = truth.frequency_hz[: truth.inside]
    off = np.abs(analysis.frequency_hz / frequency_hz[:, None] - 1.0)
    good = (off < 0.01) & (mac > 0.8)
    rows, columns = linear_sum_assignment(np.where(good, off + 1.0 - mac, 1e3))
    rows, columns = rows[good[rows, columns]], columns[good[rows, columns]]
    far = np.abs(analysis.frequency_hz[columns] - frequency_hz[rows]) / analysis.model.frequency_std_hz[columns]
    damping = analysis.damping_ratio[columns] / truth.damping_ratio[rows] - 1.0
    return {
        "modes": truth.inside,
        "found": rows.size,
        "false": analysis.frequency_hz.size - rows.size,
        "contained": int(np.sum(far < 1.96)),
        "damping_error": damping.tolist(),
    }


def main() -> None:
    """Run all, print it, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/averaged-hits"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = []
    print(
        "variation  from      found                 false         in the interval  damping error: median  rms  seconds"
    )
    for variation in VARIATIONS:
        rows = {"averages": [], "hits": []}
        for draw in range(options.first, options.first + options.draws):
            rng = np.random.default_rng([options.seed, draw])
            truth = structure(rng)
            averaged, hits = hammer_test(truth, variation, rng)
            for source, single in (("averages", []), ("hits", hits)):
                began = time.process_time()
                row = analysed(truth, jaxmb.modal_analysis(averaged, hits=single))
                rows[source].append({**row, "seconds": time.process_time() - began})
        for source, each in rows.items():
            print(summary(variation, source, each), flush=True)
        numbers.append({"variation": variation, **rows})
        (options.out / "averaged-hits.json").write_text(json.dumps(numbers))


def summary(variation: float, source: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    modes, found, false, contained = (
        sum(row[name] for row in rows) for name in ("modes", "found", "false", "contained")
    )
    damping = np.concatenate([row["damping_error"] for row in rows])
    seconds = sum(row["seconds"] for row in rows) / len(rows)
    return (
        f"{variation:8.2%}  {source:8s}  {found:4d} of {modes:4d} ({found / modes:6.1%})"
        f" {false:4d} ({false / modes:5.1%})  {contained / max(found, 1):12.1%}"
        f"  {np.median(damping):15.1%} {np.sqrt(np.mean(damping**2)):10.1%}  {seconds:8.1f}"
    )


if __name__ == "__main__":
    main()
