"""Remarks on an identification: sentences on noise, bounds, insensitive parameters, priors and searches."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool
from pydantic import ValidationError
from scipy.special import chdtri

from jaxmb.identify.assess.budget import Budget
from jaxmb.identify.assess.estimate import Estimate, LinearSystem
from jaxmb.identify.assess.modal_agreement import unmatched_metrics
from jaxmb.identify.assess.model_errors import ModelError
from jaxmb.identify.estimation.identifiability import Identifiability, row_blocks
from jaxmb.identify.fit.linear import LinearStep
from jaxmb.identify.fit.loop import RANDOM_ROUNDS, SAME_MINIMUM
from jaxmb.identify.fit.noise import FALSE_ALARM, ReducedChiSquare
from jaxmb.identify.fit.search import DEFAULT
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.parameters.model_parameters import parameters, unit
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import display_name, listed, percentage, sentence
from jaxmb.linalg.responses import FEW
from jaxmb.machine.families import OF_DAMPING
from jaxmb.machine.schema import Machine


def data_remarks(study: Study) -> list[str]:
    """Sentences on machine and data from reading: warnings, unused lines, assumed noise."""
    texts = [(entry.name, text) for entry in study.entries for text in entry.remarks]
    return [*study.remarks, *grouped(texts)] + [
        f"{display_name(test.name)}: outlier lines excluded: {test.lines.lines_text(test.lines.excluded)}"
        for test in study.tests
        if test.lines is not None and test.lines.excluded.size
    ]


NOT_LINEARIZED = "the deflection of gears, or the effect of errors of loads and postures, could not be computed at"
NOT_CONTAINED = "standard deviations do not contain the tolerances of machine and tests, which were not propagated:"
NOT_PROPAGATED = (
    f"{NOT_CONTAINED} the machine has more than {FEW} degrees of freedom, or the Jacobian is too large for the memory"
)
IN_TWO_STEPS = f"{NOT_CONTAINED} the study is fitted in two steps"
INFLATED = "; standard deviations were inflated accordingly"
"""End of a sentence on a misfit, left out where no standard deviation is known."""
MOST_EXCEEDED = 3
"""Largest number of errors of one kind in a sentence, and of kinds with a sentence each."""
MOST_PERCENT = 50.0
"""Largest plausible relative error within a tolerance, to first order."""
CAPPED = "confidence is capped at 'weak' for all parameters: the fitted model does not reproduce the measurement"
NO_STD = "no standard deviation is known: the fitted model does not reproduce the measurement"


def tolerance_remarks(estimate: Estimate, likely: ModelError | None) -> list[str]:
    """A sentence where errors within the stated tolerances, or those of a fit in two steps, explain a residual larger
    than its noise, with the parameter that a joint fit with the most likely errors changes most, over its standard
    deviation there."""
    misfit = estimate.goodness.misfit
    if misfit is None or not estimate.goodness.misfit_tolerated:
        return []
    text, cause = "", "errors of the stated values of machine and tests, likely by their tolerances, explain it"
    if estimate.goodness.budget is None:
        cause = "errors of the values of the two steps explain it, within their standard deviations"
    if likely is not None:
        own = estimate.study.free.named(estimate.values)
        name = max(own, key=lambda name: abs(likely.values[name] - own[name]) / likely.std[name])
        text = (
            f"; with the most likely ones ({likely.text}) {name} is {likely.values[name]:.4g} (std"
            f" {likely.std[name]:.2g}) instead of {own[name]:.4g} {unit(estimate.model, name)}"
        )
    return [
        f"reduced chi-square {misfit.square:.3g} (residual {misfit.factor:.3g} times the stated noise): {cause}{text}"
    ]


def exceeded_remarks(budget: Budget | None, study: Study) -> list[str]:
    """A sentence on each error of machine and tests that exceeds its tolerance beyond chance; one on all where they are
    many, or of sizes that are not plausible: then another error is likelier."""
    tolerances = study.tolerances
    if budget is None or budget.excess is None or tolerances is None:
        return []
    exceeded, sentences = budget.excess.exceeded, list[str]()
    sizes = [(budget.errors[k], x) for each in exceeded for k, x in zip(each.members, each.sizes, strict=True)]
    plausible = (
        error.bounds[0] <= x * error.std(tolerances) <= error.bounds[1]
        and (_name_and_unit(error.tolerance)[1] != "%" or abs(x) * getattr(tolerances, error.tolerance) <= MOST_PERCENT)
        for error, x in sizes
    )
    if len(exceeded) > MOST_EXCEEDED or not all(plausible):
        kinds = dict.fromkeys(error.tolerance for error, _ in sizes)
        has_torques = any(entry.kind == "torque" for entry in study.fitted)
        of_angles = ", or noise of the angles (a lower cutoff_hz)" if has_torques else ""
        return [
            f"errors far beyond tolerances ({', '.join(kinds)}), or of several quantities, would be needed to explain"
            " the data: an error of another kind is likelier, such as missing friction or a missing"
            f" elasticity{of_angles}{INFLATED}"
        ]
    for each in exceeded:
        tolerance = budget.errors[each.members[0]].tolerance
        order = np.argsort(-np.abs(each.sizes))[:MOST_EXCEEDED].tolist()
        size, (name, unit) = float(getattr(tolerances, tolerance)), _name_and_unit(tolerance)
        # a correction of this size reduces the residual; the error has the opposite sign
        text = listed(
            [f"{budget.errors[each.members[i]].key} off by {-each.sizes[i] * size:.3g} {unit}" for i in order]
        )
        factor = float(budget.excess.factors[each.members[0]])
        if each.members.size > 1 and factor > 1.0:
            text = f"{name} off by {factor:.2g} times the tolerance, most of all {text}"
        sentences.append(
            f"the data contradict a tolerance of {size:.3g} {unit} ({tolerance}): {text}; correct the description or"
            f" state a larger tolerance{INFLATED}"
        )
    return sentences


def _name_and_unit(tolerance: str) -> tuple[str, str]:
    """Name and unit of a key of `[tolerances]`."""
    words = tolerance.split("_")
    if "per" in words:  # um_per_kn, urad_per_knm
        return " ".join(words[:-3]), f"{words[-3]}/{'kN m' if words[-1] == 'knm' else 'kN'}"
    return " ".join(words[:-1]), "%" if words[-1] == "percent" else words[-1]


def misfit_remarks(
    misfit: ReducedChiSquare | None,
    systematic: Mapping[str, float] | None = None,
    causes: Sequence[str] = (),
    of_tests: Mapping[str, ReducedChiSquare] | None = None,
) -> list[str]:
    """One sentence where the residual is larger than the stated noise, or systematic, with its causes where known.

    Args:
        misfit: of all data; None where the noise of a test is not stated.
        systematic: systematic fraction of the residual's variance, by name of the test.
        causes: texts, the most likely first; without such a residual they are separate sentences.
        of_tests: in place of that of all data, those of the tests whose noise is stated, by name.
    """
    signs, advice = list[str](), f"model error, or noise understated{INFLATED}"
    if misfit is not None and not misfit.explained:
        signs.append(f"reduced chi-square {misfit.square:.3g} (residual {misfit.factor:.3g} times the stated noise)")
    signs += [
        f"{display_name(name)}: reduced chi-square {own.square:.3g} (residual {own.factor:.3g} times its stated noise)"
        for name, own in (of_tests or {}).items()
        if not own.explained
    ]
    if systematic:
        shares = sorted({round(100.0 * share) for share in systematic.values()})
        percent = f"{shares[0]:.0f}" if len(shares) == 1 else f"{shares[0]:.0f} to {shares[-1]:.0f}"
        signs.append(
            f"{percent} % of the residual of {tests_text(list(systematic))} is systematic (correlated along frequency,"
            " or common to several inputs)"
        )
        advice = "the description of the machine or of the test is wrong or incomplete"
    if not signs:
        return list(causes)
    return [f"{'; '.join(signs)}: {'; '.join(causes) or advice}"]


def tests_text(names: Sequence[str]) -> str:
    """Text that names tests: "test 'near'", "tests 'near', 'far'"."""
    if len(names) == 1:
        return display_name(names[0])
    return f"tests {listed([repr(name) for name in names])}"


def grouped(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """One sentence for each text, with all tests that it applies to.

    Args:
        remarks: pairs of the name of a test and a text.
    """
    tests = dict[str, list[str]]()
    for name, text in remarks:
        tests.setdefault(text, []).append(name)
    return [f"{tests_text(list(dict.fromkeys(names)))}: {text}" for text, names in tests.items()]


def machine_remarks(machine: Machine) -> list[str]:
    """A sentence where the identified machine is not physically consistent."""
    try:
        Machine.model_validate(machine.model_dump())
    except ValidationError as error:
        return [
            f"the identified machine is not physically consistent, its file cannot be read back:"
            f" {sentence(error, {}, Machine)}"
        ]
    return []


def prior_remarks(estimate: Estimate) -> list[str]:
    """Sentences on which parameters are determined by the data, the prior or both."""
    prior = estimate.study.problem.prior
    if prior is None:
        return []
    names, has_prior = np.asarray(estimate.study.free.names), np.isfinite(np.asarray(prior.std))
    verdict = np.asarray(estimate.identifiability.verdict)
    return [
        f"{what}: {listed(names[has_prior & (verdict == which)].tolist()) or 'none'}"
        for which, what in (
            ("yes", "determined by the data rather than the prior"),
            ("weak", "determined by data and prior"),
            ("no", "determined by the prior"),
        )
    ]


def bound_remarks(estimate: Estimate, initial_u: np.ndarray) -> list[str]:
    """Sentences on parameters without effect on the data, and on those that start or end on a bound.

    Args:
        estimate: the fit.
        initial_u: initial unknowns of the fit [d].
    """
    names = np.asarray(estimate.study.free.names)
    data = row_blocks(estimate.jacobian, slice(0, estimate.study.problem.data_rows))
    acts = np.any([estimate.jacobian[rows].any(axis=0) for rows in data], axis=0)
    first, last = estimate.study.free.bound_side(initial_u), estimate.study.free.bound_side(estimate.u)
    return [
        f"{what}: {listed(names[which].tolist())}"
        for what, which in (
            ("no effect on the data", ~acts),
            ("starting on their lower bound", first < 0),
            ("starting on their upper bound", first > 0),
            ("on their lower bound", last < 0),
            ("on their upper bound", last > 0),
        )
        if which.any()
    ]


def unmatched_remarks(estimate: Estimate) -> list[str]:
    """A sentence on unpaired measured modes, and one on unpaired modes of the identified machine."""
    unpaired = [mode for each in estimate.agreements.items() for mode in unmatched_metrics(*each)]
    sentences, many = [], len({mode.posture for mode in unpaired}) > 1
    units = {entry.name: entry.source.frequency_unit for entry in estimate.study.fitted}
    for of, text in (
        ("measured", "measured, without a counterpart in the identified machine"),
        ("fitted", "of the identified machine, without a measured counterpart"),
    ):
        own = [(mode.text(units[mode.posture]), display_name(mode.posture)) for mode in unpaired if mode.of == of]
        if own and many:
            sentences.append(f"modes {text}: {listed([f'{mode} in {test}' for mode, test in own])}")
        elif own:
            sentences.append(f"{own[0][1]}: modes {text}: {listed([mode for mode, _ in own])}")
    return sentences


def undamped(estimate: Estimate) -> bool:
    """Whether every free damping is on its lower bound."""
    damping = np.array([name.split(".")[0] in OF_DAMPING for name in estimate.study.free.names], dtype=bool)
    return bool(damping.any() and (estimate.study.free.bound_side(estimate.u)[damping] < 0).all())


def search_remarks(study: Study, fit: Fit) -> list[str]:
    """A sentence where a population search followed random starts."""
    if study.settings.search.algorithm != "auto" or fit.population_evaluations == 0:
        return []
    lower = fit.best < fit.before_population * (1.0 - SAME_MINIMUM)
    outcome = f"a lower one (cost {fit.best:.4g} instead of {fit.before_population:.4g})" if lower else "no lower one"
    return [
        f"in {RANDOM_ROUNDS} rounds random starts disagreed, or noise did not explain their best minimum: {DEFAULT}"
        f" searched from it ({fit.population_evaluations} evaluations) and found {outcome}"
    ]


_REASONS = {
    "own": (
        " is not known: no measurement depends on it, it keeps the machine's own value",
        " are not known: no measurement depends on them, they keep the machine's own values",
    ),
    "initial": (
        " is not known: no measurement depends on it, it keeps its initial value",
        " are not known: no measurement depends on them, they keep their initial values",
    ),
    "possible": (
        " is not known: no measurement depends on it, its value makes its body physically consistent",
        " are not known: no measurement depends on them, their values make their bodies physically consistent",
    ),
    "combination": (
        " is identifiable only in combination with others: its value is one of many with the same fit",
        " are identifiable only in combination: their values are one set of many with the same fit",
    ),
    "on_bound": (
        " ends on its {} bound; values beyond it do not fit significantly better",
        " end on their {} bounds; values beyond them do not fit significantly better",
    ),
    "beyond": (
        " ends on its {} bound: the data would move it beyond, and do not determine it within its bounds",
        " end on their {} bounds: the data would move them beyond, and do not determine them within their bounds",
    ),
}
"""Texts on an undetermined value, and on several."""


def value_remarks(
    study: Study, linear: LinearSystem, known: Identifiability, beyond: Bool[np.ndarray, "d"]
) -> tuple[list[str], list[str]]:
    """A doubt on the values limited by a bound that data contradict, and remarks: one on undetermined values for each
    reason, and one on values determined only relative to the width of their bounds.

    Args:
        study: a linear study.
        linear: its linear step.
        known: standard deviations of u.
        beyond: mask of the values whose bound data contradict.
    """
    unknowns, step, start = linear.unknowns, linear.step, linear.start
    named, own = dict[tuple[str, str], list[str]](), parameters(study.model)
    for i, name in enumerate(study.free.names):
        if step.without_effect[i]:
            reason = "own" if start[i] == own.get(name) else "initial"
            key = reason if step.x[i] == unknowns.encode(start)[i] else "possible", ""
        elif step.on_bound[i]:
            upper = (step.x[i] > unknowns.lower[i]) != unknowns.reciprocal[i]
            key = "beyond" if beyond[i] else "on_bound", "upper" if upper else "lower"
        elif np.isfinite(step.identifiability.std[i]):
            continue
        else:
            key = "combination", ""
        named.setdefault(key, []).append(name)
    doubts, remarks = list[str](), list[str]()
    for (reason, side), names in named.items():
        text = _REASONS[reason][len(names) > 1].format(side)
        (doubts if reason == "beyond" else remarks).append(listed(names) + text)
    return doubts, [*remarks, *_wide_remarks(study, unknowns.decode(step.x), known)]


def _wide_remarks(study: Study, values: np.ndarray, known: Identifiability) -> list[str]:
    """One sentence on parameters on a linear scale whose standard deviation is small relative to the bounds, but not to
    the value."""
    yes = np.broadcast_to(known.limits[0], known.std.shape)
    std = known.std * np.array(study.free.width)
    without_prior = np.ones(std.size, bool) if known.prior_std is None else ~np.isfinite(known.prior_std)
    percents = {
        name: 100.0 * std[i] / abs(values[i])
        for i, name in enumerate(study.free.names)
        if without_prior[i]
        and not study.free.logarithmic[i]
        and known.verdict[i] == "yes"
        and 0.0 < yes[i] * abs(values[i]) < std[i]
    }
    if not percents:
        return []
    wide = [f"{name} ({percentage(p, '.3g')} %)" for name, p in sorted(percents.items(), key=lambda pair: -pair[1])]
    return [
        "identifiable 'yes' relative to the width of the bounds (linear scale), with a standard deviation that is large"
        f" relative to the value: {listed(wide)}"
    ]


OUTLIER = 0.5
"""Robust weight below which a measurement counts as an outlier."""
SMALL_RISE = 0.01
"""Increase of chi^2 that is not reported."""


def outlier_remarks(robust_weight: np.ndarray) -> list[str]:
    """A sentence on measurements down-weighted by a robust fit."""
    outliers, size = int(np.sum(robust_weight < OUTLIER)), robust_weight.size
    return [f"{outliers} of {size} measured values are outliers, with little or no weight"] if outliers else []


def body_remarks(estimate: Estimate, step: LinearStep) -> tuple[list[str], list[str]]:
    """Doubts on bodies that could not be made physically consistent, or only with a larger residual, and a remark on
    bodies that are physically inconsistent due to noise or tolerances only."""
    found = step.consistent
    if found is None:
        return [], []
    named, adjusted = listed(found.active), adjustment_remarks(estimate)
    if found.excluding:
        bounds = listed([estimate.study.free.names[i] for i in found.excluding])
        return [
            f"no physically consistent body is within the bounds of {bounds}: masses, first moments and inertias are"
            " those of the best fit within them, expected wider bounds",
            *adjusted,
        ], []
    if not found.exists:
        return [
            f"no physically consistent body has the fixed values of {named}: its mass, first moments and inertias are"
            " those of the best fit, expected more free or other fixed parameters",
            *adjusted,
        ], []
    noise = 1.0 if step.misfit.explained else step.misfit.square
    by_noise = found.rise <= noise * float(chdtri(found.determined, FALSE_ALARM))
    text = f"the data alone give physically inconsistent bodies ({named}): physical consistency raises chi^2"
    if not (by_noise or estimate.goodness.misfit_tolerated):
        return [
            f"{text} from {step.cost - found.rise:.4g} to {step.cost:.4g}, more than noise explains; a fixed value of"
            " these bodies, or another part of the description, is wrong",
            *adjusted,
        ], []
    why = "noise explains" if by_noise else "errors within their tolerances explain"
    return adjusted, [f"{text} by {found.rise:.3g}, which {why}"] if found.rise >= SMALL_RISE else []


def adjustment_remarks(estimate: Estimate) -> list[str]:
    """A sentence on fixed masses that were changed."""
    before, now = parameters(estimate.study.model), parameters(estimate.model)
    free = {name for names in estimate.study.free.tied for name in names}
    changed = [
        f"{name} from {before[name]:.4g} to {now[name]:.4g} kg"
        for name in before
        if name.startswith("mass.") and name not in free and abs(now[name] - before[name]) > 1e-3 * before[name]
    ]
    cause = "no measurement depends on some masses, which were changed to make their bodies physically consistent"
    return [f"{cause}: {listed(changed)}"] if changed else []
