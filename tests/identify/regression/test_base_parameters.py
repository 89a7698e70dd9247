"""Base parameters against the ones that are known in closed form, and what is done with them afterwards."""

import numpy as np
import pytest

import jaxmb
from tests.mechanics.test_loops import COUPLER, CRANK, FOUR_BAR, ROCKER

OF_BODIES = ("mass", "first_moment", "inertia")
L1, L2 = 0.08, 0.25
# Slender bodies and a slider: Pyrhonen et al. 2024, eq. 9.
EQ_9 = {
    "inertia.crank.zz": {"mass.coupler": L1**2, "mass.slider": L1**2},
    "first_moment.crank.x": {"mass.coupler": L1, "mass.slider": L1},
    "first_moment.crank.y": {},
    "inertia.coupler.zz": {"mass.slider": L2**2},
    "first_moment.coupler.x": {"mass.slider": L2},
    "first_moment.coupler.y": {},
}
D3, R4 = 0.45, 0.4
RX90 = [
    {"name": "1"}, {"name": "2", "alpha": "90 deg"}, {"name": "3", "a": D3}, {"name": "4", "alpha": "-90 deg", "d": R4},
    {"name": "5", "alpha": "90 deg"}, {"name": "6", "alpha": "-90 deg"},
]  # fmt: skip


def outer(*bodies, factor):
    return {f"mass.{body}": factor for body in bodies}


# Of the Staubli RX-90 with the inertias of the drives of joints 1 and 2, as OpenSYMORO prints it:
# Robots/RX90/RX90_regp.txt in github.com/symoro/symoro at 23db8e5. Entered as those of Khalil and Dombre 2002,
# Table 9.4, whose page was not at hand to compare.
TABLE_9_4 = {
    "inertia.1.zz": {"rotor_inertia.1": 1.0, "inertia.2.yy": 1.0, "inertia.3.yy": 1.0}
    | outer("3", "4", "5", "6", factor=D3**2),
    "inertia.2.xx": {"inertia.2.yy": -1.0} | outer("3", "4", "5", "6", factor=-(D3**2)),
    "inertia.2.xz": {"first_moment.3.z": -D3},
    "inertia.2.zz": {"rotor_inertia.2": 1.0} | outer("3", "4", "5", "6", factor=D3**2),
    "first_moment.2.x": outer("3", "4", "5", "6", factor=D3),
    "inertia.3.xx": {"inertia.3.yy": -1.0, "inertia.4.yy": 1.0, "first_moment.4.z": 2 * R4}
    | outer("4", "5", "6", factor=R4**2),
    "inertia.3.zz": {"inertia.4.yy": 1.0, "first_moment.4.z": 2 * R4} | outer("4", "5", "6", factor=R4**2),
    "first_moment.3.y": {"first_moment.4.z": 1.0} | outer("4", "5", "6", factor=R4),
    "inertia.4.xx": {"inertia.5.yy": 1.0, "inertia.4.yy": -1.0},
    "inertia.4.zz": {"inertia.5.yy": 1.0},
    "first_moment.4.y": {"first_moment.5.z": -1.0},
    "inertia.5.xx": {"inertia.6.yy": 1.0, "inertia.5.yy": -1.0},
    "inertia.5.zz": {"inertia.6.yy": 1.0},
    "first_moment.5.y": {"first_moment.6.z": 1.0},
    "inertia.6.xx": {"inertia.6.yy": -1.0},
}


def built(machine, **changes):
    return jaxmb.build_model(jaxmb.Machine.model_validate(machine | changes))


def terms(model, base):
    """By base parameter the dependent parameters in it, with their factors."""
    names = jaxmb.regressor_names(model)
    return {
        own: {name: row[i] for i, name in enumerate(names) if row[i] != 0.0 and name != own}
        for own, row in zip(base.names, base.matrix, strict=True)
    }


@pytest.fixture(scope="module")
def slider_crank():
    return jaxmb.build_model(jaxmb.load_machine("slider-crank"))


@pytest.mark.parametrize("by", ["torque", "energy"])
def test_slider_crank_by_equation_9(slider_crank, by):
    base = jaxmb.base_parameters(slider_crank, by=by)
    found = terms(slider_crank, base)
    assert set(found) == set(EQ_9)
    for name, expected in EQ_9.items():
        assert found[name] == pytest.approx(expected, rel=1e-9), name
    assert base.formulas[base.names.index("inertia.crank.zz")] == (
        "inertia.crank.zz + 0.0064 mass.coupler + 0.0064 mass.slider"
    )
    other = jaxmb.base_parameters(slider_crank, by=by, seed=1)
    assert other.names == base.names
    np.testing.assert_allclose(other.matrix, base.matrix, rtol=1e-9)


