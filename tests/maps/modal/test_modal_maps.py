"""Standard deviations of mapped quantities against draws of the parameters, and what is unknown stays so."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.machine.schema import Machine
from jaxmb.maps import MODAL_QUANTITIES, identified, load_identified, modal_maps, modal_maps_json, modal_quantities
from jaxmb.maps.modal import logarithmic, propagated

ARM = {
    "name": "arm",
    "gravity": [0.0, 0.0, -9.81],
    "body": [
        {"name": "a", "mass": 5.0, "center_of_mass": [0.3, 0.05, 0.02],
         "inertia_products": {"xx": 0.2, "yy": 0.5, "zz": 0.6},
         "joint": [{"name": "p", "axis": [0.0, 0.0, 1.0], "stiffness": 4e3, "damping": 9.0}]},
        {"name": "c", "parent": "a", "origin": {"xyz": [0.6, 0.0, 0.0]}, "mass": 4.0, "center_of_mass": [0.25, 0, 0],
         "inertia_products": {"xx": 0.1, "yy": 0.3, "zz": 0.3},
         "joint": [{"name": "r", "axis": [0.0, 1.0, 0.0], "stiffness": 2e3, "damping": 4.0}]},
    ],
    "frame": [{"name": "tool", "body": "c", "origin": {"xyz": [0.5, 0.0, 0.0]}}],
}  # fmt: skip
NAMES = tuple(MODAL_QUANTITIES)
FREE = ("stiffness.*", "damping.*", "mass.c")


@pytest.fixture(scope="module")
def arm():
    return jaxmb.build_model(Machine.model_validate(ARM))


def test_std_against_draws(arm):
    """150 draws of correlated parameters, 1 % at most: their sample std errs by 1/sqrt(2 * 150) = 6 %; four of those.

    Second order adds (0.01)^2 to a relative variance of that size, which is nothing beside it.
    """
    free, random = logarithmic(arm, FREE), np.random.default_rng(1)
    mix = random.normal(size=(free.size, free.size))
    covariance = mix @ mix.T
    covariance *= 1e-4 / np.max(np.diagonal(covariance))
    over = {"r": np.linspace(-0.8, 0.8, 3)}
    found = modal_maps(arm, over, modes=2, quantities=NAMES, free=free, covariance=covariance)
    u = free.encode(np.array([jaxmb.parameters(arm)[name] for name in free.names]))
    rows, drawn, set_values = found.postures.coordinates, [], jax.jit(lambda values: free.apply(arm, values))
    for at in random.multivariate_normal(u, covariance, 150):
        drawn.append(modal_quantities(set_values(free.values(at)), rows, NAMES, 2).values)
    for name in NAMES:
        sampled = np.std([part[name] for part in drawn], axis=0)
        assert found.maps[name].unknown == {}
        np.testing.assert_allclose(found.maps[name].std, sampled, rtol=4 / np.sqrt(300))


def test_progress(arm):
    """The last word is all postures, 300 in chunks of 256."""
    told = []
    rows = np.column_stack([np.zeros(300), np.linspace(-0.8, 0.8, 300)])
    modal_quantities(arm, rows, ("frequency",), report=lambda *part: told.append(part))
    assert told == [(256, 300), (300, 300)]


def test_what_does_not_act_may_be_unknown(arm):
    """With r at 0 the levers turn apart: about z both, about y the second alone, which knows nothing of stiffness.p."""
    free = logarithmic(arm, ("stiffness.*", "damping.*"))
    covariance = np.diag([np.nan, 1e-4, 1e-4, 1e-4])
    found = modal_maps(arm, {"r": [0.0, 0.7]}, quantities=NAMES, modes=2, free=free, covariance=covariance)
    std = found.maps["frequency"].std
    shape = np.asarray(jaxmb.modes(jaxmb.linearize(arm, np.zeros(2))).shape)
    second = int(np.argmax(np.abs(shape[1]) - np.abs(shape[0])))
    known = modal_maps(arm, {"r": [0.0, 0.7]}, modes=2, free=free, covariance=np.diag([1e-4] * 4))
    assert np.isfinite(std[0, second])
    assert std[0, second] == pytest.approx(known.maps["frequency"].std[0, second], rel=1e-9)
    assert np.isnan(std[0, 1 - second])
    assert set(found.maps["frequency"].unknown) == {"stiffness.p"}
    assert 0.0 < found.maps["frequency"].unknown["stiffness.p"] <= 0.75
    assert found.hardly_known == ()
    rough = modal_maps(arm, {"r": [0.0, 0.7]}, modes=2, free=free, covariance=np.diag([1e-4, 1.0, 0.9, np.nan]))
    assert rough.hardly_known == (free.names[1],)
    # with values all the same
    np.testing.assert_array_equal(found.maps["frequency"].values, known.maps["frequency"].values)


def test_propagated_counts_correlation():
    covariance = np.array([[4.0, -2.0], [-2.0, 1.0]])
    std, unknown = propagated(np.ones(2), np.array([[1.0, 2.0], [1.0, 0.0]]), covariance, ("a", "b"))
    np.testing.assert_allclose(std, [0.0, 2.0], atol=1e-12)
    assert unknown == {}
    half = np.array([[4.0, np.nan], [np.nan, np.nan]])
    std, unknown = propagated(np.array([1.0, 1.0, np.nan]), np.array([[1.0, 2.0], [1.0, 0.0], [np.nan] * 2]), half,
                              ("a", "b"))  # fmt: skip
    np.testing.assert_array_equal(std, [np.nan, 2.0, np.nan])
    assert unknown == {"b": 0.5}


def test_over_a_path_with_a_gap(arm):
    """Places out of reach have neither values nor standard deviations."""
    free = logarithmic(arm, ["stiffness.p"])
    angle = np.array([0.4, 0.5, 0.6])
    path = {"tool.x": 0.6 + 0.5 * np.cos(angle) + [0.0, 0.0, 0.1], "tool.z": -0.5 * np.sin(angle)}
    found = modal_maps(arm, path=path, held={"r": 0.45}, modes=1, quantities=NAMES, free=free,
                       covariance=np.array([[0.01]]))  # fmt: skip
    assert found.postures.reached.tolist() == [True, True, False]
    for name in NAMES:
        for part in (found.maps[name].values, found.maps[name].std):
            assert np.isfinite(part[:2]).all()
            assert np.isnan(part[2]).all()
    assert np.isnan(found.peak_hz[2])


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A study of the arm that ties both dampings and has a mass on a linear scale."""
    folder = tmp_path_factory.mktemp("study")
    jaxmb.write_machine(Machine.model_validate(ARM), folder / "arm.toml")
    test = {"kind": "frf", "simulate": {"lines": {"first_hz": 1.0, "last_hz": 12.0, "step_hz": 0.25}},
            "posture": {"r": 0.4}, "noise_log_std": 0.1,
            "outputs": [["tool", "y"], ["tool", "z"]]}  # fmt: skip
    free = {
        "stiffness.*": {"lower": 1e2, "upper": 1e5},
        "damping.*": {"lower": 1.0, "upper": 1e2, "tied": True},
        "mass.c": {"lower": 2.0, "upper": 6.0, "scale": "linear"},
    }
    brief = {"rounds": 1, "refine": {"coarse_lines": 0, "starts": 1}}
    file = StudyFile.model_validate({"machine": "arm.toml", "test": [test], "free": free} | brief)
    return jaxmb.identify(jaxmb.make_study(file, "small", folder))


