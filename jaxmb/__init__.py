"""jaxmb: physical parameters of flexible multibody systems from measurements of them.

Importing jaxmb turns on 64-bit floats in JAX, which identification needs, unless JAX_ENABLE_X64 is set in the
environment.
"""

import os as _os

import jax as _jax

if "JAX_ENABLE_X64" not in _os.environ:
    _jax.config.update("jax_enable_x64", True)

from importlib.metadata import version as _version

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.saved_result import load_result, write_result
from jaxmb.identify.parameters.model_parameters import parameters, set_parameters
from jaxmb.identify.plan.inspection import Inspection, inspect
from jaxmb.identify.study.study import Study, load_study, make_study, study_names
from jaxmb.io.validation import InputError
from jaxmb.machine.build import Model, build_model
from jaxmb.machine.file import load_machine, machine_names, write_machine
from jaxmb.machine.schema import Machine
from jaxmb.machine.tables import machine_from_dh
from jaxmb.measurement.files.frf_file import read_frf, write_frf
from jaxmb.measurement.frf_set import FrfSet, as_kind, in_band, pick, to_si
from jaxmb.measurement.modal.analysis import ModalAnalysis, modal_analysis
from jaxmb.measurement.modal.indicators import cmif, frac, modal_mass, modal_phase_collinearity, modal_phase_deviation
from jaxmb.measurement.modal.model import ModalModel, synthesize
from jaxmb.measurement.reciprocity import joined_inputs, symmetrized, unsymmetry
from jaxmb.measurement.records.file import frf_of_records, measurement_names, read_records
from jaxmb.measurement.records.impacts import cut_hits, estimate_frf_from_hits, find_hits
from jaxmb.measurement.records.time_records import estimate_frf, estimate_periodic_frf
from jaxmb.mechanics.dynamics import gravity_effort, inverse_dynamics, mass_matrix
from jaxmb.mechanics.equilibrium import static_equilibrium
from jaxmb.mechanics.kinematics import (
    coordinates,
    frame_jacobian,
    frame_pose,
    frames,
    posture,
    reference_posture,
)
from jaxmb.mechanics.tangent import Tangent, linearize, linearize_moving
from jaxmb.response.frf import convert_frf, frf, frf_finite_force
from jaxmb.response.modal import Modes, energy_shares, mac, modes, undamped_modes
from jaxmb.response.static import cartesian_stiffness, deflection

__version__ = _version("jaxmb")

__all__ = [
    "FrfSet",
    "InputError",
    "Inspection",
    "Machine",
    "ModalAnalysis",
    "ModalModel",
    "Model",
    "Modes",
    "Result",
    "Study",
    "Tangent",
    "as_kind",
    "build_model",
    "cartesian_stiffness",
    "cmif",
    "convert_frf",
    "coordinates",
    "cut_hits",
    "deflection",
    "energy_shares",
    "estimate_frf",
    "estimate_frf_from_hits",
    "estimate_periodic_frf",
    "find_hits",
    "frac",
    "frame_jacobian",
    "frame_pose",
    "frames",
    "frf",
    "frf_finite_force",
    "frf_of_records",
    "gravity_effort",
    "identify",
    "in_band",
    "inspect",
    "inverse_dynamics",
    "joined_inputs",
    "linearize",
    "linearize_moving",
    "load_machine",
    "load_result",
    "load_study",
    "mac",
    "machine_from_dh",
    "machine_names",
    "make_study",
    "mass_matrix",
    "measurement_names",
    "modal_analysis",
    "modal_mass",
    "modal_phase_collinearity",
    "modal_phase_deviation",
    "modes",
    "parameters",
    "pick",
    "posture",
    "read_frf",
    "read_records",
    "reference_posture",
    "set_parameters",
    "static_equilibrium",
    "study_names",
    "symmetrized",
    "synthesize",
    "to_si",
    "undamped_modes",
    "unsymmetry",
    "write_frf",
    "write_machine",
    "write_result",
]
