"""Predicted against measured deflections."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.estimation.identifiability import Knowledge
from jaxmb.identify.experiments.deflection_test import LoadTests, rows_of
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.identify.study.study import Study

DEGREES = 180.0 / np.pi
NO_EFFECT = 1e-9
"""Part of a slope, or of the largest singular value, that is rounding."""
KINDS = {"translation": "mm", "rotation": "deg"}


def deflection_metrics(study: Study, u: np.ndarray, known: Knowledge) -> dict[str, Any]:
    """How the identified machine's deflections compare with the measured ones: by set, by role, and each of them.

    Args:
        study: what was measured.
        u: the identified entries of its free parameters [d].
        known: of u.
    """
    rows = [row for group in study.deflections for row in compared(group, study.problem, u, known)]
    metrics: dict[str, Any] = {
        "sets": [
            {"set": group.name, "role": group.role, "tests": len(group.tests)}
            | {what: gaps([row for row in rows if row["set"] == group.name], unit) for what, unit in KINDS.items()}
            for group in study.deflections
        ]
    }
    for key, unit in (("explained_percent", "mm"), ("explained_rotation_percent", "deg")):
        roles = {group.role for group in study.deflections}
        metrics[key] = {r: gaps([row for row in rows if row["role"] == r], unit)["explained_percent"] for r in roles}
    return metrics | {"deflections": rows}


def compared(group: DeflectionSet, problem: Problem, u: np.ndarray, known: Knowledge) -> list[dict[str, Any]]:
    """How far each point moves in each test, as measured and as the identified machine predicts it, with deviations.

    The deviations of what is predicted are those of the identified values, to first order.

    Args:
        group: the tests.
        problem: the machine and its free parameters.
        u: the identified entries [d].
        known: of u.

    Returns:
        A line for each point of each test; mm and deg about and along ground axes.
    """
    whole = [dataclasses.replace(test, displacement=np.zeros_like(test.displacement)) for test in group.tests]
    moved, slope = (np.asarray(x) for x in _predicted(problem, rows_of(problem.model, whole), jnp.asarray(u)))
    deviations = propagated_std(slope, known)
    pairs = iter(zip(moved.reshape(-1, 6), deviations.reshape(-1, 6), strict=True))
    rows = []
    for test in group.tests:
        for p, point in enumerate(test.points):
            predicted, deviation = next(pairs)
            row: dict[str, Any] = {"set": group.name, "role": group.role, "test": test.name, "point": point}
            for unit, scale, part in (("mm", 1e3, slice(0, 3)), ("deg", DEGREES, slice(3, 6))):
                row[f"measured_{unit}"] = scale * test.displacement[p, part]
                row[f"measured_std_{unit}"] = scale * test.std[p, part]
                row[f"predicted_{unit}"] = scale * predicted[part]
                row[f"predicted_std_{unit}"] = scale * deviation[part]
            rows.append(row)
    return rows


def propagated_std(slope: Float[np.ndarray, "m d"], known: Knowledge) -> Float[np.ndarray, "m"]:
    """Standard deviation of what depends on u with some slopes, to first order; NaN where that is not known.

    What acts on no data leaves it open, and so does a parameter whose standard deviation was taken back afterwards;
    where one was widened the rest is added.
    """
    variance = np.maximum(np.einsum("mi,ij,mj->m", slope, known.covariance, slope), 0.0)
    stated = np.maximum(np.diag(known.covariance), 0.0)
    finite = np.isfinite(known.std)
    variance += slope[:, finite] ** 2 @ np.maximum(known.std[finite] ** 2 - stated[finite], 0.0)
    open_ = known.directions[:, known.singular_values <= NO_EFFECT * known.singular_values.max(initial=0.0)]
    size = np.linalg.norm(slope, axis=1)
    lost = np.abs(slope[:, ~finite & (stated > 0.0)]).sum(axis=1) + np.linalg.norm(slope @ open_, axis=1)
    return np.where(lost > NO_EFFECT * size, np.nan, np.sqrt(variance))


@eqx.filter_jit
def _predicted(problem: Problem, loads: LoadTests, u: Float[Array, "d"]) -> tuple[Array, Array]:
    """Displacements at u and their derivatives by u."""

    def displacements(x: Array) -> Array:
        return loads.predict(problem.free.apply(problem.model, problem.free.values(x)))

    return displacements(u), jax.jacfwd(displacements)(u)


def gaps(rows: Sequence[dict[str, Any]], unit: str) -> dict[str, float | None]:
    """Mean, largest and root mean square of how far points moved, and of what prediction misses of that.

    The explained percent is 100 (1 - RMS of the missed distance / RMS of the measured distance). None where nothing of
    the kind was measured.

    Args:
        rows: from `compared`.
        unit: "mm" for translations, "deg" for rotations.
    """
    lengths, missed = [], []
    for row in rows:
        seen = np.isfinite(row[f"measured_{unit}"])
        if seen.any():
            lengths.append(np.linalg.norm(row[f"measured_{unit}"][seen]))
            missed.append(np.linalg.norm((row[f"measured_{unit}"] - row[f"predicted_{unit}"])[seen]))
    told: dict[str, float | None] = {}
    for what, values in (("measured", lengths), ("gap", missed)):
        told[f"mean_{what}_{unit}"] = float(np.mean(values)) if values else None
        told[f"max_{what}_{unit}"] = float(np.max(values)) if values else None
        told[f"rms_{what}_{unit}"] = float(np.sqrt(np.mean(np.square(values)))) if values else None
    whole, left = told[f"rms_measured_{unit}"], told[f"rms_gap_{unit}"]
    told["explained_percent"] = 100.0 * (1.0 - left / whole) if whole and left is not None else None
    return told
