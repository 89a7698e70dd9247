"""Repeatability of deflection tests, beside variances by hand, and what a study takes from it."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.deflections import deflection_tests, deflections_csv
from jaxmb.identify.experiments.deflections.deflection_test import repeatability
from tests.identify.arm import MACHINE, study_of

MODEL = jaxmb.build_model(MACHINE)
FREE = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}


def measured(noise_mm, repeats=4, postures=5):
    """Postures with a load each, all of them measured several times, by the noise of each component."""
    draw = np.random.default_rng(3)
    q = np.repeat(draw.uniform(-1.0, 1.0, (postures, 2)), repeats, axis=0)
    wrench = np.repeat(np.pad(draw.uniform(-40.0, 40.0, (postures, 3)), ((0, 0), (0, 3))), repeats, axis=0)
    exact = np.stack(
        [np.asarray(jaxmb.deflection(MODEL, there, "tool", load)[0]) for there, load in zip(q, wrench, strict=True)]
    )
    exact[:, 3:] = np.nan
    return deflection_tests(MODEL, q, wrench, exact + 1e-3 * noise_mm * draw.normal(size=exact.shape), "tool")


def study(folder, cases, **part):
    lines = [line.split(",") for line in deflections_csv(MODEL, cases).splitlines()]
    kept = [i for i, heading in enumerate(lines[0]) if not heading.startswith("s")]
    (folder / "tests.csv").write_text("\n".join(",".join(line[i] for i in kept) for line in lines) + "\n")
    return study_of(folder, {"kind": "deflection", "file": "tests.csv"} | part, free=FREE)


def test_pooled_variance():
    cases = measured(0.02)
    moved = np.stack([case.displacement[0, :3] for case in cases]).reshape(5, 4, 3)
    found = repeatability(cases)
    assert found.groups == 5
    assert found.degrees == (45, 0)
    assert found.std[0] == pytest.approx(np.sqrt(moved.var(axis=1, ddof=1).mean()), rel=1e-9)
    assert found.chi_square[0] == pytest.approx(45 * found.std[0] ** 2 / cases[0].std[0, 0] ** 2, rel=1e-9)
    lost = dataclasses.replace(cases[0], displacement=np.full((1, 6), np.nan))
    assert repeatability([lost, *cases[1:]]).degrees == (42, 0)
    assert repeatability(cases[::4]).groups == 0


def test_a_study_takes_it_where_no_deviation_is_stated(tmp_path):
    cases = measured(0.02)
    found = repeatability(cases).std[0]
    taken = study(tmp_path, cases)
    np.testing.assert_allclose(np.asarray(taken.tests[0].std), found, rtol=1e-6)
    (remark,) = taken.entries[0].remarks
    assert "scatter by" in remark
    assert "5 postures and loads" in remark
    stated = study(tmp_path, cases, std_mm=0.02)
    np.testing.assert_allclose(np.asarray(stated.tests[0].std), 2e-5, rtol=1e-9)
    assert stated.entries[0].remarks == ()
    (remark,) = study(tmp_path, cases, std_mm=0.005).entries[0].remarks
    assert f"{found / 5e-6:.2g} times what their stated deviations give" in remark
    # without noise there is nothing to estimate
    exact = study(tmp_path, measured(0.0))
    np.testing.assert_allclose(np.asarray(exact.tests[0].std), 3e-5, rtol=1e-9)
    assert "assumed" in exact.entries[0].remarks[0]
    few = study(tmp_path, cases[:3])
    np.testing.assert_allclose(np.asarray(few.tests[0].std), 3e-5, rtol=1e-9)
    assert "assumed" in few.entries[0].remarks[0]
