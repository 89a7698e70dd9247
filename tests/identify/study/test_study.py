"""Studies as users write them: what each setting changes, and that each mistake is named with its place."""

import json
import time
import warnings

import numpy as np
import pytest
import tomli_w

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.study.format.study_format import StudyFile, study_names
from jaxmb.identify.study.study import load_study
from jaxmb.io.validation import InputError
from jaxmb.machine.file import load_machine, write_machine
from jaxmb.machine.schema import Machine
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.mechanics.postures import build_model, posture
from jaxmb.mechanics.tangent import motion_coordinates
from jaxmb.response.frf import frf
from tests.mechanics.test_loops import machine_of

ARM = Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": 5e4, "damping": 25.0}],
         "mass": 20.0, "center_of_mass": [0.4, 0.0, 0.1], "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5}},
        {"name": "lower", "parent": "upper", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "b", "axis": [0.0, 1.0, 0.0], "stiffness": 9e3, "damping": 4.0}], "mass": 5.0,
         "center_of_mass": [0.2, 0.0, 0.0], "inertia_products": {"xx": 0.05, "yy": 0.1, "zz": 0.12}},
    ],
    "frame": [{"name": "tool", "body": "lower", "origin": {"xyz": [0.5, 0.0, 0.0]}},
              {"name": "elbow", "body": "upper", "origin": {"xyz": [0.7, 0.0, 0.1]}}],
    "posture": {"b": 0.4},
})  # fmt: skip
MODEL = build_model(ARM)
LINES = {"first_hz": 1.0, "last_hz": 25.0, "step_hz": 0.25}
"""As many as other tests of plane arms have, whose compiled fits are shared."""
FREQUENCY = 1.0 + 0.25 * np.arange(97)
PLANE = [["tool", "x"], ["tool", "z"]]
FREE = {
    "stiffness.*": {"lower": 1e3, "upper": 1e6, "initial": 2e4},
    "damping.*": {"lower": 0.1, "upper": 1e3, "initial": 10.0},
}


def arm_test(**changes):
    test = {"kind": "frf", "simulate": {"lines": LINES}, "outputs": PLANE} | changes
    return {key: value for key, value in test.items() if value is not None}


@pytest.fixture
def study(tmp_path):
    """Study from tests and settings, written as a file and read back."""
    write_machine(ARM, tmp_path / "arm.toml")

    def make(*tests, noise_seed=None, **settings):
        data = {"machine": "arm.toml", "test": list(tests) or [arm_test()], "free": FREE} | settings
        (tmp_path / "s.toml").write_text(tomli_w.dumps({k: v for k, v in data.items() if v is not None}))
        return load_study(tmp_path / "s.toml", noise_seed)

    return make


def responses(q=None, **where):
    where = where or {"outputs": [tuple(p) for p in PLANE]}
    return np.asarray(frf(MODEL, posture(MODEL, {} if q is None else q), FREQUENCY, **where))


def save(path, h, frequency_hz=FREQUENCY):
    write_frf(path, FrfSet(frequency_hz, h, "accelerance"))


def test_studies_of_the_library():
    assert {"validation-3r", "kr90-modelled", "kr90-four", "kr90-measured-modes"} <= set(study_names())
    with pytest.raises(InputError, match=r"study 'validation3r' does not exist, did you mean 'validation-3r'\?"):
        load_study("validation3r")


def test_a_file_is_as_good_as_a_simulation(study, tmp_path):
    save(tmp_path / "h.npz", responses())
    from_file, simulated = study(arm_test(simulate=None, file="h.npz")), study()
    np.testing.assert_allclose(from_file.tests[0].measured, simulated.tests[0].measured, rtol=1e-12)
    assert (from_file.truth, set(simulated.truth)) == ({}, set(simulated.free.names))
    result = identify(from_file)
    for name, parameter in result.parameters.items():
        # Noise-free: to rounding.
        assert parameter.value == pytest.approx(simulated.truth[name], rel=1e-9)
    assert "largest_parameter_error" not in result.metrics


