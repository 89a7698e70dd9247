"""Beams in machines against closed forms, a hand-written assembly, Exudyn and the laws of mechanics."""

import exudyn as exu
import exudyn.itemInterface as item
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import eigh
from scipy.optimize import brentq

import jaxmb
from jaxmb.mechanics.beams import mesh_errors, mesh_warnings
from jaxmb.mechanics.dynamics import gravity_energy, spring_energy
from jaxmb.mechanics.tangent import motion_coordinates
from tests.mechanics.beam_assembly import assembled

STEEL = {"young_modulus": 2.1e11, "shear_modulus": 8.0e10, "density": 7800.0}
SECTION = {"area": 1e-4, "second_moment_y": 2e-8, "second_moment_z": 1e-8, "torsion_constant": 1.5e-8}
BENDING = STEEL["young_modulus"] * SECTION["second_moment_z"]
PER_METRE = STEEL["density"] * SECTION["area"]


def beam(name="beam", **changes):
    return {"name": name, "length": 1.0} | STEEL | SECTION | changes


def model_of(**parts):
    return jaxmb.build_model(jaxmb.Machine.model_validate({"name": "machine", "gravity": [0.0, 0.0, 0.0]} | parts))


def cantilever(**changes):
    return model_of(beam=[beam(**changes)])


def plane_frequencies(model, q, axes=("y", "rz")):
    """Undamped frequencies in Hz of what moves along these axes of the beams' elements, or in joints."""
    tangent, names = jaxmb.linearize(model, q), motion_coordinates(model)
    these = [i for i, name in enumerate(names) if "." not in name or name.split(".")[1] in axes]
    K, M = (np.asarray(part)[np.ix_(these, these)] for part in (tangent.stiffness, tangent.mass))
    return np.sqrt(np.maximum(eigh(K, M, eigvals_only=True), 0.0)) / (2 * np.pi)


def roots(characteristic, count):
    at = np.linspace(0.5, 20.0, 2000)
    signs = np.flatnonzero(np.diff(np.sign(characteristic(at))))
    return np.array([brentq(characteristic, at[i], at[i + 1], xtol=1e-14) for i in signs[:count]])


def bending_hz(roots):
    return roots**2 * np.sqrt(BENDING / PER_METRE) / (2 * np.pi)


@pytest.mark.parametrize(("elements", "worst"), [(10, 6e-3), (20, 5e-4)])
def test_bending_of_a_cantilever(elements, worst):
    exact = bending_hz(roots(lambda x: np.cos(x) * np.cosh(x) + 1.0, 5))
    found = plane_frequencies(cantilever(elements=elements), np.zeros(0))[:5]
    np.testing.assert_allclose(found, exact, rtol=worst)
    assert np.all(found > exact * (1.0 - 1e-7))  # a stiffer structure than the true one, but for rounding


def test_bending_of_a_free_beam():
    """Carried by a plane joint that nothing holds: three rigid motions, then those of a free beam."""
    free = [{"name": name, "type": kind, "axis": axis} for name, kind, axis in (
        ("x", "prismatic", [1.0, 0.0, 0.0]), ("y", "prismatic", [0.0, 1.0, 0.0]), ("turn", "revolute", [0.0, 0.0, 1.0]),
    )]  # fmt: skip
    model = model_of(body=[{"name": "base", "joint": free}], beam=[beam(body="base", elements=20)])
    exact = bending_hz(roots(lambda x: np.cos(x) * np.cosh(x) - 1.0, 6)[-5:])
    found = plane_frequencies(model, np.zeros(3), ("x", "y", "rz"))
    assert np.all(found[:3] < 1e-2)
    np.testing.assert_allclose(found[3:8], exact, rtol=5e-4)


@pytest.mark.parametrize(
    ("axis", "speed"),
    [
        ("x", np.sqrt(STEEL["young_modulus"] / STEEL["density"])),
        ("rx", np.sqrt(STEEL["shear_modulus"] * SECTION["torsion_constant"] / (STEEL["density"] * 3e-8))),
    ],
)
def test_tension_and_torsion(axis, speed):
    found = plane_frequencies(cantilever(elements=10), np.zeros(0), (axis,))
    assert found[0] == pytest.approx(0.25 * speed, rel=5e-3)
    if axis == "rx":
        estimate = mesh_errors(cantilever(elements=10), 0.25 * speed)
        assert float(estimate[1][0]) == pytest.approx(found[0] / (0.25 * speed) - 1.0, rel=0.05)


