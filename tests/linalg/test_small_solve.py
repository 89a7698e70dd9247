"""The small solve beside NumPy's, by the kernel and by JAX, with its derivatives beside those of JAX's own solve."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb import native
from jaxmb.linalg import small_solve
from jaxmb.linalg.responses import receptance
from jaxmb.linalg.small_solve import DynamicStiffness

LINES = 11
"""No multiple of the lanes of any processor's vectors."""


@pytest.fixture(params=["native", "jax"], autouse=True)
def way(request, monkeypatch):
    """Every test runs both ways."""
    if request.param == "jax":
        monkeypatch.setattr(native, "in_use", lambda: False)
    elif not native.in_use():
        pytest.skip(f"small solve {native.status()}")


def machine(size, seed=0, damping_ratio=0.01):
    """M, C and K with modes between 1 and 10 rad/s, in coordinates of different units."""
    rng = np.random.default_rng(seed)
    parts, unit = rng.normal(size=(2, size, size)), 10.0 ** rng.uniform(-2, 2, size)
    units = np.outer(unit, unit)
    mass = units * (np.eye(size) + 0.3 * parts[0] @ parts[0].T / size)
    stiffness = units * (np.diag(np.linspace(1.0, 10.0, size) ** 2) + parts[1] @ parts[1].T / size)
    return mass, damping_ratio * (stiffness + mass), stiffness, rng.normal(size=(3, size)) * unit


def by_numpy(mass, damping, stiffness, omega, outputs, inputs, structural=0.0, fractional=0.0, power=None):
    power = np.zeros(len(omega)) if power is None else power
    solved = [
        np.linalg.solve(stiffness + 1j * structural + p * fractional + 1j * w * damping - w**2 * mass, inputs.T)
        for w, p in zip(omega, power, strict=True)
    ]
    return outputs @ np.array(solved)


def found(mass, damping, stiffness, omega, outputs, inputs, **more):
    """`receptance`, compiled anew: which way is taken is decided when it is traced."""
    same = outputs is inputs

    def traced(m, c, k, w, o, i):
        return receptance(m, c, k, w, o, o if same else i, **more)

    return np.asarray(jax.jit(traced)(mass, damping, stiffness, omega, outputs, inputs))


def check(value, expected, rtol=1e-10):
    """Beside the largest response of each line: a small one is the difference of large ones."""
    scale = np.abs(expected).max(axis=(-1, -2), keepdims=True)
    assert np.abs((value - expected) / scale).max() < rtol


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 18, 40])
@pytest.mark.parametrize("same", [True, False])
def test_responses(size, same):
    mass, damping, stiffness, rows = machine(size)
    omega = np.linspace(0.5, 12.0, LINES)
    outputs = rows if same else np.random.default_rng(1).normal(size=(5, size))
    check(
        found(mass, damping, stiffness, omega, outputs, rows), by_numpy(mass, damping, stiffness, omega, outputs, rows)
    )


@pytest.mark.parametrize(("outputs", "inputs", "lines"), [(1, 1, 1), (2, 7, 8), (9, 4, 16), (3, 1, 17)])
def test_any_number_of_points_and_lines(outputs, inputs, lines):
    mass, damping, stiffness, _ = machine(60)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(outputs, 60)), rng.normal(size=(inputs, 60))
    omega = np.linspace(0.5, 12.0, lines)
    z = DynamicStiffness(*map(jnp.asarray, (mass, damping, stiffness, omega)))
    expected = by_numpy(mass, damping, stiffness, omega, *rows)
    check(np.asarray(jax.jit(small_solve.response, static_argnums=3)(z, *rows, False)), expected)
    h, to_inputs, to_outputs = jax.jit(small_solve.solutions, static_argnums=0)(False, z, *rows)
    check(np.asarray(h), expected)
    check(rows[0] @ np.asarray(to_inputs.as_complex()).transpose(2, 0, 1), expected)
    check((rows[1] @ np.asarray(to_outputs.as_complex()).transpose(2, 0, 1)).swapaxes(1, 2), expected)


def test_structural_and_fractional_damping():
    mass, damping, stiffness, rows = machine(6)
    omega = np.linspace(0.0, 12.0, LINES)
    power = np.concatenate([[0.0], np.exp(0.4 * np.log(1j * omega[1:]))])
    more = {"structural": 0.05 * stiffness, "fractional": 0.1 * np.diag(np.diag(stiffness))}
    given = {"structural": more["structural"], "fractional": (more["fractional"], power)}
    value = found(mass, damping, stiffness, omega, rows, rows, **given)
    check(value, by_numpy(mass, damping, stiffness, omega, rows, rows, **more, power=power))


