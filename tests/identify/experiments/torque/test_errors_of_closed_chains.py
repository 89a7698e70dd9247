"""Errors of the angles of a torque test of a machine with loops."""

import numpy as np
import pytest

import jaxmb


def crank(folder, angle):
    """A torque test of the slider-crank with given readings of its crank."""
    time = np.arange(200) / 100.0
    columns = np.column_stack([time, angle(0.5 + np.sin(5.0 * time)), np.cos(3.0 * time)])
    np.savetxt(folder / "run.csv", columns, delimiter=",", header="time_s,q1,q1.torque", comments="", fmt="%.17g")
    study = {
        "machine": "slider-crank",
        "test": [{"kind": "torque", "file": "run.csv", "cutoff_hz": 20.0, "torque_std": 0.1}],
        "free": {"first_moment.crank.x": {"lower": -1.0, "upper": 1.0}},
    }
    return jaxmb.make_study(study, "crank", folder)


@pytest.mark.parametrize(
    ("errors", "reading"),
    [({"zero of q1": 0.03}, lambda q: q - 0.03), ({"gear ratio of q1": 0.01}, lambda q: q / 1.01)],
)
def test_a_wrong_angle_is_corrected_with_loops_closed(tmp_path, errors, reading):
    (right,), wrong = crank(tmp_path, lambda q: q).fitted, crank(tmp_path, reading)
    (entry,) = wrong.fitted
    corrected = entry.source.corrected(entry.test, wrong.model, errors)
    np.testing.assert_allclose(corrected.regressor, right.test.regressor, rtol=1e-9, atol=1e-9)
