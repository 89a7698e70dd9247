"""One mistake at a time in the description of an arm, and what is said of it: which one, and how large."""

import dataclasses
import importlib
import math
import re
import types

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.budget import DescribedTests
from jaxmb.identify.assess.corrected import CorrectedResidual, ResidualBlock
from jaxmb.identify.assess.hypotheses import (
    UNCHANGED,
    FittedHypothesis,
    Hypothesis,
    HypothesisSearch,
    Whitening,
    _expected_chi_squares,
    refitted_hypotheses,
    with_random_starts,
    with_singles,
)
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.model_errors import (
    Explanations,
    ModelError,
    _is_tolerated,
    _named_errors,
    _with_likely_errors,
    further_springs,
    model_errors,
    with_hypotheses,
)
from jaxmb.identify.assess.saved import load_result, write_result
from jaxmb.identify.estimation.identifiability import propagated_std
from jaxmb.identify.experiments.machine_errors import FURTHER, with_further_springs
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.fit.problem import with_tests
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model
from tests.identify.arm import BRIEF, MACHINE, TRUTH, estimate_at, frf, shapes, study_of

NOISE = 0.015


def assert_covered(result):
    """No value is claimed beyond its interval, which holds the true one."""
    for name, found in result.parameters.items():
        if found.interval_95 is None:
            assert found.identifiable == "no"
        else:
            assert found.interval_95[0] <= TRUTH[name] <= found.interval_95[1], name


POSTURES = (0.5, -0.9, 1.3)


def study(folder, truth=MACHINE, level=NOISE, offset=0.0, leak=0.0, step=0.25, **settings):
    """Three postures of the arm as it is described, FRFs of the true one; the second posture is off by some angle."""
    write_machine(truth, folder / "truth.toml")
    tests = []
    for k, b in enumerate(POSTURES):
        simulate = {
            "lines": {"first_hz": 1.0, "last_hz": 25.0, "step_hz": step}, "noise_log_std": NOISE, "noise_seed": k,
            "machine": "truth.toml",
        }  # fmt: skip
        test = {"kind": "frf", "name": f"p{k}", "posture": {"a": 0.2, "b": b}, "simulate": simulate}
        tests.append(test | {"outputs": [["tool", "x"], ["tool", "z"]], "noise_log_std": level, "cross_axis": leak})
    made = study_of(folder, *tests, **(BRIEF | settings))
    own = list(made.tests)
    own[1] = dataclasses.replace(own[1], q=own[1].q + jnp.array([0.0, offset]))
    problem = dataclasses.replace(made.problem, views=(None, None, None))  # which hold the postures as they were
    return made.with_problem(with_tests(problem, own))


def changed(made, how, count=1):
    """The study with something else made of what was measured in its first tests."""
    own = [
        dataclasses.replace(
            test, measured=jnp.asarray(how(np.asarray(test.measured), np.asarray(test.omega)[:, None, None]))
        )
        for test in made.tests[:count]
    ]
    return made.with_problem(with_tests(made.problem, [*own, *made.tests[count:]]))


def exchanged(made):
    """The study with the files of its first two tests exchanged."""
    first, second, *others = made.tests
    own = [dataclasses.replace(a, measured=b.measured) for a, b in ((first, second), (second, first))]
    return made.with_problem(with_tests(made.problem, [*own, *others]))


def heavier(factor):
    """The arm with other masses."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in data["body"]:
        body["mass"] *= factor
        body["inertia_products"] = {axis: factor * value for axis, value in body["inertia_products"].items()}
    return Machine.model_validate(data)


def loaded(mass):
    """The arm with a payload."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    return Machine.model_validate(data | {"payload": [{"name": "load", "frame": "tool", "mass": mass}]})


def loaded_once(folder, mass, level, which):
    """The study whose test of an index was made with a payload."""
    with_load, made = study(folder, loaded(mass), level), study(folder, level=level)
    own = [with_load.tests[k] if k == which else test for k, test in enumerate(made.tests)]
    return made.with_problem(with_tests(made.problem, own))


