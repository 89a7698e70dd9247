"""What a user should know of an identification beside its numbers: sentences on noise, bounds and what does not act."""

import numpy as np
from pydantic import ValidationError

from jaxmb.identify.estimation.identifiability import Knowledge
from jaxmb.identify.fit.loop import PLAUSIBLE, Fit
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import sentence
from jaxmb.machine.schema import Machine


def remarks(
    study: Study, machine: Machine, fit: Fit, known: Knowledge, bound: np.ndarray, jacobian: np.ndarray
) -> list[str]:
    """Sentences on lines left out, a cost that noise does not explain, the prior, and parameters without effect or on a
    bound.

    Args:
        study: what was fitted to what.
        machine: the identified one.
        fit: how it was found.
        known: of the free parameters.
        bound: `on_bound` of what was found.
        jacobian: at what was found, the prior's rows last.
    """
    told = list(study.masked)
    initial = on_bound(study, np.asarray(fit.initial_u))
    data = jacobian[: jacobian.shape[0] - prior_size(study)]
    excess = fit.best / study.noise_objective  # 0 where the noise is not known beforehand
    if excess > PLAUSIBLE:
        told.append(
            f"the cost is {excess:.3g} times what the noise alone gives: the model cannot follow the data,"
            " or the noise is larger than stated; standard deviations are widened where it is so"
        )
    try:
        Machine.model_validate(machine.model_dump())
    except ValidationError as error:
        told.append(f"no such machine can exist, and its file cannot be read back: {sentence(error, {}, Machine)}")
    names = np.asarray(study.free.names)
    if study.problem.prior is not None:
        held = np.isfinite(np.asarray(study.problem.prior.std))
        for verdict, what in (
            ("yes", "moved by the data"),
            ("weak", "narrowed by the data"),
            ("no", "left to the prior"),
        ):
            told.append(f"{what}: {', '.join(names[held & (np.asarray(known.verdict) == verdict)]) or 'none'}")
    told += [f"{name} does not act on the data" for name in names[~data.any(axis=0)]]
    for where, sides in (("starting on their", initial), ("on their", bound)):
        for side, which in (("lower", sides < 0), ("upper", sides > 0)):
            if which.any():
                told.append(f"{where} {side} bound: {', '.join(names[which])}")
    return told


def on_bound(study: Study, u: np.ndarray) -> np.ndarray:
    """-1 where a free parameter is on its lower bound, 1 on its upper one, 0 between them [d]."""
    lower, upper = np.asarray(study.free.lower), np.asarray(study.free.upper)
    near = 1e-9 * (upper - lower)
    return np.where(u <= lower + near, -1, np.where(u >= upper - near, 1, 0))


def undamped(study: Study, bound: np.ndarray) -> bool:
    """Whether every free damping is on its lower bound."""
    damping = np.array([name.startswith("damping.") for name in study.free.names])
    return bool(damping.any() and (bound[damping] < 0).all())


def prior_size(study: Study) -> int:
    """Rows of the prior, the last ones of residual and Jacobian."""
    return 0 if study.problem.prior is None else study.free.size
