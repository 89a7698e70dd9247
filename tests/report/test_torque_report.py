"""Figures of torque studies are drawn from what the result holds."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxmb.identify.assess.result import Parameter
from jaxmb.identify.assess.tests.torque import BaseRow, TorqueMetrics
from jaxmb.report.charts import Line
from jaxmb.report.charts_of_tests import base_chart
from jaxmb.report.parameters import Scale, interval_panel, scale_of
from jaxmb.report.section import pictures
from jaxmb.report.tests import base_table, torque_sections


def test_base_parameters(text_of):
    """Deviations and errors as parts of the values, in per cent; what has no value or deviation has no place."""
    rows = (
        BaseRow("a", "mass.a + 2 mass.b", value=-2.0, std=0.1, true=-2.5),
        BaseRow("b", "mass.b", value=4.0, std=0.2, true=None),
        BaseRow("c", "mass.c", value=0.0, std=0.2, true=None),
        BaseRow("d", "mass.d", value=1.0, std=np.inf, true=None),
    )
    assert "mass.a + 2 mass.b" in text_of(base_table(TorqueMetrics((), rows)))
    (((panel,),),) = base_chart("arm", TorqueMetrics((), rows)).rows
    drawn = {mark.label: np.array([mark.x, mark.y]).T.tolist() for mark in panel.marks if isinstance(mark, Line)}
    assert drawn.keys() == {"standard deviation", "error"}
    np.testing.assert_allclose(drawn["standard deviation"], [(5.0, 0.0), (5.0, 1.0)], rtol=1e-12)
    np.testing.assert_allclose(drawn["error"], [(20.0, 0.0)], rtol=1e-12)
    assert panel.y.names == ["mass.a + 2 mass.b", "mass.b"]


def test_base_parameters_are_counted_by_their_values():
    rows = [BaseRow(n, n, value=v, std=s, true=None) for n, v, s in
            (("a", -2.0, 0.1), ("b", 4.0, 0.5), ("c", 0.0, 0.2), ("d", 1.0, 3.0), ("e", 1.0, np.inf))]  # fmt: skip
    text = TorqueMetrics((), tuple(rows)).known_text
    assert text == ("4 of 5 base parameters: 1 with a standard deviation below 10 % of their value, 1 more below 100 %")
    assert not TorqueMetrics(()).known_text


def test_pictures_of_fitted_and_held_out_tests_have_names_of_their_own():
    """Also where no letter of the tests' names is portable."""
    entries = [Name("обучение", "fit"), Name("проверка", "check")]
    study = SimpleNamespace(fitted=entries[:1], checks=entries[1:])
    result: Any = SimpleNamespace(metrics=SimpleNamespace(of=lambda _: TorqueMetrics(())), study=study)
    (section,) = torque_sections(result, entries)
    assert [part.name for part in pictures([section])] == ["torques-test", "check-torques-test"]


class Name(NamedTuple):
    """Name and role of a test."""

    name: str
    role: str


def parameter(value: float, std: float, **changes: Any) -> Parameter:
    ends = None if not np.isfinite(std) else (value - 1.96 * std, value + 1.96 * std)
    told = {"unit": "kg", "initial": 0.0, "lower": -20.0, "upper": 20.0, "std_log": np.nan, "identifiable": "yes"}
    fields = told | {"value": value, "std": std, "interval_95": ends} | changes
    return Parameter(**{name: fields[name] for name in Parameter.__annotations__})


@pytest.mark.parametrize(
    ("found", "scale"),
    [
        (parameter(2.0, 0.1), Scale(0, "%", 1)),
        (parameter(2.0, 1e-5), Scale(0, "%", -3)),
        (parameter(-2.0, 0.1), Scale(0, "%", 1)),
        (parameter(2.0, 0.0, interval_95=(0.01, 400.0)), Scale(1, "", 0)),
        (parameter(0.001, 0.001), Scale(2, "kg", -2)),
        (parameter(0.0, 0.0), Scale(2, "kg", -12)),
    ],
)
def test_every_interval_can_be_seen(found: Parameter, scale: Scale) -> None:
    assert found.interval_95 is not None
    assert scale_of(found.value, found.interval_95, found.unit) == scale
    low, high = (
        scale.along(end, found.value) for end in sorted(found.interval_95, key=lambda x: x * (found.value or 1))
    )
    assert scale.ends[0] <= low <= high <= scale.ends[1]
    if found.std and scale.kind != 1:
        assert high - low > 0.05 * (scale.ends[1] - scale.ends[0])


@pytest.mark.parametrize(
    ("std", "true", "end"), [(0.07, 2.1, 20.0), (0.07, 2.9, 50.0), (0.07, 9.0, 100.0), (0.6, 2.0, 100.0)]
)
def test_the_axis_ends_near_the_intervals(std: float, true: float, end: float) -> None:
    """Intervals of 7 % of the value are not drawn on an axis of 100 %."""
    result: Any = SimpleNamespace(parameters={"m": parameter(2.0, std)}, study=SimpleNamespace(truth={"m": true}))
    panel = interval_panel(result, Scale(0, "%", 2), [("m", "m")])
    assert panel.x.limits == (-end, end)
