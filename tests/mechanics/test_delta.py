"""The Delta robot of Rognant et al. 2010 from its two tables: closed forms of its geometry, and its symmetry."""

import csv

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.mechanics.dynamics import gravity_energy
from jaxmb.mechanics.loops import loop_gaps
from jaxmb.response.modal import undamped_modes

HEADS = ("joint", "a", "mu", "sigma", "gamma", "b", "alpha", "d", "theta", "r")
# Table III a, with the platform's frames turned back so that those of the three chains are one
GEOMETRY = [dict(zip(HEADS, row, strict=True)) for row in (
    ("1", 0, 1, 0, "gamma_1k", 0, "-pi/2", "Rb", "q1", 0),
    ("2", 1, 0, 0, 0, 0, 0, "Lb", "q2", "Lc"),
    ("3", 2, 0, 0, 0, 0, "pi/2", 0, "q3", 0),
    ("4", 3, 0, 0, 0, 0, 0, "Lp", "q4", 0),
    ("5", 4, 0, 0, 0, 0, "-pi/2", 0, "q5", "-Lc"),
    ("6", 2, 0, 0, 0, "-2*Lc", "pi/2", 0, "q6", 0),
    ("7", 6, 0, 0, 0, 0, 0, "Lp", "q7", 0),
    ("8", 4, 0, 2, "pi/2", 0, 0, "-2*Lc", "-pi/2", 0),
    ("E", 5, 0, 2, 0, 0, "pi/2", "-Rn", "-gamma_1k", 0),
)]  # fmt: skip
SYMBOLS = {"Lb": 0.75, "Lc": 0.125, "Lp": 0.95, "Rb": 0.2, "Rn": "Rb/2"}
ANGLES = {"a": 0.0, "b": 2 * np.pi / 3, "c": -2 * np.pi / 3}
LOOPS = [*((f"R7-{k}", f"R8-{k}") for k in ANGLES), ("RE-a", "RE-b"), ("RE-a", "RE-c")]
NEAR = {f"{name}-{k}": value for k in ANGLES for name, value in (("q1", 0.5), ("q2", 2.0), ("q5", -2.5))}
ALUMINIUM = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0}
ROD = {"area": 1e-4, "second_moment_y": 4e-9, "second_moment_z": 4e-9, "torsion_constant": 8e-9} | ALUMINIUM


def delta(geometry=GEOMETRY, **changes):
    chains = {k: {"gamma_1k": angle} for k, angle in ANGLES.items()}
    return jaxmb.machine_from_tables(
        "delta", geometry, **{"symbols": SYMBOLS, "chains": chains, "loops": LOOPS, "posture": NEAR} | changes
    )


@pytest.fixture(scope="module")
def rigid():
    return jaxmb.build_model(delta())


def test_geometry(rigid):
    """The platform moves without turning, and each rod's end keeps its distance from its elbow."""
    assert jaxmb.independent_coordinates(rigid) == ("q1-a", "q1-b", "q1-c")
    q = jaxmb.close_loops(rigid, {"q1-a": 0.2, "q1-b": 0.6, "q1-c": "25 deg"})
    np.testing.assert_allclose(eqx.filter_jit(loop_gaps)(rigid, q), 0.0, atol=1e-12)
    pose = np.asarray(jaxmb.frame_pose(rigid, q, "RE-b"))
    np.testing.assert_allclose(pose[:3, :3], np.eye(3), atol=1e-12)
    for k, angle in ANGLES.items():
        drive = float(q[rigid.coordinates.index(f"q1-{k}")])
        outward = np.array([np.cos(angle), np.sin(angle), 0.0])
        elbow = outward * (0.2 + 0.75 * np.cos(drive)) - [0.0, 0.0, 0.75 * np.sin(drive)]
        assert np.linalg.norm(pose[:3, 3] + 0.1 * outward - elbow) == pytest.approx(0.95, abs=1e-12)
    # velocities of the platform by differences of such postures
    steps = [jaxmb.close_loops(rigid, {"q1-a": 0.2 + h}, near=q) for h in (1e-5, -1e-5)]
    by_difference = (steps[0] - steps[1]) / 2e-5
    np.testing.assert_allclose(jaxmb.motion_map(rigid, q)[:, 0], by_difference, atol=1e-8)