def test_the_truth_may_be_said(study):
    """Simulated with other parameters than the machine's own, as another kind of response."""
    simulate = {"lines": LINES, "parameters": {"stiffness.b": 2e4}, "response": "mobility"}
    made = study(arm_test(simulate=simulate))
    assert made.truth == {"stiffness.a": 5e4, "stiffness.b": 2e4, "damping.a": 25.0, "damping.b": 4.0}
    assert made.tests[0].derivatives == 1


def test_band(study):
    made = study(arm_test(band_hz=[5.0, 12.0]))
    np.testing.assert_allclose(np.asarray(made.tests[0].omega) / (2 * np.pi), np.arange(5.0, 12.1, 0.25))
    np.testing.assert_allclose(made.tests[0].measured, responses()[16:45], rtol=1e-12)


def test_hold(study):
    made = study(hold={"damping.*": 7.0}, free={"stiffness.*": FREE["stiffness.*"]})
    assert made.free.names == ("stiffness.a", "stiffness.b")
    np.testing.assert_array_equal(made.model.damping, [7.0, 7.0])
    # What is held is held in the fitted machine and not in the one that is measured.
    np.testing.assert_allclose(made.tests[0].measured, responses(), rtol=1e-12)
    assert "damping.a" not in study(hold={"damping.a": 7.0}).free.names  # a pattern leaves out what is held


def test_tie(study):
    made = study(free={"stiffness.*": FREE["stiffness.*"], "damping.*": FREE["damping.*"] | {"tied": True}})
    assert made.free.names == ("stiffness.a", "stiffness.b", "damping.a")
    assert made.free.tied[2] == ("damping.a", "damping.b")
    named = made.free.named(made.free.values(np.asarray(made.free.lower)))
    assert named["damping.a"] == named["damping.b"] == pytest.approx(0.1)


def test_a_full_name_overrules_a_pattern(study):
    made = study(free={"stiffness.*": FREE["stiffness.*"], "stiffness.b": {"lower": 5e3, "upper": 2e4}})
    assert made.free.lower_value.tolist() == [1e3, 5e3]
    assert made.start.given.tolist() == [True, False]


def test_inertias_start_at_those_of_the_machine_where_the_middle_of_their_bounds_has_no_mass(study):
    linear = {"lower": -5.0, "upper": 5.0, "scale": "linear"}
    free = {"stiffness.b": FREE["stiffness.*"], "inertia.lower.yy": linear, "first_moment.lower.?": linear}
    made = study(free=free | {"mass.lower": {"lower": 1e-9, "upper": 2e-9}})
    own = parameters(MODEL)
    for name, value in zip(made.free.names, made.start.values, strict=True):
        if name.startswith(("inertia", "first_moment")):
            assert value == own[name]
    assert made.start.values[made.free.names.index("mass.lower")] == 2e-9
    wide = {"lower": 0.0, "upper": 5.0, "scale": "linear"}
    made = study(free={"stiffness.b": FREE["stiffness.*"], "inertia.lower.yy": wide})
    assert made.start.values[1] == 2.5


def test_lock(study):
    made = study(lock=["a"], free={"stiffness.b": FREE["stiffness.*"]})
    assert made.model.coordinates == ("a", "b")
    assert motion_coordinates(made.model) == ("b",)
    # The measurement is of the whole machine.
    np.testing.assert_allclose(made.tests[0].measured, responses(), rtol=1e-12)
    assert made.truth == {}
    # The reference posture places what is locked: b at 0.4.
    assert study(lock=["b"], free={"stiffness.a": FREE["stiffness.*"]}).tests[0].q[1] == 0.4
    with pytest.raises(InputError, match=r"'stiffness\.b' does not exist: 'b' is locked"):
        study(lock=["b"], free={"stiffness.b": FREE["stiffness.*"]})
    with pytest.raises(InputError, match=r"s\.toml: locked coordinate 'c' does not exist"):
        study(lock=["c"], free={"stiffness.a": FREE["stiffness.*"]})


