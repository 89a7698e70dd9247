"""What a user should know of an identification beside its numbers: sentences on noise, bounds and what does not act."""

import numpy as np
from pydantic import ValidationError

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.assess.modal_agreement import unmatched_metrics
from jaxmb.identify.experiments.test import called
from jaxmb.identify.fit.loop import DRAWN_ROUNDS, SAME_MINIMUM
from jaxmb.identify.fit.noise import Misfit
from jaxmb.identify.fit.search import DEFAULT
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.study.kinds import KINDS, by_kind
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import sentence
from jaxmb.machine.schema import Machine


def data_remarks(study: Study) -> list[str]:
    """Sentences on the data themselves: lines that are not used, standard deviations that nobody stated."""
    sentences = [f"{called(entry.name)}: {text}" for entry in study.entries for text in entry.remarks]
    return sentences + [
        f"{called(test.name)}: {test.lines_text(test.lines_left_out)} left out, which do not belong to their neighbours"
        for test in study.tests
        if test.lines_left_out.size
    ]


def kind_remarks(finding: Finding, metrics: Metrics) -> list[str]:
    """Sentences of each kind of test on data that the machine does not follow."""
    sentences = []
    for kind, entries in by_kind(finding.study.entries):
        remarks = KINDS[kind].remarks
        sentences += remarks(finding, entries, metrics.tests.get(kind)) if remarks is not None else []
    return sentences


NOT_BELIEVED = (
    "no parameter is taken for better than weakly known: the machine that was fitted is not the one that was measured"
)


def systematic_remarks(finding: Finding) -> list[str]:
    """A sentence for each test of which something is left that is no noise."""
    return [
        f"{called(name)}: {100.0 * share:.0f} % of what the fit leaves is no noise, since it goes on from line to line"
        " or is the same in FRFs of different inputs: something in the description of the machine or of the test is"
        " wrong or missing"
        for name, share in finding.systematic.items()
    ]


def excess_remarks(misfit: Misfit | None) -> list[str]:
    """A sentence where a fit leaves more than noise of the stated size; None where it was not stated."""
    if misfit is None or misfit.explained:
        return []
    return [
        f"the cost is {misfit.square:.3g} times what the noise alone gives: the model cannot follow the data, or the"
        f" noise is larger than stated; standard deviations are widened for it"
    ]


def machine_remarks(machine: Machine) -> list[str]:
    """A sentence where the identified machine cannot exist."""
    try:
        Machine.model_validate(machine.model_dump())
    except ValidationError as error:
        return [f"no such machine can exist, and its file cannot be read back: {sentence(error, {}, Machine)}"]
    return []


def prior_remarks(finding: Finding) -> list[str]:
    """What the data did to the prior, parameter by parameter."""
    prior = finding.study.problem.prior
    if prior is None:
        return []
    names, held = np.asarray(finding.study.free.names), np.isfinite(np.asarray(prior.std))
    verdict = np.asarray(finding.known.verdict)
    return [
        f"{what}: {', '.join(names[held & (verdict == which)]) or 'none'}"
        for which, what in (("yes", "moved by the data"), ("weak", "narrowed by the data"), ("no", "left to the prior"))
    ]


def bound_remarks(finding: Finding, initial_u: np.ndarray) -> list[str]:
    """Sentences on parameters that do not act on the data, and on those that start or end on a bound.

    Args:
        finding: the fit.
        initial_u: where it started.
    """
    names = np.asarray(finding.study.free.names)
    data = finding.jacobian[: finding.study.problem.data_rows]
    sentences = [f"{name} does not act on the data" for name in names[~data.any(axis=0)]]
    for where, u in (("starting on their", initial_u), ("on their", finding.u)):
        sides = on_bound(finding.study, u)
        for side, which in (("lower", sides < 0), ("upper", sides > 0)):
            if which.any():
                sentences.append(f"{where} {side} bound: {', '.join(names[which])}")
    return sentences


def on_bound(study: Study, u: np.ndarray) -> np.ndarray:
    """-1 where a free parameter is on its lower bound, 1 on its upper one, 0 between them [d]."""
    lower, upper = np.asarray(study.free.lower), np.asarray(study.free.upper)
    near = 1e-9 * (upper - lower)
    return np.where(u <= lower + near, -1, np.where(u >= upper - near, 1, 0))


def unmatched_remarks(finding: Finding) -> list[str]:
    """A sentence on each mode that stands alone: measured, or of the identified machine."""
    compared = zip(finding.study.fitted, finding.agreements, strict=True)
    return [m.remark for entry, found in compared if found is not None for m in unmatched_metrics(entry.name, found)]


def undamped(finding: Finding) -> bool:
    """Whether every free damping is on its lower bound."""
    damping = np.array([name.startswith("damping.") for name in finding.study.free.names], dtype=bool)
    return bool(damping.any() and (on_bound(finding.study, finding.u)[damping] < 0).all())


def search_remarks(study: Study, fit: Fit) -> list[str]:
    """A sentence where a population search began behind drawn starts."""
    if study.settings.search.algorithm != "auto" or fit.population_evaluations == 0:
        return []
    lower = fit.best < fit.before_population * (1.0 - SAME_MINIMUM)
    outcome = f"a lower one (cost {fit.best:.4g} instead of {fit.before_population:.4g})" if lower else "no lower one"
    return [
        f"after {DRAWN_ROUNDS} rounds of random starts without an agreed minimum that the noise explains, {DEFAULT}"
        f" searched from the best minimum ({fit.population_evaluations} evaluations) and found {outcome}"
    ]
