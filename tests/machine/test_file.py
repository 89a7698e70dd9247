"""Machine files: written and read back, and refused with one clear sentence where they are wrong."""

import os
import re

import numpy as np
import pytest

from jaxmb.identify.study.study import load_study
from jaxmb.io.validation import InputError
from jaxmb.machine.file import load_machine, machine_names, result_folder, write_machine
from jaxmb.machine.schema import Machine

GOOD = {
    "name": "arm",
    "body": [
        {"name": "base", "joint": [{"name": "turn"}], "mass": 2.0, "inertia_products": {"xx": 1, "yy": 1, "zz": 1}},
        {"name": "boom", "parent": "base", "joint": [{"name": "lift", "axis": [0, 1, 0], "stiffness": 5}], "mass": 1},
    ],
    "frame": [{"name": "tip", "body": "boom"}],
}

TEXT = """
name = "arm"

[[body]]
name = "base"
joint = [{ name = "turn" }]
mass = 2.0
center_of_mass = [0.0, 0.1, 0.0]
inertia_products = { xx = 1.0, yy = 1.0, zz = 1.0 }

[[body]]
name = "boom"
parent = "base"
joint = [{ name = "lift", axis = [0.0, 1.0, 0.0], stiffness = 5.0 }]
mass = 1.0

[[frame]]
name = "tip"
body = "boom"
"""


@pytest.fixture
def refusal(tmp_path):
    """The sentence with which a text is refused; it names the file and is one line."""

    def load(content, ending=".toml"):
        path = tmp_path / f"machine{ending}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError) as refused:
            load_machine(path)
        message = str(refused.value)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        return message.removeprefix(f"{path}: ")

    return load


@pytest.mark.parametrize("name", machine_names())
def test_round_trip_of_the_library(name, tmp_path):
    machine = load_machine(name)
    write_machine(machine, tmp_path / "copy.toml")
    assert load_machine(tmp_path / "copy.toml") == machine


def test_round_trip_of_everything(tmp_path):
    machine = Machine.model_validate(
        GOOD
        | {
            "description": 'quotes " and \\ and ü',
            "gravity": [0.1, 1 / 3, -1e-300],
            "payload": [
                {"name": "load", "frame": "tip", "mass": 1, "inertia_tensor": [[1, 0.1, 0], [0.1, 1, 0], [0, 0, 1]]}
            ],
            "spring": [
                {
                    "name": "s",
                    "frame_a": "ground",
                    "frame_b": "tip",
                    "type": "rotation",
                    "direction": [0.6, 0.8, 0],
                    "stiffness": 1e7,
                    "damping": 0.1,
                }
            ],
            "posture": {"turn": "-100 deg", "lift": 0.1},
        }
    )
    write_machine(machine, tmp_path / "copy.toml")
    assert load_machine(str(tmp_path / "copy.toml")) == machine
    assert os.listdir(tmp_path) == ["copy.toml"]


def test_nothing_is_left_where_writing_fails(tmp_path):
    (tmp_path / "taken.toml").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_machine(Machine.model_validate(GOOD), tmp_path / "taken.toml")
    assert os.listdir(tmp_path) == ["taken.toml"]


