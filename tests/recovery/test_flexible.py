"""Beams and loops in studies: known truth comes back from FRFs, modes and deflections."""

import numpy as np

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4, "second_moment_y": 1.6e-7,
           "second_moment_z": 1.6e-7, "torsion_constant": 3.2e-7, "elements": 1}  # fmt: skip
ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "shoulder", "joint": [{"name": "q1", "axis": [0.0, 1.0, 0.0], "stiffness": 2e4, "damping": 20.0}]},
        {"name": "elbow", "parent": "upper", "mass": 1.5,
         "joint": [{"name": "q2", "axis": [0.0, 1.0, 0.0], "stiffness": 1e4, "damping": 8.0}]},
    ],
    "beam": [SECTION | {"name": "upper", "body": "shoulder", "length": 0.8, "loss_factor": 0.02},
             SECTION | {"name": "fore", "body": "elbow", "length": 0.7, "loss_factor": 0.01}],
    "frame": [{"name": "tool", "body": "fore"}],
    "payload": [{"name": "gripper", "frame": "tool", "mass": 1.0}],
})  # fmt: skip
POSTURE = {"q1": "-20 deg", "q2": "60 deg"}
STIFF = {"lower": 1e3, "upper": 1e6}
MODULUS = {"lower": 1e10, "upper": 3e11}


def found(folder, machine, tests, free):
    jaxmb.write_machine(machine, folder / "machine.toml")
    data = {"machine": "machine.toml", "test": tests, "free": free}
    result = jaxmb.identify(make_study(StudyFile.model_validate(data), "flexible", folder))
    assert result.status == "converged"
    return {name: p.value for name, p in result.parameters.items()}


def test_moduli_and_loss_factors_from_frfs(tmp_path):
    test = {"kind": "frf", "posture": POSTURE, "outputs": [["tool", "x"], ["tool", "z"]],
            "simulate": {"lines": {"first_hz": 1.0, "last_hz": 97.0, "step_hz": 1.0}}}  # fmt: skip
    values = found(tmp_path, ARM, [test], {
        "stiffness.*": STIFF, "damping.*": {"lower": 1.0, "upper": 1e3}, "young_modulus.*": MODULUS,
        "loss_factor.upper": {"lower": 1e-3, "upper": 0.1}, "loss_factor.fore": {"lower": 1e-3, "upper": 0.1},
    })  # fmt: skip
    expected = {"stiffness.q1": 2e4, "stiffness.q2": 1e4, "young_modulus.upper": 7e10, "young_modulus.fore": 7e10,
                "loss_factor.upper": 0.02, "loss_factor.fore": 0.01}  # fmt: skip
    np.testing.assert_allclose([values[name] for name in expected], list(expected.values()), rtol=1e-6)


def test_free_shear_moduli_of_slender_beams(tmp_path):
    """What a fit computes beforehand, with the moduli at 0, is the machine that the values describe."""
    jaxmb.write_machine(ARM, tmp_path / "machine.toml")
    test = {"kind": "frf", "posture": POSTURE, "simulate": {"lines": {"first_hz": 1.0, "last_hz": 9.0, "step_hz": 1.0}}}
    data = {"machine": "machine.toml", "test": [test], "free": {"shear_modulus.*": MODULUS, "young_modulus.*": MODULUS}}
    problem = make_study(StudyFile.model_validate(data), "shear", tmp_path).problem
    values = np.array([6e10, 7e10, 2e10, 3e10])
    assert problem.views[0] is not None
    seen = problem.view(0, values).tangent
    model = problem.free.apply(problem.model, values)
    expected = jaxmb.linearize(model, jaxmb.posture(model, {"q1": np.deg2rad(-20.0), "q2": np.deg2rad(60.0)}))
    scale = np.abs(expected.stiffness).max()
    np.testing.assert_allclose(seen.stiffness, expected.stiffness, rtol=1e-9, atol=1e-12 * scale)


