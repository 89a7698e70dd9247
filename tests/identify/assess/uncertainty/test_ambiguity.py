"""What the Jacobian at the best fit does not see: another fit as good, and a mode that was not measured."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.modal_agreement import ModalAgreement, mode_shares
from jaxmb.identify.assess.uncertainty.nonlinear import equally_good, with_ambiguity
from jaxmb.identify.fit.loop import run_fit
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.problem import final_state
from jaxmb.identify.study.format.study_format import StudyFile
from tests.identify.arm import estimate_at

CROSS_SLIDE = """
name = "cross-slide"

[[body]]
name = "saddle"
joint = [{ name = "x", type = "prismatic", axis = [1, 0, 0], stiffness = 4e6, damping = 100.0 }]
mass = 300.0

[[body]]
name = "table"
parent = "saddle"
joint = [{ name = "y", type = "prismatic", axis = [0, 1, 0], stiffness = 2e6, damping = 100.0 }]
mass = 100.0

[[frame]]
name = "tool"
body = "table"
"""
# x moves 400 kg, y moves 100 kg: with stiffnesses of 8e6 and 1e6 the two frequencies change places.
FREQUENCY_HZ = np.sqrt([4e6 / 400.0, 2e6 / 100.0]) / (2 * np.pi)


def slide(tmp_path, **keys):
    (tmp_path / "slide.toml").write_text(CROSS_SLIDE)
    test = {
        "kind": "modes", "frequency_hz": list(FREQUENCY_HZ), "damping_percent": [0.125, 0.354],
        "frequency_std_hz": 0.02, "damping_std_percent": 5.0,
    }  # fmt: skip
    data = {
        "machine": "slide.toml", "test": [test | keys], "rounds": 6, "agreement": 100, "tolerance": 0.0,
        "free": {"stiffness.*": {"lower": 2e5, "upper": 5e7}},
    }  # fmt: skip
    return jaxmb.make_study(StudyFile.model_validate(data), "slide", tmp_path)


def test_frequencies_that_may_change_places_leave_both_stiffnesses_unknown(tmp_path):
    result = jaxmb.identify(slide(tmp_path))
    x, y = result.parameters["stiffness.x"], result.parameters["stiffness.y"]
    # Factors of 2 lie between the two answers: ln 2 = 0.69, which is "weak". The Jacobian alone says 0.4 %.
    assert x.std_log == pytest.approx(np.log(2.0), rel=1e-3)
    assert y.std_log == pytest.approx(np.log(2.0), rel=1e-3)
    assert (x.identifiable, y.identifiable) == ("weak", "weak")
    (remark,) = [text for text in result.doubts if "ambiguous" in text]
    assert remark.endswith("disagree: stiffness.x (4e+06 to 8e+06), stiffness.y (1e+06 to 2e+06)")
    assert result.status == f"no parameter identified: {result.doubts[0]}"


def test_what_the_modes_content_decides_is_known(tmp_path):
    result = jaxmb.identify(slide(tmp_path, content=[["x"], ["y"]]))
    assert {p.identifiable for p in result.parameters.values()} == {"yes"}
    assert not any("ambiguous" in remark for remark in result.remarks)


class Minima(eqx.Module):
    """A minimum at 0 of standard deviation `std`, and one at 2 of standard deviation 1, whose cost is higher."""

    std: float = eqx.field(static=True)
    higher: float = eqx.field(static=True)
    noise_unit: float = 1.0
    data_rows: int = eqx.field(static=True, default=2)

    @property
    def free(self):
        return SimpleNamespace(lower=np.full(1, -20.0), upper=np.full(1, 20.0), size=1)

    def residual(self, u):
        near, far = jnp.array([u[0] / self.std, 0.0]), jnp.array([u[0] - 2.0, self.higher**0.5])
        return jnp.where(u[0] < 1.0, near, far)

    def stated_variances(self):
        return jnp.ones(2)


@pytest.mark.parametrize(("std", "higher", "count"), [(1e-3, 10.0, 1), (1e-3, 30.0, 0), (1.0, 10.0, 0), (1e-3, 5.0, 1)])
def test_a_narrow_minimum_is_no_better_than_it_is_narrow(std, higher, count):
    # odds of the far minimum by Laplace: exp(-higher / 2) / std, 6.7, 3e-4 and 7e-3; 5 is less than -2 log(AS_GOOD)
    problem = Minima(std, higher)
    residual, jacobian, _ = (np.asarray(part) for part in final_state(problem, jnp.zeros(1)))
    estimate = SimpleNamespace(
        study=SimpleNamespace(problem=problem, free=problem.free), u=np.zeros(1), residual=residual, jacobian=jacobian,
        compressed=(residual, jacobian),
    )  # fmt: skip
    assert len(equally_good(estimate, SimpleNamespace(ends=[np.array([higher, 2.0])]), np.ones(2))) == count


@pytest.fixture(scope="module")
def fitted():
    study = jaxmb.load_study("validation-3r")
    fit = run_fit(study.problem, study.settings, study.start, 0)
    estimate = estimate_at(study, fit.best_u)
    return estimate, fit, row_variances(study.problem, estimate.residual, estimate.jacobian, estimate.stated_variances)


def with_agreements(estimate, *agreements):
    """The estimate with other modes beside the measured ones than it has."""
    copy = dataclasses.replace(estimate)
    vars(copy)["agreements"] = dict(zip((test.name for test in copy.study.tests), agreements, strict=True))
    return copy


@pytest.mark.parametrize("distance", [0.5, 10.0])
def test_ends_beside_the_best_change_nothing(fitted, distance):
    """Half a standard deviation away is within the interval, ten are told apart by the noise."""
    estimate, fit, variances = fitted
    known = estimate.identifiability
    ends = [np.concatenate([[1.0], fit.best_u + distance * known.std * sign]) for sign in np.eye(known.std.size)]
    same, remarks = with_ambiguity(estimate, dataclasses.replace(fit, ends=ends), variances)
    np.testing.assert_array_equal(same.identifiability.std, known.std)
    assert same.identifiability.verdict == known.verdict
    assert remarks == []


def test_shares_of_a_mode(fitted):
    """All stiffnesses together hold the whole strain energy, all dampings all that is dissipated."""
    estimate, *_ = fitted
    study, (view,) = estimate.study, estimate.views
    shares = mode_shares(study.model, study.free, study.tests[0], estimate.values).share[1]
    # Light damping (2 %) changes |lambda| by its square; the step of 1e-4 errs by as much
    assert shares[:3].sum() == pytest.approx(1.0, abs=1e-3)
    assert shares[3:].sum() == pytest.approx(1.0, abs=1e-3)
    shape = np.asarray(jaxmb.modes(view.tangent).shape)[:, 1]
    energy = np.asarray(estimate.model.stiffness) * np.abs(shape) ** 2
    np.testing.assert_allclose(shares[:3], energy / energy.sum(), atol=1e-2)


def test_what_governs_a_mode_that_was_not_measured_is_known_weakly_at_best(fitted):
    estimate, fit, variances = fitted
    study, (view,) = estimate.study, estimate.views
    found = jaxmb.modes(view.tangent)
    agreement = ModalAgreement(found, found, np.eye(3), (0, 1, None), (2,))
    doubted, remarks = with_ambiguity(with_agreements(estimate, agreement), fit, variances)
    share = mode_shares(study.model, study.free, study.tests[0], estimate.values).share[2]
    expected = ["weak" if s >= 0.5 else "yes" for s in share]
    assert "weak" in expected[:3]
    assert list(doubted.identifiability.verdict) == expected
    (remark,) = remarks
    governing = [n for n, s in zip(study.free.names, share, strict=True) if s >= 0.5]
    assert [part.split(" (")[0] for part in remark.partition(": ")[2].split(", ")] == governing