def test_byte_order_mark_is_no_error(tmp_path):
    (tmp_path / "m.toml").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert load_machine(tmp_path / "m.toml").coordinates == ("turn", "lift")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('body = "boom"', "", "frame 'tip', body: missing, expected a value"),
        ("mass = 2.0", "mas = 2.0", "body 'base', mas: unknown key, did you mean 'mass'? expected one of: name, mass,"),
        ("stiffness = 5.0", "stifness = 5.0", "body 'boom', joint 'lift', stifness: unknown key, did you mean 'stiff"),
        ("xx = 1.0", "xxx = 1.0", "body 'base', inertia_products, xxx: unknown key, did you mean 'xx'?"),
        ('"arm"', "3", "name: found 3, expected a name of letters"),
        ('"arm"', '"an arm"', 'name: found "an arm", expected a name of letters'),
        ('"turn"', '""', "body 'base', joint '', name: found \"\", expected a name of letters"),
        ("mass = 2.0", "mass = -2.0", "body 'base', mass: found -2.0, expected a number not below 0"),
        ("mass = 2.0", 'mass = "2"', "body 'base', mass: found \"2\", expected a number"),
        ("mass = 2.0", "mass = true", "body 'base', mass: found true, expected a number"),
        ("mass = 2.0", "mass = nan", "body 'base', mass: found NaN, expected a finite number"),
        ("mass = 2.0", "mass = inf", "body 'base', mass: found Infinity, expected a finite number"),
        ("mass = 2.0", "mass = 1e400", "body 'base', mass: found Infinity, expected a finite number"),
        ("mass = 2.0", f"mass = {'9' * 5000}", "holds an integer of thousands of digits, expected a physical number"),
        ("mass = 2.0", f"mass = {'9' * 400}", "body 'base', mass: found 999"),
        ("mass = 2.0", "mass = [2.0]", "body 'base', mass: found [2.0], expected a number"),
        ("mass = 2.0", "mass = 0.0", "body 'base': has an inertia but no mass"),
        ("[0.0, 0.1, 0.0]", "[0.0, 0.1]", "body 'base', center_of_mass: found [0.0, 0.1], expected at least 3 items"),
        ("[0.0, 0.1, 0.0]", "[0, 0, 0, 0]", "body 'base', center_of_mass: found [0, 0, 0, 0], expected 3 items"),
        ("[0.0, 0.1, 0.0]", "0.1", "body 'base', center_of_mass: found 0.1, expected a list"),
        ("zz = 1.0", "zz = 2.1", "body 'base': has principal moments of inertia 1, 1, 2.1 kg m^2"),
        (
            "zz = 1.0",
            "zz = 1.0, xy = 1.5",
            "body 'base': has the principal moment of inertia -0.5 kg m^2, expected none",
        ),
        ("zz = 1.0", "zz = -1.0", "body 'base': has the principal moment of inertia -1 kg m^2, expected none below 0"),
        ("{ xx = 1.0, yy = 1.0, zz = 1.0 }", "1.0", "body 'base', inertia_products: found 1.0, expected a table"),
        (
            "inertia_products",
            "inertia_tensor = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]\ninertia_products",
            "body 'base': gives both inertia_products and inertia_tensor, expected one of them",
        ),
        (
            "inertia_products = { xx = 1.0, yy = 1.0, zz = 1.0 }",
            "inertia_tensor = [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]",
            "body 'base': inertia_tensor [[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] is not symmetric",
        ),
        ("[0.0, 1.0, 0.0]", "[0.0, 2.0, 0.0]", "axis: found [0.0, 2.0, 0.0], has length 2, expected a unit vector"),
        ("[0.0, 1.0, 0.0]", "[0.0, 0.0, 0.0]", "axis: found [0.0, 0.0, 0.0], has length 0, expected a unit vector"),
        (
            'name = "lift"',
            'name = "lift", type = "prismatic", zero = "1 deg"',
            "zero is an angle, expected a number in m",
        ),
        (
            'name = "lift"',
            'name = "lift", type = "prismatic", zero = 300.0',
            "zero is 300 m, expected at most 100 m, is it in mm?",
        ),
        ('name = "lift"', 'name = "lift", type = "screw"', "type: found \"screw\", expected 'revolute' or 'prismatic'"),
        ('"base"\njoint', '"boom"\njoint', "the body or frame name 'boom' is used twice, expected each once"),
        ('name = "tip"', 'name = "ground"', "the body or frame name 'ground' is used twice"),
        ('"lift"', '"turn"', "the coordinate or spring name 'turn' is used twice"),
        ('"base"\njoint', '"bas"\njoint', "body 'boom': parent 'base' does not exist, did you mean 'bas'?"),
        ('name = "base"', 'name = "base"\nparent = "boom"', "the parents of bodies form a cycle: base -> boom -> base"),
        ('body = "boom"', 'body = "bom"', "frame 'tip': body 'bom' does not exist, did you mean 'boom'?"),
        ('"arm"', '"arm"\nposture = { left = 1.0 }', "posture: coordinate 'left' does not exist, did you mean 'lift'?"),
        (
            '"arm"',
            '"arm"\nposture = { lift = "70 grad" }',
            'posture, lift: found "70 grad", expected a number in radians',
        ),
        (
            '"arm"',
            '"arm"\nposture = { lift = "300 mm" }',
            'found "300 mm", expected a number in radians or a text such as "70 deg" or "1.2 rad"; a travel is a number'
            " in m",
        ),
        ('"arm"', '"arm"\ngravity = 9.81', "gravity: found 9.81, expected a list"),
        ('"arm"', '"arm"\ngravity = [0, 0, -9810]', "expected at most 1000 m/s^2, is it in mm/s^2?"),
        (
            '"arm"',
            '"arm"\nindependent = ["lift", "lift"]',
            "the independent: coordinate name 'lift' is used twice, expected each once",
        ),
        ('"arm"', '"arm', "not valid TOML: Illegal character '\\n' (at line 2, column 12)"),
        ('"arm"', "arm", "not valid TOML: Invalid value (at line 2, column 8); text needs quotes"),
        ('name = "arm"', "", "name: missing, expected a value"),
    ],
)
def test_wrong_files(old, new, message, refusal):
    assert old in TEXT
    assert message in refusal(TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[payload]]\nname = "p"\nframe = "tap"', "payload 'p': frame 'tap' does not exist, did you mean 'tip'?"),
        ('[[payload]]\nname = "boom"\nframe = "tip"', "the body or payload name 'boom' is used twice"),
        (
            '[[spring]]\nname = "s"\nframe_a = "tip"\nframe_b = "tap"\ntype = "rotation"\ndirection = [1, 0, 0]',
            "spring 's': frame_b 'tap' does not exist, did you mean 'tip'?",
        ),
        (
            '[[spring]]\nname = "s"\nframe_a = "tip"\nframe_b = "tip"\ntype = "rotation"\ndirection = [1, 0, 0]',
            "spring 's': joins frame 'tip' to itself",
        ),
        (
            '[[spring]]\nname = "s"\nframe_a = "tip"\nframe_b = "boom"\ntype = "rotation"\ndirection = [1, 1, 0]',
            "spring 's', direction: found [1, 1, 0], has length 1.41421, expected a unit vector",
        ),
    ],
)
def test_wrong_springs_and_payloads(more, message, refusal):
    assert message in refusal(TEXT + more)