def test_error_falls_with_the_fourth_power_of_the_mesh():
    exact = bending_hz(roots(lambda x: np.cos(x) * np.cosh(x) + 1.0, 2))[1]
    coarse, fine = (plane_frequencies(cantilever(elements=n), np.zeros(0))[1] / exact - 1.0 for n in (6, 12))
    assert np.log2(coarse / fine) > 3.9
    estimate = mesh_errors(cantilever(elements=6), float(exact))
    assert float(estimate[0][0]) == pytest.approx(coarse, rel=0.1)


def test_a_mesh_is_fine_enough_with_as_many_elements_as_are_asked_for():
    second = float(bending_hz(roots(lambda x: np.cos(x) * np.cosh(x) + 1.0, 2))[1])
    (doubt,) = mesh_warnings(cantilever(elements=4), second)
    assert "are too high by up to 0.13 %; for 0.1 % set elements: beam = 5" in doubt
    assert plane_frequencies(cantilever(elements=4), np.zeros(0))[1] / second - 1.0 > 1e-3
    assert plane_frequencies(cantilever(elements=5), np.zeros(0))[1] / second - 1.0 < 1e-3
    assert mesh_warnings(cantilever(elements=5), second) == ()


@pytest.mark.parametrize("theory", ["euler-bernoulli", "timoshenko"])
def test_deflection_of_the_end(theory):
    """Bending in both planes: F l^3 / 3 E I + F l / k G A, and M l^2 / 2 E I by a moment."""
    factors = {"y": 0.4, "z": 0.8}
    model = cantilever(elements=3, theory=theory, length=0.4, shear_factor_y=0.4, shear_factor_z=0.8)
    moved = jaxmb.deflection(model, np.zeros(0), "beam", np.array([50.0, 10.0, -7.0, 2.0, 3.0, 0.5]))[0]
    area, torsion = STEEL["shear_modulus"] * SECTION["area"], STEEL["shear_modulus"] * SECTION["torsion_constant"]
    shear = {axis: 0.4 / (factor * area) if theory == "timoshenko" else 0.0 for axis, factor in factors.items()}
    along_y, along_z = BENDING, STEEL["young_modulus"] * SECTION["second_moment_y"]
    expected = [50.0 * 0.4 / (STEEL["young_modulus"] * SECTION["area"]),
                10.0 * (0.4**3 / (3 * along_y) + shear["y"]) + 0.5 * 0.4**2 / (2 * along_y),
                -7.0 * (0.4**3 / (3 * along_z) + shear["z"]) - 3.0 * 0.4**2 / (2 * along_z),
                2.0 * 0.4 / torsion,
                7.0 * 0.4**2 / (2 * along_z) + 3.0 * 0.4 / along_z,
                10.0 * 0.4**2 / (2 * along_y) + 0.5 * 0.4 / along_y]  # fmt: skip
    np.testing.assert_allclose(moved, expected, rtol=1e-9)


def test_shear_and_tilting_of_a_short_beam():
    """Timoshenko's equations between pins, of a whole number of half waves; and the sections tilting all alike.

    The shear strain of an element is constant, so that the error falls with the square of the mesh.
    """
    length, elements = 0.2, 24
    pins = [{"name": "turn", "axis": [0.0, 0.0, 1.0]}]
    wall = {"name": "wall", "frame_a": "ground", "frame_b": "beam", "type": "translation", "stiffness": 1e14}
    model = model_of(
        body=[{"name": "base", "joint": pins}],
        beam=[beam(body="base", elements=elements, length=length, theory="timoshenko", second_moment_z=1e-7)],
        spring=[wall | {"direction": [0.0, 1.0, 0.0]}],
    )
    found = plane_frequencies(model, np.zeros(1))
    E, G, rho, A, inertia = 2.1e11, 8.0e10, 7800.0, 1e-4, 1e-7
    shear = G * A * 5.0 / 6.0
    for number in (1, 2):
        k = number * np.pi / length
        K = np.array([[shear * k**2, -shear * k], [-shear * k, E * inertia * k**2 + shear]])
        exact = np.sqrt(eigh(K, np.diag([rho * A, rho * inertia]), eigvals_only=True)[0]) / (2 * np.pi)
        assert found[number - 1] == pytest.approx(exact, rel=2.5e-3)
    assert found[2] == pytest.approx(np.sqrt(shear / (rho * inertia)) / (2 * np.pi), rel=2.5e-3)


