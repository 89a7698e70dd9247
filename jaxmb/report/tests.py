"""Sections of a report on each kind of test: FRFs, modes, deflections, torques and poses."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, ErrorRow
from jaxmb.identify.assess.tests.frf import FrfMetrics, ModesMetrics
from jaxmb.identify.assess.tests.poses import PoseErrorStatistics, PoseMetrics
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.identify.experiments.test import ROLES, Entry, by_kind
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import percentage
from jaxmb.machine.families import OF_GEOMETRY, STATION
from jaxmb.measurement.modal.data import distinguishable
from jaxmb.mechanics.kinematics import ELASTIC_AXES
from jaxmb.report.charts_of_tests import (
    QUANTITIES,
    base_chart,
    convergence_chart,
    displacement_chart,
    measured_rows,
    pose_chart,
    rotation_chart,
    torque_chart,
)
from jaxmb.report.frf_charts import frf_overview, frf_test_chart, residual_chart, residual_overview, score_of
from jaxmb.report.modal import stabilization_chart, synthesized, synthesized_chart
from jaxmb.report.modes import (
    ModePairs,
    analysed_modes_table,
    data_label,
    fitted_modes,
    frequency_unit,
    identified_modes_table,
    measured_modes_chart,
    measured_modes_table,
    measured_pairs,
    modes_of_all_tests,
    pairs_chart,
    true_modes_table,
)
from jaxmb.report.section import (
    GEOMETRY_UNITS,
    Cell,
    Part,
    Picture,
    Section,
    Table,
    left,
    number,
    right,
    section,
    table,
)

MOST_TESTS = 3
"""Number of tests of a kind up to which each has a table of modes and figures; more share one of each."""
PREFIX = {"fit": "", "check": "check-"}
"""Beginning of the file names of the pictures of a test, by its role."""
LONGEST_NAME = 60
"""Longest part of a file name taken from a test's name, characters."""
SCORES: dict[str, tuple[str, Callable[[float], str]]] = {
    "FRAC": ("frac", "{:.4f}".format),
    "error of log H": ("log_error", partial(number, digits=2)),
    "frequency error Hz": ("frequency_error_hz", partial(number, digits=2)),
    "explained %": ("explained_percent", partial(percentage, form=".1f")),
}
"""Field of `TestPrediction` and its text, by heading."""