def test_too_little_and_too_much(refusal):
    assert refusal("") == "name: missing, expected a value"
    assert refusal('name = "a"\nbody = []') == "the machine has neither a body nor a beam"
    fixed = refusal('name = "a"\n[[body]]\nname = "b"\n')
    assert fixed == "the machine has no coordinate: every joint is fixed"
    joints = ", ".join(f'{{ name = "q{i}" }}' for i in range(201))
    many = refusal(f'name = "a"\n[[body]]\nname = "b"\njoint = [{joints}]')
    assert many == "the machine has 201 coordinates, expected at most 200"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(range(256)), "byte 128 is not UTF-8 text, expected a text file"),
        (TEXT.encode("utf-16"), "byte 0 is not UTF-8 text, expected a text file"),
        ('name = "a\0"', "holds a zero byte at 9, expected a text file"),
        ("#" * 4_000_001, "larger than 4000000 bytes, expected a description, not measured data"),
        ("x = " + "[" * 100_000, "nested too deeply, expected at most a few levels"),
        ("x = " + "{a=" * 100_000, "nested too deeply, expected at most a few levels"),
        ("a." * 1_000_000 + "b = 1", "line 1 is nested too deeply, expected at most a few levels"),
        ("\n" + '"1" .1.' * 400_000 + "b = 1", "line 2 is nested too deeply, expected at most a few levels"),
        ('name = "a"\nbody = [' + "1," * 300_000 + "]", "expected at most 2000 items, not 300000"),
        (TEXT.replace("[0.0, 0.1, 0.0]", f"[{'1.0,' * 300_000}]"), "1.0, 1..., expected 3 items"),
        (f'{TEXT}\n[posture]\nlift = "{"1" * 3_000_000}"', "expected a number in radians or a text"),
        (TEXT.replace("arm", "a" * 3_000_000), "aaa..., expected a name of letters"),
        (f"{'a' * 3_000_000} = 1", "aaa...: unknown key; expected one of: name, description"),
        ("\n".join(f"k{i} = 1" for i in range(50_000)), "k0: unknown key; expected one of: name"),
    ],
    ids=lambda value: None if isinstance(value, bytes) or len(value) > 100 else value[:30],
)
def test_hostile_files_are_refused_at_once(content, message, refusal):
    """Each is refused in about a second; what took hours or all memory would be noticed here."""
    found = refusal(content)
    assert message in found
    assert len(found) < 500


def test_long_arrays_of_numbers_are_not_deep_nesting(refusal):
    row = "[" + "1.5, " * 5000 + "]"
    assert refusal(f"{TEXT}\n[posture]\nlift = {row}").startswith("posture, lift: found [1.5, 1.5")


