"""Dense linear algebra shared by several subpackages, with derivatives."""

from jaxmb.linalg.logarithm import log_ratio
from jaxmb.linalg.modal_form import damped_modes, eigenpairs, symmetric_pencil
from jaxmb.linalg.responses import FEW, Support, receptance, receptance_by_entries
from jaxmb.linalg.small_solve import DynamicStiffness, Parts

__all__ = [
    "FEW", "DynamicStiffness", "Parts", "Support", "damped_modes", "eigenpairs", "log_ratio", "receptance",
    "receptance_by_entries", "symmetric_pencil",
]  # fmt: skip
