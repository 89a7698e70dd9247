"""Frequency and damping of one mode of a bolted beam over its amplitude, and prediction of levels that were left out.

    JAXMB_DATA=... python experiments/brake-reuss/run.py

Stepped-sine FRFs near the first mode of two beams with a lap joint (public, Chen et al. 2022). The split was stated
before the fit: a power law through four of the eight levels of controlled response predicts the other four, and the
four of controlled force.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from jaxmb import FrfSet, identify, load_study, write_frf

DATA = "brake-reuss-beam/ForcedFrequencyResponses.mat"
FITTED = (1, 3, 5, 7)
MACHINE = """
name = "mode"
[[body]]
name = "slider"
joint = [{ name = "x", type = "prismatic", axis = [1.0, 0.0, 0.0], stiffness = 5e5, damping = 6.0 }]
mass = 2.0
center_of_mass = [0.0, 0.0, 0.0]
inertia_products = { xx = 1e-3, yy = 1e-3, zz = 1e-3 }
[[frame]]
name = "sensor"
body = "slider"
origin = { xyz = [0.0, 0.0, 0.0] }
"""
STUDY = """
machine = "mode.toml"
[[test]]
kind = "frf"
file = "level.npz"
frame = "sensor"
outputs = [["sensor", "x"]]
inputs = [["sensor", "x"]]
noise_log_std = "estimate"
[free]
"stiffness.x" = { lower = 1e5, upper = 2e6 }
"damping.x" = { lower = 0.1, upper = 100.0 }
"mass.*" = { lower = 0.5, upper = 8.0, scale = "logarithmic" }
"""


def fitted(folder: Path, sweep) -> tuple[float, float, float, str]:
    """Natural frequency, Hz, damping ratio, its standard deviation in logarithms, and status of the fit of one level.

    The recorded phase is that of the displacement, with which the accelerance is -amplitude / force exp(j phase).
    """
    h = -sweep.amplitude / sweep.force * np.exp(1j * sweep.phase)
    frf = FrfSet(sweep.frequency, h[:, None, None], "accelerance", ("sensor x",), ("sensor x",))
    write_frf(folder / "level.npz", frf)
    result = identify(load_study(folder / "study.toml"))
    mode, damping = result.modes[0], result.parameters["damping.x"]
    return mode.frequency_hz, mode.damping_ratio, float(damping.std_log or np.nan), result.status


def main() -> None:
    """Print frequency and damping of each level, the law through the fitted ones and its errors at the others."""
    data = loadmat(Path(os.environ["JAXMB_DATA"]) / DATA, squeeze_me=True, struct_as_record=False)["FRdata"]
    sweeps = [("response", s) for s in data.ResponseControl] + [("force", s) for s in data.ForceControl]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mode.toml").write_text(MACHINE)
        (folder / "study.toml").write_text(STUDY)
        found = [fitted(folder, sweep) for _, sweep in sweeps]
    level = np.log([sweep.amplitude.max() for _, sweep in sweeps])
    frequency, damping = np.array([f[0] for f in found]), np.log([f[1] for f in found])
    used = list(FITTED)
    design = np.stack([np.ones_like(level), level], axis=1)
    law, *_ = np.linalg.lstsq(design[used], damping[used], rcond=None)
    scatter = np.sum((damping[used] - design[used] @ law) ** 2) / (len(used) - 2)
    covariance = scatter * np.linalg.inv(design[used].T @ design[used])
    std = np.sqrt(scatter + np.einsum("ti,ij,tj->t", design, covariance, design))
    print(f"damping ratio ~ amplitude^{law[1]:.2f} +- {np.sqrt(covariance[1, 1]):.2f}")
    for i, (control, sweep) in enumerate(sweeps):
        error = 100 * (np.exp(damping[i] - design[i] @ law) - 1)
        role = "fitted" if i in FITTED else f"error {error:+.0f} %, standard deviation {100 * std[i]:.0f} %"
        measured, law_value = 100 * np.exp(damping[i]), 100 * np.exp(design[i] @ law)
        print(
            f"{control:8s} {sweep.amplitude.max():5.1f} m/s^2: {frequency[i]:.2f} Hz, damping {measured:.3f} %"
            f" (fit +-{100 * found[i][2]:.0f} %, {found[i][3]}); law {law_value:.3f} %, {role}"
        )


if __name__ == "__main__":
    main()
