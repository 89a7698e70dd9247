"""Compensators against the machine's own spring, and their recovery from compliances."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.deflections.load_cases import compliances
from jaxmb.identify.stiffness_model import compensator
from jaxmb.identify.stiffness_model.compensator import Compensator, added_stiffness, fit_compensator, spring_of

SPRING = Compensator(stiffness=4.0e5, free_length=0.45, carrier_radius=0.5, arm_radius=0.2, angle=0.3)
JOINT = 6.6e6


def test_it_is_the_spring_of_the_machine():
    ends = [{"name": "cylinder", "body": "ground", "origin": {"xyz": [0.5 * np.cos(0.3), -0.5 * np.sin(0.3), 0.0]}},
            {"name": "piston", "body": "arm", "origin": {"xyz": [-0.2, 0.0, 0.0]}}]  # fmt: skip
    machine = {"name": "m", "body": [{"name": "arm", "joint": [{"name": "q", "stiffness": JOINT}]}], "frame": ends,
               "spring": [{"name": "c", "frame_a": "cylinder", "frame_b": "piston", "type": "length",
                           "stiffness": 4.0e5, "free_length": 0.45}]}  # fmt: skip
    model = jaxmb.build_model(jaxmb.Machine.model_validate(machine))
    angles = np.array([-0.7, 0.2, 1.5])
    whole = 1.0 / np.asarray(compliances(model, jnp.asarray(angles)[:, None]))[:, 0, 0]
    np.testing.assert_allclose(whole - JOINT, np.asarray(added_stiffness(SPRING, angles)), rtol=1e-9)
    with pytest.raises(ValueError, match="joint 'q9' does not exist"):
        spring_of(model, "q9")


def test_whole_numbers_are_numbers():
    spring = Compensator(stiffness=400_000, free_length=1.25, carrier_radius=2, arm_radius=1, angle=0)
    angle = np.arange(-2, 3)
    assert float(added_stiffness(spring, 0)) == float(added_stiffness(spring, 0.0))
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(spring, angle)))
    fit = fit_compensator(angle, compliance, 1e-3 * compliance, Compensator(200_000, 1, 2, 1, 0), 5.0e6)
    assert fit.spring.free_length == pytest.approx(1.25, rel=1e-6)


def test_stiffness_and_preload_come_back():
    angle = np.radians([-90.0, -60.0, -30.0, 0.0, 30.0])
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(SPRING, angle)))
    start = Compensator(2.0e5, 0.5, 0.5, 0.2, 0.3)
    fit = fit_compensator(angle, compliance, 1e-3 * compliance, start, 5.0e6)
    assert fit.joint_stiffness == pytest.approx(JOINT, rel=1e-8)
    assert fit.spring.stiffness == pytest.approx(SPRING.stiffness, rel=1e-6)
    assert fit.spring.free_length == pytest.approx(SPRING.free_length, rel=1e-6)
    assert np.allclose(fit.compliance, compliance, rtol=1e-9)
    assert fit.converged


def test_attachment_from_many_angles():
    angle = np.linspace(-2.0, 1.0, 12)
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(SPRING, angle)))
    start = Compensator(3.5e5, 0.47, 0.5, 0.21, 0.25)
    fit = fit_compensator(angle, compliance, 1e-3 * compliance, start, 6.0e6,
                          free=("stiffness", "free_length", "arm_radius", "angle"))  # fmt: skip
    assert fit.spring.arm_radius == pytest.approx(0.2, rel=1e-5)
    assert fit.spring.angle == pytest.approx(0.3, rel=1e-5)


def test_deviations_are_those_of_repeated_fits():
    angle = np.radians([-90.0, -60.0, -30.0, 0.0, 30.0])
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(SPRING, angle)))
    std, rng = 1e-4 * compliance, np.random.default_rng(0)
    fits = [fit_compensator(angle, compliance + std * rng.normal(size=5), std, SPRING, JOINT) for _ in range(60)]
    spread = np.std([f.joint_stiffness for f in fits])
    # the deviation of 60 draws is itself known to 1 / sqrt(120)
    assert spread == pytest.approx(fits[0].std["joint_stiffness"], rel=0.3)


def test_compliances_that_err_together_are_weighted_together():
    """Errors of which nearly all is common: the deviations are those of repeated fits, which a fit that takes them for
    independent misses by far."""
    angle = np.radians([-90.0, -60.0, -30.0, 0.0, 30.0])
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(SPRING, angle)))
    std, rng = 1e-3 * compliance, np.random.default_rng(0)
    together = 0.99 + 0.01 * np.eye(5)
    lower = np.linalg.cholesky(together)
    drawn = [compliance + std * (lower @ rng.normal(size=5)) for _ in range(200)]
    fits = [fit_compensator(angle, c, std, SPRING, JOINT, correlation=together) for c in drawn]
    alone = fit_compensator(angle, drawn[0], std, SPRING, JOINT)
    spread = {"joint_stiffness": [f.joint_stiffness for f in fits], "stiffness": [f.spring.stiffness for f in fits]}
    for name, values in spread.items():
        assert np.std(values) == pytest.approx(fits[0].std[name], rel=0.2)  # of 200 draws, known to 5 %
    assert alone.std["stiffness"] > 3.0 * fits[0].std["stiffness"]


def test_a_fit_that_ends_before_says_so(monkeypatch):
    monkeypatch.setattr(compensator, "MOST_EVALUATIONS", 1)
    angle = np.radians([-90.0, -60.0, -30.0, 0.0, 30.0])
    compliance = 1.0 / (JOINT + np.asarray(added_stiffness(SPRING, angle)))
    start = Compensator(2.0e5, 0.5, 0.5, 0.2, 0.3)
    assert not fit_compensator(angle, compliance, 1e-3 * compliance, start, 5.0e6).converged


def test_too_few_angles():
    with pytest.raises(ValueError, match="2 different angles for 3 parameters"):
        fit_compensator([0.1, 0.2, 0.2], [1e-7] * 3, [1e-9] * 3, SPRING, JOINT)
    with pytest.raises(ValueError, match="free: compensator parameter 'length' does not exist"):
        fit_compensator([0.1], [1e-7], [1e-9], SPRING, JOINT, free=("length",))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"std": [1e-9, np.nan, 1e-9]}, "std 1 is nan, expected a number above 0"),
        ({"std": [1e-9, 1e-9, 0.0]}, "std 2 is 0, expected a number above 0"),
        ({"compliance": [-1e-7, 1e-7, 1e-7]}, "compliance 0 is -1e-07, expected a number above 0"),
        ({"angle": [0.1, np.inf, 0.3]}, "angle 1 is not finite"),
        ({"joint_stiffness": 0.0}, "joint_stiffness is 0, expected a finite number above 0"),
    ],
)
def test_numbers_that_cannot_be(changed, told):
    good = {"angle": [0.1, 0.2, 0.3], "compliance": [1e-7] * 3, "std": [1e-9] * 3, "joint_stiffness": JOINT}
    with pytest.raises(ValueError, match=told):
        fit_compensator(start=SPRING, **good | changed)