def test_names_and_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(InputError, match="machine 'kuka-kr9' does not exist, did you mean 'kuka-kr90'"):
        load_machine("kuka-kr9")
    missing = tmp_path / "none.toml"
    with pytest.raises(InputError, match=f"{re.escape(str(missing))}: cannot be read: No such file"):
        load_machine(missing)
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises(InputError, match=f"{re.escape(str(folder))}: cannot be read: Is a directory"):
        load_machine(folder)
    with pytest.raises(InputError, match=r"without machine.toml, expected a file ending in \.toml or \.urdf"):
        load_machine(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        load_machine("x" * 5000)
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        load_machine("x" * 5000 + ".toml")
    with pytest.raises(InputError, match=r"cannot be read: .*embedded null"):
        load_machine("a\0b.toml")


def test_a_study_and_a_machine_are_told_apart(tmp_path):
    machine, study = tmp_path / "machine.toml", tmp_path / "study.toml"
    write_machine(load_machine("manipulator-3r"), machine)
    study.write_text('machine = "machine.toml"\n[[test]]\nkind = "frf"\n')
    with pytest.raises(InputError, match=r"study.toml: is a study, expected a machine"):
        load_machine(study)
    with pytest.raises(InputError, match=r"machine.toml: is a machine, expected a study"):
        load_study(machine)


def test_the_folder_of_a_result_is_its_machine(tmp_path):
    machine = load_machine("manipulator-3r")
    write_machine(machine, tmp_path / "machine.toml")
    assert load_machine(tmp_path) == machine
    assert result_folder(tmp_path) == tmp_path
    for other in ("manipulator-3r", tmp_path / "machine.toml", "no such folder", "a\0b"):
        assert result_folder(other) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads every file")
def test_unreadable_file(tmp_path):
    path = tmp_path / "secret.toml"
    path.write_text(TEXT)
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_machine(path)


def test_unreadable_file_whoever_reads_it(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(InputError, match=r"secret\.toml: cannot be read: Permission denied"):
        load_machine(tmp_path / "secret.toml")


def test_angles():
    machine = Machine.model_validate(GOOD | {"posture": {"turn": "180deg", "lift": "-.5 rad"}})
    assert machine.posture == {"turn": pytest.approx(3.141592653589793, rel=1e-15), "lift": -0.5}


def test_angles_beyond_two_turns_are_read_back(tmp_path):
    tip = GOOD["frame"][0] | {"origin": {"rpy": ["800 deg", 0.0, "-1000 deg"]}}
    machine = Machine.model_validate(GOOD | {"frame": [tip]})
    write_machine(machine, tmp_path / "arm.toml")
    assert load_machine(tmp_path / "arm.toml") == machine
    assert machine.frame[0].origin.rpy == pytest.approx(np.radians([80.0, 0.0, 80.0]), abs=1e-12)


def test_a_posture_in_degrees_is_refused_and_one_of_several_turns_is_read_back(tmp_path):
    with pytest.raises(ValueError, match='posture: turn is 70 rad, expected at most two turns; write "70 deg" for deg'):
        Machine.model_validate(GOOD | {"posture": {"turn": 70}})
    machine = Machine.model_validate(GOOD | {"posture": {"turn": "1000 deg", "lift": 12.5}})
    write_machine(machine, tmp_path / "arm.toml")
    assert load_machine(tmp_path / "arm.toml") == machine


def test_a_range_in_degrees_is_refused_and_one_of_several_turns_is_read_back(tmp_path):
    def with_joint(**keys):
        base = GOOD["body"][0]
        return GOOD | {"body": [base | {"joint": [base["joint"][0] | keys]}, *GOOD["body"][1:]]}

    for keys in ({"range": [-185, 185]}, {"zero": 90}):
        with pytest.raises(
            ValueError, match=r'is -?\d+ rad, expected at most two turns; write "-?\d+ deg" for degrees'
        ):
            Machine.model_validate(with_joint(**keys))
    machine = Machine.model_validate(with_joint(range=["-800 deg", "800 deg"], zero="-900 deg"))
    write_machine(machine, tmp_path / "arm.toml")
    assert load_machine(tmp_path / "arm.toml") == machine


def test_a_thin_plate_may_miss_the_triangle_inequality_by_its_rounding():
    """Moments 1, 1 and 2 of a plate, printed with five digits; a per cent more is no rounding."""
    base = GOOD["body"][0]
    plate = base | {"inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 2.0001}}
    Machine.model_validate(GOOD | {"body": [plate, GOOD["body"][1]]})
    with pytest.raises(ValueError, match="not physically consistent"):
        Machine.model_validate(
            GOOD | {"body": [base | {"inertia_products": {"xx": 1, "yy": 1, "zz": 2.02}}, GOOD["body"][1]]}
        )


def test_numbers_too_large_to_compute_with_are_refused():
    with pytest.raises(ValueError, match=r"at most 1e\+90 in size"):
        Machine.model_validate(GOOD | {"gravity": [0, 0, -1e100]})


def test_a_machine_is_written_under_a_name_that_can_be_read(tmp_path):
    machine = Machine.model_validate(GOOD)
    with pytest.raises(ValueError, match=r"ends in \.toml, found .*x\.tml"):
        write_machine(machine, tmp_path / "x.tml")
    assert not list(tmp_path.iterdir())