@pytest.mark.parametrize("stiffness", [0.9, 30.0])
def test_another_stiffness_in_one_test_is_named(tmp_path, stiffness):
    """As by another state of the drive, or a brake."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    (joint,) = data["body"][1]["joint"]
    joint["stiffness"] *= stiffness
    made, other = study(tmp_path, step=1.0), study(tmp_path, Machine.model_validate(data), step=1.0)
    result = identify(made.with_problem(with_tests(made.problem, [*made.tests[:2], other.tests[2]])))
    factor = re.fullmatch(r"a stiffness of b (\S+) times as large in test 'p2'", result.metrics.model_errors[0].text)
    assert float(factor[1]) == pytest.approx(stiffness, rel=0.01)


def test_a_sensor_turned_by_a_large_angle_is_named_with_it(tmp_path):
    """Alone: to first order the turned direction would be too long by 1 / cos(30 deg)."""

    def turned(frf, omega):
        sine, cosine = np.sin(np.pi / 6.0), np.cos(np.pi / 6.0)
        return frf.at[:, 0].set(cosine * frf[:, 0] + sine * frf[:, 1])

    result = identify(changed(study(tmp_path, step=1.0), lambda frf, omega: turned(jnp.asarray(frf), omega), 3))
    (error,) = result.metrics.model_errors
    assert re.fullmatch(r"direction of output tool x about y -(30|29\.\d|30\.\d) deg from the stated one", error.text)


def behind_window(made, count, decay):
    """The study with the responses of its first tests behind an exponential window that is not stated."""
    own, model = list(made.tests), build_model(MACHINE)
    for k, test in enumerate(own[:count]):
        view, behind = test.view(model), dataclasses.replace(test, decay=jnp.asarray(decay))
        own[k] = dataclasses.replace(test, measured=test.measured * behind.predict(view) / test.predict(view))
    return made.with_problem(with_tests(made.problem, own))


def test_the_window_of_one_test_in_noise_stated_too_large(tmp_path):
    """The chi-square of all data is normal, but the tests contradict each other."""
    result = identify(behind_window(study(tmp_path, level=3.0 * NOISE), 1, 0.5))
    (found,) = result.metrics.model_errors
    assert found.text.startswith("an exponential window of ")
    assert found.text.endswith("on the responses of test 'p0' instead of 0")
    assert float(found.text.split()[4]) == pytest.approx(0.5, rel=0.1)
    assert result.metrics.misfit.square < 1.0
    assert_covered(result)


def high_pass(corner):
    """Of the first output."""

    def passed(h, w):
        first = np.arange(h.shape[1])[:, None] == 0
        return np.where(first, h * 1j * w / (1j * w + 2.0 * np.pi * corner), h)

    return passed


def test_a_prior_from_an_earlier_fit_has_no_search_for_hidden_errors(tmp_path, monkeypatch):
    """Its covariance contains what that fit did not name."""
    made = changed(study(tmp_path, level=3.0 * NOISE), high_pass(0.3), len(POSTURES))
    u = made.free.encode(np.array([TRUTH[name] for name in made.free.names]))
    estimate = estimate_at(made, least_squares_from(made.problem, made.problem.box, jnp.asarray(u)).u)
    module = importlib.import_module("jaxmb.identify.assess.model_errors")
    scatter, _ = module._scatter(estimate)
    monkeypatch.setattr(module, "_scatter", lambda estimate: (scatter, False))  # it is systematic too
    monkeypatch.setattr(module, "HypothesisSearch", None)
    file = made.origin.file.model_copy(update={"prior_from": "result.json"})
    earlier = dataclasses.replace(made, origin=made.origin._replace(file=file))
    assert model_errors(dataclasses.replace(estimate, study=earlier), 0.0) == Explanations()
    with pytest.raises(TypeError):  # the search begins
        model_errors(estimate, 0.0)


def test_predictions_keep_what_parameters_compensate_under_a_hypothesis(tmp_path):
    """The covariance grows by the product of the changes, once for hypotheses with one effect."""
    made = study(tmp_path)
    estimate = estimate_at(made, made.free.encode(np.array([TRUTH[name] for name in made.free.names])))
    change = 0.1 * np.arange(1.0, made.free.size + 1.0)
    named = made.free.named(made.free.values(estimate.u + change))
    errors = (ModelError("one", 1.0, named), ModelError("other", 1.0, named))
    found = with_hypotheses(estimate, Explanations(errors)).identifiability
    grown = found.covariance - estimate.identifiability.covariance
    np.testing.assert_allclose(grown, np.outer(change, change), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.std, np.hypot(estimate.std, change), rtol=1e-6)
    slope = np.array([[2.0, -1.0, *np.zeros(made.free.size - 2)]])
    before = propagated_std(slope, estimate.identifiability)
    np.testing.assert_allclose(propagated_std(slope, found), before, rtol=1e-6)


@pytest.mark.parametrize("corner", [0.0, 0.3])
def test_a_high_pass_in_noise_stated_too_large(tmp_path, corner):
    """The chi-square of all data is normal, and the tests agree: one error lowers the residual significantly."""
    result = identify(changed(study(tmp_path, level=3.0 * NOISE), high_pass(corner), len(POSTURES)))
    assert result.metrics.misfit.square < 1.0
    texts = [error.text for error in result.metrics.model_errors or ()]
    found = [float(re.fullmatch("a high-pass of ([0-9.]+) Hz in output tool x", text)[1]) for text in texts]
    assert found == pytest.approx([corner] if corner else [], rel=0.02)
    assert_covered(result)


@pytest.mark.parametrize("level", [NOISE, "estimate"])
def test_the_window_of_all_tests(tmp_path, level):
    """An exponential window that no test states; free dampings absorb most of its effect."""
    result = identify(behind_window(study(tmp_path, level=level), len(POSTURES), 3.0))
    found = re.search(r"exponential window of ([\d.]+) 1/s on the responses of all FRF tests", result.remarks[0])
    assert found is not None
    assert float(found[1]) == pytest.approx(3.0, rel=0.1)
    assert_covered(result)


@pytest.mark.parametrize("level", [NOISE, "estimate"])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda f, level: study(f, heavier(1.1), level), "all masses 1.1 times as large"),
        (lambda f, level: study(f, loaded(0.5), level), "a payload of 0.5 kg at tool"),
        (lambda f, level: loaded_once(f, 1.0, level, 0), "a payload of 1 kg at tool in test 'p0'"),
        (lambda f, level: loaded_once(f, 0.5, level, 2), "a payload of 0.5 kg at tool in test 'p2'"),
        (lambda f, level: study(f, level=level, offset=0.05), "-2.86 deg of b in the posture of test 'p1'"),
        (lambda f, level: exchanged(study(f, level=level)), "exchanged postures of test 'p0' and test 'p1'"),
        (
            lambda f, level: changed(study(f, level=level), lambda h, w: 0.8 * h),
            "a factor of 1.25 on the FRFs of test 'p0'",
        ),
        (lambda f, level: changed(study(f, level=level), lambda h, w: 0.8 * h, 3), "a factor of 1.25 on all FRFs"),
        (
            lambda f, level: changed(study(f, level=level), lambda h, w: 1.0 / h, 3),
            "force over response stated as response over force",
        ),
        (
            lambda f, level: changed(study(f, level=level), lambda h, w: h * np.exp(-2e-3j * w)),
            "responses of test 'p0' that are 2 ms late",
        ),
        (
            lambda f, level: changed(study(f, level=level), lambda h, w: h * np.exp(-2e-3j * w), 3),
            "responses of all FRF tests that are 2 ms late",
        ),
        (
            lambda f, level: changed(study(f, level=level), lambda h, w: h * np.array([1.0, 0.8])[:, None]),
            "a factor of 1.25 on output tool z of test 'p0'",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_size(tmp_path, make, text, level):
    result = identify(make(tmp_path, level))
    # a factor on all masses and one on all FRFs have one effect
    same = "masses" in text or "all FRFs" in text
    first = next(e for e in result.metrics.model_errors if not same or e.text.split(" ")[:2] == text.split(" ")[:2])
    assert len(result.metrics.model_errors) > 1 or not same
    said, expected = (
        [float(word) for word in words.replace("+", "").split() if word.lstrip("-").replace(".", "").isdigit()]
        for words in (first.text, text)
    )
    without_numbers = ["".join(c for c in words if c not in "+-.0123456789") for words in (first.text, text)]
    assert without_numbers[0] == without_numbers[1]
    assert said == pytest.approx(expected, rel=0.05)
    assert first.explains > 0.9
    assert first.text in result.doubts[0]
    assert_covered(result)
    if result.parameters["stiffness.a"].interval_95 is not None:
        for name, value in first.values.items():
            assert abs(value - TRUTH[name]) < 4.0 * first.std[name]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("along", [9.81, -9.81])
def test_a_base_that_is_mounted_at_a_wall_is_named(tmp_path, along, seed):
    """Springs so soft that weight changes the frequencies; fitted jointly with them, a tilt leaves its 90 deg."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in data["body"]:
        body["joint"][0]["stiffness"] *= 0.05
    write_machine(Machine.model_validate(data | {"gravity": [along, 0.0, 0.0]}), tmp_path / "truth.toml")
    simulate = {"below_hz": 100.0, "noise": True, "noise_seed": seed, "machine": "truth.toml"}
    tests = [
        shapes(name=f"p{k}", posture={"a": a, "b": b}, simulate=simulate, frequency_std_hz=0.003)
        for k, (a, b) in enumerate(((0.2, 0.5), (-0.3, -0.9), (0.6, -0.4), (-0.8, 0.8)))
    ]
    free = {"stiffness.*": {"lower": 10.0, "upper": 1e5}, "damping.*": {"lower": 0.1, "upper": 1e3}}
    made = study_of(tmp_path, *tests, free=free, machine=Machine.model_validate(data), **BRIEF)
    texts = [error.text for error in identify(made).metrics.model_errors]
    assert f"tilt about Y {math.copysign(90, -along):+.0f} deg from the stated one" in texts
    # with a vertical plane of motion, the zero of the first joint turns the arm alike
    assert all(re.match(r"tilt about Y|zero of a [+-]90", text) for text in texts)