def test_moduli_from_deflections(tmp_path):
    """One linear step: the reciprocals of stiffnesses and of moduli."""
    test = {"kind": "deflection", "frame": "tool", "posture": POSTURE,
            "instruments": {"tracker_mm": 1e-6, "reflectors_m": 0.5, "draws": 0},
            "simulate": {"tests": 8, "force_n": [50.0, 200.0], "noise_seed": 1, "plan_seed": 1,
                         "zones": {"all": {"q1": ["-60 deg", "60 deg"], "q2": ["-90 deg", "90 deg"]}}}}  # fmt: skip
    values = found(tmp_path, ARM, [test], {"stiffness.*": STIFF, "young_modulus.*": MODULUS})
    np.testing.assert_allclose(values["stiffness.q1"], 2e4, rtol=1e-5)
    np.testing.assert_allclose([values["young_modulus.upper"], values["young_modulus.fore"]], 7e10, rtol=1e-5)


def test_a_drive_of_a_closed_chain(tmp_path):
    """Stiffness and damping of the crank of a four-bar, from deflections, a mode and FRFs of its rocker."""

    def rod(name, parent, joint, length, start):
        inertia = {"xx": 1e-3, "yy": length**2 / 12, "zz": length**2 / 12}
        return {"name": name, "parent": parent, "origin": {"xyz": [start, 0.0, 0.0]}, "mass": 1.0, "joint": [joint],
                "center_of_mass": [length / 2, 0.0, 0.0], "inertia_products": inertia}  # fmt: skip

    machine = jaxmb.Machine.model_validate({
        "name": "four-bar",
        "body": [rod("crank", "ground", {"name": "q1", "stiffness": 3e3, "damping": 2.0}, 0.3, 0.0),
                 rod("coupler", "crank", {"name": "q2"}, 0.8, 0.3), rod("rocker", "ground", {"name": "q3"}, 0.6, 0.9)],
        "frame": [{"name": "end", "body": "coupler", "origin": {"xyz": [0.8, 0.0, 0.0]}},
                  {"name": "pin", "body": "rocker", "origin": {"xyz": [0.6, 0.0, 0.0]}}],
        "loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
        "posture": {"q1": 1.0, "q2": -0.5, "q3": 1.8},
    })  # fmt: skip
    moved = {"kind": "deflection", "frame": "pin", "instruments": {"tracker_mm": 1e-6, "reflectors_m": 0.5, "draws": 0},
             "simulate": {"tests": 6, "force_n": [50.0, 200.0], "directions": [[1.0, 0.0, 0.0]], "noise_seed": 1,
                          "plan_seed": 1, "zones": {"all": {"q1": ["20 deg", "100 deg"]}}}}  # fmt: skip
    values = found(tmp_path, machine, [moved], {"stiffness.q1": {"lower": 1e2, "upper": 1e5}})
    np.testing.assert_allclose(values["stiffness.q1"], 3e3, rtol=1e-4)
    model = jaxmb.build_model(machine)
    mode = jaxmb.modes(jaxmb.linearize(model, jaxmb.posture(model, {"q1": "40 deg"})))
    modal = {"kind": "modes", "posture": {"q1": "40 deg"}, "frequency_hz": [float(mode.damped_frequency_hz[0])],
             "damping_percent": [100.0 * float(mode.damping_ratio[0])], "frequency_std_hz": 0.01,
             "damping_std_percent": 0.1, "content": [["q1"]]}  # fmt: skip
    free = {"stiffness.q1": {"lower": 1e2, "upper": 1e5}, "damping.q1": {"lower": 0.1, "upper": 1e2}}
    values = found(tmp_path, machine, [modal], free)
    np.testing.assert_allclose([values["stiffness.q1"], values["damping.q1"]], [3e3, 2.0], rtol=1e-5)
    test = {"kind": "frf", "posture": {"q1": "40 deg"}, "outputs": [["pin", "y"]],
            "simulate": {"lines": {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 1.0}}}  # fmt: skip
    values = found(tmp_path, machine, [test], free)
    np.testing.assert_allclose([values["stiffness.q1"], values["damping.q1"]], [3e3, 2.0], rtol=1e-6)