def test_rods_that_are_too_short():
    with pytest.raises(ValueError, match=r"the loops of 'delta' .* cannot close near the reference posture"):
        jaxmb.build_model(delta(symbols=SYMBOLS | {"Lp": 0.5}))


def test_symmetric_modes_come_in_pairs():
    """Three-fold symmetry: of the modes of rods and drives two of three are pairs; away from it they split."""
    rods = [
        {"body": body, "beam": 1, "length": "Lp", "section": "rod", "phi": 0, "theta": 0, "psi": 0} for body in (3, 6)
    ]
    machine = delta(beams=rods, sections={"rod": ROD}, stiffness={"1": {"rz": 3e4}},
                    payload=[{"name": "platform", "frame": "RE-a", "mass": 6.64}])  # fmt: skip
    model = jaxmb.build_model(machine)
    found = np.asarray(undamped_modes(jaxmb.linearize(model, model.reference)).frequency_hz)[:9]
    apart = np.diff(found) / found[1:]
    assert apart[0] < 1e-6  # the platform sideways, in both directions
    assert apart[1] > 1e-2  # up and down, alone
    assert apart[3] < 1e-6
    q = jaxmb.close_loops(model, {"q1-a": 0.3, "q1-b": 0.7})
    split = np.asarray(undamped_modes(jaxmb.linearize(model, q)).frequency_hz)[:9]
    assert np.diff(split)[0] / split[0] > 1e-2


def test_free_motion_keeps_its_energy():
    """Platform and elbows swing for three seconds on springs of the drives; loops stay closed."""
    weights = [("platform", "RE-a", 6.64), *((f"elbow-{k}", f"R2-{k}", 2.0) for k in ANGLES)]
    model = jaxmb.build_model(delta(
        stiffness={"1": {"rz": 500.0}},
        payload=[{"name": name, "frame": frame, "mass": mass} for name, frame, mass in weights],
    ))  # fmt: skip
    run = jaxmb.simulate_motion(model, model.reference, [0.5, 0.0, -0.3], 3.0, 20.0)
    assert np.ptp(run.q[:, 0]) > 0.1

    @jax.jit
    def energy(q, qd):
        moving = jaxmb.motion_map(model, q) @ qd
        kinetic = 0.5 * moving @ jaxmb.mass_matrix(model, q) @ moving
        return kinetic + gravity_energy(model, q) + 0.5 * jnp.sum(model.stiffness * (q - model.reference) ** 2)

    energies = np.array([float(energy(*state)) for state in zip(run.q, run.qd, strict=True)])
    np.testing.assert_allclose(energies, energies[0], atol=1e-6)


def test_tables_in_files(rigid, tmp_path):
    with open(tmp_path / "geometry.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, HEADS)
        writer.writeheader()
        writer.writerows(GEOMETRY)
    model = jaxmb.build_model(delta(tmp_path / "geometry.csv"))
    np.testing.assert_allclose(model.reference, rigid.reference, atol=1e-12)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 9}, "geometry: joint 3: a: joint '9' does not exist"),
        ({"a": 4}, "geometry: joints form a cycle: 3 -> 4 -> 3"),
        ({"sigma": 3}, "geometry: joint 3: sigma is 3, expected 0, 1 or 2"),
        ({"d": "Lx"}, "geometry: joint 3: d: 'Lx': the symbol 'Lx' has no value"),
        ({"r": ""}, "geometry: row 3 has no r"),
    ],
)
def test_wrong_rows(row, message):
    with pytest.raises(ValueError, match=r".") as raised:
        delta([r | row if r["joint"] == "3" else r for r in GEOMETRY])
    assert message in str(raised.value)
