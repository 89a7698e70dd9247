"""Table of kinds of tests: additional metrics, remarks and systematic errors of each kind."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.holdout import verdict
from jaxmb.identify.assess.metrics import KindMetrics, Metrics, prior_deviations, truth_metrics
from jaxmb.identify.assess.stiffness_model_metrics import StiffnessModelMetrics
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, deflection_remarks
from jaxmb.identify.assess.tests.frf import FrfMetrics, ModesMetrics, frf_remarks
from jaxmb.identify.assess.tests.joints import systematic_errors
from jaxmb.identify.assess.tests.torque import TorqueMetrics, torque_remarks
from jaxmb.identify.experiments.entry import by_kind
from jaxmb.identify.study.study import Study
from jaxmb.io.records import restored


class Kind(NamedTuple):
    """Assessment of a kind of test; None for parts that do not apply."""

    metrics: type[KindMetrics] | None = None
    remarks: Callable[..., tuple[list[str], list[str]]] | None = None
    """(finding, entries of the kind, its metrics) -> likely causes of a poor fit, and other doubts."""
    systematic: Callable[..., tuple[np.ndarray, Sequence[str]]] | None = None
    """(linear finding, entries of the kind) -> covariance of u due to systematic errors, and remarks."""


KINDS: dict[str, Kind] = {
    "frf": Kind(FrfMetrics, frf_remarks),
    "modes": Kind(ModesMetrics),
    "deflection": Kind(DeflectionMetrics, deflection_remarks),
    "torque": Kind(TorqueMetrics, torque_remarks, systematic_errors),
}


def read_metrics(data: Mapping[str, Any], study: Study) -> Metrics:
    """Metrics from `metrics` of result.json.

    Args:
        data: those.
        study: the identified study.
    """
    if study.complete is not None:
        return Metrics(stiffness_model=restored(StiffnessModelMetrics, data))
    tests = {}
    for kind, entries in by_kind(study.entries, KINDS):
        of_kind = KINDS[kind].metrics
        record = None if of_kind is None else of_kind.read(data, {entry.name for entry in entries})
        if record is not None:
            tests[kind] = record
    return dataclasses.replace(restored(Metrics, {**data, "tests": {}}), tests=tests)


def fit_metrics(finding: Finding) -> Metrics:
    """Metrics of a fit: errors against the truth, prediction scores of fitted and held-out tests, and metrics of each
    kind of test."""
    study = finding.study
    kinds = {}
    for kind, entries in by_kind(study.entries, KINDS):
        of_kind = KINDS[kind].metrics
        record = None if of_kind is None else of_kind.found(finding, entries)
        if record is not None:
            kinds[kind] = record
    return dataclasses.replace(
        truth_metrics(finding),
        misfit=finding.misfit,
        fit=verdict(study.fitted, finding.views) if study.fitted else None,
        holdout=verdict(study.checks, (e.test.view(finding.model) for e in study.checks)) if study.checks else None,
        tests=kinds,
        prior_log_std=prior_deviations(study, np.array(study.free.logarithmic), 1.0),
        prior_std=prior_deviations(study, ~np.array(study.free.logarithmic), study.free.width),
    )


def kind_remarks(finding: Finding, metrics: Metrics) -> tuple[list[str], list[str]]:
    """Sentences of each kind of test: likely causes of a poor fit, and other doubts."""
    causes, others = list[str](), list[str]()
    for kind, entries in by_kind(finding.study.entries, KINDS):
        remarks = KINDS[kind].remarks
        if remarks is not None:
            own = remarks(finding, entries, metrics.tests.get(kind))
            causes, others = [*causes, *own[0]], [*others, *own[1]]
    return causes, others


def with_systematic_errors(finding: Finding) -> tuple[Finding, list[str]]:
    """The fit with standard deviations that include systematic errors of its tests, and remarks on these."""
    sentences = list[str]()
    for kind, entries in by_kind(finding.study.entries, KINDS):
        systematic = KINDS[kind].systematic
        if systematic is not None:
            covariance, remarks = systematic(finding, entries)
            finding, sentences = finding.with_added(covariance), [*sentences, *remarks]
    return finding, sentences