@pytest.mark.parametrize("size", [2, 5, 9, 18])
@pytest.mark.parametrize("damping_ratio", [1e-3, 1e-6, 0.0])
def test_lines_at_which_a_leading_part_resonates(size, damping_ratio):
    """There a leading minor of Z is 0 or nearly so, which an elimination without pivoting cannot take as a pivot.

    What NumPy's rounding makes of a machine next to its own resonance is as large, so those lines are left out.
    """
    mass, damping, stiffness, rows = machine(size, damping_ratio=damping_ratio)
    own = np.sqrt(np.linalg.eigvals(np.linalg.solve(mass, stiffness)).real)
    parts = [np.sqrt(np.linalg.eigvals(np.linalg.solve(mass[:p, :p], stiffness[:p, :p])).real) for p in range(1, size)]
    omega = np.concatenate([w * (1.0 + near) for w in parts for near in (0.0, 1e-12, 1e-7, 1e-5, 1e-3)])
    omega = omega[np.abs(omega[:, None] / own - 1.0).min(axis=1) > 1e-4]
    value = found(mass, damping, stiffness, omega, rows, rows)
    check(value, by_numpy(mass, damping, stiffness, omega, rows, rows), rtol=1e-9)


def test_a_pivot_that_is_zero():
    K, M, omega = np.array([[1.0, 2.0], [2.0, 3.0]]), np.eye(2), np.array([1.0, 0.5])
    check(found(M, 0.0 * M, K, omega, M, M), by_numpy(M, 0.0 * M, K, omega, M, M), rtol=1e-14)


def test_a_machine_in_motion():
    """Its matrices are not symmetric: gyroscopic terms, circulatory forces."""
    mass, damping, stiffness, rows = machine(5)
    gyroscopic = np.random.default_rng(3).normal(size=(5, 5))
    gyroscopic = 0.1 * np.sqrt(np.outer(np.diag(stiffness), np.diag(stiffness))) * (gyroscopic - gyroscopic.T)
    omega, one = np.linspace(0.5, 12.0, LINES), np.eye(5)
    for C, K in ((damping + gyroscopic, stiffness), (damping, stiffness + gyroscopic)):
        check(found(mass, C, K, omega, rows, one), by_numpy(mass, C, K, omega, rows, one))
        z = DynamicStiffness(*map(jnp.asarray, (mass, C, K, omega)))
        to_outputs = jax.jit(small_solve.solutions, static_argnums=0)(False, z, rows, one)[2].as_complex()
        expected = by_numpy(mass, C, K, omega, rows, one)
        check(np.asarray(to_outputs).transpose(2, 1, 0), expected)


def test_nothing_asked_and_numbers_that_are_not_finite():
    mass, damping, stiffness, rows = machine(4)
    assert found(mass, damping, stiffness, np.array([1.0]), rows[:0], rows).shape == (1, 0, 3)
    assert found(mass, damping, stiffness, np.zeros(0), rows, rows).shape == (0, 3, 3)
    several = np.stack([stiffness, np.nan * stiffness, stiffness])
    one = functools.partial(found_eagerly, mass, damping, np.array([1.0, 2.0]), rows)
    value = np.asarray(jax.jit(jax.vmap(one))(several))
    assert np.isnan(value[1]).all()
    check(value[[0, 2]], by_numpy(mass, damping, stiffness, [1.0, 2.0], rows, rows)[None])


def found_eagerly(mass, damping, omega, rows, stiffness):
    return receptance(mass, damping, stiffness, omega, rows, rows)


def test_single_precision_stays_single():
    mass, damping, stiffness, rows = machine(4)
    omega = np.linspace(0.5, 12.0, LINES)
    parts = (part.astype(np.float32) for part in (mass, damping, stiffness, omega, rows, rows))
    value = found(*parts)
    assert value.dtype == np.complex64
    check(value, by_numpy(mass, damping, stiffness, omega, rows, rows), rtol=1e-2)


@pytest.mark.parametrize(
    "axes", [(0, 0, 0, 0, 0), (None, None, 0, None, None), (0, None, None, None, 0), (2, 1, 0, 1, 1)]
)
def test_batches(axes):
    mass, damping, stiffness, rows = machine(4)
    omega, some = np.linspace(0.5, 12.0, LINES), np.array([1.0, 1.1, 1.3])
    full = [np.multiply.outer(some, part) for part in (mass, damping, stiffness, omega, rows)]
    given = [part[0] if axis is None else np.moveaxis(part, 0, axis) for part, axis in zip(full, axes, strict=True)]
    value = jax.jit(jax.vmap(lambda m, c, k, w, b: receptance(m, c, k, w, b, b), axes))(*given)
    for n in range(3):
        own = [part[0] if axis is None else part[n] for part, axis in zip(full, axes, strict=True)]
        check(np.asarray(value[n]), by_numpy(*own, own[-1]))