ARM = {
    "body": [
        {"name": "first", "joint": [{"name": "q1", "axis": [0.0, 0.0, 1.0], "stiffness": 4e3, "damping": 3.0}]},
        {"name": "second", "parent": "upper", "origin": {"rpy": [0.3, 0.0, 0.0]}, "mass": 0.5,
         "joint": [{"name": "q2", "axis": [0.0, 0.0, 1.0], "stiffness": 2e3, "damping": 1.0}]},
    ],
    "beam": [
        beam("upper", body="first", length=0.8, elements=2),
        beam("fore", body="second", length=0.6, elements=3, origin={"xyz": [0.05, 0.0, 0.02]}),
    ],
    "frame": [{"name": "tool", "body": "fore", "origin": {"xyz": [0.1, 0.0, 0.0]}}],
    "payload": [{"name": "gripper", "frame": "tool", "mass": 0.4}],
    "gravity": [0.0, 0.0, -9.81],
}  # fmt: skip
Q = np.array([0.4, -0.9])


def test_as_rigid_rods():
    """Without their elastic coordinates beams are rigid: the same machine of slender rods."""
    rods = {"upper": (0.8, [0.0, 0.0, 0.0]), "fore": (0.6, [0.05, 0.0, 0.02])}
    bodies = [dict(body) for body in ARM["body"]]
    for name, carrier in (("upper", "first"), ("fore", "second")):
        length, begin = rods[name]
        mass = PER_METRE * length
        across, along = mass * length**2 / 12, STEEL["density"] * 3e-8 * length
        bodies.append({"name": f"{name}_rod", "parent": carrier, "origin": {"xyz": begin}, "mass": mass,
                       "center_of_mass": [length / 2, 0.0, 0.0],
                       "inertia_products": {"xx": along, "yy": across, "zz": across}})  # fmt: skip
    bodies[1]["parent"], bodies[1]["origin"] = "first", {"xyz": [0.8, 0.0, 0.0], "rpy": [0.3, 0.0, 0.0]}
    frame = [{"name": "tool", "body": "second", "origin": {"xyz": [0.75, 0.0, 0.02]}}]
    rigid, flexible = model_of(**ARM | {"body": bodies, "beam": [], "frame": frame}), model_of(**ARM)
    qd, qdd = np.array([1.3, -0.7]), np.array([2.0, 5.0])
    for function in (jaxmb.mass_matrix, lambda m, q: jaxmb.inverse_dynamics(m, q, qd, qdd)):
        np.testing.assert_allclose(function(flexible, Q), function(rigid, Q), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jaxmb.frame_pose(flexible, Q, "tool"), jaxmb.frame_pose(rigid, Q, "tool"), atol=1e-14)
    # and a million times as stiff they move as the rigid machine, at low frequencies
    with pytest.warns(UserWarning, match="modulus is .* is it in Pa"):
        stiff = model_of(**ARM | {"beam": [b | {"young_modulus": 2.1e17, "shear_modulus": 8e16} for b in ARM["beam"]]})
    lines = [0.5, 2.0]
    np.testing.assert_allclose(jaxmb.frf(stiff, Q, lines), jaxmb.frf(rigid, Q, lines), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("theory", "tilting"), [("euler-bernoulli", 0.0), ("timoshenko", 1.0)])
def test_rotary_inertia_of_the_section(theory, tilting):
    """A rigid rod on hinges about its three axes: m l^2 / 3 + rho I l across; Euler-Bernoulli's has no rho I."""
    hinges = [{"name": axis, "axis": unit.tolist()} for axis, unit in zip("xyz", np.eye(3), strict=True)]
    model = model_of(body=[{"name": "base", "joint": hinges}], beam=[beam(body="base", length=0.1, theory=theory)])
    about_y, about_z = (STEEL["density"] * 0.1 * SECTION[f"second_moment_{axis}"] for axis in "yz")
    across = PER_METRE * 0.1**3 / 3
    expected = np.diag([about_y + about_z, across + tilting * about_y, across + tilting * about_z])
    np.testing.assert_allclose(jaxmb.mass_matrix(model, np.zeros(3)), expected, rtol=1e-12, atol=1e-18)


