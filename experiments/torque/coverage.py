"""How often 95 % ellipsoids of torque tests hold the truth, where neighbouring samples of the noise are alike.

    python experiments/torque/coverage.py [--draws 400] [--out results/torque]

A pendulum (inertia, first moment, viscous and Coulomb friction) moves for 5 s; its torque has autoregressive noise of
first order, rho the correlation of neighbours. One fit a draw; 5 s have some 23 independent samples at rho = 0.95.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from scipy.stats import chi2

import jaxmb

TRUE = {"inertia.bob.zz": 0.5, "first_moment.bob.x": 1.2, "damping.q": 0.7, "friction.q": 0.9}
MACHINE = {
    "name": "pendulum",
    "gravity": [0.0, -9.81, 0.0],
    "body": [{"name": "bob", "mass": 2.0, "joint": [{"name": "q", "damping": 0.1, "friction": 0.1}]}],
}
FREE = {name: {"lower": -5.0 if name.startswith("fi") else 0.0, "upper": 5.0, "scale": "linear"} for name in TRUE}
NOISE = 0.2
RATE = 200.0


def torque_of(time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angle and torque."""
    terms = [(1.2, 2.0 * np.pi * 0.4, 0.3), (0.3, 2.0 * np.pi * 1.2, 1.0)]
    q, qd, qdd = (sum(a * w**k * np.sin(w * time + p + 0.5 * np.pi * k) for a, w, p in terms) for k in range(3))
    return np.asarray(q), np.stack([qdd, 9.81 * np.cos(q), qd, np.sign(qd)], axis=1) @ list(TRUE.values())


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(jaxmb.Machine.model_validate(MACHINE), arguments.out / "pendulum.toml")
    time = np.arange(1001) / RATE
    q, torque = torque_of(time)
    limit, told = float(chi2(len(TRUE)).ppf(0.95)), {}
    for rho in (0.0, 0.5, 0.8, 0.95):
        inside = []
        for seed in range(arguments.draws):
            white = np.random.default_rng(seed).normal(size=time.size + 500)
            noise = NOISE * np.asarray(lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], white))[500:]
            table = np.stack([time, q, torque + noise], axis=1)
            np.savetxt(arguments.out / "motion.csv", table, "%.12g", ",", header="time_s,q,q.torque", comments="")
            test = {"kind": "torque", "file": "motion.csv", "cutoff_hz": 40.0, "least_speed": 0.02}
            study = jaxmb.make_study(
                {"machine": "pendulum.toml", "test": [test], "free": FREE}, "pendulum", arguments.out
            )
            result = jaxmb.identify(study)
            free = result.study.free
            order = [free.names.index(name) for name in TRUE]
            covariance = (result.covariance * np.outer(free.width, free.width))[np.ix_(order, order)]
            error = np.array([result.parameters[name].value - true for name, true in TRUE.items()])
            inside.append(error @ np.linalg.solve(covariance, error) < limit)
        told[rho] = 100.0 * float(np.mean(inside))
        print(f"rho {rho:4.2f}: {told[rho]:5.1f} % of {arguments.draws} ellipsoids hold the truth", flush=True)
    (arguments.out / "coverage.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
