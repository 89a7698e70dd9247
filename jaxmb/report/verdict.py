"""The verdict on a result: convergence, agreement with the data, identifiability, warnings, next steps."""

import math

from jaxmb.identify.assess.holdout import Verdict
from jaxmb.identify.assess.result import Outcome, Parameter, Result
from jaxmb.report.cells import number, percent
from jaxmb.report.section import Facts, Section

MOST_NAMED = 8
"""Largest number of parameters named in a line."""
MOST_DOUBTS = 5
"""Largest number of remarks in the verdict."""


def verdict_section(result: Result) -> Section:
    """Section on convergence, agreement with the data, identifiability of the parameters, warnings and next steps."""
    sentences = [("fit", [result.status]), ("data", data_sentences(result)), *known(result)]
    sentences += [("doubts", doubts(result)), ("to do", to_do(result))]
    rows = [(about if k == 0 else "", text) for about, texts in sentences for k, text in enumerate(texts)]
    return Section(f"{result.study.name}: the verdict", (Facts(tuple(rows)),))


def data_sentences(result: Result) -> list[str]:
    """Sentences on the residual in units of the noise, and on the share of the data explained."""
    sentences, stiffness = [_noise_line(result)], result.metrics.stiffness_model
    if stiffness is not None:
        percents = [f"{name} {p:.1f} %" for name, p in stiffness.compensated_percent.items() if p is not None]
        tests = "not used in the fit" if stiffness.judged == "check" else "used in the fit"
        sentences.append(f"share of the deflections {tests} that the models below compensate: {', '.join(percents)}")
    metrics = result.metrics
    both = metrics.fit is not None and metrics.holdout is not None
    for verdict, tests in ((metrics.fit, "fitted tests: " if both else ""), (metrics.holdout, "held-out tests: ")):
        if verdict is not None and (parts := _parts(verdict)):
            sentences.append(f"{tests}{', '.join(parts)}")
    return [text for text in sentences if text]


def _noise_line(result: Result) -> str:
    misfit, one_model = result.metrics.misfit, result.metrics.one_model
    agreement = "followed"
    if result.outcome is Outcome.NOT_FOLLOWED:
        agreement = "NOT followed"
    elif misfit is not None and not misfit.explained:
        agreement = "NOT followed within the noise"
    elif one_model is not None and not one_model.does:
        agreement = "NOT followed by one model for all tests"
    elif result.outcome is Outcome.NOT_IDENTIFIED:
        agreement = "in doubt"
    if misfit is None:
        levels = [record.noise_text for record in result.metrics.tests.values() if record.noise_text]
        source = "noise estimated from the residual" if agreement == "followed" else "residual"
        return f"{agreement}; {source}: {', '.join(levels)}" if levels else ""
    if misfit.exact:
        return "followed exactly"
    return f"{agreement}, residual {number(misfit.factor, 3)} times the noise"


def _parts(verdict: Verdict) -> list[str]:
    parts = []
    if verdict.frac is not None:
        parts.append(f"FRAC {verdict.frac:.4f}")
    if verdict.log_error is not None:
        parts.append(f"error of log H {number(verdict.log_error, 2)}")
    if verdict.frequency_error_hz is not None:
        parts.append(f"mean frequency error {number(verdict.frequency_error_hz, 2)} Hz")
    if verdict.explained_percent is not None:
        parts.append(f"{verdict.explained_percent:.1f} % of the measured values explained")
    return parts


def known(result: Result) -> list[tuple[str, list[str]]]:
    """Number of identifiable parameters, and the names of the weakly identifiable and the not identifiable ones."""
    by_verdict: dict[str, list[str]] = {"yes": [], "weak": [], "no": []}
    labels = {names[0]: f" ({len(names)} tied)" for names in result.study.free.tied if len(names) > 1}
    tied = {name for names in result.study.free.tied for name in names[1:]}
    shown = {name: p for name, p in result.parameters.items() if name not in tied}
    free, prior = result.study.free, result.study.problem.prior
    prior_std: dict[str, float] = {}
    if prior is not None:
        for i, names in enumerate(free.tied):
            scale = shown[names[0]].value if free.logarithmic[i] else free.width[i]
            prior_std[names[0]] = float(prior.std[i]) * float(scale)
    for name, p in shown.items():
        by_verdict[p.identifiable].append(f"{name}{labels.get(name, '')}{_std(p, prior_std.get(name, math.inf))}")
    counted = f"{len(by_verdict['yes'])} of {len(shown)} parameters"
    texts = [record.known_text for record in result.metrics.tests.values() if record.known_text]
    if texts and not any(result.study.free.logarithmic) and result.study.problem.prior is None:
        counted += ", to a tenth of the width of their bounds"
    sentences = [("identifiable", [counted, *texts])]
    for verdict, heading in (("weak", "weakly identifiable"), ("no", "not identifiable")):
        if names := by_verdict[verdict]:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            sentences.append((heading, [f"{len(names)}: {', '.join(names[:MOST_NAMED])}{more}"]))
    return sentences


def _std(p: Parameter, prior_std: float) -> str:
    if math.isfinite(p.std) and math.isfinite(prior_std):
        return f" (std {percent(100.0 * p.std / prior_std)} % of the prior's)"
    return f" (std {percent(100.0 * p.std_log)} %)" if math.isfinite(p.std_log) else ""


def doubts(result: Result) -> list[str]:
    """The most important remarks that put the result in doubt."""
    more = len(result.doubts) - MOST_DOUBTS
    return [*result.doubts[:MOST_DOUBTS], *([f"and {more} more remarks, at the end"] if more > 0 else [])]


def to_do(result: Result) -> list[str]:
    """Recommendations where the data are not followed, the fit did not converge or parameters are not identifiable."""
    sentences = []
    if result.outcome is Outcome.NOT_FOLLOWED:
        return ["first find out why the data are not followed: until then no identified value is reliable"]
    verdicts = [p.identifiable for p in result.parameters.values()]
    if result.outcome is Outcome.NOT_IDENTIFIED or (result.doubts and not result.converged and "yes" not in verdicts):
        return ["resolve the doubts first: further tests do not help before that"]
    if not result.converged:
        sentences.append("more rounds or starts (rounds, [refine] starts) may let the fit converge")
    unknown = any(verdict != "yes" for verdict in verdicts)
    if unknown and result.study.complete is None:
        sentences.append("`jaxmb inspect` of this study reports why parameters are not identifiable, and remedies")
    return sentences
