"""What is known of values found from deflections in one linear step, beside what their standard deviations say."""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.deflections.misfit import widening
from jaxmb.identify.assess.deflections.solve import DeflectionFit, Equations, Unknowns
from jaxmb.identify.estimation.identifiability import Knowledge, limits, verdicts
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.study.study import Study


def start_of(study: Study) -> Float[np.ndarray, "d"]:
    """Physical values that parameters keep which no test determines.

    The study's `initial`; where it gives none the machine's own value, if that is inside the bounds, else the middle of
    these: what is written of a machine should not change where nothing was learnt.
    """
    own = parameters(study.model)
    machine = np.array([own[name] for name in study.free.names])
    inside = (machine >= np.array(study.free.lower_value)) & (machine <= np.array(study.free.upper_value))
    given = np.array([source == "given" for source in study.initial_source])
    return np.where(inside & ~given, machine, study.initial)


def knowledge_of(fit: DeflectionFit, rows: Equations) -> Knowledge:
    """What the tests tell of the values, as it is reported.

    Standard deviations are widened where the model does not follow the data (`widening`). A value on a bound has none:
    the data would move it beyond, and what they say of it there they do not say of the bound.
    """
    known = fit.known
    factor = widening(fit.cost, rows.weight, fit.robust_weight, int(np.isfinite(known.std).sum()))
    std = np.where(fit.on_bound, np.inf, factor * known.std)
    return known._replace(std=std, covariance=factor**2 * known.covariance, verdict=verdicts(std, None))


def value_remarks(
    study: Study, start: Float[np.ndarray, "d"], found: Unknowns, fit: DeflectionFit, known: Knowledge
) -> list[str]:
    """A sentence on each value that is not determined, on a bound or outside of them, and one on those that are known
    beside the width of their bounds alone."""
    told, values = [], found.values(fit.compliance)
    free, own = study.free, parameters(study.model)
    for i, name in enumerate(free.names):
        lower, upper = free.lower_value[i], free.upper_value[i]
        if fit.unloaded[i]:
            kept = "the machine's own value" if start[i] == own[name] else "its initial value"
            told.append(f"{name} is not known: no test loads it, it keeps {kept}")
        elif not np.isfinite(fit.known.std[i]):
            told.append(
                f"{name} is not known: other parameters act on these tests as it does, and its value is one of many"
                " that fit as well"
            )
        elif fit.on_bound[i]:
            told.append(
                f"{name} ends on its {'upper' if found.stiffness[i] else 'lower'} bound: the data would move it beyond,"
                " and do not determine it within its bounds"
            )
        elif not lower <= values[i] <= upper:
            told.append(f"{name} is outside of its bounds, {lower:g} to {upper:g}, which a linear fit cannot hold")
    return told + _wide_remarks(study, values, known)


def _wide_remarks(study: Study, values: np.ndarray, known: Knowledge) -> list[str]:
    """One sentence on parameters of a linear scale whose deviation is small beside the bounds and not beside the
    value."""
    yes = float(limits(None)[0])
    std = known.std * np.array(study.free.width)
    wide = [
        f"{name} ({100.0 * std[i] / abs(values[i]):.3g} %)"
        for i, name in enumerate(study.free.names)
        if not study.free.logarithmic[i] and known.verdict[i] == "yes" and 0.0 < yes * abs(values[i]) < std[i]
    ]
    if not wide:
        return []
    return [
        "identifiable compares a standard deviation on a linear scale with the width of the bounds; beside the value"
        f" itself it is large for {', '.join(wide)}"
    ]
