"""Stiffness identification from deflections: load cases, displacements, and stiffness models of joints and links.

A `LoadCase` is one load in one posture. Displacements of a point p under a wrench w at a frame l are linear in the
compliances C, J_p C J_l^T w: `observation_matrix` is the matrix of this relation, `stiffness_models` are models of
increasing detail, and `completion` returns all compliances for the values of a reduced model.
"""

from jaxmb.identify.assess.tests.deflections import (
    Convergence as Convergence,
    MonteCarlo as MonteCarlo,
    convergence as convergence,
    monte_carlo as monte_carlo,
)
from jaxmb.identify.experiments.deflections.deflection_test import (
    DeflectionSource as DeflectionSource,
    DeflectionTest as DeflectionTest,
    compliance_terms as compliance_terms,
    deflection_test as deflection_test,
)
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase as LoadCase,
    Term as Term,
    equilibria as equilibria,
    joint_terms as joint_terms,
    measured_displacements as measured_displacements,
    observation_matrix as observation_matrix,
    predicted as predicted,
    spring_term as spring_term,
)
from jaxmb.identify.experiments.deflections.table import (
    deflection_tests as deflection_tests,
    deflections_csv as deflections_csv,
    read_deflections as read_deflections,
    read_table as read_table,
)
from jaxmb.identify.experiments.tolerances import Instruments as Instruments
from jaxmb.identify.stiffness_model.compensator import (
    Compensator as Compensator,
    CompensatorFit as CompensatorFit,
    added_stiffness as added_stiffness,
    fit_compensator as fit_compensator,
    spring_of as spring_of,
)
from jaxmb.identify.stiffness_model.complete_model import (
    CompleteModel as CompleteModel,
    complete_model as complete_model,
    complete_reduction as complete_reduction,
    original_values as original_values,
    physical_preference as physical_preference,
)
from jaxmb.identify.stiffness_model.completion import (
    Completion as Completion,
    completed_model as completed_model,
    completion as completion,
    compliance_intervals as compliance_intervals,
)
from jaxmb.identify.stiffness_model.variants import (
    Compensated as Compensated,
    StiffnessModel as StiffnessModel,
    Variant as Variant,
    compensated_joint as compensated_joint,
    compensated_percent as compensated_percent,
    fitted_variant as fitted_variant,
    predict as predict,
    residual_norms as residual_norms,
    stiffness_models as stiffness_models,
)
from jaxmb.identify.study.reading.deflections import (
    choose_load_cases as choose_load_cases,
    measured_with as measured_with,
)
from jaxmb.mechanics.postures import candidate_postures as candidate_postures
from jaxmb.response.static import (
    actual_pose as actual_pose,
    compensate as compensate,
    corrected_target as corrected_target,
    loaded_pose as loaded_pose,
    nominal_values as nominal_values,
)
