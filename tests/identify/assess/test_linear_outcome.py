"""What is said to be known of values found from deflections, and where a message says that something is wrong."""

import dataclasses

import numpy as np
import pytest
import tomli_w
from jaxmb.identify.assess.deflections.misfit import widening

import jaxmb
from jaxmb.identify.experiments.deflection_table import deflections_csv
from jaxmb.identify.experiments.load_cases import LoadCase, predicted

MACHINE = jaxmb.load_machine("kuka-kr240")
MODEL = jaxmb.build_model(MACHINE)
STD = np.repeat([3e-5, 6e-5], 3)
DOWN = np.array([0.0, 0.0, -1000.0, 0.0, 300.0, 0.0])
FREE = {"stiffness.*": {"lower": 1e4, "upper": 1e9}}


def loaded(count=8, wrench=None, noise=1.0, seed=3, model=MODEL):
    draw = np.random.default_rng(seed)
    tests = []
    for i in range(count):
        q = np.asarray(model.reference) + draw.uniform(-0.3, 0.3, size=6)
        load = draw.uniform(-1.0, 1.0, size=6) * np.repeat([2000.0, 500.0], 3)
        load = load if wrench is None else wrench * (1.0 + 0.1 * np.r_[0, 0, 0, i, i, 0])
        tests.append(LoadCase(f"t{i + 1}", q, "tool", load, ("tool",), np.zeros((1, 6)), STD[None]))
    moved = zip(tests, predicted(model, tests), strict=True)
    return [dataclasses.replace(t, displacement=d + noise * STD * draw.normal(size=d.shape)) for t, d in moved]


def displaced(tests, change):
    return [dataclasses.replace(t, displacement=change(t.displacement)) for t in tests]


@pytest.fixture
def study(tmp_path):
    """A study of tests in tables, one for each set; `cells` changes the text of the first."""

    def of(*sets, free=FREE, cells=lambda text: text, machine="kuka-kr240", model=MODEL, part=(), **more):
        entries = []
        for name, tests in zip(("near", "far"), sets, strict=False):
            text = deflections_csv(model, tests)
            (tmp_path / f"{name}.csv").write_text(cells(text) if name == "near" else text)
            entries.append({"kind": "deflection", "file": f"{name}.csv"} | dict(part))
        path = tmp_path / "mine.toml"
        path.write_text(tomli_w.dumps({"machine": machine, "test": entries} | ({"free": free} if free else {}) | more))
        return jaxmb.load_study(path)

    return of


def told(result, start):
    return [r for r in result.remarks if r.startswith(start)]


def test_a_value_on_a_bound_is_not_determined(study):
    result = jaxmb.identify(study(loaded(), free=FREE | {"stiffness.q4": {"lower": 1e4, "upper": 3e5}}))
    parameter = result.as_json()["parameters"]["stiffness.q4"]
    assert parameter["value"] == pytest.approx(3e5, rel=1e-12)
    assert (parameter["std"], parameter["std_log"], parameter["identifiable"]) == (None, None, "no")
    assert told(result, "stiffness.q4 ends on its upper bound: the data would move it beyond")
    row = next(r for r in result.as_json()["metrics"]["table2"] if r["parameter"] == "stiffness.q4")
    assert row["value"] == pytest.approx(3e5, rel=1e-12)
    assert row["linear_error"] is None
    assert np.isnan(result.covariance[3]).all()


def test_what_no_test_loads_stays_as_the_machine_has_it(study):
    result = jaxmb.identify(study(loaded(wrench=DOWN)))
    assert told(result, "stiffness.q1 is not known: no test loads it, it keeps the machine's own value")
    assert result.parameters["stiffness.q1"].value == MODEL.stiffness[0] == 3.8e6
    assert result.parameters["stiffness.q1"].initial == 3.8e6
    assert jaxmb.parameters(jaxmb.build_model(result.machine))["stiffness.q1"] == 3.8e6


@pytest.mark.parametrize(
    ("bounds", "value"),
    [
        ({"lower": 1e4, "upper": 1e6}, 1e5),  # the machine's own value is outside
        ({"lower": 1e4, "upper": 1e9, "initial": 2e6}, 2e6),
    ],
)
def test_what_no_test_loads_stays_at_its_initial_value_otherwise(study, bounds, value):
    result = jaxmb.identify(study(loaded(wrench=DOWN), free=FREE | {"stiffness.q1": bounds}))
    assert result.parameters["stiffness.q1"].value == pytest.approx(value, rel=1e-12)
    assert told(result, "stiffness.q1 is not known: no test loads it, it keeps its initial value")


def test_a_misfit_widens_deviations(study):
    plain = jaxmb.identify(study(loaded(count=12)))
    wrong = displaced(loaded(count=12), lambda d: d + 1e-3 * np.array([1.0, -1.0, 1.0, 0.0, 0.0, 0.0]))
    result = jaxmb.identify(study(wrong))
    degrees = 12 * 6 - 6
    factor = np.sqrt(result.cost / degrees)
    assert factor > 5.0
    for name, p in result.parameters.items():
        # each relative deviation is proportional to the stiffness: that of the compliance is the same in both
        same = plain.parameters[name].std_log * p.value / plain.parameters[name].value
        assert p.std_log == pytest.approx(factor * same, rel=1e-6)
    (remark,) = told(result, "the cost is ")
    assert f"standard deviations are widened by {factor:.3g} for it" in remark
    assert "offset of the tool" in remark
    row = result.metrics["deflections"][0]
    narrow = plain.metrics["deflections"][0]
    np.testing.assert_allclose(row["predicted_std_mm"], factor * narrow["predicted_std_mm"], rtol=1e-6)