def test_batches_of_batches():
    mass, damping, stiffness, rows = machine(3)
    omega = np.linspace(0.5, 12.0, LINES)

    def scaled(a, b):
        return receptance(a * mass, damping, b * stiffness, jnp.asarray(omega), rows, rows)

    a, b = np.array([1.0, 1.2]), np.array([1.0, 0.8, 0.6])
    value = jax.jit(jax.vmap(jax.vmap(scaled, (None, 0)), (0, None)))(a, b)
    check(np.asarray(value[1, 2]), by_numpy(1.2 * mass, damping, 0.6 * stiffness, omega, rows, rows))


def everything(solve, same, p, size=3):
    """Real numbers made of responses of a machine all of whose parts depend on p, symmetric ones."""
    mass, damping, stiffness, rows = (jnp.asarray(part) for part in machine(size, damping_ratio=0.1))
    turn = jnp.asarray(np.random.default_rng(4).normal(size=(5, size, size)))
    way = [0.1 * (t + t.T) for t in turn]
    omega = jnp.linspace(0.5, 12.0, LINES) * (1.0 + 0.1 * p[0])
    outputs = rows * (1.0 + p[1])
    inputs = outputs if same else rows[:2] * (1.0 - 0.2 * p[0])
    more = {
        "structural": 0.05 * stiffness + p[0] * way[0],
        "fractional": (0.1 * stiffness + p[1] * way[1], (1j * omega) ** (0.4 + 0.1 * p[0])),
    }
    h = solve(
        mass + p[0] * way[2], damping + p[1] * way[3], stiffness + p[0] * p[1] * way[4], omega, outputs, inputs, **more
    )
    return jnp.concatenate([h.real.ravel(), h.imag.ravel()])


def by_jax(mass, damping, stiffness, omega, outputs, inputs, structural, fractional):
    w, (matrix, power) = omega[:, None, None], fractional
    z = stiffness + 1j * structural + power[:, None, None] * matrix + 1j * w * damping - w**2 * mass
    return jnp.einsum(
        "on,fni->foi", outputs, jnp.linalg.solve(z, jnp.broadcast_to(inputs.T + 0j, (len(omega), *inputs.T.shape)))
    )


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev, jax.hessian])
def test_derivatives(same, derivative):
    """Forward, reverse and second ones, by all that H depends on."""
    p = jnp.array([0.1, -0.2])
    value = jax.jit(derivative(functools.partial(everything, receptance, same)))(p)
    expected = jax.jit(derivative(functools.partial(everything, by_jax, same)))(p)
    np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


def test_third_derivatives():
    p = jnp.array([0.1, -0.2])
    each = [jax.jit(jax.jacfwd(jax.jacrev(jax.jacfwd(functools.partial(everything, solve, True)))))(p)
            for solve in (receptance, by_jax)]  # fmt: skip
    np.testing.assert_allclose(*each, rtol=1e-8, atol=1e-9 * np.abs(each[1]).max())


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_springs_and_dampers(derivative):
    """Where it is told which entries move, the others are not asked."""
    mass, damping, stiffness, rows = machine(5)
    omega = jnp.linspace(0.5, 12.0, LINES)
    diagonal = tuple((k, k) for k in range(5))

    def real(support, p):
        moved = damping + jnp.diag(p[5:]), stiffness + jnp.diag(p[:5])
        h = receptance(mass, *moved, omega, rows[:2], rows, support)
        return jnp.stack([h.real, h.imag])

    given, all_entries = (jax.jit(derivative(functools.partial(real, s)))(jnp.zeros(10)) for s in (diagonal, None))
    np.testing.assert_allclose(given, all_entries, rtol=1e-9, atol=1e-12 * np.abs(all_entries).max())
    off_diagonal = jax.jacfwd(functools.partial(real, ((0, 1),)))(jnp.zeros(10))
    assert not np.asarray(off_diagonal).any()


def test_programs_for_other_devices_do_not_call_the_machine_code():
    mass, damping, stiffness, rows = machine(4)
    omega = np.linspace(0.5, 12.0, LINES)

    def value(k):
        return receptance(mass, damping, k, omega, rows, rows)

    exported = jax.export.export(jax.jit(jax.vmap(jax.jacfwd(value))), platforms=["cuda"])(jnp.stack([stiffness] * 2))
    assert native.TARGET not in exported.mlir_module()
    assert "callback" not in exported.mlir_module()
