"""jaxmb: physical parameters of flexible multibody systems from measurements of them.

Importing jaxmb turns on 64-bit floats in JAX, which identification needs, and keeps compiled programs for the next
process; the user's own settings stay (see `jaxmb.runtime`). The public names are imported when they are first used.

More names by subject: `jaxmb.studies`, `jaxmb.results`, `jaxmb.plan`, `jaxmb.laws`, `jaxmb.deflections`, `jaxmb.maps`,
`jaxmb.report`, `jaxmb.estimation`, `jaxmb.fitting`.
"""

import sys
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy
from jaxmb.runtime import prepare

if TYPE_CHECKING:
    from jaxmb.identify.assess.identify import identify
    from jaxmb.identify.assess.result import Result
    from jaxmb.identify.assess.saved_result import load_result, write_result
    from jaxmb.identify.parameters.model_parameters import parameters, set_parameters
    from jaxmb.identify.plan.inspection import Inspection, inspect
    from jaxmb.identify.study.file import study_names
    from jaxmb.identify.study.study import Study, load_study, make_study
    from jaxmb.io.validation import InputError
    from jaxmb.machine.build import Model, build_model
    from jaxmb.machine.file import load_machine, machine_names, write_machine
    from jaxmb.machine.schema import Machine
    from jaxmb.machine.tables import machine_from_dh
    from jaxmb.measurement.files.frf_file import read_frf, write_frf
    from jaxmb.measurement.frf_set import FrfSet, as_kind, in_band, lines, pick, to_si
    from jaxmb.measurement.modal.analysis import ModalAnalysis, modal_analysis
    from jaxmb.measurement.modal.indicators import (
        cmif,
        frac,
        modal_mass,
        modal_phase_collinearity,
        modal_phase_deviation,
    )
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
    from jaxmb.response.frf import convert_frf, frf, frf_finite_force, response_rows
    from jaxmb.response.hits import Softening, record_hits
    from jaxmb.response.modal import Modes, energy_shares, mac, modes, undamped_modes
    from jaxmb.response.static import cartesian_stiffness, deflection

prepare()

__version__ = version("jaxmb")

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
    "Softening",
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
    "lines",
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
    "record_hits",
    "reference_posture",
    "response_rows",
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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "FrfSet": "jaxmb.measurement.frf_set",
        "InputError": "jaxmb.io.validation",
        "Inspection": "jaxmb.identify.plan.inspection",
        "Machine": "jaxmb.machine.schema",
        "ModalAnalysis": "jaxmb.measurement.modal.analysis",
        "ModalModel": "jaxmb.measurement.modal.model",
        "Model": "jaxmb.machine.build",
        "Modes": "jaxmb.response.modal",
        "Result": "jaxmb.identify.assess.result",
        "Softening": "jaxmb.response.hits",
        "Study": "jaxmb.identify.study.study",
        "Tangent": "jaxmb.mechanics.tangent",
        "as_kind": "jaxmb.measurement.frf_set",
        "build_model": "jaxmb.machine.build",
        "cartesian_stiffness": "jaxmb.response.static",
        "cmif": "jaxmb.measurement.modal.indicators",
        "convert_frf": "jaxmb.response.frf",
        "coordinates": "jaxmb.mechanics.kinematics",
        "cut_hits": "jaxmb.measurement.records.impacts",
        "deflection": "jaxmb.response.static",
        "energy_shares": "jaxmb.response.modal",
        "estimate_frf": "jaxmb.measurement.records.time_records",
        "estimate_frf_from_hits": "jaxmb.measurement.records.impacts",
        "estimate_periodic_frf": "jaxmb.measurement.records.time_records",
        "find_hits": "jaxmb.measurement.records.impacts",
        "frac": "jaxmb.measurement.modal.indicators",
        "frame_jacobian": "jaxmb.mechanics.kinematics",
        "frame_pose": "jaxmb.mechanics.kinematics",
        "frames": "jaxmb.mechanics.kinematics",
        "frf": "jaxmb.response.frf",
        "frf_finite_force": "jaxmb.response.frf",
        "frf_of_records": "jaxmb.measurement.records.file",
        "gravity_effort": "jaxmb.mechanics.dynamics",
        "identify": "jaxmb.identify.assess.identify",
        "in_band": "jaxmb.measurement.frf_set",
        "inspect": "jaxmb.identify.plan.inspection",
        "inverse_dynamics": "jaxmb.mechanics.dynamics",
        "joined_inputs": "jaxmb.measurement.reciprocity",
        "linearize": "jaxmb.mechanics.tangent",
        "linearize_moving": "jaxmb.mechanics.tangent",
        "lines": "jaxmb.measurement.frf_set",
        "load_machine": "jaxmb.machine.file",
        "load_result": "jaxmb.identify.assess.saved_result",
        "load_study": "jaxmb.identify.study.study",
        "mac": "jaxmb.response.modal",
        "machine_from_dh": "jaxmb.machine.tables",
        "machine_names": "jaxmb.machine.file",
        "make_study": "jaxmb.identify.study.study",
        "mass_matrix": "jaxmb.mechanics.dynamics",
        "measurement_names": "jaxmb.measurement.records.file",
        "modal_analysis": "jaxmb.measurement.modal.analysis",
        "modal_mass": "jaxmb.measurement.modal.indicators",
        "modal_phase_collinearity": "jaxmb.measurement.modal.indicators",
        "modal_phase_deviation": "jaxmb.measurement.modal.indicators",
        "modes": "jaxmb.response.modal",
        "parameters": "jaxmb.identify.parameters.model_parameters",
        "pick": "jaxmb.measurement.frf_set",
        "posture": "jaxmb.mechanics.kinematics",
        "read_frf": "jaxmb.measurement.files.frf_file",
        "read_records": "jaxmb.measurement.records.file",
        "record_hits": "jaxmb.response.hits",
        "reference_posture": "jaxmb.mechanics.kinematics",
        "response_rows": "jaxmb.response.frf",
        "set_parameters": "jaxmb.identify.parameters.model_parameters",
        "static_equilibrium": "jaxmb.mechanics.equilibrium",
        "study_names": "jaxmb.identify.study.file",
        "symmetrized": "jaxmb.measurement.reciprocity",
        "synthesize": "jaxmb.measurement.modal.model",
        "to_si": "jaxmb.measurement.frf_set",
        "undamped_modes": "jaxmb.response.modal",
        "unsymmetry": "jaxmb.measurement.reciprocity",
        "write_frf": "jaxmb.measurement.files.frf_file",
        "write_machine": "jaxmb.machine.file",
        "write_result": "jaxmb.identify.assess.saved_result",
    },
)


class _Package(ModuleType):
    """jaxmb, in which `identify` is the function also where modules of the sub-package of that name are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "identify" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
