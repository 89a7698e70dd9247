"""Dense linear algebra shared by several subpackages, with derivatives."""

from jaxmb.linalg.responses import (
    FEW,
    Support,
    damped_modes,
    eigenpairs,
    log_ratio,
    receptance,
    receptance_by_entries,
    symmetric_pencil,
)
from jaxmb.linalg.small_solve import DynamicStiffness, Parts

__all__ = [
    "FEW", "DynamicStiffness", "Parts", "Support", "damped_modes", "eigenpairs", "log_ratio", "receptance",
    "receptance_by_entries", "symmetric_pencil",
]  # fmt: skip