def test_hammer_elsewhere(study):
    outputs, inputs = [["tool", "x"], ["elbow", "-z"], ["tool", "ry"]], [["elbow", "z"]]
    made = study(arm_test(outputs=outputs, inputs=inputs))
    points = {"outputs": [tuple(p) for p in outputs], "inputs": [tuple(p) for p in inputs]}
    expected = responses(**points)
    np.testing.assert_allclose(made.tests[0].measured, expected, rtol=1e-12)
    np.testing.assert_allclose(made.tests[0].predict(made.problem.views[0](np.array([5e4, 9e3, 25.0, 4.0]))), expected,
                               rtol=1e-9)  # fmt: skip


def test_two_postures(study):
    made = study(arm_test(name="one"), arm_test(name="two", posture={"b": "-80 deg"}))
    assert [t.name for t in made.tests] == ["one", "two"]
    np.testing.assert_allclose(made.tests[1].measured, responses({"b": np.deg2rad(-80.0)}), rtol=1e-12)
    # Each sees the machine at its own posture: at the truth neither has a residual.
    truth = np.array([made.truth[n] for n in made.free.names])
    assert float(np.sum(made.problem.data_residual(truth) ** 2)) < 1e-18


def test_noise_has_its_own_seed(study):
    noisy = {"lines": LINES, "noise_log_std": 0.05, "noise_seed": 3}
    h = [np.asarray(study(arm_test(simulate=noisy), noise_seed=s).tests[0].measured) for s in (None, 3, 4)]
    np.testing.assert_array_equal(h[0], h[1])
    assert (h[0] != h[2]).any()
    error = np.log(h[0] / responses())
    # 776 draws: the standard deviation is known to 2.5 %, four times that.
    assert np.std([error.real, error.imag]) == pytest.approx(0.05, rel=0.1)


def test_what_does_not_act_is_said(study):
    """A damper held against a direction that no sensor sees: the inertia across the one axis of a plane arm."""
    free = {"stiffness.a": FREE["stiffness.*"], "inertia.lower.xx": {"lower": 0.01, "upper": 1.0, "initial": 0.5}}
    result = identify(study(free=free, refine={"coarse_lines": 0}))
    assert "no effect on the data: inertia.lower.xx" in result.remarks
    assert result.parameters["inertia.lower.xx"].identifiable == "no"
    assert result.parameters["inertia.lower.xx"].value == 0.5
    assert result.as_json()["parameters"]["inertia.lower.xx"]["std"] is None
    assert result.parameters["stiffness.a"].value == pytest.approx(5e4, rel=1e-9)


def test_a_note_is_the_first_remark(study):
    assert identify(study(note="masses were guessed")).remarks[0] == "masses were guessed"


def test_prior(study):
    made = study(prior={"stiffness.*": 0.5, "*": 1.0, "damping.b": 0.1})
    found = dict(zip(made.free.names, np.asarray(made.problem.prior.std), strict=True))
    assert found["damping.b"] == 0.1
    np.testing.assert_allclose(made.problem.prior.mean, np.log([2e4, 2e4, 10.0, 10.0]))


def test_a_held_value_overrules_that_of_an_earlier_result(study, tmp_path):
    """Also that of a mass, which scales the inertia of its body."""
    names = ["stiffness.b", "damping.a", "inertia.lower.yy"]
    covariance = np.array([[4.0, 1.0, 2.0], [1.0, 9.0, 3.0], [2.0, 3.0, 16.0]]) * 1e-4
    part = {"names": names, "tied": [[n] for n in names], "scale": ["log"] * 3, "matrix": covariance.tolist()}
    own = parameters(MODEL)
    earlier = {n: {"value": own[n], "lower": 0.1 * own[n], "upper": 10.0 * own[n]} for n in names}
    (tmp_path / "result.json").write_text(json.dumps({"parameters": earlier, "covariance": part}))
    made = study(prior_from="result.json", hold={"damping.a": 40.0, "mass.lower": 6.0}, free=None)
    assert made.free.names == ("stiffness.b", "inertia.lower.yy")
    assert made.start.values.tolist() == [own["stiffness.b"], own["inertia.lower.yy"]]
    assert parameters(made.model)["damping.a"] == 40.0
    whitening = np.asarray(made.problem.prior.rows)
    np.testing.assert_allclose(np.linalg.inv(whitening.T @ whitening), covariance[::2, ::2])