def test_a_saved_result_is_mapped_as_the_fresh_one(result, tmp_path):
    (tmp_path / "result.json").write_text(result.json_text())
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    told = json.loads(result.json_text())["covariance"]
    assert told["names"] == list(result.study.free.names)
    # each variance is the square of the standard deviation of the parameter itself, on the scale that is told
    for name, scale, row in zip(told["names"], told["scale"], np.array(told["matrix"]).diagonal(), strict=True):
        assert np.sqrt(row) == pytest.approx(
            result.parameters[name].std_log if scale == "log" else result.parameters[name].std, rel=1e-12
        )
    maps = []
    for known in (identified(result), load_identified(tmp_path)):
        maps.append(modal_maps(known.model, {"r": [0.1, 0.4]}, modes=2, free=known.free, covariance=known.covariance))
    for name in ("frequency", "damping"):
        fresh, saved = (found.maps[name] for found in maps)
        np.testing.assert_allclose(saved.values, fresh.values, rtol=1e-9)
        np.testing.assert_allclose(saved.std, fresh.std, rtol=1e-9)
        assert np.all(saved.std > 0.0)


def test_what_was_identified_at_the_equilibrium_is_mapped_there(result, tmp_path):
    """The values are those of the machine about where it sags to, and the map says so."""
    (tmp_path / "result.json").write_text(json.dumps(json.loads(result.json_text()) | {"linearize_at": "equilibrium"}))
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    known = load_identified(tmp_path)
    found = modal_maps(
        known.model, {"r": [0.1, 0.4]}, modes=2, free=known.free, covariance=known.covariance,
        linearize_at=known.linearize_at,
    )  # fmt: skip
    for q, values in zip(found.postures.coordinates, found.maps["frequency"].values, strict=True):
        expected = jaxmb.modes(jaxmb.linearize(result.model, q, "equilibrium")).frequency_hz[:2]
        np.testing.assert_allclose(values, expected, rtol=1e-6)  # machine.toml rounds
    assert json.loads(modal_maps_json(found))["settings"]["linearize_at"] == "equilibrium"
    assert np.all(found.maps["frequency"].std > 0.0)


