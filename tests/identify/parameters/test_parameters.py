"""Parameters by name: what they are, that they are set where they belong, and how a fit sees them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.parameters.free_parameters import Bound, free_parameters, matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters, unit
from jaxmb.machine.changed import machine_of
from jaxmb.machine.families import FAMILIES
from jaxmb.machine.file import load_machine, write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.dynamics import mass_matrix
from jaxmb.mechanics.kinematics import reference_posture
from jaxmb.mechanics.postures import build_model

MACHINE = Machine.model_validate({
    "name": "arm",
    "body": [
        {
            "name": "slide",
            "joint": [{"name": "s", "type": "prismatic", "stiffness": 4e5, "damping": 90.0, "rotor_inertia": 2.0}],
            "mass": 10.0,
        },
        {
            "name": "lever",
            "parent": "slide",
            "joint": [{"name": "r", "stiffness": 3e4, "damping": 7.0, "rotor_inertia": 0.5}],
            "mass": 5.0,
            "center_of_mass": [0.2, -0.1, 0.3],
            "inertia_products": {"xx": 0.5, "yy": 0.6, "zz": 0.7, "xy": 0.01, "xz": 0.02, "yz": -0.03},
        },
    ],
    "frame": [{"name": "tip", "body": "lever", "origin": {"xyz": [1.0, 0.0, 0.2]}}],
    "payload": [{"name": "tool", "frame": "tip", "mass": 2.0, "center_of_mass": [0.0, 0.1, 0.0]}],
    "spring": [
        {"name": "strut", "frame_a": "ground", "frame_b": "tip", "type": "translation", "direction": [1.0, 0.0, 0.0],
         "stiffness": 2e5, "damping": 30.0},
        {"name": "twist", "frame_a": "slide", "frame_b": "lever", "type": "rotation", "direction": [0.0, 0.0, 1.0],
         "stiffness": 1e4, "damping": 3.0},
    ],
})  # fmt: skip
MODEL = build_model(MACHINE)

POSE_AXES = ("x", "y", "z", "rx", "ry", "rz")
AXES = ("xx", "yy", "zz", "xy", "xz", "yz")
NAMES = (
    *(
        f"{family}.{item}"
        for family in ("stiffness", "damping", "loss_factor")
        for item in ("s", "r", "strut", "twist")
    ),
    *(f"{family}.{item}" for family in ("rotor_inertia", "friction", "offset") for item in ("s", "r")),
    *(f"mass.{item}" for item in ("slide", "lever", "tool")),
    *(f"first_moment.{item}.{axis}" for item in ("slide", "lever", "tool") for axis in "xyz"),
    *(f"inertia.{item}.{axes}" for item in ("slide", "lever", "tool") for axes in AXES),
    *(f"origin.{item}.{axis}" for item in ("s", "r") for axis in POSE_AXES),
    *(f"{family}.{item}" for family in ("zero", "reading_scale") for item in ("s", "r")),
    *(f"frame.{item}.{axis}" for item in ("slide", "lever", "tip") for axis in POSE_AXES),
    "rayleigh.mass", "rayleigh.stiffness",
)  # fmt: skip


def test_names():
    assert set(parameters(MODEL)) == set(NAMES)


def test_values_are_those_of_the_description():
    found = parameters(MODEL)
    c, m = np.array([0.2, -0.1, 0.3]), 5.0
    # Products of inertia are minus the tensor's elements; Steiner's theorem moves the tensor to the body's origin.
    central = np.array([[0.5, -0.01, -0.02], [-0.01, 0.6, 0.03], [-0.02, 0.03, 0.7]])
    about_origin = central + m * (c @ c * np.eye(3) - np.outer(c, c))
    expected = {
        "stiffness.s": 4e5, "damping.r": 7.0, "stiffness.strut": 2e5, "damping.twist": 3.0, "rotor_inertia.s": 2.0,
        "mass.tool": 2.0, "first_moment.lever.z": 1.5, "first_moment.tool.y": 0.2,
        "inertia.lever.xx": about_origin[0, 0], "inertia.lever.yz": about_origin[1, 2], "inertia.slide.xx": 0.0,
    }  # fmt: skip
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-14), name


@pytest.mark.parametrize("name", NAMES)
def test_set_and_get(name):
    """Setting one parameter changes that one and no other; a mass takes its own moments along."""
    before, after = parameters(MODEL), parameters(set_parameters(MODEL, {name: 0.123}))
    family, item = name.split(".")[:2]
    along = [n for n in before if n.split(".")[:2] in (["first_moment", item], ["inertia", item])]
    moments = along if family == "mass" else []
    assert {n for n in before if before[n] != after[n]} - set(moments) == {name}
    assert after[name] == 0.123
    for other in moments:
        assert after[other] == pytest.approx(before[other] * 0.123 / before[name], rel=1e-14)


def test_all_at_once_and_back():
    random = np.random.default_rng(0)
    values = dict(zip(NAMES, random.uniform(0.1, 2.0, size=len(NAMES)).tolist(), strict=True))
    changed = set_parameters(MODEL, values)
    assert parameters(changed) == values
    back = set_parameters(changed, parameters(MODEL))
    for old, new in zip(jax.tree.leaves(MODEL), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(old, new)


def test_products_of_inertia_stay_symmetric():
    inertia = np.asarray(set_parameters(MODEL, {"inertia.lever.xz": 0.2}).inertia[1])
    np.testing.assert_array_equal(inertia, inertia.T)
    assert inertia[0, 2] == 0.2


def test_traced_values():
    """A number may be a traced scalar: the mass of a slide adds to the whole it carries."""
    q = reference_posture(MODEL)

    def moving_mass(m):
        return mass_matrix(set_parameters(MODEL, {"mass.slide": m}), q)[0, 0]

    # Slide, lever, payload and rotor move together along the slide.
    assert float(moving_mass(10.0)) == pytest.approx(10.0 + 5.0 + 2.0 + 2.0)
    assert float(jax.grad(moving_mass)(10.0)) == pytest.approx(1.0)


EVERYTHING = {
    "name": "everything", "rayleigh": {"mass": 0.1, "stiffness": 1e-5}, "fractional": {"order": 0.5, "time": 1e-4},
    "body": [
        {"name": "base", "mass": 5.0, "center_of_mass": [0.1, 0.2, -0.3], "frame_deviation": [1e-3, 0, 0, 0, 2e-3, 0],
         "inertia_products": {"xx": 0.5, "yy": 0.6, "zz": 0.7, "xy": 0.01, "xz": 0.02, "yz": -0.03},
         "joint": [{"name": "q", "stiffness": 3e4, "stiffness_slope": 1e-3, "loss_factor": 0.01, "damping": 2.0,
                    "friction": 1.0, "offset": -0.5, "zero": 0.02, "reading_scale": 1.01,
                    "origin_deviation": [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3],
                    "further_friction": {"stribeck": 1.0, "stribeck_speed": 0.2, "cubic_damping": 0.1,
                                         "damping_slope": -0.1, "temperature": 30.0},
                    "motor": {"inertia": 1e-3, "ratio": -50.0, "axis": [0.6, 0.0, 0.8], "stiffness": 2.0,
                              "damping": 0.1, "friction": 0.2, "offset": 0.3}}]},
        {"name": "lift", "parent": "rod", "mass": 2.0,
         "joint": [{"name": "s", "type": "prismatic", "stiffness": 1e5, "rotor_inertia": 3.0,
                    "further_friction": {"load_friction": 0.02}}]},
    ],
    "beam": [{"name": "rod", "body": "base", "length": 0.5, "elements": 1, "young_modulus": 7e10, "loss_factor": 0.01,
              "shear_modulus": 2.6e10, "density": 2700.0, "section": {"tube": [0.04, 0.03]}}],
    "frame": [{"name": "tool", "body": "lift", "deviation": [0.0, 1e-3, 0.0, 0.0, 0.0, 1e-2]},
              {"name": "wall", "body": "ground", "origin": {"xyz": [1.0, 0.5, 0.0]}}],
    "payload": [{"name": "load", "frame": "tool", "mass": 1.5, "center_of_mass": [0.1, 0.0, 0.2],
                 "inertia_tensor": [[0.1, 0.01, 0.0], [0.01, 0.2, 0.0], [0.0, 0.0, 0.15]]}],
    "spring": [{"name": "rope", "frame_a": "wall", "frame_b": "tool", "type": "length", "free_length": 0.3,
                "stiffness": 100.0, "damping": 1.0, "loss_factor": 0.1}],
    "transmission": [{"name": "belt", "coordinates": {"q": 1.0, "s": -20.0}, "inertia": 0.1, "damping": 0.2,
                      "friction": 0.3}],
    "virtual_spring": [{"name": "foot", "body": "base", "diagonal": [1e-8, 1e-8, 1e-8, 1e-7, 1e-7, 1e-7]},
                       {"name": "slide", "body": "lift", "at": "joint", "compliance": (1e-8 * np.eye(6)).tolist(),
                        "guide": {"coordinate": "s", "overlap_m": 1.0}, "play": [1e-5] * 6, "play_load": [9.0] * 6}],
}  # fmt: skip


def test_every_parameter_survives_the_way_through_a_file(tmp_path):
    """The written machine has the values of all parameters that were set, of every family of a machine."""
    machine = Machine.model_validate(EVERYTHING)
    model = build_model(machine)
    values = {name: 1.01 * value for name, value in parameters(model).items()}
    of_machines = {family.name for family in FAMILIES if family.owner not in ("channel", "drive", "station")}
    assert {name.split(".")[0] for name in values} == of_machines
    write_machine(machine_of(machine, set_parameters(model, values)), tmp_path / "found.toml")
    found = parameters(build_model(load_machine(tmp_path / "found.toml")))
    assert found == pytest.approx(values, rel=1e-12, abs=1e-20)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stiffness.s", "N/m"), ("stiffness.r", "N m/rad"), ("stiffness.strut", "N/m"), ("stiffness.twist", "N m/rad"),
        ("damping.s", "N s/m"), ("damping.r", "N m s/rad"), ("damping.strut", "N s/m"), ("damping.twist", "N m s/rad"),
        ("rotor_inertia.s", "kg"), ("rotor_inertia.r", "kg m^2"),
        ("friction.s", "N"), ("friction.r", "N m"), ("offset.s", "N"), ("offset.r", "N m"), ("mass.tool", "kg"),
        ("first_moment.lever.x", "kg m"), ("inertia.lever.xy", "kg m^2"),
    ],
)  # fmt: skip
def test_units(name, expected):
    assert unit(MODEL, name) == expected


def test_patterns():
    names = list(parameter_table(MODEL))
    assert matching(names, "stiffness.*") == [f"stiffness.{x}" for x in ("s", "r", "strut", "twist")]
    families = ("stiffness", "damping", "loss_factor", "rotor_inertia", "friction", "offset", "zero", "reading_scale")
    assert matching(names, "*.r") == [f"{family}.r" for family in families]
    assert matching(names, "inertia.lever.[xy][xy]") == [f"inertia.lever.{x}" for x in ("xx", "yy", "xy")]
    assert matching(names, "stiffness.?") == ["stiffness.s", "stiffness.r"]
    assert matching(names, "Stiffness.*") == []
    assert matching(names, "stiffness") == []


BOUNDS = [
    Bound(("stiffness.s", "stiffness.strut"), 1e4, 1e6, 2e5),
    Bound(("damping.r",), 1.0, 100.0),
    Bound(("mass.tool",), 0.5, 4.5, 1.0, logarithmic=False),
    Bound(("first_moment.lever.x",), -2.0, 3.0, logarithmic=False),
]


@pytest.mark.parametrize("xp", [np, jnp])
def test_encode_is_the_inverse_of_values(xp):
    free = free_parameters(MODEL, BOUNDS)
    assert free.size == 4
    values = xp.asarray([3e5, 12.0, 2.5, -1.0])
    u = free.encode(values)
    np.testing.assert_allclose(u, [np.log(3e5), np.log(12.0), 2.5 / 4.0, -1.0 / 5.0], rtol=1e-15)
    np.testing.assert_allclose(free.values(u), values, rtol=1e-14)
    np.testing.assert_allclose(free.values(xp.asarray(free.lower)), [1e4, 1.0, 0.5, -2.0], rtol=1e-13)
    np.testing.assert_allclose(free.values(xp.asarray(free.upper)), [1e6, 100.0, 4.5, 3.0], rtol=1e-13)


def test_derivative_of_values_is_finite_for_negative_linear_entries():
    free = free_parameters(MODEL, BOUNDS)
    slope = jax.jacfwd(free.values)(jnp.asarray([1.0, 2.0, 0.5, -800.0]))
    np.testing.assert_allclose(slope, np.diag([np.e, np.e**2, 4.0, 5.0]), rtol=1e-14)


def test_tied_parameters_share_one_value():
    free = free_parameters(MODEL, BOUNDS)
    assert free.names == ("stiffness.s", "damping.r", "mass.tool", "first_moment.lever.x")
    values = np.array([3e5, 12.0, 2.5, -1.0])
    expected = {"stiffness.s": 3e5, "stiffness.strut": 3e5, "damping.r": 12.0, "mass.tool": 2.5,
                "first_moment.lever.x": -1.0}  # fmt: skip
    assert free.named(values) == expected
    found = parameters(free.apply(MODEL, jnp.asarray(values)))
    assert found == parameters(set_parameters(MODEL, expected))
    assert all(found[name] == value for name, value in expected.items())


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([Bound(("stifness.r",), 1.0, 2.0)], r"'stifness.r' does not exist, did you mean 'stiffness.r'\?"),
        ([Bound(("mass.toool",), 1.0, 2.0)], r"'mass.toool' does not exist, did you mean 'mass.tool'\?"),
        ([Bound(("mass.tool",), 2.0, 1.0)], "'mass.tool': lower bound 2 is not below the upper bound 1"),
        ([Bound(("mass.tool",), 2.0, 2.0)], "lower bound 2 is not below the upper bound 2"),
        ([Bound(("mass.tool",), 1.0, np.inf)], "bounds 1.0 to inf, expected finite numbers"),
        ([Bound(("mass.tool",), np.nan, 1.0)], "bounds nan to 1.0, expected finite numbers"),
        ([Bound(("damping.r",), 0.0, 1.0)], "'damping.r': lower bound 0 on a logarithmic scale, expected above 0"),
        ([Bound(("damping.r",), -1.0, 1.0)], "lower bound -1 on a logarithmic scale"),
        ([Bound(("damping.r",), 1.0, 2.0, 3.0)], "initial value 3 is outside its bounds 1 to 2"),
        ([Bound(("damping.r",), 1.0, 2.0, np.nan)], "initial value nan is outside its bounds 1 to 2"),
        ([Bound(("damping.r",), 1.0, 2.0), Bound(("damping.r",), 1.0, 3.0)], "'damping.r' is given twice"),
        ([Bound(("damping.r", "damping.r"), 1.0, 2.0)], "'damping.r' is given twice"),
        ([], "no parameter is free, expected at least one"),
    ],
)
def test_wrong_bounds(bounds, message):
    with pytest.raises(ValueError, match=message):
        free_parameters(MODEL, bounds)


def test_unknown_parameter():
    with pytest.raises(ValueError, match=r"parameter 'damping.rr' does not exist, did you mean 'damping.r'\?"):
        set_parameters(MODEL, {"damping.rr": 1.0})
