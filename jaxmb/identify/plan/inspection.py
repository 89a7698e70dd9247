"""Predicted identifiability of the parameters before a measurement, and proposals for the next tests."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.budget import (
    Budget,
    DescribedTests,
    ParameterBudget,
    budget,
    nonlinear_refit,
    parameter_budgets,
)
from jaxmb.identify.assess.modal_agreement import mode_shares
from jaxmb.identify.assess.remarks import NOT_LINEARIZED, NOT_PROPAGATED, data_remarks
from jaxmb.identify.estimation.design import Observability
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    Group,
    Identifiability,
    correlation,
    groups,
    groups_by_name,
    identifiability,
    information_rows,
    inverse_std,
    jacobian_svd,
    scaled_svd,
)
from jaxmb.identify.fit.linear import NO_EFFECT
from jaxmb.identify.fit.problem import final_state
from jaxmb.identify.parameters.free_parameters import affine_map
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.plan.candidates import Candidate, OperatingPoint, Planned
from jaxmb.identify.plan.exciting_motion import BaseDeviation, NextMotion, base_deviations, plan_motion
from jaxmb.identify.plan.next_tests import NextPoses, NextTests, observability_of, plan_poses, plan_tests
from jaxmb.identify.plan.why import remedies, why
from jaxmb.identify.study.study import Solver, Study, known_values
from jaxmb.io.files import plain, strict, versions
from jaxmb.io.validation import Named, Table, error_location, listed, typed_arguments

SCHEMA = 1
PLANNERS: dict[str, Callable[..., Planned]] = {"frf": plan_tests, "torque": plan_motion, "pose": plan_poses}
"""(study, linearization point, information rows of the planned tests) -> proposal for `[next]`, by kind of test."""
HOW_TO_ASK = (
    "no next test is proposed: a table [next] in the study lists candidate postures, points and bands, from which"
    " `jaxmb inspect` selects"
)


class Expected(NamedTuple):
    """Predicted identifiability of one parameter from the planned tests."""

    value: float
    """Value at the linearization point, SI units."""
    unit: str
    std: float
    """Predicted standard deviation, SI units; inf if it is not identifiable separately."""
    relative_std: float
    """Predicted standard deviation of its natural logarithm; inf if it is not identifiable separately."""
    identifiable: str
    """"yes", "weak" or "no" (see `identifiability`)."""
    why: str
    """Causes and remedies if it is not "yes", else empty."""
    next_std: float | None
    """`relative_std` after the proposed next tests, if any, without the effect of tolerances."""
    std_after_next: float | None
    """The same for `std`, SI units."""


@dataclasses.dataclass(frozen=True, eq=False)
class Inspection:
    """Predicted identifiability of a study's free parameters from its planned tests."""

    study: Study
    linearized_at: str
    """Linearization point, "true values" or "initial values"."""
    values: Float[np.ndarray, "d"]
    """Those values, SI units."""
    known: Identifiability
    singular_values: Float[np.ndarray, "d"]
    """Of the information rows of the planned tests (`information_rows`), descending: 1 over the standard deviation of u
    along each direction. Without weights they are those of the Jacobian in units of the noise."""
    correlation: Float[np.ndarray, "d d"]
    parameters: dict[str, Expected]
    base: tuple[BaseDeviation, ...]
    """Predicted standard deviations of the base parameters; empty without torque tests."""
    groups: tuple[Group, ...]
    """Parameters identifiable only in combination, or not at all, see `identifiability.groups`."""
    without_effect: tuple[str, ...]
    """Parameters without effect on the data."""
    next: NextTests | NextMotion | NextPoses | None
    next_remark: str
    """A sentence on the next tests: how to request them, why there are none, or their selection."""
    remarks: tuple[str, ...]
    observability: Observability | None = None
    """Observability indices of the planned poses; None unless all tests are pose tests."""
    uncertainty: dict[str, ParameterBudget] | None = None
    """Parts of each predicted standard deviation; None where all that machine and tests state is exact."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", Named(self.parameters))

    def as_json(self) -> Table:
        """The inspection in the layout of `inspect.json`: strict JSON, null for unknown numbers."""
        names = self.study.free.names
        return strict(
            {
                "schema": SCHEMA,
                "study": self.study.name,
                "description": self.study.description,
                "at": self.linearized_at,
                "parameters": {name: p._asdict() for name, p in self.parameters.items()},
                "singular_values": self.singular_values,
                "base": [row._asdict() for row in self.base],
                "groups": groups_by_name(self.groups, names),
                "without_effect": self.without_effect,
                "correlation": self.correlation,
                "observability": plain(self.observability),
                "criterion": None if self.next is None else self.next.part.criterion,
                "next": None if self.next is None else self.next.as_json(self.study.model),
                "next_remark": self.next_remark,
                "remarks": self.remarks,
                "uncertainty": plain(self.uncertainty),
                "versions": versions(),
            }
        )

    def json_text(self) -> str:
        """`as_json` as text."""
        return json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n"


@typed_arguments
@threadpool_limits.wrap(limits=1, user_api="blas")  # for small matrices threads within LAPACK only add overhead
def inspect(study: Study) -> Inspection:
    """Predict which free parameters the tests of a study identify, and select the next tests, before any fit.

    The residuals of all planned tests are differentiated by the free parameters, in units of the stated noise, at the
    true values if all tests are simulated, else at the initial ones. The measured values have no effect, but the lines,
    noise and weights of the measurements do.

    Args:
        study: from `load_study`; its table [next] lists the candidate tests.

    Returns:
        Predicted standard deviations, parameters identifiable only in combination, causes and remedies for every
        parameter that is not identifiable, and the next tests.

    Raises:
        ValueError: the predicted measurements are not finite, or no candidate for a next test is possible.
        NotImplementedError: the study is for a complete stiffness model, which has no list of free parameters.
    """
    if study.solver is Solver.STIFFNESS_MODEL:
        raise NotImplementedError(
            f"study '{study.name}': a complete stiffness model cannot be inspected: `identify` reduces it to its"
            " identifiable parameters"
        )
    values, linearized_at = _values(study)
    remarks = list(_remarks(study))
    if study.relinearized:
        try:
            study = study.linearized_about(study.free.apply(study.model, values))
        except ValueError as error:
            remarks.append(f"{NOT_LINEARIZED} the {linearized_at}: {error}")
    with error_location(f"study '{study.name}', {linearized_at}"):
        jacobian, weights = _jacobian(study, values)
    prior_std = study.problem.prior_std
    known = identifiability(jacobian, weights, prior_std, study.free.needed)
    made = information_rows(jacobian, weights)
    combinations = groups(made, prior_std)
    budgets, whole_std, determined = None, known.std, dict[str, str]()
    if study.tolerances is not None and not study.problem.one_by_one:
        u, model = np.asarray(study.free.encode(values)), study.free.apply(study.model, values)
        stated = budget(
            DescribedTests(study.fitted, model, study.free, study.tolerances, study.exact_tests),
            nonlinear_refit(study.problem, u),
            jacobian,
            known.std,
        )
        budgets = parameter_budgets(stated, study.free, known.std, study.free.slope(values))
        whole_std = np.sqrt(known.std**2 + np.diag(stated.covariance))
        determined = _determined(stated, jacobian, weights)
    operating_point = OperatingPoint(study.model, study.free, jnp.asarray(study.free.encode(values)))
    linear = (test.linear for test in study.tests if test.linear is not None)
    base = next((s for form in linear if (s := form.combinations(study.model, study.free)) is not None), None)
    chosen, remark, pool, information = Planned(None, HOW_TO_ASK)
    if study.next is not None:
        chosen, remark, pool, information = PLANNERS[study.next.kind](study, operating_point, made)
    data = jacobian[: study.problem.data_rows]
    correlations = correlation(known.covariance)
    reasons = _reasons(study, operating_point, values, known, correlations, combinations, made, pool, information)
    known = known.with_std(whole_std)
    if budgets is not None:
        for i, (name, verdict) in enumerate(zip(study.free.names, known.verdict, strict=True)):
            if verdict != "yes" and not reasons[i]:
                reasons[i] = _limited_text(budgets[name], determined)
    return Inspection(
        study=study,
        linearized_at=linearized_at,
        values=values,
        known=known,
        singular_values=np.linalg.svd(made, compute_uv=False),
        correlation=correlations,
        parameters=_parameters(study, values, known, reasons, chosen),
        base=()
        if base is None
        else base_deviations(
            made,
            base,
            affine_map(study.model, study.free, base.parameters)[0] * study.free.slope(values),
        ),
        groups=combinations,
        without_effect=tuple(name for i, name in enumerate(study.free.names) if not data[:, i].any()),
        next=chosen,
        next_remark=remark,
        remarks=tuple(remarks),
        observability=observability_of(study, jacobian),
        uncertainty=budgets,
    )


def _limited_text(own: ParameterBudget, determined: Mapping[str, str]) -> str:
    """Text on the tolerances that limit a parameter, and on parameters that would replace them."""
    largest = [each.source for each in own.sources[:2]]
    free = [determined[source] for source in largest if source in determined]
    return (
        f"limited by the tolerances of machine and tests, most of all {listed(largest)}: a smaller"
        f" {own.sources[0].kind} helps most" + (f", or {' and '.join(free)} in [free]" if free else "")
    )


def _determined(stated: Budget, jacobian: np.ndarray, weights: np.ndarray) -> dict[str, str]:
    """Parameters by the error that they would free, of errors that the tests determine to half their tolerance."""
    scale, rows = inverse_std(weights)[:, None], len(stated.columns)
    beside = scaled_svd(jacobian * scale, RANK_TOLERANCE).beside(
        np.pad(stated.columns, ((0, len(scale) - rows), (0, 0))) * scale
    )
    known = np.linalg.norm(beside, axis=0) > 2.0
    return {
        error.key: error.parameter for error, yes in zip(stated.errors, known, strict=True) if yes and error.parameter
    }


def _values(study: Study) -> tuple[np.ndarray, str]:
    """Physical values [d] of the linearization point, and its name."""
    each = [{study.truth.get(name, np.nan) for name in names} for names in study.free.tied]
    true = np.array([own.pop() if len(own) == 1 else np.nan for own in each])
    usable = np.isfinite(true) & (~np.array(study.free.logarithmic) | (true > 0.0))
    if usable.all():
        return true, "true values"
    known = known_values(study.model, study.free, study.start)
    return known if study.solver.is_linear else study.start.values, "initial values"


def _jacobian(study: Study, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of all residuals by u in units of their noise, and their variances with the known correlation of the
    noise; columns of rounding are 0.

    Raises:
        ValueError: a prediction is not finite, as of a machine that is unstable.
    """
    _, jacobian, weights = map(np.array, final_state(study.problem, jnp.asarray(study.free.encode(values))))
    if not np.isfinite(jacobian).all():
        raise ValueError(
            "the predicted measurements are not finite: the machine may be unstable with these values, expected others"
            " as `initial` in [free]"
        )
    data = jacobian[: study.problem.data_rows]
    size = np.linalg.norm(data, axis=0)
    data[:, size <= NO_EFFECT * size.max(initial=0.0)] = 0.0
    svd = jacobian_svd(jacobian)
    for rows, test in zip(study.problem.row_slices, study.problem.tests, strict=True):
        weights[rows] *= test.noise.variance_factor(svd.basis(jacobian[rows]), weights[rows])
    return jacobian, weights