def test_an_unknown_parameter_is_null(result, tmp_path):
    """As where nothing acts on the data: null in the file, NaN in the map, and the map says which."""
    name = result.study.free.names[0]
    unknown = result.parameters[name]._replace(std=np.inf, std_log=np.inf, interval_95=None)
    lost = dataclasses.replace(result, parameters=result.parameters | {name: unknown})
    told = json.loads(lost.json_text(), parse_constant=pytest.fail)["covariance"]["matrix"]
    assert told[0] == [None] * len(told)
    assert all(row[0] is None for row in told)
    assert told[1][1] is not None
    (tmp_path / "result.json").write_text(lost.json_text())
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    known = load_identified(tmp_path)
    found = modal_maps(known.model, {"r": [0.1, 0.4]}, modes=2, free=known.free, covariance=known.covariance)
    assert set(found.maps["frequency"].unknown) == {name}
    assert np.isnan(found.maps["frequency"].std).any()


def test_what_is_no_result(result, tmp_path):
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    path = tmp_path / "result.json"
    with pytest.raises(jaxmb.InputError, match=r"result\.json: cannot be read"):
        load_identified(tmp_path)
    whole = json.loads(result.json_text())
    for change, sentence in [
        ("{", "not a result of an identification"),
        ("[]", "found no covariance"),
        (whole | {"covariance": None}, "covariance: found null, expected a table"),
        (whole | {"covariance": whole["covariance"] | {"matrix": [[1.0]]}}, "covariance has shape"),
        (
            whole | {"covariance": whole["covariance"] | {"scale": ["cubic"] * len(whole["covariance"]["scale"])}},
            "the scale of stiffness.p is 'cubic'",
        ),
        (whole | {"parameters": {}}, "not a result of an identification"),
    ]:
        path.write_text(change if isinstance(change, str) else json.dumps(change))
        with pytest.raises(jaxmb.InputError, match=sentence):
            load_identified(tmp_path)


def test_wrong_arguments(arm):
    for arguments, sentence in [
        ({}, "either 'over' or 'path'"),
        ({"over": {"r": [0.0, 1.0]}, "path": {"r": [0.0, 1.0]}}, "either 'over' or 'path'"),
        ({"over": {"r": [0.0, 1.0]}, "free": ["mass.c"]}, "found only one of 'free' and 'covariance'"),
        ({"over": {"r": [0.0, 1.0]}, "free": "mass.c", "covariance": np.eye(1)}, "a list of names"),
        ({"over": {"r": [0.0, 1.0]}, "free": ["mas.c"], "covariance": np.eye(1)}, "free parameter or pattern 'mas.c'"),
        ({"over": {"r": [0.0, 1.0]}, "free": ["rotor_inertia.p"], "covariance": np.eye(1)}, "'rotor_inertia.p' is 0"),
        (
            {"over": {"r": [0.0, 1.0]}, "free": ["mass.*"], "covariance": np.eye(3)},
            r"shape \(3, 3\), expected \(2, 2\)",
        ),
        ({"over": {"r": [0.0, 1.0]}, "free": ["mass.*"], "covariance": [[1.0, 0.5], [0.0, 1.0]]}, "not symmetric"),
        ({"over": {"r": [0.0, 1.0]}, "free": ["mass.*"], "covariance": -np.eye(2)}, "negative variances"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            modal_maps(arm, modes=2, **arguments)