def plain_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Default section of a kind of test: the prediction scores."""
    return [Section(f"Tests of kind {entries[0].kind}", (score_table(result, entries),))]


def score_table(result: Result, entries: Sequence[Entry]) -> Table:
    """Prediction scores of the identified machine for each test, with the number of values that were not left out and
    the columns that apply to any of the tests."""
    rows = []
    for entry in entries:
        score = score_of(result, entry)
        cells = ((getattr(score, field, None), form) for field, form in SCORES.values())
        rows.append(
            (
                entry.name,
                ROLES[entry.role],
                str(np.count_nonzero(entry.test.stated_variances())),
                *(None if value is None else form(value) for value, form in cells),
            )
        )
    unit = frequency_unit(entries)
    headings = (heading.replace("Hz", unit) for heading in SCORES)
    return table("", (*left("test", "role"), *right("values", *headings)), rows)


def shown_tests(result: Result, entries: Sequence[Entry]) -> list[Entry]:
    """Tests with figures of their own: all up to `MOST_TESTS`, else the fitted and the held-out one with the largest
    residual."""
    if len(entries) <= MOST_TESTS:
        return list(entries)
    by_role = [[entry for entry in entries if entry.role == role] for role in ("fit", "check")]
    return [entry for some in by_role for entry in largest_residuals(result, some, 1)]


def largest_residuals(result: Result, entries: Sequence[Entry], most: int) -> list[Entry]:
    """The `most` tests with the largest residual, in their original order."""
    sizes = [float(np.mean(result.residual(entry.name, entry.role) ** 2)) for entry in entries]
    return [entries[i] for i in np.sort(np.argsort(sizes)[-most:])]


def more_tests(result: Result) -> list[tuple[Entry, list[Part]]]:
    """Tests without charts of their own in the sections, each with its charts."""
    found, files = list[tuple[Entry, list[Part]]](), file_names(result.study)
    for kind, entries in by_kind(result.study.entries, PARTS):
        shown = shown_tests(result, entries)
        for entry in (entry for entry in entries if entry not in shown):
            found.append((entry, list(filter(None, PARTS[kind](result, entry, files[entry], PREFIX[entry.role])))))
    return found


def mac_picture(result: Result, entry: Entry, pairs: ModePairs | None, file: str, unit: str = "Hz") -> Picture | None:
    """Figure of the MAC of identified and measured shapes; None if none were measured or the sensors do not distinguish
    them. `unit` is that of the frequencies."""
    if pairs is None or not distinguishable(pairs.reference.shape.shape[0], *pairs.likeness.shape):
        return None
    return Picture(f"mac-{file}", partial(pairs_chart, result, entry.name, pairs, unit, data_label(entry)))


def file_names(study: Study) -> dict[Entry, str]:
    """Part of a file name for each test, from its name in portable characters; unique among tests of one role."""
    found = {}
    for entries in (study.fitted, study.checks):
        plain = [re.sub(r"[^A-Za-z0-9]+", "-", e.name).strip("-").lower()[:LONGEST_NAME] or "test" for e in entries]
        distinct = len(set(plain)) == len(plain)
        found |= {
            e: name if distinct else f"{k}-{name}" for k, (e, name) in enumerate(zip(entries, plain, strict=True), 1)
        }
    return found


LEAST_SHARE = 1.0
"""Smallest share that is listed, %."""


def budget_table(budget: Mapping[str, Mapping[str, float]]) -> Table:
    """Share of each joint, spring and flexible link in the deflections along the loads, one column per test."""
    names = list(dict.fromkeys(name for shares in budget.values() for name in shares))
    largest = {name: max(shares.get(name, 0.0) for shares in budget.values()) for name in names}
    shown = [name for name in names if largest[name] >= LEAST_SHARE]
    return Table(
        "Share of the deflections (%)",
        (*left("joint or link"), *right(*budget)),
        tuple((name, *(f"{shares.get(name, 0.0):z.1f}" for shares in budget.values())) for name in shown),
        f"of the deflection along the load, sum of all load cases; shares of {LEAST_SHARE:g} % and more",
    )


MISSING = "-"


def deflection_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Sections on the deflections explained by the identified machine and on the errors of the identified values.

    Args:
        result: the identification.
        entries: the deflection tests of its study.
    """
    metrics = result.metrics.of(DeflectionMetrics)
    if metrics is None:
        return []
    convergence = metrics.convergence
    parts = (
        gap_table(metrics),
        budget_table(metrics.budget) if metrics.budget else None,
        instrument_table(result, metrics.table2) if metrics.table2 and metrics.table2[0].draws else None,
        None if convergence is None else Picture("convergence", partial(convergence_chart, result, convergence)),
        Picture("displacements", partial(displacement_chart, metrics)) if measured_rows(metrics, "mm") else None,
        Picture("rotations", partial(rotation_chart, metrics)) if measured_rows(metrics, "deg") else None,
    )
    return section("Deflection tests", parts)


def gap_table(metrics: DeflectionMetrics) -> Table:
    """Predicted against measured translations and rotations, one row per set of tests and kind."""
    rows = []
    for line in metrics.sets:
        for kind, unit, errors in (("translation", "mm", line.translation), ("rotation", "deg", line.rotation)):
            lengths = (errors[f"{what}_{unit}"] for what in ("mean_measured", "max_measured", "mean_gap", "max_gap"))
            if errors["explained_percent"] is not None:
                rows.append(
                    (
                        line.set, ROLES[line.role], str(line.tests), f"{kind} ({unit})",
                        *(MISSING if x is None else number(x, 3) for x in lengths),
                        percentage(errors["explained_percent"], ".1f"),
                    )
                )  # fmt: skip
    columns = (
        *left("tests", "role"), *right("number"), *left("kind"),
        *right("mean", "max", "mean gap", "max gap", "explained %"),
    )  # fmt: skip
    return Table("Measured and predicted", columns, tuple(rows), "gap: between measured and predicted")


