"""Assessment of an estimate: standard deviations, diagnosis, metrics and remarks, as a `Result`."""

import dataclasses

import jax
import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.kinds import fit_metrics, kind_remarks
from jaxmb.identify.assess.laws.law_choice import law_remarks
from jaxmb.identify.assess.linear_estimate import diagnosed_linear, linear_status
from jaxmb.identify.assess.remarks import (
    CAPPED,
    data_remarks,
    excess_remarks,
    gross_remarks,
    machine_remarks,
    prior_remarks,
)
from jaxmb.identify.assess.result import Mode, Result, ended_text, found_parameters
from jaxmb.identify.assess.search_estimate import diagnosed_search, search_status
from jaxmb.identify.assess.uncertainty.ambiguity import mode_deviations
from jaxmb.identify.estimation.identifiability import correlation, groups, groups_by_name, information_rows
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.response.modal import modes, select_modes


def assess(finding: Finding) -> Result:
    """Result of an estimate: uncertainties, diagnosis, metrics and remarks, the same way for every solver.

    Args:
        finding: from `search_estimate` or `linear_estimate`.
    """
    plain, study, solver = finding.known.verdict, finding.study, finding.solver
    found = diagnosed_linear(finding) if solver.fit is None else diagnosed_search(finding, solver.fit)
    finding = found.finding.cap_confidence(not found.wrong)
    rows = solver.information
    if rows is None:
        rows = information_rows(finding.jacobian, solver.variances)
    known_together = groups_by_name(groups(rows, finding.known.prior_std), study.free.names)
    metrics = dataclasses.replace(fit_metrics(finding), known_together=known_together, **found.metrics)
    machine = study.machine_with(finding.model)
    causes, others = kind_remarks(finding, metrics)
    likely = [found.hypothesis] if found.hypothesis else [*gross_remarks(finding), *causes, *found.causes]
    misfit = excess_remarks(finding.misfit, finding.systematic, likely)
    doubts = (*misfit, *others, *([CAPPED] if found.wrong else []), *found.doubts, *machine_remarks(machine))
    ended = ended_text(finding.missed, found.wrong, plain, finding.known.verdict, doubts)
    if solver.fit is not None:
        status = search_status(finding, solver.fit, ended)
    else:
        status = linear_status([] if finding.linear is None else [finding.linear.step], ended)
    return Result(
        study=study,
        status=status,
        seed=finding.seed,
        cost=solver.cost,
        initial_cost=solver.initial_cost,
        parameters=found_parameters(study, finding.values, solver.initial, finding.known),
        modes=_modes(finding, rows),
        metrics=metrics,
        remarks=(*doubts, *data_remarks(study), *found.remarks, *prior_remarks(finding), *law_remarks(metrics.laws)),
        doubts=doubts,
        correlation=correlation(finding.known.covariance),
        singular_values=finding.known.singular_values,
        model=finding.model,
        machine=machine,
        evaluations=solver.evaluations,
        seconds={},
        history=solver.history,
    )


def _modes(finding: Finding, rows: np.ndarray) -> tuple[Mode, ...]:
    """Modes of the identified machine below the end of each test's band; `rows` is the information about u."""
    study, lines = finding.study, []
    for entry, view, _ in finding.of(study.fitted):
        test = entry.test
        if isinstance(test, PostureTest):
            tangent = test.vibration.tangent(view)
            found = jax.tree.map(np.asarray, modes(tangent))
            found = select_modes(found, found.frequency_hz <= test.vibration.band_end_hz)
            std = mode_deviations(test, study.model, study.free, finding.u, tangent, found, rows)
            columns = (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, *std.T)
            lines += [Mode(entry.name, *row) for row in np.array(columns).T.tolist()]
    return tuple(lines)