def test_accurate_values_of_table_2(slider_crank):
    base = jaxmb.base_parameters(slider_crank)
    known = jaxmb.parameters(slider_crank)
    values = base.matrix @ [known[name] for name in jaxmb.regressor_names(slider_crank)]
    printed = {
        "inertia.crank.zz": 3.39e-3, "first_moment.crank.x": 4.48e-2, "first_moment.crank.y": 0.0,
        "inertia.coupler.zz": 2.02e-2, "first_moment.coupler.x": 9.00e-2, "first_moment.coupler.y": 0.0,
    }  # fmt: skip
    for name, value in printed.items():  # half a unit of the last digit that is printed
        assert values[base.names.index(name)] == pytest.approx(value, rel=1.5e-3, abs=1e-12), name


def test_dependent_values_afterwards(slider_crank):
    """Eq. 10: identified values with dependent masses of 0, then of those that are known, then of minimum norm."""
    base, names = jaxmb.base_parameters(slider_crank), jaxmb.regressor_names(slider_crank)
    truth = jaxmb.parameters(slider_crank)
    acting = [name for i, name in enumerate(names) if base.matrix[:, i].any()]
    values = base.matrix @ [truth[name] for name in names]
    masses = {"mass.coupler": 0.22, "mass.slider": 0.25}
    found = jaxmb.standard_values(slider_crank, base, values, masses)
    assert found == pytest.approx({name: truth[name] for name in acting}, abs=1e-12)
    bare = jaxmb.standard_values(slider_crank, base, values)
    assert bare["mass.slider"] == 0.0
    assert [bare[name] for name in base.names] == pytest.approx(values.tolist())
    least = jaxmb.minimum_norm_values(slider_crank, base, values)
    np.testing.assert_allclose(base.matrix @ [least.get(name, 0.0) for name in names], values, atol=1e-15)
    assert np.linalg.norm(list(least.values())) < np.linalg.norm(list(bare.values()))
    with pytest.raises(ValueError, match=r"dependent parameter 'inertia\.crank\.zz' does not exist"):
        jaxmb.standard_values(slider_crank, base, values, {"inertia.crank.zz": 1.0})
    with pytest.raises(ValueError, match=r"values has shape \(5,\), expected one for each of 6"):
        jaxmb.minimum_norm_values(slider_crank, base, values[:5])


def test_known_values_go_to_the_left():
    names, truth = ("mass.a", "mass.b", "friction.q"), np.array([2.0, 3.0, 5.0])
    Y = np.random.default_rng(0).normal(size=(4, 2, 3))
    left = jaxmb.without_known(Y, Y @ truth, names, {"mass.b": 3.0})
    assert left.names == ("mass.a", "friction.q")
    np.testing.assert_allclose(left.regressor @ truth[[0, 2]], left.effort, atol=1e-14)
    with pytest.raises(ValueError, match=r"parameter of the regressor 'mass\.x' does not exist"):
        jaxmb.without_known(Y, Y @ truth, names, {"mass.x": 1.0})
    with pytest.raises(ValueError, match=r"regressor has shape \(4, 2, 3\), expected \(4, 3, 3\)"):
        jaxmb.without_known(Y, Y[:, 0], names, {"mass.b": 3.0})
    with pytest.raises(ValueError, match=r"known: 'mass\.b' is nan, expected a finite number"):
        jaxmb.without_known(Y, Y @ truth, names, {"mass.b": np.nan})


def test_six_axes_by_the_table_of_khalil_and_dombre():
    """36 base parameters with the first axis along gravity, 40 with the inertias of six drives."""
    rows = [row | {"rotor_inertia": 1.0} for row in RX90]
    model = jaxmb.build_model(jaxmb.machine_from_dh("rx-90", rows, "modified"))
    bodies = jaxmb.base_parameters(model, [f"{family}.*" for family in OF_BODIES])
    base = jaxmb.base_parameters(model)
    assert (len(bodies.names), len(base.names)) == (36, 40)
    found = terms(model, base)
    for name, expected in TABLE_9_4.items():
        assert found[name] == pytest.approx(expected, rel=1e-9), name
    assert all(not found[name] for name in set(found) - set(TABLE_9_4))
    assert base.formulas[base.names.index("inertia.3.xx")] == (
        "inertia.3.xx - inertia.3.yy + inertia.4.yy + 0.8 first_moment.4.z + 0.16 mass.4 + 0.16 mass.5 + 0.16 mass.6"
    )
    names, random = jaxmb.regressor_names(model), np.random.default_rng(5)
    Y = jaxmb.stacked_torque_regressor(model, *random.normal(size=(3, 1, 6)))[0]
    looked_at = [i for i, name in enumerate(names) if name.split(".")[0] in (*OF_BODIES, "rotor_inertia")]
    of_base = Y[:, [names.index(name) for name in base.names]]
    np.testing.assert_allclose(of_base @ base.matrix[:, looked_at], Y[:, looked_at], atol=1e-8)