SIX = [
    ([0, 0, 1], [0, 0, 0.4], 250.0, [0.05, 0, -0.1], 6.0, 3e6, 700.0),
    ([0, 1, 0], [0.3, 0, 0.3], 180.0, [0.05, 0.1, 0.45], 12.0, 2.5e6, 600.0),
    ([0, 1, 0], [0, 0, 0.9], 120.0, [0.1, 0, 0.1], 4.0, 1.5e6, 300.0),
    ([1, 0, 0], [0.4, 0, 0.15], 60.0, [0.3, 0, 0], 2.0, 4e5, 100.0),
    ([0, 1, 0], [0.6, 0, 0], 20.0, [0.05, 0, 0], 0.2, 3e5, 60.0),
    ([1, 0, 0], [0.12, 0, 0], 10.0, [0.05, 0.01, 0.02], 0.05, 1.5e5, 30.0),
]
"""Axis, origin, mass, centre of mass, moment of inertia, stiffness and damping of each joint and its body."""


@pytest.mark.parametrize("seed", [41, 43])
def test_a_payload_far_from_the_fit_without_it_is_named(tmp_path, seed):
    """Without it a centre of mass off by 286 mm leaves noise alone, or the fit ends in a local minimum."""
    bodies = [
        {"name": f"b{k}", "parent": f"b{k - 1}" if k else "ground", "origin": {"xyz": origin}, "mass": mass,
         "center_of_mass": center, "inertia_products": {"xx": inertia, "yy": 1.2 * inertia, "zz": 0.9 * inertia},
         "joint": [{"name": f"j{k}", "axis": axis, "stiffness": stiffness, "damping": damping}]}
        for k, (axis, origin, mass, center, inertia, stiffness, damping) in enumerate(SIX)
    ]  # fmt: skip
    tool = {"name": "tool", "body": "b5", "origin": {"xyz": [0.25, 0.03, 0.05]}}
    stated = {"name": "six", "body": bodies, "frame": [tool]}
    load = {"name": "load", "frame": "tool", "mass": 10.0}
    write_machine(Machine.model_validate(stated | {"payload": [load]}), tmp_path / "truth.toml")
    simulate = {
        "machine": "truth.toml", "lines": {"first_hz": 2.0, "last_hz": 50.0, "step_hz": 0.5}, "noise_log_std": 0.02,
        "noise_seed": seed,
    }  # fmt: skip
    q = np.random.default_rng(seed).uniform(-1.0, 1.0, 6).tolist()
    test = {"kind": "frf", "posture": {f"j{k}": x for k, x in enumerate(q)}, "simulate": simulate}
    free = {"stiffness.*": {"lower": 1e4, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}}
    made = study_of(tmp_path, test | {"noise_log_std": 0.02}, free=free, machine=Machine.model_validate(stated))
    first = identify(made).metrics.model_errors[0].text
    assert first.endswith(" kg at tool")
    assert float(first.split()[3]) == pytest.approx(10.0, rel=0.05)


