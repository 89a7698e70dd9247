"""A crane with a spring between frames and inertial parameters of all kinds, and studies of it."""

from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine

MACHINE = Machine.model_validate({
    "name": "crane",
    "body": [
        {"name": "cart", "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 8e5,
                                    "damping": 300.0, "rotor_inertia": 30.0}], "mass": 60.0},
        {"name": "lever", "parent": "cart", "joint": [{"name": "r", "axis": [0.0, 1.0, 0.0], "stiffness": 5e4,
                                                       "damping": 25.0, "rotor_inertia": 0.6}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.1],
         "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5, "xy": 0.05, "xz": -0.08, "yz": 0.02}},
        {"name": "wrist", "parent": "lever", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "w", "stiffness": 6e3, "damping": 2.0}], "mass": 4.0, "center_of_mass": [0.2, 0.1, 0.0],
         "inertia_products": {"xx": 0.05, "yy": 0.1, "zz": 0.12}},
    ],
    "frame": [{"name": "tool", "body": "wrist", "origin": {"xyz": [0.4, 0.1, 0.05], "rpy": [0.1, 0.2, 0.3]}}],
    "spring": [{"name": "stay", "frame_a": "ground", "frame_b": "wrist", "type": "translation",
                "direction": [0.0, 0.6, 0.8], "stiffness": 1e5, "damping": 40.0}],
})  # fmt: skip
FREE = {
    "stiffness.*": {"lower": 1e3, "upper": 1e7},
    "damping.*": {"lower": 0.1, "upper": 1e4},
    "mass.wrist": {"lower": 1.0, "upper": 9.0},
    "first_moment.wrist.*": {"lower": -3.0, "upper": 3.0},
    "inertia.wrist.*": {"lower": -1.0, "upper": 2.0},
    "rotor_inertia.s": {"lower": 5.0, "upper": 100.0},
}
POSTURE = {"r": 0.3, "w": -0.4}

PENDULUM = MACHINE.model_copy(update={
    "body": (MACHINE.body[1].model_copy(update={"parent": "ground"}),),
    "frame": (MACHINE.frame[0].model_copy(update={"body": "lever"}),),
    "spring": (),
})  # fmt: skip
"""The lever alone: what is slow to compile is compiled for one coordinate."""
PENDULUM_FREE = {
    "stiffness.*": {"lower": 1e2, "upper": 1e7},
    "inertia.lever.yy": {"lower": 1.0, "upper": 90.0},
    "first_moment.lever.x": {"lower": -30.0, "upper": 30.0},
}


def crane_study(folder, tests, free=FREE, machine=MACHINE, **settings):
    """The study that some tests of a crane make."""
    write_machine(machine, folder / "crane.toml")
    file = StudyFile.model_validate({"machine": "crane.toml", "test": tests, "free": free} | settings)
    return make_study(file, "crane", folder)


def frf_test(noise=0.0, **more):
    """FRFs of the tool as mobilities."""
    lines = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 1.0}
    simulate = {"lines": lines, "noise_log_std": noise, "response": "mobility"}
    return {"kind": "frf", "simulate": simulate, "posture": POSTURE, "noise_log_std": 0.02} | more


def pendulum_study(folder, **settings):
    """FRFs of the lever alone in its plane."""
    test = frf_test(posture={"r": 0.3}, outputs=[["tool", "x"], ["tool", "z"]])
    return crane_study(folder, [test], PENDULUM_FREE, PENDULUM, **settings)


MODES = {
    "kind": "modes", "posture": POSTURE, "frequency_hz": [11.0, 16.0], "damping_percent": [2.0, 1.5],
    "frequency_std_hz": 0.05, "damping_std_percent": [0.1, 0.2],
}  # fmt: skip