def test_against_an_assembly_in_absolute_displacements():
    """Two beams at an angle, clamped to each other and to the ground, with a mass at the end; no gravity."""
    parts = {"beam": [beam("upper", length=0.8, elements=2),
                      beam("fore", body="upper", length=0.6, elements=3, origin={"rpy": [0.3, 0.5, 0.9]})],
             "payload": [{"name": "gripper", "frame": "fore", "mass": 0.4}]}  # fmt: skip
    model = model_of(**parts)
    tangent = jaxmb.linearize(model, np.zeros(0))
    turned = np.asarray(jaxmb.frame_pose(model, np.zeros(0), "fore"))[:3, :3]
    elements = [(i, i + 1, np.eye(3), 0.4) for i in range(2)] + [(i, i + 1, turned, 0.2) for i in range(2, 5)]
    M, K = assembled(6, elements)
    M[30:33, 30:33] += 0.4 * np.eye(3)
    expected = eigh(K[6:, 6:], M[6:, 6:], eigvals_only=True)
    found = eigh(np.asarray(tangent.stiffness), np.asarray(tangent.mass), eigvals_only=True)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_against_exudyn():
    """Two links of absolute nodal coordinates, hinges with torsional springs, a mass at the tip: in the plane."""
    length, bending, tension, mass, springs, turn, count = (
        (0.8, 0.6),
        (210.0, 90.0),
        (2.1e7, 1.2e7),
        (0.78, 0.5),
        (4e3, 2e3),
        0.7,
        16,
    )
    system = exu.SystemContainer().AddSystem()
    ground = system.AddObject(item.ObjectGround())
    before = system.AddMarker(item.MarkerBodyRigid(bodyNumber=ground))
    start, angle = np.zeros(2), 0.0
    for i in range(2):
        angle += turn * i
        along = np.array([np.cos(angle), np.sin(angle)])
        nodes = [
            system.AddNode(
                item.NodePoint2DSlope1(referenceCoordinates=[*(start + along * length[i] * j / count), *along])
            )
            for j in range(count + 1)
        ]
        cables = [
            system.AddObject(
                item.ObjectANCFCable2D(
                    length=length[i] / count,
                    massPerLength=mass[i],
                    bendingStiffness=bending[i],
                    axialStiffness=tension[i],
                    nodeNumbers=nodes[j : j + 2],
                    useReducedOrderIntegration=0,
                )
            )
            for j in range(count)
        ]
        begin, end = (
            system.AddMarker(item.MarkerBodyRigid(bodyNumber=body, localPosition=[x, 0.0, 0.0]))
            for body, x in ((cables[0], 0.0), (cables[-1], length[i] / count))
        )
        system.AddObject(item.ObjectJointRevolute2D(markerNumbers=[before, begin]))
        system.AddObject(
            item.ObjectConnectorRigidBodySpringDamper(
                markerNumbers=[before, begin],
                stiffness=np.diag([0.0] * 5 + [springs[i]]),
                damping=np.zeros((6, 6)),
                offset=[0.0] * 5 + [turn * i],
            )
        )
        before, start = end, start + along * length[i]
    point = system.AddNode(item.NodePoint2D(referenceCoordinates=list(start)))
    system.AddObject(item.ObjectMassPoint2D(mass=0.4, nodeNumber=point))
    ends = [system.AddMarker(item.MarkerNodePosition(nodeNumber=node)) for node in (nodes[-1], point)]
    system.AddObject(item.ObjectJointSpherical(markerNumbers=ends, constrainedAxes=[1, 1, 0]))
    system.Assemble()
    values, _ = system.ComputeODE2Eigenvalues(ignoreAlgebraicEquations=False)
    expected = np.sqrt(np.abs(np.array(values)))[:6] / (2 * np.pi)

    modulus = 2.1e11
    links = [
        beam(name, body=body, length=length[i], elements=8, young_modulus=modulus, area=tension[i] / modulus,
             second_moment_z=bending[i] / modulus, density=mass[i] * modulus / tension[i])
        for i, (name, body) in enumerate((("upper", "first"), ("fore", "second")))
    ]  # fmt: skip
    joints = (("first", "ground", "q1"), ("second", "upper", "q2"))
    bodies = [{"name": name, "parent": parent, "joint": [{"name": joint, "stiffness": k}]}
              for k, (name, parent, joint) in zip(springs, joints, strict=True)]  # fmt: skip
    model = model_of(body=bodies, beam=links, payload=[{"name": "tip", "frame": "fore", "mass": 0.4}])
    found = plane_frequencies(model, np.array([0.0, turn]), ("x", "y", "rz"))[:6]
    np.testing.assert_allclose(found, expected, rtol=5e-4)