def at_points(state):
    """The residual of a state, as of `CorrectedResidual.residuals`."""
    return lambda u, x: np.stack([state(*point, slice(0))[0] for point in zip(u, x, strict=True)])


def test_an_error_beyond_a_rise_of_its_residual_is_found():
    """Responses near antiresonances: a fit from 0 ends before the rise."""
    draw = np.random.default_rng(0)
    noise, slopes = draw.normal(size=200), draw.normal(size=(200, 2))

    def state(u, x, columns, tests=None):
        rise = 1.6 * np.exp(-(((x[0] - 3.0) / 2.0) ** 2))
        jacobian = np.column_stack([slopes, -20.0 * slopes[:, 1] * (0.05 + rise * (x[0] - 3.0) / 2.0)])
        return noise + slopes @ [u[0], 20.0 * (1.0 - x[0] / 20.0 + rise)], jacobian[:, [0, 2]][:, columns]

    free = types.SimpleNamespace(lower=[-1.0], upper=[1.0], size=1)
    problem = types.SimpleNamespace(free=free, row_slices=(), tests=())
    errors = (StatedError("beyond", size=1.0),)
    corrected = types.SimpleNamespace(
        model=build_model(MACHINE), problem=problem, errors=errors, state=state, residuals=at_points(state)
    )
    search = HypothesisSearch(corrected, Whitening(np.ones(200), np.zeros((200, 0))), 199.0)
    (found,) = refitted_hypotheses(search, [np.zeros(1)], search.fitted(UNCHANGED, np.zeros(1)).chi_square, ())
    assert found.size == pytest.approx(20.0, abs=0.2)


def refits(errors, state, bound):
    """Refits of errors beside one parameter between bounds, with 200 rows of unit noise."""
    free = types.SimpleNamespace(lower=[-bound], upper=[bound], size=1)
    problem = types.SimpleNamespace(free=free, row_slices=(), tests=())
    corrected = types.SimpleNamespace(
        model=build_model(MACHINE), problem=problem, errors=errors, state=state, residuals=at_points(state)
    )
    search = HypothesisSearch(corrected, Whitening(np.ones(200), np.zeros((200, 0))), 199.0)
    return refitted_hypotheses(search, [np.zeros(1)], search.fitted(UNCHANGED, np.zeros(1)).chi_square, ())


def test_an_angle_is_found_that_is_far_off():
    """Beside it another minimum is near 0, its residual is larger at each start until the free parameter is fitted, and
    a displaced axis has the same effect to first order."""
    draw = np.random.default_rng(0)
    noise, slopes = draw.normal(size=200), draw.normal(size=(200, 2))
    errors = StatedError("axis", size=0.1), StatedError("angle", size=0.05, starts=(3.5, -3.5, 12.0, -12.0))
    by_axis = slopes @ [-1.5, 1.35]

    def state(u, x, columns, tests=None):
        off, near = x[1] - 12.0, (x[1] - 1.0) ** 2 + 2.0
        by_angle = slopes @ [-1.5, 0.05 * (near + 2.0 * off * (x[1] - 1.0))]
        by_u = slopes[:, 0] * 30.0 / np.cosh(u[0]) ** 2
        residual = noise + slopes @ [30.0 * (np.tanh(u[0]) - x[1] / 20.0), 0.05 * off * near] + by_axis * x[0]
        return residual, np.column_stack([by_u, by_axis, by_angle])[:, columns]

    found = refits(errors, state, 2.0)
    best = min(found, key=lambda end: end.chi_square)
    assert best.hypothesis.error.key == "angle"
    assert 0.05 * best.size == pytest.approx(12.0, abs=0.1)


def test_an_implausibly_large_error_that_leaves_noise_alone_does_not_end_the_search():
    """An error of about the typical size leaves noise alone too, but has no effect to first order."""
    draw = np.random.default_rng(0)
    noise, slopes = draw.normal(size=200), draw.normal(size=(200, 2))
    errors = StatedError("far off", "gain_percent"), StatedError("usual", size=1.0, starts=(1.0,))

    def state(u, x, columns, tests=None):
        jacobian = np.column_stack([slopes, 20.0 * x[1] * slopes[:, 1]])
        return noise + slopes @ [u[0], x[0] + 10.0 * x[1] ** 2 - 40.0], jacobian[:, columns]

    found = refits(errors, state, 1.0)
    assert {end.text.split()[0]: round(abs(end.size)) for end in found} == {"far": 40, "usual": 2}