def test_tests_without_a_name(study, tmp_path):
    """Called by their file where it has a name of its own, else by their number."""
    for name in ("a.npz", "b.npz", "c.npz"):
        save(tmp_path / name, responses())
    files = [arm_test(simulate=None, file=name) for name in ("a.npz", "b.npz", "b.npz", "c.npz")]
    made = study(*files, arm_test(), arm_test(name="c"))
    assert [test.name for test in made.tests] == ["a", "test 2", "test 3", "test 4", "test 5", "c"]
    with pytest.raises(InputError, match="the test name 'test 2' is used twice"):
        study(arm_test(name="test 2"), arm_test())
    with pytest.raises(InputError, match="test 'a': no line"):
        study(arm_test(simulate=None, file="a.npz", band_hz=[40.0, 50.0]))


def test_one_file_in_two_tests(study, tmp_path):
    """A copied test whose posture was changed and whose file was not; other rows of one file are other data."""
    for name in ("a.npz", "b.npz"):
        save(tmp_path / name, responses())
    first, copied = (arm_test(simulate=None, file="a.npz", posture={"b": b}) for b in (0.4, 0.9))
    remarks = study(first, copied | {"name": "copy"}).remarks
    (found,) = (text for text in remarks if "count twice" in text)
    assert "test 'copy' has the data of test 'a', 'a.npz'" in found
    others = [copied | {"file": "b.npz"}, copied | {"band_hz": [1.0, 9.0]}]
    assert not any("count twice" in text for text in study(first, *others).remarks)


MODES = {"kind": "modes", "frequency_hz": [5.0, 9.0], "damping_percent": [1.0, 2.0], "frequency_std_hz": 0.1,
         "damping_std_percent": 0.1}  # fmt: skip