def instrument_table(result: Result, lines: Sequence[ErrorRow]) -> Table:
    """Identified values with their errors, in the layout of Table II of Dumas et al. 2011.

    The errors are the standard deviation over the Monte-Carlo draws and that by first-order propagation of the
    displacement errors. "on a bound" counts the draws that ended on a bound, which reduces the scatter.
    """
    rows = []
    for row in lines:
        if row.value is None:
            cells = ["not identifiable", *[MISSING] * 5]
        else:
            by_draws = [number(row.error, 2), number(row.percent, 2), str(row.clipped)]
            cells = [number(row.value), *by_draws, number(row.linear_error, 2), number(row.linear_percent, 2)]
        rows.append((row.parameter, result.parameters[row.parameter].unit, *cells))
    return Table(
        "Values with their errors (layout of Dumas et al. 2011, Table II)",
        (
            *left("parameter", "unit"),
            *right("value", f"error, {lines[0].draws} draws", "%", "on a bound", "error, first order", "%"),
        ),
        tuple(rows),
        "errors due to the instruments alone, without tolerances of the machine and the tests",
    )


MOST_DRAWN = 24
"""Largest number of tests in the figure of the FRFs of many tests."""


def frf_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the agreement of measured and predicted FRFs and on the modes at each test's posture.

    Args:
        result: the identification.
        entries: the FRF tests of its study.
    """
    record = result.metrics.of(FrfMetrics) or FrfMetrics()
    overview: list[Part | None] = []
    many = len(entries) > MOST_TESTS
    if many:
        drawn = largest_residuals(result, entries, MOST_DRAWN)
        note = f", the {len(drawn)} with the largest residual" if len(drawn) < len(entries) else ""
        pairs = (*(record.measured_modes or ()), *(result.metrics.true_modes or ()))
        residuals = Picture("residual-all-tests", partial(residual_overview, result, entries))
        overview = [
            modes_of_all_tests(result, entries, pairs, record.unmatched_modes or ()),
            Picture("frf-all-tests", partial(frf_overview, result, drawn, note)),
            residuals if is_noisy(result) else None,
        ]

    def of_test(entry: Entry, file: str, prefix: str) -> list[Part | None]:
        return [
            _modes_table(result, record, entry) if entry.role == "fit" and not many else None,
            *frf_parts(result, entry, file, prefix),
        ]

    common = [score_table(result, entries), *overview]
    return section("FRF tests", [*common, *parts_of_tests(result, entries, of_test)])


def is_noisy(result: Result) -> bool:
    """Whether the residual exceeds rounding errors."""
    return result.metrics.misfit is None or not result.metrics.misfit.exact


def frf_parts(result: Result, entry: Entry, file: str, prefix: str) -> list[Part | None]:
    """Charts of an FRF test.

    Args:
        result: the identification.
        entry: the test.
        file: its part of a file name.
        prefix: of its role, "" or "check-".
    """
    link = f"{prefix}{file}"
    residual = Picture(f"{prefix}residual-{file}", partial(residual_chart, result, entry, link))
    parts: list[Part | None] = [
        Picture(f"{prefix or 'frf-'}{file}", partial(frf_test_chart, result, entry, link)),
        residual if is_noisy(result) else None,
    ]
    analysis, measured = entry.source.modal, entry.source.measured
    if entry.role == "fit" and analysis is not None:
        unit = entry.source.frequency_unit
        parts += [
            Picture(f"stabilization-{file}", partial(stabilization_chart, entry.name, analysis, measured, unit)),
            Picture(
                f"synthesized-{file}",
                lambda: synthesized_chart(entry.name, synthesized(analysis, measured), data_label(entry), unit),
            ),
            mac_picture(result, entry, measured_pairs(entry, result.model), file, unit),
        ]
    return parts


def parts_of_tests(
    result: Result, entries: Sequence[Entry], of_test: Callable[[Entry, str, str], list[Part | None]]
) -> list[Part | None]:
    """Parts of each shown test.

    Args:
        result: the identification.
        entries: the tests.
        of_test: from a test, its part of a file name and the prefix of its role ("" or "check-") to its parts.
    """
    files, shown = file_names(result.study), shown_tests(result, entries)
    return [part for entry in shown for part in of_test(entry, files[entry], PREFIX[entry.role])]


def _modes_table(result: Result, record: FrfMetrics, entry: Entry) -> Table:
    """Modes at the posture of an FRF test, with its unit of frequency."""
    name, unit = entry.name, entry.source.frequency_unit
    pairs = [line for line in record.measured_modes or () if line.posture == name]
    unpaired = [line for line in record.unmatched_modes or () if line.posture == name]
    true = [line for line in result.metrics.true_modes or () if line.posture == name]
    if pairs or unpaired:
        return analysed_modes_table(result, name, pairs, unpaired, unit)
    if true:
        return true_modes_table(result, name, true, unit)
    return identified_modes_table(result, name, unit)


def modes_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the measured modes and those of the identified machine.

    Args:
        result: the identification.
        entries: the modal tests of its study.
    """
    record = result.metrics.of(ModesMetrics) or ModesMetrics()
    overview = [modes_of_all_tests(result, entries, record.measured_modes or ())] if len(entries) > MOST_TESTS else []
    of_tests = parts_of_tests(result, entries, partial(modes_parts, result))
    return section("Modal tests", [score_table(result, entries), *overview, *of_tests])