def stuck_search(gain):
    """Search whose residual has many local minima in u, and a fit of the error of a gain from u = 0, far from the true
    0.9. At 0.3 an error of masses has the effect of the gain."""
    noise, waves = np.random.default_rng(1).normal(size=300), np.arange(1.0, 301.0) / 20.0

    def state(u, x, columns, tests=None):
        far = u[0] - 0.3
        residual = noise + 9.0 * (np.sin(waves * u[0]) - np.sin(0.9 * waves)) + 7.0 * (far * x[0] + x[1] - gain)
        by_u = 9.0 * waves * np.cos(waves * u[0]) + 7.0 * x[0]
        return residual, np.column_stack([by_u, np.full(300, 7.0 * far), np.full(300, 7.0)])[:, columns]

    errors = StatedError("masses", size=1.0), StatedError("gain", size=1.0)
    free = types.SimpleNamespace(
        lower=np.zeros(1), upper=np.ones(1), size=1, names=("k",), values=np.asarray, slope=np.ones_like,
        named=lambda values: {"k": float(values[0])},
    )  # fmt: skip
    problem = types.SimpleNamespace(free=free, row_slices=(), tests=())
    corrected = types.SimpleNamespace(problem=problem, errors=errors, state=state, of_machine=1)
    search = HypothesisSearch(corrected, Whitening(np.ones(300), np.zeros((300, 0))), 299.0)
    return search, search.fitted(Hypothesis(errors[1]), np.zeros(2))


def test_an_error_is_refitted_from_starts_far_from_a_fit_in_a_local_minimum():
    """An error of the machine whose effect is the same at one point does not replace it."""
    search, stuck = stuck_search(1.0)
    _, distinct, _ = _expected_chi_squares(search, [np.zeros(1), np.full(1, 0.3)], None)
    assert distinct.all()
    assert stuck.chi_square > 10.0 * search.noise_mean
    (found,) = with_random_starts(search, [stuck], 0)
    np.testing.assert_allclose(found.x, [0.9, 1.0], atol=0.05)
    assert [error.text.split()[0] for error in _named_errors(search, np.zeros(1), 1e5, [found])] == ["gain"]


def test_a_local_minimum_without_an_error_is_no_error():
    """Refits from random starts leave noise alone there, with errors of about 0."""
    search, stuck = stuck_search(0.0)
    (found,) = with_random_starts(search, [stuck], 0)
    assert found.chi_square < 1.2 * search.noise_mean
    (reported,) = _named_errors(search, np.zeros(1), 1e5, [found])
    assert "minimum" in reported.text


def test_an_error_within_its_tolerance_that_acts_nonlinearly_is_no_second_error():
    """The square of a direction, 2 tolerances off, has the effect of a gain beside the true payload."""
    draw = np.random.default_rng(0)
    noise, (slope, by_direction, by_payload, by_gain) = draw.normal(size=200), draw.normal(size=(4, 200))

    def state(u, x, columns, tests=None):
        jacobian = np.column_stack([slope, by_direction + 2.0 * x[0] * by_gain, by_payload, by_gain])
        residual = noise + slope * u[0] + by_direction * (x[0] - 2.0) + by_payload * (x[1] - 5.0)
        return residual + by_gain * (x[0] ** 2 - 4.0 + x[2]), jacobian[:, columns]

    def blocks(u, x, columns, tests=None):
        yield ResidualBlock(slice(0, 200), np.arange(columns.size), *state(u, x, columns))

    payload, gain = (StatedError(key, size=1.0, text=f"{key} {{:.2g}}".format) for key in ("payload", "gain"))
    errors = StatedError("direction", "sensor_direction_deg"), payload, gain
    free = types.SimpleNamespace(lower=np.full(1, -9.0), upper=np.full(1, 9.0), size=1)
    corrected = types.SimpleNamespace(
        problem=types.SimpleNamespace(free=free, data_rows=200, tests=()), errors=errors, state=state, blocks=blocks,
        tolerances=lambda study: np.array([[1.0, 0.0, 0.0]]),
    )  # fmt: skip
    made = types.SimpleNamespace(free=free, tolerances=Tolerances(), exact_tests=())
    search = HypothesisSearch(corrected, Whitening(np.ones(200), by_direction[:, None]), 199.0)
    single, other = (search.fitted(Hypothesis(error), np.zeros(2)) for error in errors[1:])
    both = search.fitted(Hypothesis(payload, beside=(gain,)), np.zeros(3))
    assert both.chi_square < single.chi_square - 1000.0
    plain, found = _with_likely_errors(search, made, search.fitted(UNCHANGED, np.zeros(1)), [other, single, both])
    best = min(found, key=lambda end: end.chi_square)
    assert both.hypothesis not in [end.hypothesis for end in found]
    assert best.text == "payload 4.9"
    assert best.chi_square < 1.2 * 199.0 < 0.1 * plain


@pytest.mark.parametrize("level", [NOISE, "estimate"])
def test_nothing_is_named_where_nothing_is_wrong(tmp_path, level):
    result = identify(study(tmp_path, level=level))
    assert result.metrics.model_errors is None
    assert {p.identifiable for p in result.parameters.values()} == {"yes"}
    for name, true in TRUTH.items():
        assert abs(np.log(result.parameters[name].value / true)) < 4.0 * result.parameters[name].std_log


def test_tolerances_beside_a_simulated_test(tmp_path):
    """A simulated test is as described, a measured one beside it has its tolerances, and the machine has."""
    measured = {"kind": "modes", "name": "m", "posture": {"a": 0.2, "b": 0.5}, "frequency_hz": [5.0, 15.0],
                "damping_percent": [1.0, 1.0], "frequency_std_hz": 0.02, "damping_std_percent": 0.05}  # fmt: skip
    made = study_of(tmp_path, frf(name="p"), measured)
    corrected = CorrectedResidual.of(made, made.model)
    by_test = corrected.tolerances(made)
    std = by_test.max(axis=0)
    described = DescribedTests(made.fitted, made.model, made.free, made.tolerances, made.exact_tests)
    tolerated = {error.key for error in described.errors if error.std(made.tolerances) > 0.0}
    assert {error.key for error, size in zip(corrected.errors, std, strict=True) if size > 0.0} == tolerated
    keys = [error.key for error in corrected.errors]
    simulated, real = (set(own.ravel()) for own in (corrected.own[0][0], corrected.own[1][0]))
    machine = set(range(corrected.of_machine))
    assert "zero of b" in tolerated
    assert real - simulated - machine
    assert not any(std[k] for k in simulated - real - machine)
    for k in real - machine:
        assert by_test[0, k] == 0.0, keys[k]
        assert by_test[1, k] == corrected.errors[k].std(made.tolerances), keys[k]


