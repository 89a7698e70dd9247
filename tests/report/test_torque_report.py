"""Figures of torque studies are drawn from what the result holds."""

import numpy as np

from jaxmb.identify.assess.tests.torque import BaseRow, TorqueMetrics
from jaxmb.report.torque.base_figure import base_figure


def test_base_parameters():
    """Deviations and errors as parts of the values, in per cent; what has no value or deviation has no place."""
    rows = (
        BaseRow("a", "mass.a + 2 mass.b", value=-2.0, std=0.1, true=-2.5),
        BaseRow("b", "mass.b", value=4.0, std=0.2, true=None),
        BaseRow("c", "mass.c", value=0.0, std=0.2, true=None),
        BaseRow("d", "mass.d", value=1.0, std=np.inf, true=None),
    )
    (axes,) = base_figure("arm", TorqueMetrics((), rows)).axes
    drawn = [tuple(np.ravel(line.get_xydata()).tolist()) for line in axes.lines if len(line.get_xydata())]
    np.testing.assert_allclose(drawn, [(5.0, 0.0), (20.0, 0.0), (5.0, 1.0)], rtol=1e-12)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mass.a + 2 mass.b", "mass.b"]