def _reasons(
    study: Study, operating_point: OperatingPoint, values: np.ndarray, known: Identifiability, correlations: np.ndarray,
    combinations: tuple[Group, ...], made: np.ndarray, pool: Sequence[Candidate], information: np.ndarray | None,
) -> list[str]:  # fmt: skip
    """Causes and remedies for each entry of u that is not identifiable, "" for the others."""
    if all(verdict == "yes" for verdict in known.verdict):
        return [""] * study.free.size
    shares = [mode_shares(study.model, study.free, test, values) for test in study.tests]
    tried = remedies(operating_point, study.tests, shares, made, pool, information)
    names = study.free.names
    return [
        "" if verdict == "yes" else why(i, names, known, correlations, combinations, study.tests, shares, tried)
        for i, verdict in enumerate(known.verdict)
    ]


def _parameters(
    study: Study,
    values: np.ndarray,
    known: Identifiability,
    reasons: list[str],
    chosen: NextTests | NextMotion | NextPoses | None,
) -> dict[str, Expected]:
    found, sizes = dict[str, Expected](), study.free.slope(values)
    for i, names in enumerate(study.free.tied):
        # A unit of u is one of the logarithm, or the width of the bounds.
        relative = 1.0 if study.free.logarithmic[i] else study.free.width[i] / abs(values[i]) if values[i] else np.inf
        after = (None, None) if chosen is None else (np.array([relative, sizes[i]]) * chosen.known.std[i]).tolist()
        for name in names:
            found[name] = Expected(
                float(values[i]), unit(study.model, name), float(sizes[i] * known.std[i]),
                float(relative * known.std[i]), known.verdict[i],
                reasons[i], *after,
            )  # fmt: skip
    return found


