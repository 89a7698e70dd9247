"""Predicted against measured deflections."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.estimation.identifiability import Knowledge
from jaxmb.identify.experiments.deflection_test import DeflectionTest, deflection_test
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.fit.problem import Problem

DEGREES = 180.0 / np.pi
NO_EFFECT = 1e-9
"""Part of a slope, or of the largest singular value, that is rounding."""
KINDS = {"translation": "mm", "rotation": "deg"}


def prediction_errors(finding: Finding, entries: Sequence[Entry]) -> dict[str, Any]:
    """How the identified machine's deflections compare with the measured ones: by test, by role, and each of them."""
    rows = [row for entry in entries for row in compared(entry, finding.study.problem, finding.u, finding.known)]
    metrics: dict[str, Any] = {
        "sets": [
            {"set": entry.name, "role": entry.role, "tests": len(entry.source.cases)}
            | {what: gaps([row for row in rows if row["set"] == entry.name], unit) for what, unit in KINDS.items()}
            for entry in entries
        ]
    }
    roles = dict.fromkeys(entry.role for entry in entries)
    for key, unit in (("explained_percent", "mm"), ("explained_rotation_percent", "deg")):
        metrics[key] = {r: gaps([row for row in rows if row["role"] == r], unit)["explained_percent"] for r in roles}
    return metrics | {"deflections": rows}


def compared(entry: Entry, problem: Problem, u: np.ndarray, known: Knowledge) -> list[dict[str, Any]]:
    """How far each point moves in each test, as measured and as the identified machine predicts it, with deviations.

    The deviations of what is predicted are those of the identified values, to first order.

    Args:
        entry: a deflection test.
        problem: the machine and its free parameters.
        u: the identified entries [d].
        known: of u.

    Returns:
        A line for each point of each load case; mm and deg about and along ground axes.
    """
    cases = entry.source.cases
    whole = [dataclasses.replace(case, displacement=np.zeros_like(case.displacement)) for case in cases]
    moved, slope = (
        np.asarray(x) for x in _predicted(problem, deflection_test("", problem.model, whole), jnp.asarray(u))
    )
    deviations = propagated_std(slope, known)
    pairs = iter(zip(moved.reshape(-1, 6), deviations.reshape(-1, 6), strict=True))
    rows = []
    for case in cases:
        for p, point in enumerate(case.points):
            predicted, deviation = next(pairs)
            row: dict[str, Any] = {"set": entry.name, "role": entry.role, "test": case.name, "point": point}
            for unit, scale, part in (("mm", 1e3, slice(0, 3)), ("deg", DEGREES, slice(3, 6))):
                row[f"measured_{unit}"] = scale * case.displacement[p, part]
                row[f"measured_std_{unit}"] = scale * case.std[p, part]
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
def _predicted(problem: Problem, test: DeflectionTest, u: Float[Array, "d"]) -> tuple[Array, Array]:
    """Displacements at u and their derivatives by u."""

    def displacements(x: Array) -> Array:
        return test.predict(test.view(problem.free.apply(problem.model, problem.free.values(x))))

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
