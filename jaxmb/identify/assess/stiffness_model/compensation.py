"""What each variant of a stiffness model leaves of the deflections, on tests that were fitted and on others."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxmb.identify.assess.stiffness_model_metrics import Compensation, CompensationRow, Errors
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.stiffness_model.variants import Variant, compensated_percent, predict, residual_norms, translations
from jaxmb.machine.build import Model

MOST_NAMED = 10
"""Tests that a remark names one by one."""


def cases_of(entries: Sequence[Entry], role: str) -> list[LoadCase]:
    """All load cases of a role."""
    return [case for entry in entries if entry.role == role for case in entry.source.cases]


def judged_cases(entries: Sequence[Entry]) -> list[LoadCase]:
    """Those on which compensation is judged: the check tests, or the fitted ones where there is none."""
    return cases_of(entries, "check") or cases_of(entries, "fit")


def able(model: Model, tests: Sequence[LoadCase], variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """The variants that predict all of the tests: those that know the compensated joint at every angle of them."""
    return {name: v for name, v in variants.items() if not v.model.angles_not_tested(model, tests)}


def compensation_metrics(model: Model, entries: Sequence[Entry], variants: Mapping[str, Variant]) -> Compensation:
    """Table 2 of Klimchik et al. 2014 and the errors of every point by role, and the percent that each variant
    compensates."""
    tables, errors = {}, {}
    for role in ("fit", "check"):
        if tests := cases_of(entries, role):
            usable = able(model, tests, variants)
            tables[role] = _table2(model, tests, usable)
            errors[role] = {name: 1e3 * translations(tests, predict(v, model, tests))[0] for name, v in usable.items()}
    percent = {row.model: row.compensated_percent for row in tables["check" if "check" in tables else "fit"][1:]}
    return Compensation(
        table2_fit=tables.get("fit"),
        table2_check=tables.get("check"),
        errors_mm_fit=errors.get("fit"),
        errors_mm_check=errors.get("check"),
        compensated_percent={name: percent.get(name) for name in variants},
    )


def angle_remarks(model: Model, entries: Sequence[Entry], variants: Mapping[str, Variant]) -> list[str]:
    """A sentence where check tests are made at angles of the compensated joint that no fitted test has."""
    tests = cases_of(entries, "check")
    models = [v.model for v in variants.values() if tests and v.model.angles_not_tested(model, tests)]
    for joint in (stiffness.compensated[0] for stiffness in models[:1] if stiffness.compensated is not None):
        others = models[0].angles_not_tested(model, tests)
        named = ", ".join(f"'{test}' at {np.degrees(angle):.6g} deg" for test, angle in others[:MOST_NAMED])
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        return [
            f"{' and '.join(stiffness.name for stiffness in models)} are not judged on the check tests: the compliance"
            f" of {joint.joint} was identified at {joint.angles_text} deg, and not at the"
            f" {'angle' if len(others) == 1 else 'angles'} of deflection {'test' if len(others) == 1 else 'tests'}"
            f" {named}{more}"
        ]
    return []


def _table2(model: Model, tests: Sequence[LoadCase], variants: Mapping[str, Variant]) -> tuple[CompensationRow, ...]:
    """Largest and root mean square error of every model along x, y, z and of the position, mm: Table 2."""
    rows = []
    for name, variant in (("none", None), *variants.items()):
        measured, _ = measured_displacements(tests)
        predicted = np.zeros(measured.size) if variant is None else predict(variant, model, tests)
        left, _ = translations(tests, predicted)
        norm, _ = residual_norms(tests, predicted)
        errors = [Errors(1e3 * float(np.abs(e).max()), 1e3 * float(np.sqrt(np.mean(e**2)))) for e in (*left.T, norm)]
        count = 0 if variant is None else len(variant.model.names)
        x, y, z, position = errors
        rows.append(CompensationRow(name, count, x, y, z, position, compensated_percent(tests, predicted)))
    return tuple(rows)
