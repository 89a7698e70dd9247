"""`[next]` of kind "torque": the motion that `inspect` proposes, and the study that would follow."""

import json
import tomllib

import numpy as np
import pytest

import jaxmb
from jaxmb.plan import NextMotion
from jaxmb.report.inspection import inspection_sections, motion_chart
from jaxmb.report.rendering import figure_of
from tests.identify.experiments.torque.test_torque_recovery import ARM, FREE

PLANNED = {"kind": "torque", "name": "planned", "posture": {"a": -0.3, "b": 0.5}, "cutoff_hz": 30.0, "torque_std": 0.1,
           "simulate": {"duration_s": 10.0, "rate_hz": 100.0, "base_hz": 0.1,
                        "motion": {"a": {"sine": [0.5, 0.1]}, "b": {"sine": [0.3, 0.0, 0.2]}}}}  # fmt: skip
NEXT = {"kind": "torque", "base_hz": 0.02, "harmonics": 3, "starts": 1, "steps": 30,
        "limits": {"a": {"range": [-1.0, 2.0], "speed": 3.0}, "b": {"range": [-1.0, 1.0], "speed": 4.0}}}  # fmt: skip


def study(folder, *tests, **more):
    jaxmb.write_machine(ARM, folder / "arm.toml")
    return jaxmb.make_study({"machine": "arm.toml", "test": list(tests), "free": FREE} | more, "arm", folder)


def check_figure(chosen):
    """Position, speed and acceleration of both coordinates over a period, and the limits that there are."""
    panels = figure_of(motion_chart("arm", chosen)).axes
    curves = [np.asarray(axes.lines[0].get_xydata()) for axes in panels]
    expected = chosen.motion.states(curves[0][:, 0])
    for k, curve in enumerate(curves):
        np.testing.assert_array_equal(curve[:, 1], expected[k % 3][:, k // 3])
    assert curves[0][-1, 0] == 50.0
    ends = [[line.get_ydata()[0] for line in axes.lines[1:]] for axes in panels]
    assert ends == [[-1.0, 2.0], [-3.0, 3.0], [], [-1.0, 1.0], [-4.0, 4.0], []]


def test_motion_tells_what_was_promised(tmp_path):
    found = jaxmb.inspect(study(tmp_path, PLANNED, next=NEXT))
    assert isinstance(found.next, NextMotion)
    test = found.next.motion.as_test()
    pasted = PLANNED | test | {"name": "next", "simulate": test["simulate"] | {"rate_hz": 100.0}}
    after = jaxmb.inspect(study(tmp_path, PLANNED, pasted))
    for name, p in found.parameters.items():
        assert after.parameters[name].std < p.std
        # the filter's ends and the friction's change of sign are not foreseen: of 50 s, 0.2 s
        assert found.next.motion.std[name] == pytest.approx(after.parameters[name].std, rel=0.03)
        assert p.next_std == pytest.approx(after.parameters[name].relative_std, rel=0.03)
    for now, then, real in zip(found.base, found.next.motion.base, after.base, strict=True):
        assert then.std == pytest.approx(real.std, rel=0.03)
        assert then.std < now.std
    written = json.loads(found.json_text())
    assert written["next"]["motion"] == test["simulate"]["motion"]
    assert written["base"][0]["formula"] == found.base[0].formula
    text = "".join(str(section) for section in inspection_sections(found))
    assert "Next motion, like planned" in text
    check_figure(found.next)
    assert "base parameter" in text


@pytest.mark.parametrize("runs", [((), ("load",)), ((),)])
def test_each_run_is_proposed_with_its_payloads(tmp_path, runs):
    """Beside a test without the payload, whose keys are copied."""
    payload = {"name": "load", "frame": "fore", "mass": 1.0, "center_of_mass": [0.4, 0.0, 0.0]}
    machine = jaxmb.Machine.model_validate(ARM.model_dump(exclude_unset=True) | {"payload": [payload]})
    jaxmb.write_machine(machine, tmp_path / "arm.toml")
    free = {f"first_moment.{body}.x": {"lower": -5.0, "upper": 5.0} for body in ("fore", "load")}
    planned = {"machine": "arm.toml", "test": [PLANNED | {"without": ["load"]}], "free": free}
    study = jaxmb.make_study(planned | {"next": NEXT | {"steps": 0, "without": runs}}, "arm", tmp_path)
    found = jaxmb.inspect(study)
    assert found.next is not None
    proposed = tomllib.loads(found.next.as_toml(study))["test"]
    assert [test.get("without", []) for test in proposed] == [list(run) for run in runs]
    after = jaxmb.inspect(jaxmb.make_study(planned | {"test": planned["test"] + proposed}, "arm", tmp_path))
    for name, p in found.parameters.items():
        assert p.next_std == pytest.approx(after.parameters[name].relative_std, rel=0.03)


@pytest.mark.parametrize(
    ("tests", "changes", "sentence"),
    [
        ([PLANNED], {"like": "other"}, "like: torque test 'other'"),
        ([PLANNED], {"limits": {}}, "no speed limit"),
        ([PLANNED], {"base": 0.1}, "base"),
    ],
)
def test_wrong_next(tmp_path, tests, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        jaxmb.inspect(study(tmp_path, *tests, next=NEXT | changes))


def test_a_parameter_without_effect_is_not_identifiable_after_the_motion():
    """Rounding gave it a standard deviation of 1e13 times the width of its bounds."""
    limits = {f"z{k}": {"range": [-1.0, 1.0], "speed": 2.0} for k in (1, 2, 3)}
    hold = {f"stiffness.z{k}": 0.0 for k in (1, 2, 3)}
    simulate = {"duration_s": 2.0, "rate_hz": 20.0, "parameters": hold, "motion": {"z2": {"sine": [0.5]}}}
    data = {
        "machine": "manipulator-3r",
        "test": [{"kind": "torque", "cutoff_hz": 5.0, "torque_std": 20.0, "simulate": simulate}],
        "free": {f"first_moment.link2.{axis}": {"lower": -500.0, "upper": 500.0} for axis in "xz"},
        "hold": hold, "next": {"kind": "torque", "base_hz": 0.5, "starts": 1, "steps": 2, "limits": limits},
    }  # fmt: skip
    found = jaxmb.inspect(jaxmb.make_study(data, "arm")).parameters
    assert found["first_moment.link2.x"].next_std < 1.0
    assert found["first_moment.link2.z"].next_std == np.inf


def test_base_parameters_follow_a_free_mass(tmp_path):
    """A free mass scales the first moment and inertia of its body: by finite differences of the machine's numbers."""
    free = {"mass.fore": {"lower": 1.0, "upper": 50.0, "initial": 8.0}}
    planned = study(tmp_path, PLANNED, free=free)
    found, mass = jaxmb.inspect(planned), jaxmb.parameters(planned.model)["mass.fore"]
    combinations = planned.tests[0].linear.combinations(planned.model, planned.free)
    more, less = (
        combinations.matrix @ [jaxmb.parameters(planned.free.apply(planned.model, np.array([m])))[name] for name in
                               combinations.parameters] for m in (1.01 * mass, 0.99 * mass)
    )  # fmt: skip
    expected = np.abs(more - less) / (0.02 * mass) * found.parameters["mass.fore"].std
    std = {row.name: row.std for row in found.base}
    for name, own in zip(combinations.names, expected, strict=True):
        assert std.get(name, 0.0) == pytest.approx(own, rel=1e-6, abs=1e-12)
    assert len(std) > 1