def test_gravity_across_the_first_axis():
    """Two more base parameters: the first moments of the first body, whose moments of gravity are then seen."""
    model = jaxmb.build_model(jaxmb.machine_from_dh("rx-90", RX90, "modified", gravity=[3.0, -4.0, 8.0]))
    base = jaxmb.base_parameters(model)
    assert len(base.names) == 38
    assert {"first_moment.1.x", "first_moment.1.y"} <= set(base.names)


def test_four_bar():
    """The coupler's mass and its moment along itself are like masses at its two pins, which crank and rocker carry."""
    model = built(FOUR_BAR, independent=["q1"])
    base = jaxmb.base_parameters(model, [f"{family}.*" for family in OF_BODIES], by="energy")
    assert len(base.names) == 8
    names = jaxmb.regressor_names(model)
    # A coupler that is a mass at its far pin is one at the end of the rocker, wherever that is.
    far = {"mass.coupler": 1.0, "first_moment.coupler.x": COUPLER, "inertia.coupler.zz": COUPLER**2}
    rocker = {"mass.rocker": 1.0, "first_moment.rocker.x": ROCKER, "inertia.rocker.zz": ROCKER**2}
    near = {"mass.coupler": 1.0}
    crank = {"mass.crank": 1.0, "first_moment.crank.x": CRANK, "inertia.crank.zz": CRANK**2}
    for one, other in ((far, rocker), (near, crank)):
        same = [base.matrix @ [some.get(name, 0.0) for name in names] for some in (one, other)]
        np.testing.assert_allclose(*same, atol=1e-8)


def test_wrong_requests(slider_crank):
    with pytest.raises(ValueError, match="by is 'power', expected one of torque, energy"):
        jaxmb.base_parameters(slider_crank, by="power")
    with pytest.raises(ValueError, match=r"parameter of the regressor 'inertia\.wheel\.\*' does not exist"):
        jaxmb.base_parameters(slider_crank, ["inertia.wheel.*"])


def test_parameters_without_effect_have_no_base(slider_crank):
    base = jaxmb.base_parameters(slider_crank, of=["mass.crank"])
    assert (base.names, base.formulas, base.matrix.shape[0]) == ((), (), 0)


def test_a_rank_that_is_not_clear_is_told():
    """Two slides whose axes are 3e-7 rad from parallel, which makes singular values of 7e-6: their masses are two base
    parameters, or one."""
    lean = 3e-7
    slides = [
        {"name": "a", "mass": 1.0, "joint": [{"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0]}]},
        {"name": "b", "mass": 1.0, "joint": [{"name": "y", "type": "prismatic", "axis": [1.0, lean, 0.0]}]},
    ]
    ends = [{"name": "along", "body": "a"}, {"name": "beside", "body": "b"}]
    loop = [{"name": "rail", "frame_a": "along", "frame_b": "beside", "type": "prismatic", "axis": [0.0, 1.0, 0.0]}]
    model = built({"name": "slides", "body": slides, "frame": ends, "loop": loop, "gravity": [0.0, -9.81, 0.0]})
    with pytest.warns(UserWarning, match="'slides' has 1 to 2 base parameters, depending on the tolerance"):
        jaxmb.base_parameters(model)


@pytest.mark.parametrize("digits", [4, 7, 9])
def test_rounding_of_a_description_is_no_term(digits):
    """Right angles as URDFs print them, with offsets of 1e-11 m as calibrations give them: the exact arm's formulas."""

    def arm(right, offset):
        bars = [{"name": "1", "alpha": right}, {"name": "2", "alpha": right}, {"name": "3", "a": D3, "d": offset},
                {"name": "4", "alpha": -right, "d": R4}]  # fmt: skip
        return jaxmb.base_parameters(jaxmb.build_model(jaxmb.machine_from_dh("arm", bars, "modified")))

    rounded, exact = arm(round(np.pi / 2, digits), 2.4e-11), arm(np.pi / 2, 0.0)
    assert rounded.formulas == exact.formulas
    np.testing.assert_allclose(rounded.matrix, exact.matrix, rtol=1e-9)
