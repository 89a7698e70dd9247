"""Repeatability of deflection tests, beside variances by hand, and what a study takes from it."""

import dataclasses

import numpy as np
import pytest
from scipy.special import chdtri

import jaxmb
from jaxmb.deflections import deflection_tests, deflections_csv
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.deflections.load_cases import repeatability
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


def test_a_copied_load_case_is_remarked(tmp_path):
    cases = measured(0.02, repeats=2)
    assert not any("count twice" in text for text in study(tmp_path, cases).remarks)
    copied = dataclasses.replace(cases[0], name="copy")
    (remark,) = (text for text in study(tmp_path, [*cases, copied]).remarks if "count twice" in text)
    assert remark.startswith(f"load case 'copy' of 'tests.csv' has the readings of load case '{cases[0].name}' of")


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
    # without noise there is nothing to estimate, neither from rounding of the mean of equal displacements
    exact = study(tmp_path, measured(0.0, repeats=5))
    np.testing.assert_allclose(np.asarray(exact.tests[0].std), 3e-5, rtol=1e-9)
    assert "assumed" in exact.entries[0].remarks[0]
    few = study(tmp_path, cases[:3])
    np.testing.assert_allclose(np.asarray(few.tests[0].std), 3e-5, rtol=1e-9)
    assert "assumed" in few.entries[0].remarks[0]


def test_a_stated_deviation_is_multiplied_where_the_scatter_contradicts_it(tmp_path):
    cases = measured(0.02)
    found = repeatability(cases).std[0]
    taken = study(tmp_path, cases, std_mm=0.005)
    np.testing.assert_allclose(np.asarray(taken.tests[0].std), found, rtol=1e-6)
    (remark,) = taken.entries[0].remarks
    assert f"{found / 5e-6:.2g} times what their stated deviations give: the stated standard deviations are" in remark
    # which the tracker's errors are, and so those that are drawn
    tracker = study(tmp_path, cases, instruments={"tracker_mm": 0.005}).entries[0]
    assert tracker.source.instruments.translation_std == pytest.approx(found, rel=1e-6)
    assert tracker.source.instruments.rotation_std == pytest.approx(np.sqrt(2.0) * 5e-6 / 0.2, rel=1e-9)
    np.testing.assert_allclose(np.asarray(tracker.test.std), found, rtol=1e-6)


def test_a_contradicted_deviation_is_followed_within_the_noise(tmp_path):
    result = identify(study(tmp_path, measured(0.02), std_mm=0.005))
    assert result.converged
    # 45 degrees of freedom within the groups give 45, five means less two stiffnesses a chi-square of 13
    assert 45.0 < result.cost < 45.0 + chdtri(13, 1e-3)


@pytest.mark.parametrize(
    ("count", "part", "remarks"),
    [
        (20, {"std_mm": 0.016}, 0),  # 1.26 times the stated one, as in one of 140 sets by chance
        (3, {"std_mm": 0.005}, 0),  # six degrees of freedom
        (20, {"std_mm": 0.005, "robust": True}, 1),
        (20, {"instruments": {"tracker_mm": 0.005, "lever_mm": 1.0}}, 0),
    ],
)
def test_a_stated_deviation_stays(tmp_path, count, part, remarks):
    made = study(tmp_path, measured(0.02)[:count], **part)
    stated = 1e-3 * part["std_mm"] if "std_mm" in part else np.sqrt(2.0) * 5e-6
    np.testing.assert_allclose(np.asarray(made.tests[0].std), stated, rtol=1e-9)
    assert len(made.entries[0].remarks) == remarks