@pytest.mark.parametrize("what", ["shapes", "damping ratios"])
def test_modes_in_another_order_are_named(tmp_path, what):
    made = study_of(tmp_path, *(shapes(b, name=f"p{k}") for k, b in enumerate(POSTURES)), **BRIEF)
    test, other = made.tests[0], made.tests[1:]
    field = {"shapes": "shape", "damping ratios": "damping_ratio"}[what]
    wrong = dataclasses.replace(test, **{field: getattr(test, field)[::-1]})
    result = identify(made.with_problem(with_tests(made.problem, [wrong, *other])))
    low, high = np.asarray(test.frequency_hz)
    text = f"exchanged {what} of the modes at {low:.4g} and {high:.4g} Hz of test 'p0'"
    assert text in [error.text for error in result.metrics.model_errors]


def test_a_minimum_that_is_not_the_lowest(tmp_path, monkeypatch):
    """Any number more lets the free parameters leave it for the lowest one: none of these is a cause."""
    findings = []
    module = importlib.import_module("jaxmb.identify.assess.identify")
    monkeypatch.setattr(module, "model_errors", lambda estimate, _: findings.append(estimate) or Explanations())
    identify(changed(study(tmp_path), lambda h, w: h * np.exp(0.15 * np.sin(0.3 * w))))
    monkeypatch.undo()
    good = study(tmp_path)
    u = findings[0].u + np.where(np.arange(findings[0].u.size) == 0, 0.1, 0.0)
    residual = np.asarray(good.problem.residual(u))
    (cause,) = model_errors(dataclasses.replace(findings[0], study=good, u=u, residual=residual), 0.0).errors
    assert cause.text.startswith("a lower minimum of the cost that the search did not find, with stiffness.a near ")
    assert float(cause.text.rstrip(",").split()[-1]) == pytest.approx(TRUTH["stiffness.a"], rel=0.02)


def test_a_locked_joint_that_is_elastic(tmp_path):
    made = study(tmp_path, lock=["a"])
    foundation, joint = (error.text for error in identify(made).metrics.model_errors)  # both about one axis
    for text, pattern in (
        (foundation, r"an elastic foundation about Y, of a stiffness of (.*) N m/rad"),
        (joint, r"a stiffness of (.*) N m/rad of a, which is locked,"),
    ):
        found = re.fullmatch(pattern, text)
        assert found is not None
        assert float(found[1]) == pytest.approx(TRUTH["stiffness.a"], rel=0.02)


def test_a_damping_that_is_held_at_another_value(tmp_path):
    made = study(tmp_path, hold={"damping.a": 3.0 * TRUTH["damping.a"]}, level="estimate")
    texts = [error.text for error in identify(made).metrics.model_errors]
    # frequencies three times as high, with all stiffnesses and the other damping, look just like that
    assert any(re.fullmatch(r"a damping of (24\.\d|25|25\.\d) N m s/rad of a instead of 75", text) for text in texts)


@pytest.mark.parametrize("level", [NOISE, "estimate", 10.0 * NOISE])
def test_what_no_mistake_explains_leaves_nothing_well_known(tmp_path, level):
    """Also where the noise is estimated, or stated so large that it covers the misfit: it goes on from line to line."""
    made = changed(study(tmp_path, level=level), lambda h, w: h * np.exp(0.15 * np.sin(0.3 * w)))
    result = identify(made)
    assert result.metrics.model_errors is None
    assert_covered(result)
    assert any(re.search(r"\d+ % of the residual of test 'p0' is systematic", text) for text in result.doubts)


def test_a_gross_error_on_few_lines(tmp_path):
    """Noise that is estimated from the residual covers any residual, and few lines do not show that it is smooth."""
    result = identify(changed(study(tmp_path, level="estimate", step=1.5), lambda h, w: h[:, ::-1]))
    assert "exchanged outputs tool x and tool z of test 'p0' would explain" in result.remarks[0]
    assert result.doubts


def test_leaks_hide_no_mistake(tmp_path):
    """Where noise is estimated beside leaks, which go on from line to line themselves."""
    good = identify(study(tmp_path, level="estimate", leak=0.03))
    assert good.status == "converged"
    assert good.doubts == ()
    made = changed(study(tmp_path, level="estimate", leak=0.03), lambda h, w: 0.8 * h)
    assert identify(made).metrics.model_errors[0].text.startswith("a factor of 1.25 on the FRFs of test 'p0'")
    made = changed(study(tmp_path, level="estimate", leak=0.03), lambda h, w: h * np.exp(0.8 * np.sin(0.3 * w)))
    assert identify(made).status.startswith("data not followed")


