"""Fitting: the least-squares problem of a study and its solvers, for custom experiments.

`Study.problem` is the problem; `run_fit` searches and refines, `linear_step` solves linear equations, `final_state`
returns the residual and Jacobian for standard deviations.
"""

from jaxmb.identify.experiments.components import Equations as Equations
from jaxmb.identify.experiments.frf.frf_test import FrfTest as FrfTest, predict_frf as predict_frf
from jaxmb.identify.experiments.modes_test import (
    ModesTest as ModesTest,
    predict_modes as predict_modes,
)
from jaxmb.identify.experiments.poses.pose_rows import PoseRows as PoseRows
from jaxmb.identify.experiments.poses.pose_test import (
    PoseTest as PoseTest,
    pose_test as pose_test,
    predicted_poses as predicted_poses,
    with_scatter as with_scatter,
)
from jaxmb.identify.experiments.posture_test import PostureTest as PostureTest
from jaxmb.identify.experiments.test import Score as Score, Test as Test
from jaxmb.identify.experiments.vibration_view import VibrationView as VibrationView, vibration_view as vibration_view
from jaxmb.identify.fit.linear import (
    LinearStep as LinearStep,
    Unknowns as Unknowns,
    linear_equations as linear_equations,
    linear_step as linear_step,
    unknowns as unknowns,
)
from jaxmb.identify.fit.loop import (
    Report as Report,
    coarsened as coarsened,
    run_fit as run_fit,
)
from jaxmb.identify.fit.noise import (
    ReducedChiSquare as ReducedChiSquare,
    noise_objective as noise_objective,
    reduced_chi_square as reduced_chi_square,
    reduced_chi_squares as reduced_chi_squares,
    row_variances as row_variances,
    with_estimated_noise as with_estimated_noise,
)
from jaxmb.identify.fit.problem import (
    Prior as Prior,
    Problem as Problem,
    final_state as final_state,
    linearized as linearized,
    make_problem as make_problem,
    objective as objective,
    with_tests as with_tests,
)
from jaxmb.identify.fit.search import population_objectives as population_objectives
from jaxmb.identify.fit.settings import (
    FitSettings as FitSettings,
    RefinePart as RefinePart,
    SearchPart as SearchPart,
    Start as Start,
)
from jaxmb.identify.fit.state import (
    Fit as Fit,
    Stage as Stage,
)
from jaxmb.identify.parameters.free_parameters import (
    Bound as Bound,
    FreeParameters as FreeParameters,
    free_parameters as free_parameters,
)