def energy(model, x, v, rest):
    kinetic = 0.5 * v @ jaxmb.mass_matrix(model, x) @ v
    bent = 0.5 * (x - rest) @ jax.jacfwd(lambda y: jaxmb.mechanics.dynamics.beam_effort(model, y))(x) @ (x - rest)
    own = 0.5 * jnp.sum(model.stiffness * (x - rest)[: model.stiffness.size] ** 2)
    return kinetic + gravity_energy(model, x) + bent + own + spring_energy(model, x, rest)


def test_power_balance_of_large_motions():
    """The power of the effort is the rate of energy, at any bent state and speed, less what the dampers take."""
    model = model_of(**ARM)
    rng = np.random.default_rng(0)
    size = 2 + 6 * 5
    x = jnp.asarray(np.concatenate([Q, 1e-2 * rng.normal(size=size - 2)]))
    v, a = jnp.asarray(rng.normal(size=(2, size)))
    rest = jnp.zeros(size)
    power = v @ jaxmb.inverse_dynamics(model, x, v, a, rest)
    rate = jax.jit(lambda x, v: jax.jvp(lambda x, v: energy(model, x, v, rest), (x, v), (v, a))[1])(x, v)
    assert power - jnp.sum(model.damping * v[:2] ** 2) == pytest.approx(float(rate), rel=1e-9)


def test_equilibrium_under_gravity():
    """A heavy cantilever sags by q l^4 / (8 E I), for small sags."""
    model = model_of(beam=[beam(elements=2)], gravity=[0.0, -0.01, 0.0])
    x = jaxmb.static_equilibrium(model, np.zeros(0))
    pose = jaxmb.frame_pose(model, x, "beam")
    assert pose[1, 3] == pytest.approx(-0.01 * PER_METRE / (8 * BENDING), rel=1e-8)


def test_structural_damping_of_a_beam():
    """All springs with one loss factor: lambda^2 = -omega^2 (1 + j eta)."""
    model = cantilever(elements=3, loss_factor=0.02)
    damped = jaxmb.modes(jaxmb.linearize(model, np.zeros(0)))
    squared = np.asarray(damped.eigenvalue) ** 2
    np.testing.assert_allclose(squared.imag / squared.real, 0.02, rtol=1e-8)


def test_free_motion_keeps_its_energy():
    """A flexible pendulum falls for 0.3 s, its beam ringing."""
    model = model_of(body=[{"name": "base", "joint": [{"name": "q", "axis": [0.0, 0.0, 1.0]}]}],
                     beam=[beam(body="base", elements=1, young_modulus=2e9, shear_modulus=1e9)],
                     gravity=[0.0, -9.81, 0.0])  # fmt: skip
    rest, size = jnp.zeros(7), 7

    @jax.jit
    def rate(t, state):
        x, v = state[:size], state[size:]
        bias = jaxmb.inverse_dynamics(model, x, v, jnp.zeros(size), rest)
        return jnp.concatenate([v, jnp.linalg.solve(jaxmb.mass_matrix(model, x), -bias)])

    run = solve_ivp(rate, (0.0, 0.3), np.zeros(2 * size), method="DOP853", rtol=1e-9, atol=1e-11)
    at = jax.jit(lambda s: energy(model, s[:size], s[size:], rest))
    energies = [float(at(s)) for s in run.y.T[::20]]
    fallen = PER_METRE * 9.81
    np.testing.assert_allclose(np.array(energies) / fallen, energies[0] / fallen, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 0.0}, "beam 'beam', length: found 0.0, expected greater than 0"),
        ({"area": -1.0}, "beam 'beam', area: found -1.0, expected greater than 0"),
        ({"elements": 0}, "elements"),
        ({"elements": 2.5}, "expected a whole number"),
        ({"body": "nowhere"}, "beam 'beam': body 'nowhere' does not exist"),
        ({"body": "beam"}, "the parents of bodies form a cycle: beam"),
        ({"theory": "shell"}, "theory"),
    ],
)
def test_wrong_beams(change, message, tmp_path):
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in (beam() | change).items()]
    (tmp_path / "m.toml").write_text("\n".join(['name = "m"', "[[beam]]", *lines]))
    with pytest.raises(ValueError, match=r"m\.toml") as raised:
        jaxmb.load_machine(tmp_path / "m.toml")
    assert message in str(raised.value)
