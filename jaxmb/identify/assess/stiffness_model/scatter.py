"""How far the variants of a complete stiffness model scatter with the errors of the instruments."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmb.identify.assess.deflections.scatter import drawn_displacements
from jaxmb.identify.assess.stiffness_model.compensation import able, cases_of, judged_cases
from jaxmb.identify.assess.stiffness_model_metrics import CompensationScatter
from jaxmb.identify.experiments.deflections.load_cases import measured_displacements, predicted
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.stiffness_model.variants import Variant, compensated_percent, least_squares, translations
from jaxmb.machine.build import Model


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
    """Standard deviations of what each variant compensates and predicts, over draws of the instruments' errors.

    The fitted tests are measured again and again: each time the best variant's displacements, changed by what errors of
    tracker, balance and encoders change on the identified machine, are fitted anew by all variants. The tests on which
    compensation is judged stay as they were measured. The parameters themselves are groups, whose scatter says less;
    their deviations are those of first order.

    Args:
        model: the machine whose geometry is used.
        finished: the identified machine's.
        entries: all tests.
        variants: as they were fitted.
        best: the variant that stands for the truth.
        std: standard deviation of each fitted displacement, its weight in it.
        draws: how many times.
        seed: of the errors.
    """
    fitted = [entry for entry in entries if entry.role == "fit"]
    fit_tests, judged = cases_of(entries, "fit"), judged_cases(entries)
    usable = able(model, judged, variants)
    rows = {name: v.model.observation(model, fit_tests) for name, v in variants.items()}
    seen = {name: v.model.observation(model, judged) for name, v in usable.items()}
    of_machine = np.concatenate([p[t.measured] for p, t in zip(predicted(finished, fit_tests), fit_tests, strict=True)])
    truth = rows[best] @ variants[best].fit.values
    robust = any(entry.test.robust for entry in fitted)
    measured, _ = measured_displacements(judged)
    moved = {name: np.empty((draws, measured.size)) for name in usable}
    for k, drawn in enumerate(drawn_displacements(finished, fitted, draws, seed)):
        for name, variant in usable.items():
            fit = least_squares(variant.model, rows[name], truth + drawn - of_machine, std, robust)
            moved[name][k] = seen[name] @ fit.values
    percent = {name: [compensated_percent(judged, row) for row in moved[name]] for name in usable}
    # what measured less deviation leaves of measured is the deviation, by point and direction
    spread = {name: translations(judged, measured - moved[name].std(axis=0, ddof=1))[0] for name in usable}
    return CompensationScatter(
        draws=draws,
        compensated_percent_std={name: float(np.std(percent[name], ddof=1)) for name in usable},
        predicted_std_mm={name: 1e3 * float(np.sqrt(np.mean(np.sum(spread[name] ** 2, axis=1)))) for name in usable},
    )
