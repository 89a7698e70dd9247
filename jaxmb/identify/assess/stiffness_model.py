"""Estimate and assessment of a complete stiffness model: reduction, variants, compensation, completed machine."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.estimate import INCONSISTENT
from jaxmb.identify.assess.linear_estimate import linear_status, parallel_loads
from jaxmb.identify.assess.metrics import (
    Compensation,
    CompensationRow,
    CompensationScatter,
    CompensatorOutcome,
    Errors,
    Metrics,
    SpringOutcome,
    StiffnessModelMetrics,
)
from jaxmb.identify.assess.remarks import CAPPED, data_remarks, misfit_remarks, outlier_remarks, tests_text
from jaxmb.identify.assess.result import Parameter, Result, converged_status, with_interval
from jaxmb.identify.assess.tests.deflections import (
    deflection_budget,
    drawn_displacements,
    factor_remarks,
    independent_rows,
    size_remarks,
    unexplained_share_by,
)
from jaxmb.identify.estimation.identifiability import correlation, limits, verdicts
from jaxmb.identify.estimation.linear import tukey_square
from jaxmb.identify.experiments.components import is_robust
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements, predicted
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.fit.noise import ReducedChiSquare, reduced_chi_square
from jaxmb.identify.stiffness_model.compensator import fit_compensator, spring_of
from jaxmb.identify.stiffness_model.complete_model import CompleteModel, original_values
from jaxmb.identify.stiffness_model.completion import Completion, CompletionOutcome, completed_model, completion
from jaxmb.identify.stiffness_model.variants import (
    StiffnessModel,
    Variant,
    compensated_joint,
    compensated_percent,
    fitted_variant,
    predict,
    residual_norms,
    stiffness_fit,
    stiffness_models,
    translations,
)
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import display_name, error_location
from jaxmb.machine.build import Model
from jaxmb.machine.changed import machine_of
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model

MOST_NAMED = 10
"""Largest number of tests named in a remark."""


def cases_of(entries: Sequence[Entry], role: str) -> list[LoadCase]:
    """All load cases of a role."""
    return [case for entry in entries if entry.role == role for case in entry.source.cases]


def evaluated_cases(entries: Sequence[Entry]) -> list[LoadCase]:
    """Load cases in which compensation is evaluated: the check tests, or the fitted ones without check tests."""
    return cases_of(entries, "check") or cases_of(entries, "fit")


def predicting_variants(model: Model, tests: Sequence[LoadCase], variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """The variants that can predict all tests: those with a compliance of the compensated joint at each of their
    angles."""
    return {name: v for name, v in variants.items() if not v.model.angles_not_tested(model, tests)}


def compensation_metrics(model: Model, entries: Sequence[Entry], variants: Mapping[str, Variant]) -> Compensation:
    """Table 2 of Klimchik et al. 2014 and the errors of every point by role, and the percentage compensated by each
    variant."""
    tables, errors = {}, {}
    for role in ("fit", "check"):
        if tests := cases_of(entries, role):
            usable = predicting_variants(model, tests, variants)
            known = {name: predict(variant, model, tests) for name, variant in usable.items()}
            none = _row(tests, np.zeros(measured_displacements(tests)[0].size), "none", 0)
            rows = (_row(tests, each, name, len(usable[name].model.names)) for name, each in known.items())
            tables[role] = (none, *rows)
            errors[role] = {name: 1e3 * translations(tests, each)[0] for name, each in known.items()}
    percent = {row.model: row.compensated_percent for row in tables["check" if "check" in tables else "fit"][1:]}
    return Compensation(
        table2_fit=tables.get("fit"),
        table2_check=tables.get("check"),
        errors_mm_fit=errors.get("fit"),
        errors_mm_check=errors.get("check"),
        compensated_percent={name: percent.get(name) for name in variants},
    )


def angle_remarks(model: Model, entries: Sequence[Entry], variants: Mapping[str, Variant]) -> list[str]:
    """A sentence on check tests at angles of the compensated joint without fitted tests."""
    tests = cases_of(entries, "check")
    models = [v.model for v in variants.values() if tests and v.model.angles_not_tested(model, tests)]
    for joint in (stiffness.compensated[0] for stiffness in models[:1] if stiffness.compensated is not None):
        others = models[0].angles_not_tested(model, tests)
        named = ", ".join(f"'{test}' at {np.degrees(angle):.6g} deg" for test, angle in others[:MOST_NAMED])
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        return [
            f"{' and '.join(stiffness.name for stiffness in models)} are not judged on the check tests: the compliance"
            f" of {joint.joint} was identified at {joint.angles_text} deg, not at the"
            f" {'angle' if len(others) == 1 else 'angles'} of deflection {'test' if len(others) == 1 else 'tests'}"
            f" {named}{more}"
        ]
    return []


def _row(tests: Sequence[LoadCase], predicted: Float[np.ndarray, "m"], name: str, count: int) -> CompensationRow:
    """Largest and root mean square error of a model along x, y, z and of the position, mm: a row of Table 2.

    Args:
        tests: the load cases.
        predicted: displacements.
        name: of the model.
        count: number of its parameters.
    """
    parts = (*translations(tests, predicted)[0].T, residual_norms(tests, predicted)[0])
    x, y, z, position = (Errors(1e3 * float(np.abs(e).max()), 1e3 * float(np.sqrt(np.mean(e**2)))) for e in parts)
    return CompensationRow(name, count, x, y, z, position, compensated_percent(tests, predicted))


def compensation_scatter(
    model: Model,
    finished: Model,
    entries: Sequence[Entry],
    variants: Mapping[str, Variant],
    best: str,
    std: np.ndarray,
    draws: int,
    seed: int,
) -> CompensationScatter:
    """Standard deviations of compensation and predictions of each variant, over draws of the instruments' errors.

    Data of the fitted tests are resampled: displacements of the best variant, plus the effect of errors of tracker,
    balance and encoders on the identified machine, are fitted by all variants. The evaluated tests keep their measured
    data. Standard deviations of the parameters, which are groups, are those of first order.

    Args:
        model: the machine whose geometry is used.
        finished: model of the identified machine.
        entries: all tests.
        variants: as fitted.
        best: the variant used as truth.
        std: standard deviation of each fitted displacement, its weight included.
        draws: number of draws.
        seed: of the errors.
    """
    fitted = [entry for entry in entries if entry.role == "fit"]
    independent = functools.partial(independent_rows, fitted)
    fit_tests, judged = cases_of(entries, "fit"), evaluated_cases(entries)
    usable = predicting_variants(model, judged, variants)
    rows = {name: independent(v.model.observation(model, fit_tests)) for name, v in variants.items()}
    seen = {name: v.model.observation(model, judged) for name, v in usable.items()}
    of_machine = np.concatenate([p[t.measured] for p, t in zip(predicted(finished, fit_tests), fit_tests, strict=True)])
    truth = rows[best] @ variants[best].fit.values
    robust = any(is_robust(entry.test) for entry in fitted)
    measured, _ = measured_displacements(judged)
    displacements = {name: np.empty((draws, measured.size)) for name in usable}
    for k, drawn in enumerate(drawn_displacements(finished, fitted, draws, seed)):
        for name, variant in usable.items():
            fit = stiffness_fit(variant.model, rows[name], truth + independent(drawn - of_machine), std, robust)
            displacements[name][k] = seen[name] @ fit.values
    percent = {name: [compensated_percent(judged, row) for row in displacements[name]] for name in usable}
    # residuals of (measured - deviation) are the deviations, by point and direction
    spread = {name: translations(judged, measured - displacements[name].std(axis=0, ddof=1))[0] for name in usable}
    return CompensationScatter(
        draws=draws,
        compensated_percent_std={name: float(np.std(percent[name], ddof=1)) for name in usable},
        predicted_std_mm={name: 1e3 * float(np.sqrt(np.mean(np.sum(spread[name] ** 2, axis=1)))) for name in usable},
    )


HALF = 0.5
"""Residual over the displacements above which the model does not reproduce them."""


@dataclasses.dataclass(frozen=True, eq=False)
class StiffnessEstimate:
    """Variants of a stiffness model fitted to the deflection tests of a study, and the completed machine."""

    study: Study
    seed: int
    complete: CompleteModel
    variants: dict[str, Variant]
    best: Variant
    """The most detailed variant, with the parameters of the result."""
    weight: Float[np.ndarray, "m"]
    """Of the independent rows."""
    unseen: list[str]
    """Sentences on joints whose compliance is not identifiable."""
    whole: Completion
    model: Model
    """The identified machine: joints and links have symmetric, positive semi-definite compliances that agree with the
    identified values."""
    machine: Machine
    misfit: ReducedChiSquare
    """Of the best variant."""

    @property
    def u(self) -> Float[np.ndarray, "d"]:
        """Compliances of the best variant."""
        return self.best.fit.values

    @property
    def std(self) -> Float[np.ndarray, "d"]:
        """Standard deviations of the compliances."""
        return self.misfit.widening * self.best.fit.std


def stiffness_estimate(study: Study, seed: int = 0) -> StiffnessEstimate:
    """All variants of a machine's stiffness model fitted to the deflection tests of a study.

    Args:
        study: from `load_study`, with a table [complete].
        seed: of later Monte-Carlo draws.

    Raises:
        ValueError: there are fewer equations than parameters, no tests to fit, a posture is singular, no load acts on
            the compensated joint, or the machine is not a chain of links.
    """
    entries, model = study.fitted, study.model
    cases = cases_of(entries, "fit")
    joint = None if study.complete is None else study.complete.compensated
    for entry in entries:
        with error_location(display_name(entry.name)):
            entry.source.check_linear(model)
    with error_location("[complete]"):
        compensated = None if joint is None else compensated_joint(model, joint, cases)
        complete, models = stiffness_models(model, cases, compensated)
    robust = any(is_robust(entry.test) for entry in entries)
    weight = np.concatenate([np.asarray(entry.test.stated_variances()) for entry in entries])
    independent = functools.partial(independent_rows, entries)
    with error_location(tests_text([entry.name for entry in entries])):
        unseen = _unseen_joints(models["J1"], entries, joint)
        variants = {
            name: fitted_variant(stiffness, model, cases, robust, weight, independent)
            for name, stiffness in models.items()
        }
    _, std = measured_displacements(cases)
    best, plain = variants["C1" if compensated is None else "C2"], variants["C1"]
    covariance = _misfit(plain, weight, std, robust).widening ** 2 * plain.fit.covariance
    # without springs between frames, as the completed machine
    bare = build_model(study.machine.model_copy(update={"spring": ()}))
    own = dict(zip(complete.steps[0].before, original_values(bare, complete).tolist(), strict=True))
    nominal = {name: own[name] for name in complete.steps[-1].before}
    whole = completion(complete, plain.model.reduction, plain.fit.values, covariance, nominal)
    return StiffnessEstimate(
        study, seed, complete, variants, best, weight, unseen, whole,
        *completed_machine(study, whole), _misfit(best, weight, std, robust),
    )  # fmt: skip


def assess_stiffness(found: StiffnessEstimate) -> Result:
    """Result of a complete stiffness model: variants, compensation, scatter, metrics and remarks.

    The parameters are those of the most detailed variant.
    """
    study, model, best, weight, entries = found.study, found.study.model, found.best, found.weight, found.study.fitted
    measured, std = measured_displacements(cases_of(entries, "fit"))
    draws = max((i.draws for entry in entries if (i := entry.source.instruments) is not None), default=0)
    scatter = None
    if draws > 1:
        scatter = compensation_scatter(
            model, found.model, study.entries, found.variants, best.model.name, std / np.sqrt(weight), draws, found.seed
        )
    metrics, counted = _metrics(found, scatter), weight * best.fit.weights
    cost = float(np.sum(counted * (best.fit.residual / std) ** 2))
    wrong = not found.misfit.explained and found.misfit.square > INCONSISTENT**2
    initial_cost = float(np.sum(counted * (independent_rows(entries, measured) / std) ** 2))
    missed = [entry.name for entry in entries] if wrong and cost > HALF**2 * initial_cost else []
    parameters = _parameters(model, best, found.misfit.widening)
    share = functools.partial(unexplained_share_by, found.variants["J1"].model, model)
    causes = [*factor_remarks(entries, share), *size_remarks(entries)]
    doubts = (
        *misfit_remarks(found.misfit, causes=causes),
        *([CAPPED] if wrong else []),
        *outlier_remarks(best.fit.weights),
        *angle_remarks(model, study.entries, found.variants),
        *found.unseen,
        *_search_remarks(found.whole, metrics.compensator),
    )
    verdicts = [p.identifiable for p in parameters.values()]
    if wrong:
        parameters = {
            name: p._replace(identifiable="weak") if p.identifiable == "yes" else p for name, p in parameters.items()
        }
    ended = converged_status(missed, wrong, verdicts, [p.identifiable for p in parameters.values()], doubts)
    return Result(
        study=study,
        status=linear_status([variant.fit for variant in found.variants.values()], ended),
        seed=found.seed,
        cost=cost,
        initial_cost=initial_cost,
        parameters=parameters,
        modes=(),
        metrics=Metrics(stiffness_model=metrics),
        remarks=(
            *doubts,
            *([] if scatter is None else [scatter.remark]),
            *_remarks(study, found.complete, found.whole),
            *data_remarks(study),
        ),
        doubts=doubts,
        correlation=correlation(best.fit.covariance),
        singular_values=best.fit.singular_values,
        model=found.model,
        machine=found.machine,
        evaluations={"search": 0, "refine": 1, "non_finite": 0},
        seconds={},
        history=[(1, cost)],
    )


def _misfit(variant: Variant, weight: np.ndarray, std: np.ndarray, robust: bool) -> ReducedChiSquare:
    """Reduced chi-square of a variant."""
    fit = variant.fit
    variances = weight * tukey_square(weight) if robust else weight
    return reduced_chi_square(np.sqrt(weight * fit.weights) * fit.residual / std, variances, fit.rank, fit.weights)


def completed_machine(study: Study, whole: CompletionOutcome) -> tuple[Model, Machine]:
    """The machine with identified compliances, which include the effect of its springs between frames; these are
    removed."""
    machine = study.machine.model_copy(update={"spring": ()})
    finished = completed_model(build_model(machine), whole)
    return finished, machine_of(machine, finished)


def _unseen_joints(joints: StiffnessModel, entries: tuple[Entry, ...], compensated: str | None) -> list[str]:
    """Sentences on joints whose compliance is not identifiable; raises ValueError for the compensated joint."""
    why = "all loads are parallel and" if parallel_loads(entries) else "the loads"
    lost = [joints.parameters[c] for c in joints.reduction.partition.nonidentifiable]
    if compensated in lost:
        raise ValueError(
            f"{why} move no measured point by the compensated joint '{compensated}', expected loads"
            " that do, or another joint"
        )
    return [
        f"{joint} is not known: {why} move no measured point by it, machine.toml has a compliance near the machine's"
        " own"
        for joint in lost
    ]


def _parameters(model: Model, variant: Variant, wider: float) -> dict[str, Parameter]:
    """Compliances of a variant by name, rad/Nm, rad/N and m/N; verdicts by the relative standard deviation.

    Args:
        model: the machine.
        variant: as fitted.
        wider: see `ReducedChiSquare.widening`.
    """
    found = {}
    for name, value, std in zip(variant.model.names, variant.fit.values, wider * variant.fit.std, strict=True):
        relative = float(std / abs(value)) if value else np.inf
        (verdict,) = verdicts(np.array([relative]), limits())
        p = Parameter(float(value), float(std), relative, _unit(model, name), -np.inf, np.inf, 0.0, verdict)
        found[f"compliance.{name}"] = with_interval(f"compliance.{name}", p, logarithmic=False)
    return found


def _unit(model: Model, name: str) -> str:
    item, _, entry = name.split(" at ")[0].partition(" ")
    if not entry:
        return "rad/(N m)" if model.revolute[model.coordinates.index(item)] else "m/N"
    return ("m/N", "rad/N", "rad/(N m)")[sum(axis.startswith("r") for axis in entry.split(","))]


def _metrics(found: StiffnessEstimate, scatter: CompensationScatter | None) -> StiffnessModelMetrics:
    study, whole, variants = found.study, found.whole, found.variants
    chain = variants["C1"].model.reduction
    parts, counts = chain.partition, chain.counts
    return StiffnessModelMetrics(
        **vars(compensation_metrics(study.model, study.entries, variants)),
        reduction={
            **{step: counts[step] for step in ("original", "M1", "M2", "M3")},
            "G1": len(parts.identifiable),
            "G2": len(parts.nonidentifiable),
            "G3": len(parts.semi_identifiable),
            "final": len(chain.names),
        },
        published_reduction=None if study.complete is None else study.complete.published_reduction,
        groups=tuple(tuple(found.complete.names[c] for c in group.columns) for group in chain.groups),
        group_ranks=tuple(group.rank for group in chain.groups),
        parameters={name: len(variant.model.names) for name, variant in variants.items()},
        completion=CompletionOutcome(whole.possible, whole.freedom, whole.chi_square, whole.joints, whole.links),
        compensator=_compensator(study.model, found.best, found.misfit.widening),
        budget={entry.name: deflection_budget(entry.test, found.model) for entry in study.entries},
        monte_carlo=scatter,
    )


def _compensator(model: Model, variant: Variant, wider: float) -> CompensatorOutcome | None:
    """Compliance of the compensated joint at each of its angles, and the spring of the machine that reproduces it; None
    without a compensated joint.

    Args:
        model: the machine.
        variant: the most detailed one, with a compliance for each angle.
        wider: see `ReducedChiSquare.widening`.
    """
    if variant.model.compensated is None:
        return None
    compensated, term = variant.model.compensated
    labels = [f"{term} at {np.degrees(angle):.6g} deg" for angle in compensated.angles]
    # An angle without load on the joint has no parameter: unknown there.
    index = {name: k for k, name in enumerate(variant.model.names)}
    values, std = np.array(
        [
            (variant.fit.values[index[label]], wider * variant.fit.std[index[label]])
            if label in index
            else (np.nan, np.inf)
            for label in labels
        ]
    ).T
    outcome = CompensatorOutcome(compensated.joint, np.degrees(compensated.angles), values, std)
    start = spring_of(model, compensated.joint)
    if start is None or len(labels) < 3 or not np.all(values > 0.0):
        return outcome
    indices = [index[label] for label in labels]
    together = correlation(variant.fit.covariance)[np.ix_(indices, indices)]
    fit = fit_compensator(compensated.angles, values, std, start, float(1.0 / values.mean()), correlation=together)
    return dataclasses.replace(
        outcome,
        spring=SpringOutcome(
            joint_stiffness=fit.joint_stiffness,
            stiffness=fit.spring.stiffness,
            free_length=fit.spring.free_length,
            std=fit.std,
            fitted_compliance=fit.compliance,
            chi_square=fit.chi_square,
            unsettled=None if fit.converged else True,
        ),
    )


def _search_remarks(whole: Completion, outcome: CompensatorOutcome | None) -> list[str]:
    """A sentence on each search that did not converge."""
    machine = (
        "the search for the machine that agrees best with these values did not converge: the one in machine.toml"
        " is physically consistent, but another may agree better or be nearer to the machine description"
    )
    spring = [] if outcome is None or outcome.spring is None or not outcome.spring.unsettled else [outcome.joint]
    return [
        *([] if whole.converged else [machine]),
        *(
            f"the fit of a spring to the compliance of {joint} did not converge: another spring may fit better"
            for joint in spring
        ),
    ]


def _remarks(study: Study, complete: CompleteModel, whole: Completion) -> tuple[str, ...]:
    if whole.possible:
        agreement = (
            f"machine.toml is one of many machines with these values: {whole.freedom} combinations of compliances of"
            " joints and links are not determined"
        )
    else:
        agreement = (
            f"no machine with positive semi-definite compliances agrees with these values (chi-square"
            f" {whole.chi_square:.3g}, expected below {whole.limit:.3g}): machine.toml is the nearest"
        )
    return (
        *(f"{joint} is a parameter of its own: {why}" for joint, why in complete.kept.items()),
        *(
            f"machine.toml has no spring '{spring.name}': its effect is part of the compliances, as in C1"
            for spring in study.machine.spring[:1]
        ),
        agreement,
    )
