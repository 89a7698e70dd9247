"""Fitting: the least-squares problem of a study, and the ways to its minimum, for those who build experiments.

`Study.problem` is the problem; `run_fit` searches and refines, `linear_step` solves a linear one, `final_state` is what
the standard deviations are made of.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf_test import FrfTest, predict_frf
    from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
    from jaxmb.identify.experiments.motion import MotionView, PostureTest, motion_view
    from jaxmb.identify.experiments.test import Equations, Score, Test
    from jaxmb.identify.fit.linear import LinearStep, Unknowns, linear_equations, linear_step, unknowns
    from jaxmb.identify.fit.loop import Report, run_fit
    from jaxmb.identify.fit.noise import noise_factor, noise_objective, row_variances, widening
    from jaxmb.identify.fit.noise_estimation import with_estimated_noise
    from jaxmb.identify.fit.problem import Prior, Problem, final_state, make_problem, with_tests
    from jaxmb.identify.fit.settings import FitSettings, RefinePart, SearchPart, Start
    from jaxmb.identify.fit.stage import Stage, objective
    from jaxmb.identify.fit.state import Fit
    from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters

__all__ = [
    "Bound",
    "Equations",
    "Fit",
    "FitSettings",
    "FreeParameters",
    "FrfTest",
    "LinearStep",
    "ModesTest",
    "MotionView",
    "PostureTest",
    "Prior",
    "Problem",
    "RefinePart",
    "Report",
    "Score",
    "SearchPart",
    "Stage",
    "Start",
    "Test",
    "Unknowns",
    "final_state",
    "free_parameters",
    "linear_equations",
    "linear_step",
    "make_problem",
    "motion_view",
    "noise_factor",
    "noise_objective",
    "objective",
    "predict_frf",
    "predict_modes",
    "row_variances",
    "run_fit",
    "unknowns",
    "widening",
    "with_estimated_noise",
    "with_tests",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Bound": "jaxmb.identify.parameters.free_parameters",
        "Equations": "jaxmb.identify.experiments.test",
        "Fit": "jaxmb.identify.fit.state",
        "FitSettings": "jaxmb.identify.fit.settings",
        "FreeParameters": "jaxmb.identify.parameters.free_parameters",
        "FrfTest": "jaxmb.identify.experiments.frf_test",
        "LinearStep": "jaxmb.identify.fit.linear",
        "ModesTest": "jaxmb.identify.experiments.modes_test",
        "MotionView": "jaxmb.identify.experiments.motion",
        "PostureTest": "jaxmb.identify.experiments.motion",
        "Prior": "jaxmb.identify.fit.problem",
        "Problem": "jaxmb.identify.fit.problem",
        "RefinePart": "jaxmb.identify.fit.settings",
        "Report": "jaxmb.identify.fit.loop",
        "Score": "jaxmb.identify.experiments.test",
        "SearchPart": "jaxmb.identify.fit.settings",
        "Stage": "jaxmb.identify.fit.stage",
        "Start": "jaxmb.identify.fit.settings",
        "Test": "jaxmb.identify.experiments.test",
        "Unknowns": "jaxmb.identify.fit.linear",
        "final_state": "jaxmb.identify.fit.problem",
        "free_parameters": "jaxmb.identify.parameters.free_parameters",
        "linear_equations": "jaxmb.identify.fit.linear",
        "linear_step": "jaxmb.identify.fit.linear",
        "make_problem": "jaxmb.identify.fit.problem",
        "motion_view": "jaxmb.identify.experiments.motion",
        "noise_factor": "jaxmb.identify.fit.noise",
        "noise_objective": "jaxmb.identify.fit.noise",
        "objective": "jaxmb.identify.fit.stage",
        "predict_frf": "jaxmb.identify.experiments.frf_test",
        "predict_modes": "jaxmb.identify.experiments.modes_test",
        "row_variances": "jaxmb.identify.fit.noise",
        "run_fit": "jaxmb.identify.fit.loop",
        "unknowns": "jaxmb.identify.fit.linear",
        "widening": "jaxmb.identify.fit.noise",
        "with_estimated_noise": "jaxmb.identify.fit.noise_estimation",
        "with_tests": "jaxmb.identify.fit.problem",
    },
)