def modes_parts(result: Result, entry: Entry, file: str, prefix: str) -> list[Part | None]:
    """Table and charts of a modal test; arguments as of `frf_parts`."""
    fitted = fitted_modes(result.model, entry.test)
    return [
        measured_modes_table(result, entry, fitted),
        Picture(f"{prefix}modes-{file}", partial(measured_modes_chart, result, entry, fitted)),
        mac_picture(result, entry, fitted.pairs, file) if entry.role == "fit" else None,
    ]


def torque_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the measured and predicted torques or forces of each drive.

    Args:
        result: the identification.
        entries: the torque tests of its study.
    """
    metrics = result.metrics.of(TorqueMetrics)
    if metrics is None:
        return []
    files = {entry: f"{PREFIX[entry.role]}torques-{name}" for entry, name in file_names(result.study).items()}
    parts = (
        torque_table(metrics),
        centre_table(metrics) if metrics.centres else None,
        base_table(metrics) if metrics.base else None,
        Picture("base-parameters", partial(base_chart, result.study.name, metrics)) if metrics.base else None,
        *(Picture(files[entry], partial(torque_chart, result, entry)) for entry in entries),
    )
    return section("Torque tests", parts)


def torque_table(metrics: TorqueMetrics) -> Table:
    """Errors of predicted torques and forces, one row per test and coordinate."""
    rows = [
        (
            row.test, ROLES[row.role], row.coordinate, number(row.rms, 3),
            number(row.rms_error, 3), percentage(row.relative_percent, ".2f"),
            None if row.covered_percent is None else f"{row.covered_percent:.1f}",
            None if row.essential_percent is None else percentage(row.essential_percent, ".2f"),
        )
        for row in metrics.torques
    ]  # fmt: skip
    return table(
        "Torques (N m) and forces (N)",
        (*left("test", "role", "coordinate"), *right("rms", "rms error", "error %", "inside %", "essential %")),
        rows,
        "error %: root mean square of measured less predicted over measured",
        {
            "inside %": "inside %: samples within the 95 % intervals of their predictions",
            "essential %": "essential %: with the essential parameters alone",
        },
        missing="",
    )


def centre_table(metrics: TorqueMetrics) -> Table:
    """Centres of mass of bodies with identified mass and first moments."""
    rows = tuple(
        (row.body, row.axis, number(row.value), number(row.std, 2), *(number(end) for end in row.interval_95))
        for row in metrics.centres
    )
    return Table(
        "Centres of mass, m",
        (*left("body", "axis"), *right("centre", "std", "from", "to")),
        rows,
        "of 95 % intervals, in the axes of each body",
    )


def base_table(metrics: TorqueMetrics) -> Table:
    """Base parameters, with their errors for simulated machines."""
    essential = sum(row.essential_value is not None for row in metrics.base)
    rows = [
        (
            row.formula, number(row.value), number(row.std, 2),
            f"{100.0 * (row.value / row.true - 1.0):+.2g}" if row.true else None,
            None if row.essential_value is None else number(row.essential_value),
            None if row.essential_std is None else number(row.essential_std, 2),
        )
        for row in metrics.base
    ]  # fmt: skip
    return table(
        "Base parameters, SI units",
        (*left("base parameter"), *right("value", "std", "error %", "essential", "std")),
        rows,
        "each row: a combination of parameters that the torques of this machine determine",
        {
            "essential": f"{essential} of {len(rows)} are essential: they fit the torques equally well with the others"
            " at 0"
        },
    )


def pose_sections(result: Result, entries: Sequence[Entry]) -> list[Section]:
    """Section on the errors of poses before and after the fit, and on the identified geometry.

    Args:
        result: the identification.
        entries: the pose tests of its study.
    """
    metrics = result.metrics.of(PoseMetrics)
    if metrics is None:
        return []

    def of_test(entry: Entry, file: str, prefix: str) -> list[Part | None]:
        rows = [
            row for row in metrics.pose_rows if (row.test, row.role) == (entry.name, entry.role) and row.is_measured
        ]
        title = f"{result.study.name}, {entry.name}, {ROLES[entry.role]}"
        seen = [(of, [row for row in rows if np.isfinite(row.error[of.part]).any()]) for of in QUANTITIES]
        return [Picture(f"{prefix}{of.file}-{file}", partial(pose_chart, own, title, of)) for of, own in seen if own]

    tables = (pose_table(metrics), geometry_table(result), station_table(result))
    return section("Pose tests", [*tables, *parts_of_tests(result, entries, of_test)])


def pose_table(metrics: PoseMetrics) -> Table:
    """Errors of the poses of each test before and after the fit."""

    def cells(errors: PoseErrorStatistics, prefix: str) -> list[str]:
        known = (errors.get(prefix + what) for what in ("mean", "percentile_95", "largest"))
        return [MISSING if x is None else number(1e3 * x, 3) for x in known]

    rows = []
    for line in metrics.pose_sets:
        share = line.after["covered_percent"]
        covered = MISSING if share is None else f"{share:.1f}"
        for quantity in QUANTITIES:
            if line.after.get(f"{quantity.prefix}mean") is not None:
                both = (*cells(line.before, quantity.prefix), *cells(line.after, quantity.prefix))
                error = f"{quantity.name} ({quantity.unit})"
                rows.append((line.test, ROLES[line.role], f"{line.after[quantity.count]:.0f}", error, *both, covered))
    return Table(
        "Poses",
        (
            *left("test", "role"), *right("points"), *left("error"),
            *right("before: mean", "95 %", "largest", "after: mean", "95 %", "largest", "within 95 %"),
        ),
        tuple(rows),
        "before: the machine as stated, stations fitted to it; within 95 %: share of all components within the interval"
        " of their prediction, noise included",
    )  # fmt: skip


def station_table(result: Result) -> Table | None:
    """Identified poses of the measuring devices; None without any."""
    stations = dict[str, dict[str, str]]()
    for name, p in result.parameters.items():
        family, _, rest = name.partition(".")
        if family == STATION:
            label, _, axis = rest.rpartition(".")
            stations.setdefault(label, {})[axis] = f"{number(p.value)} \u00b1 {number(p.std, 2)}"
    found = Table(
        "Stations: pose of the device in the ground frame",
        (*left("station"), *right("x (m)", "y (m)", "z (m)", "rx (rad)", "ry (rad)", "rz (rad)")),
        tuple((label, *(own.get(axis, MISSING) for axis in ELASTIC_AXES)) for label, own in stations.items()),
        "\u00b1 one standard deviation",
    )
    return found if stations else None


def geometry_table(result: Result) -> Table | None:
    """Identified deviations from the stated geometry in mm and mrad; None without any."""
    rows, stated_values = [], parameters(result.study.model)
    for name, p in ((n, p) for n, p in result.parameters.items() if n.split(".")[0] in OF_GEOMETRY):
        (factor, unit), stated = GEOMETRY_UNITS[p.unit], stated_values[name]
        ends = [number(factor * (p.value - stated + side * INTERVAL * p.std)) for side in (-1.0, 1.0)]
        value = number(factor * (p.value - stated))
        rows.append((name, unit, value, number(factor * p.std, 2), *ends, Cell(p.identifiable, p.identifiable)))
    found = Table(
        "Geometry: deviations from the machine as stated",
        (*left("deviation", "unit"), *right("value", "std", "from", "to"), *left("identifiable")),
        tuple(rows),
        "from, to: 95 % intervals",
    )
    return found if rows else None


SECTIONS: dict[str, Callable[[Result, Sequence[Entry]], list[Section]]] = {
    "frf": frf_sections,
    "modes": modes_sections,
    "deflection": deflection_sections,
    "torque": torque_sections,
    "pose": pose_sections,
}
"""(result, entries of the kind) -> sections, by kind of test; `plain_sections` of any other."""
PARTS: dict[str, Callable[[Result, Entry, str, str], list[Part | None]]] = {"frf": frf_parts, "modes": modes_parts}
"""Parts of single tests, for kinds whose sections show some of many tests; see `frf_parts`."""
