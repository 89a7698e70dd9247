"""Tables and figures of one model and of laws: what they say is what was found."""

import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.report.result_sections import law_sections
from tests.identify.arm import BRIEF, LAWS, laboratory, study_of


@pytest.fixture(scope="module", params=["b", None])
def result(request, tmp_path_factory):
    tests = laboratory(request.param)
    return identify(study_of(tmp_path_factory.mktemp("laws"), *tests, laws=LAWS, **BRIEF))


def test_tables_tell_what_was_found(result, text_of):
    text = text_of(law_sections(result), 140)
    if result.metrics.laws.chosen:
        assert "One model is not consistent with all 6 tests" in text
        assert any(line.split()[:4] == ["1*", "stiffness.b", "sin", "b"] for line in text.splitlines())
        assert "* selected" in text
    else:
        assert "one model is consistent with all 6 tests: residual" in text
        assert "tolerances" not in text  # simulated tests are as described
        assert "selected" not in text


def test_the_figure_shows_law_tests_and_truth(result, figures_of):
    laws = result.metrics.laws
    figure = figures_of(law_sections(result))["laws"]
    figure.draw_without_rendering()
    above, below = figure.axes
    curve = above.lines[0].get_xydata()
    if not laws.chosen:
        parameter = laws.considered[0].parameter
        np.testing.assert_allclose(curve[:, 1], laws.centre[parameter])
        return
    (line,) = laws.chosen
    expected = np.exp(line.coefficient * (np.sin(np.radians(curve[:, 0])) - line.mean))
    np.testing.assert_allclose(curve[:, 1], laws.centre["stiffness.b"] * expected, rtol=1e-12)
    rows = laws.values["stiffness.b"]
    truth = next(x for x in above.lines if x.get_marker() == "D").get_ydata()
    np.testing.assert_allclose(np.sort(truth), sorted(row.truth for row in rows), rtol=1e-12)
    assert below.get_xlabel() == "b (deg)"
    assert above.get_ylabel() == "stiffness.b (N m/rad)"
