"""The few dense operations that several rooms share, with their derivatives."""

from jaxmb.linalg.eigenproblems import eigenpairs, symmetric_pencil
from jaxmb.linalg.host import on_host
from jaxmb.linalg.logarithm import log_ratio
from jaxmb.linalg.modal_form import damped_modes
from jaxmb.linalg.responses import FEW, Support, receptance

__all__ = ["FEW", "Support", "damped_modes", "eigenpairs", "log_ratio", "on_host", "receptance", "symmetric_pencil"]
