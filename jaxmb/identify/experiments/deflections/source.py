"""What a deflection test was made of: its load cases, and what measured them."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import NOTABLE
from jaxmb.identify.experiments.deflections.instruments import Instruments
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, check_cases
from jaxmb.identify.experiments.entry import Source
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian

SINGULAR = 1e-3
"""Least singular value of the joints' Jacobian over the largest, below which a posture is called singular."""


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionSource(Source):
    """Load cases that belong together: one table, or one plan."""

    cases: tuple[LoadCase, ...] = ()
    instruments: Instruments | None = None
    rotation_weight: float = 1.0
    """By which the squared error of a rotation counts beside that of a translation."""

    @property
    def loads(self) -> np.ndarray:
        """Wrenches [case, 6] on the machine."""
        return np.stack([case.wrench for case in self.cases])

    def check_linear(self, model: Model) -> None:
        """Raise ValueError where a load case is not the machine's, or its posture is singular; it is named."""
        check_cases(model, self.cases)
        check_postures(model, self.cases)


def check_postures(model: Model, cases: Sequence[LoadCase]) -> None:
    """Raise ValueError where the posture of a test is singular: there two joints act alike; the test is named."""
    for test, (ratio, alike) in zip(cases, _conditioning(model, cases), strict=True):
        if ratio < SINGULAR:
            raise ValueError(
                f"deflection test '{test.name}': its posture is singular, {' and '.join(alike)} act nearly alike there"
                f" (least over largest singular value of the Jacobian {ratio:.2g}, expected at least {SINGULAR:g}):"
                " expected a posture some degrees away, or the study without this test"
            )


def _conditioning(model: Model, cases: Sequence[LoadCase]) -> list[tuple[float, list[str]]]:
    """Least over largest singular value of the joints' Jacobian at each load, lengths over the longest lever, and the
    joints that the least one is of [t]."""
    conditions: list[tuple[float, list[str]]] = [(1.0, [])] * len(cases)
    for frame in {test.frame for test in cases}:
        of_frame = [i for i, test in enumerate(cases) if test.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([cases[i].q for i in of_frame])), frame))
        carrying = np.any(columns != 0.0, axis=(0, 1))  # joints that carry the frame
        columns, names = columns[:, :, carrying], np.array(model.coordinates)[carrying]
        if columns.size:
            length = np.linalg.norm(columns[:, :3], axis=1).max() or 1.0
            columns[:, :3] /= length
            _, size, right = np.linalg.svd(columns, full_matrices=False)
            for i, sizes, parts in zip(of_frame, size, np.abs(right[:, -1]), strict=True):
                conditions[i] = float(sizes[-1] / sizes[0]), names[parts >= NOTABLE * parts.max()].tolist()
    return conditions


@compiled
def _joint_columns(model: Model, q: Float[Array, "t n"], frame: str) -> Float[Array, "t 6 n"]:
    return jax.vmap(lambda at: elastic_jacobian(model, at, frame)[:, : len(model.coordinates)])(q)
