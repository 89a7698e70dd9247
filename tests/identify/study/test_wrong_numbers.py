"""Numbers that no machine or test can have are refused, and a mass takes its inertia with it."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile

MACHINE = """
name = "arm"
[[body]]
name = "l1"
joint = [{ name = "a", stiffness = 1e5, damping = 20.0 }]
mass = 5.0
center_of_mass = [0.5, 0.0, 0.0]
inertia_tensor = [[0.1, 0, 0], [0, 0.5, 0], [0, 0, 0.5]]
[[frame]]
name = "tool"
body = "l1"
origin = { xyz = [1.0, 0.0, 0.0] }
[[payload]]
name = "load"
frame = "tool"
mass = 1.0
center_of_mass = [0.0, 0.0, 0.2]
"""


def study(tmp_path, **changes):
    (tmp_path / "arm.toml").write_text(changes.pop("machine", MACHINE))
    data = {
        "machine": "arm.toml",
        "test": [
            {
                "kind": "frf",
                "simulate": {"lines": {"first_hz": 1.0, "last_hz": 60.0, "step_hz": 1.0}},
                "outputs": [["tool", "y"]],
            }
        ],
        "free": {"damping.a": {"lower": 1.0, "upper": 100.0}},
    }
    simulate = changes.pop("simulate", {})
    data["test"][0]["simulate"] |= simulate
    return jaxmb.make_study(StudyFile.model_validate(data | changes), "arm", tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"hold": {"mass.l1": -3.0}},
        {"hold": {"stiffness.a": -3.0}},
        {"simulate": {"parameters": {"mass.l1": -3.0}}},
        {"free": {"mass.load": {"lower": -5.0, "upper": -1.0}}},
    ],
)
def test_what_cannot_be_negative(tmp_path, changes):
    with pytest.raises(jaxmb.InputError, match="expected 0 or more"):
        study(tmp_path, **changes)


def test_no_mass(tmp_path):
    """A coordinate that moves no mass is named."""
    weightless = MACHINE.split("mass = 5.0")[0] + '[[frame]]\nname = "tool"\nbody = "l1"\n'
    with pytest.raises(jaxmb.InputError, match="coordinate 'a' moves no mass"):
        study(tmp_path, machine=weightless)


def test_no_equilibrium(tmp_path):
    """A joint without stiffness cannot hold a load: said in a sentence, with the test's place."""
    hanging = MACHINE.replace("stiffness = 1e5", "stiffness = 0.0").replace(
        '{ name = "a"', '{ name = "a", type = "prismatic"'
    )
    with pytest.raises(jaxmb.InputError, match="test 1: no static equilibrium was found"):
        study(tmp_path, machine=hanging, linearize_at="equilibrium")


def test_a_full_name_overrules_a_pattern(tmp_path):
    held = study(tmp_path, hold={"stiffness.a": 7e4, "stiffness.*": 9e4})
    assert jaxmb.parameters(held.model)["stiffness.a"] == 7e4


def test_identified_mass_is_a_machine_that_can_be(tmp_path):
    """A freed mass keeps its centre and shape, and the identified machine is read back as it is."""
    found = jaxmb.identify(
        study(
            tmp_path,
            simulate={"parameters": {"mass.load": 0.7}},
            free={"mass.load": {"lower": 0.1, "upper": 5.0}},
            refine={"coarse_lines": 0},
        )
    )
    assert found.parameters["mass.load"].value == pytest.approx(0.7, rel=1e-6)
    jaxmb.write_machine(found.machine, tmp_path / "found.toml")
    read = jaxmb.load_machine(tmp_path / "found.toml")
    np.testing.assert_allclose(read.payload[0].center_of_mass, [0.0, 0.0, 0.2], atol=1e-12)
    model = jaxmb.build_model(read)
    q = jaxmb.reference_posture(model)
    np.testing.assert_allclose(jaxmb.mass_matrix(model, q), jaxmb.mass_matrix(found.model, q), rtol=1e-12)


def test_names_in_the_file_are_those_of_the_test(tmp_path):
    """Points that a file names as jaxmb does are compared with the test's."""
    f = np.linspace(1.0, 60.0, 60)
    h = np.ones((60, 1, 1), dtype=complex)
    jaxmb.write_frf(tmp_path / "h.npz", jaxmb.FrfSet(f, h, "accelerance", [("tool", "z")], [("tool", "z")]))
    assert jaxmb.read_frf(tmp_path / "h.npz").outputs == ("tool z",)
    test = {"kind": "frf", "file": "h.npz", "outputs": [["tool", "y"]]}
    with pytest.raises(jaxmb.InputError, match=r"'h\.npz': output 'tool y' is not in the set, .* of tool z"):
        study(tmp_path, test=[test])


def test_measured_postures_beyond_a_range(tmp_path):
    """Of a test or of a row of a table; planned ones are not readings."""
    machine = MACHINE.replace("damping = 20.0", 'damping = 20.0, range = ["-60 deg", "60 deg"]')
    (tmp_path / "loads.csv").write_text("test,a deg,fy N,dy mm\nu,10,50,0.5\nv,-80,50,0.5\n")
    modes = {"kind": "modes", "frequency_hz": [3.0], "damping_percent": [1.0], "posture": {"a": "150 deg"}}
    modes |= {"frequency_std_hz": 0.1, "damping_std_percent": 0.1}
    remarks = study(tmp_path, machine=machine, test=[modes, {"kind": "deflection", "file": "loads.csv"}]).remarks
    ranged = [remark for remark in remarks if "beyond its range" in remark]
    asked = "beyond its range of -1.05 to 1.05 rad: is it in degrees, or counted from another zero?"
    assert ranged == [f"test 1: a is 2.62 rad, {asked}", f"test 'loads': a ranges from -1.4 to 0.175 rad, {asked}"]
    planned = {"kind": "modes", "simulate": {"below_hz": 100.0}, "posture": {"a": "150 deg"}}
    planned |= {"frequency_std_hz": 0.1, "damping_std_percent": 0.1}
    assert not any("beyond" in remark for remark in study(tmp_path, machine=machine, test=[planned]).remarks)