UNWEIGHTED = (
    "weights: the prediction after the next tests is for lines weighted by their noise only; standard deviations with"
    " the weights of the study are larger"
)

ONE_FIT = "preset 'rognant2010': the prediction is of one fit to all tests, not of the two steps"


def _remarks(study: Study) -> tuple[str, ...]:
    weighted = any(
        np.ptp(weights[weights > 0.0]) for weights in (np.asarray(test.stated_variances()) for test in study.tests)
    )
    levels = dict[str, list[str]]()
    for test in study.tests:
        if not test.noise.is_known:
            levels.setdefault(test.noise.level_text, []).append(test.name)
    proportional = len(levels) == 1 and not any(test.noise.is_known for test in study.tests)
    effect = (
        "to which all standard deviations are proportional" if proportional else "which affects standard deviations"
    )
    stated = (
        (NOT_PROPAGATED, study.tolerances is not None and study.problem.one_by_one),
        ("[laws]: the prediction is for constant parameters, without laws", study.laws is not None),
        (ONE_FIT, study.solver is Solver.TWO_STEPS),
        (UNWEIGHTED, weighted and study.next is not None),
    )
    return (
        *([study.note] if study.note else []),
        *data_remarks(study),
        *(text for text, applies in stated if applies),
        *(
            f"the noise of {', '.join(names)} is to be estimated from a fit: a standard deviation of {level} is assumed"
            f" here, {effect}"
            for level, names in levels.items()
        ),
    )
