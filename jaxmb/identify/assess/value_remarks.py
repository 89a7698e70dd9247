"""What a user should know of the values of a linear step: which are not known, and where bounds were reached."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.estimation.identifiability import Knowledge, limits
from jaxmb.identify.experiments.test import listed
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.study.study import Study

# what is said of one parameter, and of several
_NO_EFFECT_OWN = (
    " is not known: no measurement depends on it, it keeps the machine's own value",
    " are not known: no measurement depends on them, they keep the machine's own values",
)
_NO_EFFECT_INITIAL = (
    " is not known: no measurement depends on it, it keeps its initial value",
    " are not known: no measurement depends on them, they keep their initial values",
)
_NO_EFFECT_POSSIBLE = (
    " is not known: no measurement depends on it, its value makes its body physically consistent",
    " are not known: no measurement depends on them, their values make their bodies physically consistent",
)
_ALIKE = (
    " is identifiable only in combination with others: its value is one of many that fit as well",
    " are identifiable only in combination: their values are one set of many that fit as well",
)
_ON_LOWER, _ON_UPPER = (
    (
        f" ends on its {which} bound: the data would move it beyond, and do not determine it within its bounds",
        f" end on their {which} bounds: the data would move them beyond, and do not determine them within their bounds",
    )
    for which in ("lower", "upper")
)


def bound_doubts(finding: Finding) -> list[str]:
    """A sentence on the values that end on a bound, beyond which the data would move them."""
    return _value_remarks(finding, (_ON_LOWER, _ON_UPPER))


def value_remarks(finding: Finding) -> list[str]:
    """A sentence on the values that are not determined for each reason, and one on those that are known beside the
    width of their bounds alone."""
    if finding.linear is None:
        return []
    values = finding.linear.unknowns.decode(finding.linear.step.x)
    found = _value_remarks(finding, (_NO_EFFECT_OWN, _NO_EFFECT_INITIAL, _NO_EFFECT_POSSIBLE, _ALIKE))
    return found + _wide_remarks(finding.study, values, finding.known)


def _value_remarks(finding: Finding, reasons: Sequence[tuple[str, str]]) -> list[str]:
    study, linear = finding.study, finding.linear
    if linear is None:
        return []
    named, (found, _, fit, start) = dict[tuple[str, str], list[str]](), linear
    free, own = study.free, parameters(study.model)
    for i, name in enumerate(free.names):
        if fit.without_effect[i]:
            reason = _NO_EFFECT_OWN if start[i] == own.get(name) else _NO_EFFECT_INITIAL
            named.setdefault(reason if fit.x[i] == found.encode(start)[i] else _NO_EFFECT_POSSIBLE, []).append(name)
        elif fit.on_bound[i]:
            lower = (fit.x[i] <= found.least[i]) != found.reciprocal[i]
            named.setdefault(_ON_LOWER if lower else _ON_UPPER, []).append(name)
        elif not np.isfinite(fit.known.std[i]):
            named.setdefault(_ALIKE, []).append(name)
    return [listed(names) + text[len(names) > 1] for text, names in named.items() if text in reasons]


def _wide_remarks(study: Study, values: np.ndarray, known: Knowledge) -> list[str]:
    """One sentence on parameters of a linear scale whose deviation is small beside the bounds and not beside the
    value."""
    yes = float(limits(None)[0])
    std = known.std * np.array(study.free.width)
    alone = np.ones(std.size, bool) if known.prior_std is None else ~np.isfinite(known.prior_std)
    percents = {
        name: 100.0 * std[i] / abs(values[i])
        for i, name in enumerate(study.free.names)
        if alone[i]
        and not study.free.logarithmic[i]
        and known.verdict[i] == "yes"
        and 0.0 < yes * abs(values[i]) < std[i]
    }
    if not percents:
        return []
    wide = [f"{name} ({p:.3g} %)" for name, p in sorted(percents.items(), key=lambda pair: -pair[1])]
    return [
        "identifiable 'yes' relative to the width of the bounds (linear scale), with a standard deviation that is large"
        f" relative to the value: {listed(wide)}"
    ]