def test_noise_widens_nothing():
    assert widening(60.0, np.ones(72), np.ones(72), 6) == 1.0
    assert widening(4.0 * 66.0, np.ones(72), np.ones(72), 6) == pytest.approx(2.0)
    # a weight of 9 on the squared errors makes 9 of every error's 1
    assert widening(9.0 * 66.0, np.full(72, 9.0), np.ones(72), 6) == 1.0


def test_linear_scales_are_told_beside_the_value(study, tmp_path):
    spring = {"name": "arm", "body": "q3", "diagonal": [1e-9, 2e-9, 3e-9, 4e-8, 5e-8, 6e-8]}
    machine = jaxmb.Machine.model_validate(MACHINE.model_dump() | {"virtual_spring": [spring]})
    jaxmb.write_machine(machine, tmp_path / "machine.toml")
    model = jaxmb.build_model(machine)
    free = {"compliance.arm.y.y": {"lower": 0.0, "upper": 1e-6}, "compliance.arm.rz.rz": {"lower": 0.0, "upper": 1e-6}}
    result = jaxmb.identify(study(loaded(12, noise=0.0, model=model), free=free, machine="machine.toml", model=model))
    p = result.parameters["compliance.arm.y.y"]
    assert p.identifiable == "yes"
    assert p.std_log > 0.1
    (remark,) = told(
        result, "identifiable compares a standard deviation on a linear scale with the width of the bounds"
    )
    assert f"compliance.arm.y.y ({100.0 * p.std_log:.3g} %)" in remark
    assert ("compliance.arm.rz.rz" in remark) == (result.parameters["compliance.arm.rz.rz"].std_log > 0.1)


def test_a_reversed_sign_is_the_first_remark(study):
    for free in (FREE, {"stiffness.*": {"lower": 1e4, "upper": 1e7}}):
        result = jaxmb.identify(study(displaced(loaded(), np.negative), free=free))
        assert "with all displacements times -1: is a column in another unit, or its sign" in result.remarks[0]
        assert all(p.identifiable == "no" and not np.isfinite(p.std) for p in result.parameters.values())


def test_metres_under_millimetres_are_told(study):
    result = jaxmb.identify(study(displaced(loaded(), lambda d: d * np.repeat([1e-3, 1.0], 3))))
    assert told(result, "translations of 'near' are smaller than their standard deviation throughout")
    assert not told(result, "rotations of")
    assert not any("throughout" in r for r in jaxmb.identify(study(loaded())).remarks)


def without_deviations(text):
    lines = [line.split(",") for line in text.splitlines()]
    kept = [i for i, heading in enumerate(lines[0]) if not heading.startswith("s")]
    return "\n".join(",".join(line[i] for i in kept) for line in lines) + "\n"


def test_deviations_that_nobody_stated_are_told(study):
    def remark(**how):
        return told(jaxmb.identify(study(loaded(), **how)), "no standard deviation is stated")

    assert remark() == []
    (both,) = remark(cells=without_deviations)
    assert "displacements of 'near': 0.03 mm and 0.01 deg are assumed" in both
    (one,) = remark(cells=without_deviations, part={"std_mm": 0.03})
    assert "'near': 0.01 deg is assumed" in one
    assert remark(cells=without_deviations, part={"instruments": {"tracker_mm": 0.03}}) == []


def singular(tests):
    tests = list(tests)
    tests[3] = dataclasses.replace(tests[3], q=np.where(np.arange(6) == 4, np.radians(0.02), tests[3].q))
    return tests


def test_messages_name_study_and_set(study):
    with pytest.raises(jaxmb.InputError) as error:
        jaxmb.identify(study(loaded(), singular(loaded(seed=4))))
    assert str(error.value).startswith(
        "study 'mine': test 'far': deflection test 't4': its posture is singular, q4 and q6"
    )
    assert "expected at least 0.001" in str(error.value)
    with pytest.raises(jaxmb.InputError, match=r"^study 'mine': \[free\]: free parameter 'damping.q1' does not act"):
        jaxmb.identify(study(loaded(), free={"damping.q1": {"lower": 1.0, "upper": 2.0}}))
    parallel = [dataclasses.replace(t, wrench=np.array([0.0, 0.0, -1000.0, 0.0, 0.0, 0.0])) for t in loaded()]
    with pytest.raises(
        jaxmb.InputError, match=r"^study 'mine': tests 'near', 'far': deflection tests 't1' to 't8': all"
    ):
        jaxmb.identify(study(parallel, parallel))
    few = displaced(loaded(count=1), lambda d: np.where(np.arange(6) < 4, d, np.nan))
    with pytest.raises(
        jaxmb.InputError, match=r"^study 'mine': test 'near': deflection test 't1': 4 measured displace"
    ):
        jaxmb.identify(study(few))
    with pytest.raises(jaxmb.InputError, match=r"^study 'mine': \[complete\]: machine 'kuka-kr240' has no virtual spr"):
        jaxmb.identify(study(loaded(), free=None, complete={}))


def test_a_frame_that_does_not_exist_is_refused(study):
    with pytest.raises(
        jaxmb.InputError, match=r"mine.toml: test 'near': frame 'tol' does not exist, did you mean 'tool'"
    ):
        study(loaded(), part={"frame": "tol"})
