"""Machines of the diagnosis experiment that do not come with jaxmb."""

import jaxmb

ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": 6e4, "damping": 30.0}],
         "mass": 22.0, "center_of_mass": [0.4, 0.05, 0.1], "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5}},
        {"name": "fore", "parent": "upper", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "b", "axis": [0.0, 1.0, 0.0], "stiffness": 1e4, "damping": 4.0}],
         "mass": 8.0, "center_of_mass": [0.3, 0.1, 0.0], "inertia_products": {"xx": 0.05, "yy": 0.3, "zz": 0.3}},
    ],
    "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [0.7, 0.1, 0.05]}}],
})  # fmt: skip
"""Two parallel hinges."""

SCARA = jaxmb.Machine.model_validate({
    "name": "scara",
    "body": [
        {"name": "inner", "origin": {"xyz": [0.0, 0.0, 0.4]},
         "joint": [{"name": "s1", "axis": [0.0, 0.0, 1.0], "stiffness": 1.5e5, "damping": 60.0, "rotor_inertia": 1.0}],
         "mass": 18.0, "center_of_mass": [0.22, 0.0, 0.05], "inertia_products": {"xx": 0.1, "yy": 0.4, "zz": 0.45}},
        {"name": "outer", "parent": "inner", "origin": {"xyz": [0.45, 0.0, 0.0]},
         "joint": [{"name": "s2", "axis": [0.0, 0.0, 1.0], "stiffness": 4e4, "damping": 15.0, "rotor_inertia": 0.3}],
         "mass": 11.0, "center_of_mass": [0.2, 0.03, 0.04], "inertia_products": {"xx": 0.06, "yy": 0.2, "zz": 0.2}},
        {"name": "quill", "parent": "outer", "origin": {"xyz": [0.35, 0.0, 0.0]},
         "joint": [{"name": "s3", "type": "prismatic", "axis": [0.28, 0.0, 0.96], "stiffness": 4e6, "damping": 600.0}],
         "mass": 4.0, "center_of_mass": [0.02, 0.0, -0.1], "inertia_products": {"xx": 0.03, "yy": 0.03, "zz": 0.005}},
    ],
    "frame": [{"name": "flange", "body": "quill", "origin": {"xyz": [0.05, 0.03, -0.25]}}],
})  # fmt: skip
"""Two vertical hinges and a slide."""

WRIST = jaxmb.Machine.model_validate({
    "name": "wrist",
    "body": [
        {"name": "column", "origin": {"xyz": [0.0, 0.0, 0.5]},
         "joint": [{"name": "j1", "axis": [0.0, 0.0, 1.0], "stiffness": 9e5, "damping": 30.0, "friction": 8.0}],
         "mass": 60.0, "center_of_mass": [0.05, 0.0, 0.1], "inertia_products": {"xx": 2.0, "yy": 2.0, "zz": 1.5}},
        {"name": "boom", "parent": "column", "origin": {"xyz": [0.2, 0.0, 0.3]},
         "joint": [{"name": "j2", "axis": [0.0, 1.0, 0.0], "stiffness": 7e5, "damping": 25.0, "friction": 10.0}],
         "mass": 40.0, "center_of_mass": [0.35, 0.02, 0.03], "inertia_products": {"xx": 0.4, "yy": 3.0, "zz": 3.0}},
        {"name": "stick", "parent": "boom", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "j3", "axis": [0.0, 1.0, 0.0], "stiffness": 3e5, "damping": 10.0, "friction": 5.0}],
         "mass": 20.0, "center_of_mass": [0.3, 0.0, 0.05], "inertia_products": {"xx": 0.1, "yy": 0.9, "zz": 0.9}},
        {"name": "hand", "parent": "stick", "origin": {"xyz": [0.6, 0.0, 0.0]},
         "joint": [{"name": "j4", "axis": [1.0, 0.0, 0.0], "stiffness": 9e4, "damping": 2.0, "friction": 1.5}],
         "mass": 5.0, "center_of_mass": [0.1, 0.03, 0.0], "inertia_products": {"xx": 0.03, "yy": 0.05, "zz": 0.05}},
    ],
    "frame": [{"name": "tool", "body": "hand", "origin": {"xyz": [0.25, 0.08, -0.1]}}],
})  # fmt: skip
"""Four hinges with three directions."""