@pytest.mark.parametrize("level", [NOISE, "estimate"])
def test_single_lines(tmp_path, level):
    def mains(h, w):
        h = h.copy()
        h[[20, 21, 60]] *= 1.5
        return h

    made = changed(study(tmp_path, level=level), mains)
    result = identify(made)
    (found,) = result.metrics.model_errors
    assert found.text == "excluding 6, 6.25, 16 Hz of test 'p0' (robust = true)"
    tests = [dataclasses.replace(test, robust=True) for test in made.tests]
    robust = identify(made.with_problem(with_tests(made.problem, tests)))
    assert robust.metrics.model_errors is None
    assert robust.as_json()["lines_left_out"] == {"p0": [20, 21, 60]}
    assert "test 'p0': outlier lines excluded: 6, 6.25, 16 Hz" in robust.remarks
    for name, value in TRUTH.items():
        found = robust.parameters[name]
        assert abs(np.log(found.value / value)) < 4.0 * found.std_log


def on_foundation(stiffness, damping=300.0):
    """The arm on a base that moves along Z."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    joint = {"name": "base", "type": "prismatic", "axis": [0.0, 0.0, 1.0], "stiffness": stiffness, "damping": damping}
    upper, fore = data["body"]
    base = {"name": "base", "mass": 0.1, "joint": [joint]}
    return Machine.model_validate(data | {"body": [base, upper | {"parent": "base"}, fore]})


def test_further_springs_by_what_they_leave():
    """Those that lower the sum of squares significantly, with the unit of their motion; errors of other kinds, and a
    negative compliance, are no springs."""
    model = with_further_springs(build_model(MACHINE))
    along, about, bent = (f"compliance of {name}" for name in (f"{FURTHER[0]} along Z", f"{FURTHER[0]} about X",
                                                           f"{FURTHER[1]} at b about x"))  # fmt: skip
    rocks = f"compliance of {FURTHER[0]} about X and Y"
    sizes = {"mass of upper": (1.0, 50.0), about: (2.0, 300.0), along: (4.0, 100.0), bent: (1.0, 999.0),
             rocks: (1.0, 400.0)}  # fmt: skip
    ends = [
        FittedHypothesis(Hypothesis(StatedError(key, size=1e-6)), np.array([s]), left)
        for key, (s, left) in sizes.items()
    ]
    found = further_springs(model, ends, 1000.0, 100.0, 50)
    assert tuple(map(dataclasses.astuple, found)) == (
        ("an elastic foundation along Z", pytest.approx(2.5e5), "N/m", 1.0),
        ("an elastic foundation about X", pytest.approx(5e5), "N m/rad", pytest.approx(7.0 / 9.0)),
        ("an elastic foundation about X and Y", pytest.approx(1e6), "N m/rad", pytest.approx(6.0 / 9.0)),
    )
    assert not further_springs(model, [end._replace(x=-end.x) for end in ends], 1000.0, 100.0, 50)


def test_further_springs_are_ranked(tmp_path, monkeypatch):
    """With a loss factor far from those of the joints, with which a fifth of the misfit would remain; also where noise
    alone may be as large."""
    monkeypatch.setattr(HypothesisSearch, "noise_limit", property(lambda search: 100.0 * search.noise_mean))
    result = identify(study(tmp_path, on_foundation(4e5, 2000.0)))
    assert result.metrics.model_errors[0].text.startswith("an elastic foundation along Z, of a stiffness of ")
    write_result(result, tmp_path)
    found = load_result(tmp_path).metrics.further_springs
    assert found == result.metrics.further_springs
    assert found[0].place == "an elastic foundation along Z"
    assert found[0].stiffness == pytest.approx(4e5, rel=0.02)
    assert found[0].unit == "N/m"
    assert found[0].explains > 0.95
    assert [spring.explains for spring in found] == sorted((spring.explains for spring in found), reverse=True)


@pytest.mark.parametrize(
    ("truth", "factor", "offset", "named"),
    [
        (on_foundation(4e5), 1.3, 0.0, ("an elastic foundation along Z, of a stiffness of ", "a factor of 0.769 on")),
        (loaded(8.0), 1.0, 0.05, ("a payload of 8 kg at tool", "-2.87 deg of b in the posture of test 'p1'")),
    ],
)  # fmt: skip
def test_two_errors_are_named_together(tmp_path, truth, factor, offset, named):
    made = changed(study(tmp_path, truth, offset=offset, step=1.0), lambda frf, omega: factor * frf)
    result = identify(made)
    (error,) = result.metrics.model_errors
    assert all(text in error.text for text in named)
    for name, value in error.values.items():
        assert abs(value - TRUTH[name]) < 3.0 * error.std[name]


def test_further_springs_of_a_hypothesis_move_alone(tmp_path, monkeypatch):
    """Others, nearly rigid, change neither the residual nor its derivatives."""
    made, corrected_module = study(tmp_path, step=2.0), importlib.import_module("jaxmb.identify.assess.corrected")
    found = []
    for moving in (2, 8), (100,):
        monkeypatch.setattr(corrected_module, "PROGRAM_SIZES", moving)
        corrected = CorrectedResidual.of(made, made.model)
        keys = [error.key for error in corrected.errors]
        further = [
            k for k, key in enumerate(keys) if key.startswith(tuple(f"compliance of {each}" for each in FURTHER))
        ]
        x = np.zeros(len(keys))
        x[further[2]], x[keys.index(f"damping beside {keys[further[2]]}")] = 1e-6, 0.3
        u = np.asarray(made.free.encode(made.start.values)) + 0.1
        residual, jacobian = corrected.state(u, x, np.arange(u.size + len(keys)))
        np.testing.assert_allclose(corrected.residuals(u[None], x[None])[0], residual, rtol=1e-9, atol=1e-9)
        typical = np.append(np.ones(u.size), [error.typical for error in corrected.errors])
        found.append((residual, jacobian * typical))
        pair, *both = (keys.index(f"compliance of {FURTHER[0]} about {axis}") for axis in ("X and Y", "X", "Y"))
        alike = np.zeros((2, len(keys)))
        alike[0, pair] = alike[1, both] = 1e-6
        np.testing.assert_allclose(*corrected.residuals(np.tile(u, (2, 1)), alike), rtol=1e-9, atol=1e-9)
    (few, slopes), (every, all_slopes) = found
    assert len(further) > 2
    np.testing.assert_allclose(few, every, atol=5e-3)  # of noise, by 1e6 times the stiffness of the joints
    np.testing.assert_allclose(slopes, all_slopes, rtol=1e-3, atol=5e-3)


def test_some_lines_suffice_for_a_search(tmp_path, monkeypatch):
    module = importlib.import_module("jaxmb.identify.assess.model_errors")
    monkeypatch.setattr(module, "FEW_ROWS", (150, 300))
    made, sizes = study(tmp_path, offset=0.05), []
    monkeypatch.setattr(
        module, "HypothesisSearch", lambda *given, **more: sizes.append(given) or HypothesisSearch(*given, **more)
    )
    result = identify(made)
    (reported,) = result.metrics.model_errors
    assert sizes[0][0].problem.data_rows < 0.4 * made.problem.data_rows
    assert "of b in the posture of test 'p1'" in reported.text


def test_a_joint_fit_that_begins_on_some_lines_ends_on_all(tmp_path, monkeypatch):
    module = importlib.import_module("jaxmb.identify.assess.corrected")
    made = study(tmp_path, step=0.5, offset=0.02, tolerances={"posture_deg": 1.0})
    corrected = CorrectedResidual.of(made, made.model)
    errors = [error for error in corrected.errors if error.std(made.tolerances) > 0.0]
    u, variances = np.asarray(made.free.encode(made.start.values)), np.ones(made.problem.data_rows)
    whole = module.joint_fit(corrected, made, u, errors, variances)
    monkeypatch.setattr(module, "FEW_ROWS", 150)
    monkeypatch.setattr(module, "ROWS_PER_UNKNOWN", 0)
    some = module.joint_fit(corrected, made, u, errors, variances)
    assert np.linalg.norm(whole.sizes) > 0.5
    np.testing.assert_allclose(some.sizes, whole.sizes, atol=0.02)
    np.testing.assert_allclose(some.fitted, whole.fitted, atol=0.05)


def test_a_direction_common_to_all_tests_within_the_tolerance_of_each_is_no_error(tmp_path):
    """Sensors that are mounted anew may deviate alike: by 1.5 tolerances in three tests, not by 2."""
    made = study(tmp_path, step=2.0, tolerances={"sensor_direction_deg": 1.0})
    corrected = CorrectedResidual.of(made, made.model)
    errors = {error.key: error for error in corrected.errors}
    common = errors["direction of output tool z about y"]
    assert common.std(made.tolerances) == 0.0
    one_deg = math.radians(1.0) / common.typical
    assert _is_tolerated(corrected, made, common, 1.5 * one_deg)
    assert not _is_tolerated(corrected, made, common, -2.1 * one_deg)
    assert not _is_tolerated(corrected, made, errors["gain of p0"], 0.0)


def test_errors_of_single_tests_are_searched_in_their_rows(tmp_path, monkeypatch):
    module = importlib.import_module("jaxmb.identify.assess.hypotheses")
    monkeypatch.setattr(module, "MOST_TESTS", 1)
    made = study(tmp_path, step=2.0, offset=0.05)
    corrected, rows = CorrectedResidual.of(made, made.model), made.problem.data_rows
    search = HypothesisSearch(corrected, Whitening(np.full(rows, 4.0), np.zeros((rows, 0))), rows)
    u = np.asarray(made.free.encode(made.start.values))
    parts = module._searches_in_single_tests(search, u)
    assert len(parts) == len(made.problem.tests)
    for (numbers, part), test in zip(parts, made.problem.tests, strict=True):
        keys = [corrected.errors[k].key for k in numbers]
        assert f"gain of {test.name}" in keys
        assert "time base" not in keys
        hypothesis = Hypothesis(corrected.errors[numbers[keys.index(f"gain of {test.name}")]])
        for du in (0.0, 1e-3):  # linear elsewhere
            at = np.append(u + du, 2.0)
            whole, inside = (np.sum(each.state(hypothesis, at)[0] ** 2) for each in (search, part))
            assert inside + part.elsewhere == pytest.approx(whole, rel=1e-9 + 10.0 * du**1.5)


@pytest.mark.parametrize("needed", [False, True])
def test_a_second_error_is_dropped_where_the_first_leaves_noise_alone(needed):
    """The single error is refitted from the minimum of the pair; its own fit had ended in another one."""
    factor, zero = (StatedError(key, size=1.0, text=str) for key in ("factor", "zero"))
    pair = FittedHypothesis(Hypothesis(factor, beside=(zero,)), np.array([0.3, 0.02, 2.28]), 195.0)

    def single(end, error, own):
        assert (error, own) in ((factor, 2.28), (zero, 0.02))
        return FittedHypothesis(Hypothesis(error), end.x[:2], 300.0 if needed or error is zero else 198.0)

    found = with_singles([pair, pair], single, 250.0, 10.0)
    assert [(end.hypothesis.error.key, len(end.errors)) for end in found] == ([] if needed else [("factor", 1)])
    if not needed:
        assert with_singles([pair], single, 250.0, 2.0)[-1] is pair  # it leaves significantly less
