"""Predicted against measured deflections."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.elastostatic.deflections import observation_matrix, predicted
from jaxmb.identify.elastostatic.sets import DeflectionSet
from jaxmb.identify.elastostatic.solve import DeflectionFit, Unknowns
from jaxmb.machine.build import Model

DEGREES = 180.0 / np.pi
KINDS = {"translation": "mm", "rotation": "deg"}


def compared(group: DeflectionSet, model: Model, found: Unknowns, fit: DeflectionFit) -> list[dict[str, Any]]:
    """How far each point moves in each test, as measured and as the identified machine predicts it, with deviations.

    The deviations of what is predicted are those of the identified values, to first order.

    Args:
        group: the tests.
        model: the identified machine's.
        found: what was identified.
        fit: and how well.

    Returns:
        A line for each point of each test; mm and deg about and along ground axes.
    """
    slope = found.slope(fit.compliance)
    spread = fit.known.covariance * np.outer(slope, slope)
    whole = [dataclasses.replace(test, displacement=np.zeros_like(test.displacement)) for test in group.tests]
    matrix = iter(observation_matrix(model, whole, found.terms).reshape(-1, 6, len(found.terms)))
    rows = []
    for test, moved in zip(group.tests, predicted(model, group.tests), strict=True):
        for p, point in enumerate(test.points):
            a = next(matrix)
            deviation = np.sqrt(np.maximum(np.einsum("xi,ij,xj->x", a, spread, a), 0.0))
            row: dict[str, Any] = {"set": group.name, "role": group.role, "test": test.name, "point": point}
            for unit, scale, part in (("mm", 1e3, slice(0, 3)), ("deg", DEGREES, slice(3, 6))):
                row[f"measured_{unit}"] = scale * test.displacement[p, part]
                row[f"measured_std_{unit}"] = scale * test.std[p, part]
                row[f"predicted_{unit}"] = scale * moved[p, part]
                row[f"predicted_std_{unit}"] = scale * deviation[part]
            rows.append(row)
    return rows


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
