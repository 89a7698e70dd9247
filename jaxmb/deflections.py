"""Stiffness from deflections: loads, how far points moved, and what of joints and links that tells.

A `LoadCase` is one load in one posture. Displacements are linear in compliances, J_p C J_l^T w: `observation_matrix` is
that of any of them, `stiffness_models` are models of increasing detail, and `completion` makes a whole machine of
what is left after their reduction.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.assess.deflections.scatter import Convergence, MonteCarlo, convergence, monte_carlo
    from jaxmb.identify.experiments.deflection_source import DeflectionSource
    from jaxmb.identify.experiments.deflection_table import (
        deflection_tests,
        deflections_csv,
        read_deflections,
        read_table,
    )
    from jaxmb.identify.experiments.deflection_test import DeflectionTest, compliance_terms, deflection_test
    from jaxmb.identify.experiments.instruments import Instruments
    from jaxmb.identify.experiments.load_cases import (
        LoadCase,
        Term,
        equilibria,
        joint_terms,
        measured_displacements,
        observation_matrix,
        predicted,
        spring_term,
    )
    from jaxmb.identify.stiffness_model.compensator import (
        Compensator,
        CompensatorFit,
        added_stiffness,
        fit_compensator,
        spring_of,
    )
    from jaxmb.identify.stiffness_model.complete_model import (
        CompleteModel,
        complete_model,
        complete_reduction,
        original_values,
        physical_preference,
    )
    from jaxmb.identify.stiffness_model.completion import Completion, completed_model, completion, compliance_intervals
    from jaxmb.identify.stiffness_model.variants import (
        Compensated,
        StiffnessModel,
        Variant,
        compensated_joint,
        compensated_percent,
        fitted_variant,
        predict,
        residual_norms,
        stiffness_models,
    )
    from jaxmb.identify.study.simulation.deflection_design import choose_load_cases
    from jaxmb.identify.study.simulation.deflections import measured_with
    from jaxmb.identify.study.simulation.postures import candidate_postures
    from jaxmb.response.compensation import corrected_target, loaded_pose

__all__ = [
    "Compensated",
    "Compensator",
    "CompensatorFit",
    "CompleteModel",
    "Completion",
    "Convergence",
    "DeflectionSource",
    "DeflectionTest",
    "Instruments",
    "LoadCase",
    "MonteCarlo",
    "StiffnessModel",
    "Term",
    "Variant",
    "added_stiffness",
    "candidate_postures",
    "choose_load_cases",
    "compensated_joint",
    "compensated_percent",
    "complete_model",
    "complete_reduction",
    "completed_model",
    "completion",
    "compliance_intervals",
    "compliance_terms",
    "convergence",
    "corrected_target",
    "deflection_test",
    "deflection_tests",
    "deflections_csv",
    "equilibria",
    "fit_compensator",
    "fitted_variant",
    "joint_terms",
    "loaded_pose",
    "measured_displacements",
    "measured_with",
    "monte_carlo",
    "observation_matrix",
    "original_values",
    "physical_preference",
    "predict",
    "predicted",
    "read_deflections",
    "read_table",
    "residual_norms",
    "spring_of",
    "spring_term",
    "stiffness_models",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Compensated": "jaxmb.identify.stiffness_model.variants",
        "Compensator": "jaxmb.identify.stiffness_model.compensator",
        "CompensatorFit": "jaxmb.identify.stiffness_model.compensator",
        "CompleteModel": "jaxmb.identify.stiffness_model.complete_model",
        "Completion": "jaxmb.identify.stiffness_model.completion",
        "Convergence": "jaxmb.identify.assess.deflections.scatter",
        "DeflectionSource": "jaxmb.identify.experiments.deflection_source",
        "DeflectionTest": "jaxmb.identify.experiments.deflection_test",
        "Instruments": "jaxmb.identify.experiments.instruments",
        "LoadCase": "jaxmb.identify.experiments.load_cases",
        "MonteCarlo": "jaxmb.identify.assess.deflections.scatter",
        "StiffnessModel": "jaxmb.identify.stiffness_model.variants",
        "Term": "jaxmb.identify.experiments.load_cases",
        "Variant": "jaxmb.identify.stiffness_model.variants",
        "added_stiffness": "jaxmb.identify.stiffness_model.compensator",
        "candidate_postures": "jaxmb.identify.study.simulation.postures",
        "choose_load_cases": "jaxmb.identify.study.simulation.deflection_design",
        "compensated_joint": "jaxmb.identify.stiffness_model.variants",
        "compensated_percent": "jaxmb.identify.stiffness_model.variants",
        "complete_model": "jaxmb.identify.stiffness_model.complete_model",
        "complete_reduction": "jaxmb.identify.stiffness_model.complete_model",
        "completed_model": "jaxmb.identify.stiffness_model.completion",
        "completion": "jaxmb.identify.stiffness_model.completion",
        "compliance_intervals": "jaxmb.identify.stiffness_model.completion",
        "compliance_terms": "jaxmb.identify.experiments.deflection_test",
        "convergence": "jaxmb.identify.assess.deflections.scatter",
        "corrected_target": "jaxmb.response.compensation",
        "deflection_test": "jaxmb.identify.experiments.deflection_test",
        "deflection_tests": "jaxmb.identify.experiments.deflection_table",
        "deflections_csv": "jaxmb.identify.experiments.deflection_table",
        "equilibria": "jaxmb.identify.experiments.load_cases",
        "fit_compensator": "jaxmb.identify.stiffness_model.compensator",
        "fitted_variant": "jaxmb.identify.stiffness_model.variants",
        "joint_terms": "jaxmb.identify.experiments.load_cases",
        "loaded_pose": "jaxmb.response.compensation",
        "measured_displacements": "jaxmb.identify.experiments.load_cases",
        "measured_with": "jaxmb.identify.study.simulation.deflections",
        "monte_carlo": "jaxmb.identify.assess.deflections.scatter",
        "observation_matrix": "jaxmb.identify.experiments.load_cases",
        "original_values": "jaxmb.identify.stiffness_model.complete_model",
        "physical_preference": "jaxmb.identify.stiffness_model.complete_model",
        "predict": "jaxmb.identify.stiffness_model.variants",
        "predicted": "jaxmb.identify.experiments.load_cases",
        "read_deflections": "jaxmb.identify.experiments.deflection_table",
        "read_table": "jaxmb.identify.experiments.deflection_table",
        "residual_norms": "jaxmb.identify.stiffness_model.variants",
        "spring_of": "jaxmb.identify.stiffness_model.compensator",
        "spring_term": "jaxmb.identify.experiments.load_cases",
        "stiffness_models": "jaxmb.identify.stiffness_model.variants",
    },
)