@pytest.mark.parametrize(
    ("tests", "settings", "message"),
    [
        ([arm_test(simulate=None)], {}, "test number 1: expected either file or simulate"),
        ([arm_test(file="h.npz")], {}, "expected either file or simulate"),
        ([arm_test(simulate=None, file="none.npz")], {}, "none.npz: cannot be read: No such file"),
        ([arm_test(simulate=None, file="h.npz", name="big")], {}, "test 'big': .*has 2 outputs and 1 inputs,"
         " expected 2 and 2 for tool x, tool z from tool x, tool z"),
        ([arm_test(band_hz=[40.0, 50.0], name="far")], {}, "test 'far': no line of the FRF lies in 40 to 50 Hz"),
        ([arm_test(band_hz=[9.0, 5.0])], {}, "test 1: band_hz is 9 to 5 Hz, expected the lower end first"),
        ([arm_test(), arm_test(frame="tol", outputs=None)], {}, r"test 2: .*'tol'.*did you mean 'tool'\?"),
        ([arm_test(outputs=[["tool", "w"]])], {}, r"point \('tool', 'w'\): expected \(frame, direction\)"),
        ([arm_test(posture={"c": 1.0})], {}, "test 1: .*'c'"),
        ([arm_test(simulate={"lines": LINES, "parameters": {"stiffness.c": 1.0}})], {}, "'stiffness.c' does not exist"),
        ([arm_test(simulate={"lines": LINES, "machine": "nobody"})], {}, "machine 'nobody' does not exist"),
        ([arm_test(simulate={"lines": LINES | {"last_hz": 0.5}})], {}, "last_hz 0.5 is below first_hz 1"),
        ([arm_test(simulate={"lines": LINES | {"step_hz": 0.0}})], {}, "step_hz: found 0.0"),
        ([arm_test(noise_log_std=0.0)], {}, "noise_log_std: found 0.0"),
        ([arm_test(phase="printed")], {}, "phase: found \"printed\", expected 'safe' or 'principal'"),
        ([arm_test(weigths={})], {}, "unknown key"),
        ([arm_test(weights={"peaks": 5, "bands": [{"band_hz": [1, 2], "weight": 1}]})], {}, "both peaks and bands"),
        ([{"kind": "sound"}], {}, "sound"),
        ([MODES | {"damping_percent": [1.0]}], {}, "damping_percent has 1 entries for 2 frequencies"),
        ([MODES | {"content": [["a"], ["c"]]}], {}, "content of mode 2: coordinate 'c' does not exist"),
        ([MODES | {"frequency_hz": [1.0, 2.0, 3.0], "damping_percent": [1.0] * 3}], {},
         "3 modes were measured, but the machine has only 2 coordinates"),
        ([MODES | {"outputs": [["tool", "x"]] * 2, "shapes": [[1.0, 0.5]] * 2}], {},
         "outputs holds the point 'tool x' twice, expected it once"),
        ([], {"free": {"stifness.*": FREE["stiffness.*"]}},
         r"\[free\]: parameter or pattern 'stifness.\*' does not exist, did you mean 'stiffness.\*'\?"),
        ([], {"free": {"stiffnes.c": FREE["stiffness.*"]}}, r"did you mean 'stiffness.a'\? expected"),
        ([arm_test(posture={"a": "40°"})], {}, 'posture, a: found "40°", expected a number in radians or a text'),
        ([arm_test(posture={"a": "4\u20280"})], {}, r'posture, a: found "4\\u20280"'),
        ([], {"free": {"stiffness.a": {"lower": 2.0, "upper": 1.0}}}, r"\[free\]: .*'stiffness.a': lower bound 2"),
        ([], {"free": {"stiffness.a": {"lower": 1.0, "upper": 2.0, "initial": 3.0}}}, r"initial value 3 is outside"),
        ([], {"free": {"damping.a": {"lower": 0.0, "upper": 2.0}}}, "lower bound 0 on a logarithmic scale"),
        ([], {"free": {"damping.*": FREE["damping.*"], "*.a": FREE["damping.*"]}}, r"selected by both 'damping.\*'"),
        ([], {"free": {"[sd]*.a": FREE["damping.*"] | {"tied": True}}},
         r"ties stiffness.a \(N m/rad\) and damping.a \(N m s/rad\), expected parameters of one unit"),
        ([], {"free": {}}, "free"),
        ([], {"tolerances": "exakt"}, 'tolerances: found "exakt", expected a table or "exact"$'),
        ([], {"hold": {"mas.*": 1.0}}, r"\[hold\]: parameter or pattern 'mas.\*' does not exist"),
        ([], {"hold": {"damping.a": 1.0}, "free": FREE | {"damping.a": FREE["damping.*"]}}, "both free and held"),
        ([], {"prior": {"mass.*": 1.0}}, r"\[prior\]: free parameter or pattern 'mass.\*' does not exist"),
        ([], {"prior": {"*": 0.0}}, "prior"),
        ([], {"prior": {"*": 1.0}, "free": {"stiffness.*": FREE["stiffness.*"] | {"scale": "linear"}}},
         r"\[prior\]: 'stiffness.a' is on a linear scale"),
        ([], {"machine": "armm.toml"}, "armm.toml"),
        ([], {"refine": {"method": "newton"}}, "refine, method: found \"newton\""),
        ([], {"rounds": 0}, "rounds: found 0"),
        ([], {"preset": "huynh2021"}, "preset"),
        ([], {"linearize_at": "rest"}, "linearize_at"),
        ([], {"gravity": [0.0, 0.0]}, "gravity"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_file_and_place(study, tmp_path, tests, settings, message):
    save(tmp_path / "h.npz", responses()[:, :, :1])
    with pytest.raises(InputError, match=message) as caught:
        study(*tests, **settings)
    assert str(caught.value).startswith(f"{tmp_path / 's.toml'}: ")
    assert "\n" not in str(caught.value)


HEAD = 'machine = "manipulator-3r"\n'
TEST = '[[test]]\nkind = "frf"\nsimulate = { lines = { first_hz = 1.0, last_hz = LAST, step_hz = STEP } }\n'
BOUNDS = '[free]\n"stiffness.*" = { lower = LOWER, upper = 2e7 }\n'


def hostile(last="30.0", step="1.0", lower="2e5", more=""):
    return HEAD + more + TEST.replace("LAST", last).replace("STEP", step) + BOUNDS.replace("LOWER", lower)


@pytest.mark.parametrize(
    "content",
    [
        hostile(last="nan"),
        hostile(last="inf"),
        hostile(last="1e400"),
        hostile(last="1" + "0" * 400),
        hostile(last="1" + "0" * 5000),
        hostile(step="1e-300"),
        hostile(step="1e-9"),
        hostile(lower="nan"),
        hostile(lower="-inf"),
        hostile(lower="1e-400"),
        hostile(lower="true"),
        hostile(lower='"2e5"'),
        hostile(more="rounds = 99999999999999999999\n"),
        hostile(more="rounds = 1.5\n"),
        hostile(more="agreement = true\n"),
        hostile(more="tolerance = nan\n"),
        hostile(more="x = " + "[" * 100_000 + "]" * 100_000 + "\n"),
        hostile(more="a." * 100_000 + "a = 1\n"),
        hostile(more='search = { algorithm = "' + "x" * 100_000 + '" }\n'),
        hostile(more="search = { population = 1000000000000 }\n"),
        hostile(more="[prior]\n" + "".join(f'"p{i}" = 1.0\n' for i in range(50_000))),
        "",
        "\x00\x01",
        HEAD,
        hostile() + '"damping.*" = { lower = 1.0, upper = 2.0, lower = 3.0 }\n',
    ],
)
def test_hostile_files_are_refused_quickly(tmp_path, content):
    path = tmp_path / "s.toml"
    path.write_text(content)
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        load_study(path)
    # Seconds of processor time, not minutes.
    assert time.process_time() - began < 10.0
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_study_of_the_library_is_not_hostile(tmp_path):
    """What all the hostile files have in common is read without complaint."""
    (tmp_path / "s.toml").write_text(hostile())
    assert load_study(tmp_path / "s.toml").free.names == ("stiffness.z1", "stiffness.z2", "stiffness.z3")
    assert load_machine("manipulator-3r").coordinates == ("z1", "z2", "z3")


def test_warnings_of_a_machine_are_remarks(study, tmp_path):
    """Each once, though the machine is built several times."""
    write_machine(machine_of(posture={"q1": 1.0, "q2": -0.4, "q3": 2.0}), tmp_path / "arm.toml")
    test = {"kind": "modes", "frequency_hz": [3.0], "damping_percent": [1.0], "frequency_std_hz": 0.1}
    test["damping_std_percent"] = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = identify(study(test, free={"stiffness.q1": {"lower": 1.0, "upper": 1e5, "initial": 100.0}}))
    about = [remark for remark in result.remarks if "the loops of 'four-bar' close with q3 from 2 to 1.6" in remark]
    assert len(about) == 1


def test_several_directions_of_a_frame():
    test = {"kind": "frf", "file": "hits.csv", "outputs": [["tool", "yz"], ["elbow", "XYZ"]]}
    free = {"stiffness.*": {"lower": 1.0, "upper": 2.0}}
    (part,) = StudyFile.model_validate({"machine": "arm.toml", "test": [test], "free": free}).test
    assert part.outputs == (("tool", "y"), ("tool", "z"), ("elbow", "X"), ("elbow", "Y"), ("elbow", "Z"))
