"""Gross errors of torque tests do not pass as noise, and correct tests with much noise are not accused."""

import re

import numpy as np
import pytest
from scipy.signal import lfilter

import jaxmb
from jaxmb.cli import main
from jaxmb.identify.experiments.torque.effort_noise import noise_bound
from jaxmb.identify.study.study import make_study
from tests.identify.experiments.torque.test_torque_recovery import ARM, FREE, TEST, TRUE, efforts_by_hand

TIME = np.arange(1001) / 200.0


def states():
    """Angles, rates and accelerations [joint, sample]."""
    terms = [[(1.2, 1.9, 0.3), (0.3, 5.0, 1.0)], [(0.9, 2.6, 1.0), (0.3, 6.3, 0.2)]]
    return [
        np.array([sum(a * w**k * np.sin(w * TIME + p + 0.5 * np.pi * k) for a, w, p in joint) for joint in terms])
        for k in range(3)
    ]


def table(noise=0.01, rho=0.0, seed=0):
    """Time, angles and torques of the arm, these with noise relative to their size."""
    q, qd, qdd = states()
    torque = efforts_by_hand(q, qd, qdd).T
    white = np.random.default_rng(seed).normal(size=(TIME.size + 500, 2))
    coloured = np.asarray(lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], white, axis=0))[500:]
    return q.T.copy(), torque + noise * np.sqrt(np.mean(torque**2, axis=0)) * coloured


def identified(folder, q, torque, settings=None, **changes):
    jaxmb.write_machine(ARM, folder / "arm.toml")
    columns = "time_s,a,b,a.torque,b.torque"
    np.savetxt(folder / "m.csv", np.column_stack([TIME, q, torque]), "%.12g", ",", header=columns, comments="")
    test = {name: value for name, value in TEST.items() if name != "simulate"} | {"file": "m.csv", "name": "m"}
    data = {"machine": "arm.toml", "test": [test | changes], "free": FREE} | (settings or {})
    return jaxmb.identify(make_study(data, "arm", folder))


def reversed_sign(q, torque):
    torque[:, 1] *= -1.0


def swapped(q, torque):
    torque[:] = torque[:, ::-1].copy()


def degrees(q, torque):
    q[:, 1] = np.degrees(q[:, 1])


def twice(q, torque):
    torque[:, 0] *= 2.0


def less(q, torque):
    torque[:, 0] *= 0.8


def late(q, torque):
    torque[:] = np.roll(torque, 3, axis=0)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (reversed_sign, "the sign of the torque of b of test 'm' would explain 100 %"),
        (swapped, "exchanged torques of a and b of test 'm' would explain 100 %"),
        (degrees, "angle b in deg, with its rates of test 'm' would explain 100 %"),
        (late, "torques that are 15 ms late against the angles would explain 100 %"),
    ],
)
def test_gross_errors_do_not_pass(tmp_path, error, told):
    q, torque = table()
    error(q, torque)
    result = identified(tmp_path, q, torque)
    assert result.status == "data not followed: the best fit does not reproduce test 'm'"
    assert result.doubts[0].startswith(told)
    assert "yes" not in {p.identifiable for p in result.parameters.values()}


@pytest.mark.parametrize(("error", "factor"), [(twice, 0.5), (less, 1.25)])
def test_a_factor_on_a_torque_is_the_one_that_corrects_it(tmp_path, error, factor):
    q, torque = table()
    error(q, torque)
    result = identified(tmp_path, q, torque)
    assert result.status == "data not followed: the best fit does not reproduce test 'm'"
    assert "yes" not in {p.identifiable for p in result.parameters.values()}
    told = re.findall(r"a factor of ([\d.]+) on the torque of a", " ".join(result.doubts))
    assert [float(number) for number in told] == pytest.approx([factor] * len(told), rel=0.03)
    assert told


def test_a_residual_of_wrong_angles_is_not_known_as_friction(tmp_path):
    """Bodies are held at their true numbers; an angle that counts from another zero leaves 12 % of a torque."""
    losses = {name: bounds for name, bounds in FREE.items() if name.split(".")[0] in ("damping", "friction", "offset")}
    held = {name: value for name, value in TRUE.items() if name not in losses}
    settings = {"free": losses, "hold": held, "tolerances": "exact"}
    q, torque = table(noise=0.05)
    assert identified(tmp_path, q, torque, settings).status == "converged"
    q[:, 1] += 0.15
    result = identified(tmp_path, q, torque, settings)
    for name, p in result.parameters.items():  # the scatter of the misfit is in their standard deviations
        assert abs(p.value - TRUE[name]) < 3.0 * p.std
    assert any("zero of " in text for text in result.doubts)
    assert not any("contains friction" in text for text in result.doubts)


@pytest.mark.parametrize(("noise", "rho", "cutoff"), [(0.5, 0.95, 5.0), (0.5, 0.0, None), (0.01, 0.95, None)])
def test_noise_is_no_gross_error(tmp_path, noise, rho, cutoff):
    changes = {} if cutoff is None else {"effort_cutoff_hz": cutoff}
    assert identified(tmp_path, *table(noise, rho), **changes).status == "converged"


def test_held_out_and_exit_code(tmp_path, capsys):
    """The fit is right, and the test that is held out has two columns swapped."""
    identified(tmp_path, *table())
    (tmp_path / "m.csv").rename(tmp_path / "good.csv")
    q, torque = table(seed=1)
    swapped(q, torque)
    identified(tmp_path, q, torque)
    text = 'machine = "arm.toml"\n'
    for name, role in (("good", "fit"), ("m", "check")):
        text += (
            f'[[test]]\nkind = "torque"\nname = "{name}"\nrole = "{role}"\nfile = "{name}.csv"\n'
            "cutoff_hz = 40.0\nleast_speed = 0.02\n"
        )
    text += "[free]\n" + "".join(f'"{n}" = {{ lower = {b["lower"]}, upper = 9.0, scale = "linear" }}\n'
                                 for n, b in FREE.items())  # fmt: skip
    (tmp_path / "study.toml").write_text(text)
    assert main(["identify", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")]) == 3
    assert "data not followed: the best fit does not reproduce test 'm'; " in capsys.readouterr().err
    result = jaxmb.load_result(tmp_path / "out")
    assert not result.converged
    assert result.parameters["first_moment.fore.x"].value == pytest.approx(TRUE["first_moment.fore.x"], rel=0.05)


def test_bound_of_white_noise():
    """White noise above four times the band of a sine, 4 Hz: as much of it as the filter leaves, and the rise."""
    angle = 2.0 * np.pi * np.arange(4000)[:, None] / 200.0
    effort, velocity = np.random.default_rng(0).normal(size=(4000, 1)) + 30.0 * np.sin(angle), np.cos(angle)
    assert noise_bound(effort, velocity, 200.0, 100.0)[0] == pytest.approx(np.sqrt(1.24), rel=0.1)
    assert noise_bound(effort, velocity, 200.0, 25.0)[0] == pytest.approx(np.sqrt(0.49), rel=0.1)
