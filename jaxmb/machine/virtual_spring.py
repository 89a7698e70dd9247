"""Elasticity of links and joints, lumped into springs of six degrees of freedom."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, model_validator

from jaxmb.machine.beam import Beam, beam_compliance
from jaxmb.machine.values import GROUND, Name, Origin, Part, Row6, rows_of_six

ROUNDING = 1e-6
"""Magnitude up to which a negative eigenvalue of a scaled compliance is attributed to rounding."""


class VirtualSpring(Part):
    """Elasticity of a link or joint, lumped into a massless spring of six degrees of freedom.

    At the "end" of a body it carries all bodies and frames attached to the body, at its "joint" the body itself.
    Its compliance is given as a matrix, or as the sum of a beam and a diagonal (a link, and the bearing behind it), or
    is 0 until it is identified: in the axes of `origin`, translations (m/N) before rotations (rad/Nm).
    """

    name: Name
    body: Name
    at: Literal["end", "joint"] = "end"
    origin: Origin = Origin()
    """Pose in the body's frame; a beam lies along its x axis."""
    compliance: Annotated[tuple[Row6, Row6, Row6, Row6, Row6, Row6] | None, BeforeValidator(rows_of_six)] = None
    diagonal: Row6 | None = None
    beam: Beam | None = None

    @property
    def matrix(self) -> np.ndarray:
        """Compliance [6, 6]."""
        if self.compliance is not None:
            return np.array(self.compliance)
        beam = np.zeros((6, 6)) if self.beam is None else beam_compliance(self.beam)
        return beam + np.diag(self.diagonal or (0.0,) * 6)

    @model_validator(mode="after")
    def _physical(self) -> Self:
        parts = [key for key in ("diagonal", "beam") if getattr(self, key) is not None]
        if self.compliance is not None and parts:
            raise ValueError(f"gives both compliance and {parts[0]}, expected one of them")
        matrix = self.matrix
        if np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
            raise ValueError("compliance is not symmetric")
        if np.diagonal(matrix).min() < 0.0:
            raise ValueError(f"compliance has {np.diagonal(matrix).min():g} on its diagonal, expected none below 0")
        if least_scaled_eigenvalue(matrix) < -ROUNDING:
            raise ValueError("compliance is not positive semi-definite: some load would deflect against its direction")
        if self.at == "joint" and self.body == GROUND:
            raise ValueError("at is 'joint', but the ground has none: expected 'end'")
        return self


def least_scaled_eigenvalue(matrix: np.ndarray) -> float:
    """Least eigenvalue of a symmetric matrix scaled to a unit diagonal.

    The scaling makes it independent of units and does not change its sign. A row with a zero on the diagonal is scaled
    by its largest coupling, since any coupling makes the matrix indefinite.
    """
    size = np.sqrt(np.abs(np.diagonal(matrix)))
    size = np.where(size > 0.0, size, np.sqrt(np.abs(matrix).max(axis=1)))
    size = np.where(size > 0.0, size, 1.0)
    return float(np.linalg.eigvalsh(matrix / np.outer(size, size))[0])
