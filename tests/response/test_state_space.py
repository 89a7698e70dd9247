"""State-space models beside SciPy's frequency responses and those of `frf`; their reduction and files."""

import numpy as np
import pytest
import scipy.io
import scipy.signal

import jaxmb
from jaxmb.response.state_space import StateSpace

MODEL = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
Q = jaxmb.reference_posture(MODEL)
FREQUENCY_HZ = np.linspace(0.5, 80.0, 60)
INPUTS, OUTPUTS = [("tool", "x"), ("tool", "z")], [("tool", "x"), ("p05", "Y"), ("z2", "angle")]


def response(system, frequency_hz):
    """FRFs [f, output, input] of the matrices."""
    a, b, c, d = map(np.asarray, system)
    s = 2j * np.pi * frequency_hz[:, None, None]
    return c @ np.linalg.solve(s * np.eye(len(a)) - a, np.tile(b.astype(complex), (len(s), 1, 1))) + d


def by_scipy(system, frequency_hz):
    """FRFs [f, output, input] by scipy.signal, which expands transfer functions: of small systems, in units of time and
    force in which their coefficients are about 1."""
    a, b, c, d = map(np.asarray, system)
    rate = np.abs(np.linalg.eigvals(a)).max()
    scale = 1.0 / np.abs(response(system, frequency_hz)).max()
    columns = [scipy.signal.freqresp((a / rate, scale * b[:, [i]] / rate, c[[o]], scale * d[[o]][:, [i]]),
                                     2.0 * np.pi * frequency_hz / rate)[1] / scale
               for o in range(len(c)) for i in range(b.shape[1])]  # fmt: skip
    return np.stack(columns, axis=1).reshape(len(frequency_hz), len(c), b.shape[1])


# SciPy warns of leading coefficients of 0, as all transfer functions without feedthrough have them.
pytestmark = pytest.mark.filterwarnings("ignore:Badly conditioned filter coefficients")


@pytest.mark.parametrize("kind", ["receptance", "mobility", "accelerance"])
def test_its_frequency_response_is_that_of_frf(kind):
    small = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    points = [("tool", "x"), ("tool", "ry"), ("z2", "angle")]
    for model, outputs, evaluate in ((MODEL, OUTPUTS, response), (small, points, by_scipy)):
        q = jaxmb.reference_posture(model)
        system = jaxmb.state_space(model, q, INPUTS, outputs, kind=kind)
        expected = np.asarray(jaxmb.frf(model, q, FREQUENCY_HZ, kind=kind, outputs=outputs, inputs=INPUTS))
        found = evaluate(system, FREQUENCY_HZ)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-10 * np.abs(expected).max())


def test_default_points_and_eigenvalues():
    a, b, c, d = jaxmb.state_space(MODEL, Q)
    assert (a.shape, b.shape, c.shape, d.shape) == ((18, 18), (18, 3), (3, 18), (3, 3))
    found = np.linalg.eigvals(np.asarray(a))
    expected = np.asarray(jaxmb.modes(jaxmb.linearize(MODEL, Q)).eigenvalue)
    np.testing.assert_allclose(np.sort_complex(found[found.imag > 0.0]), np.sort_complex(expected), rtol=1e-9)


def test_closed_chains_have_the_states_of_their_independent_coordinates():
    model = jaxmb.build_model(jaxmb.load_machine("slider-crank"))
    model = jaxmb.set_parameters(model, {"stiffness.q1": 40.0, "damping.q1": 0.1})
    q = jaxmb.reference_posture(model)
    system = jaxmb.state_space(model, q, [("q1", "angle")])
    assert system.A.shape == (2, 2)
    expected = jaxmb.frf(model, q, FREQUENCY_HZ, kind="receptance", inputs=[("q1", "angle")])
    np.testing.assert_allclose(by_scipy(system, FREQUENCY_HZ), expected, rtol=1e-9)


def test_structural_damping_is_refused():
    model = jaxmb.build_model(jaxmb.load_machine("two-flexible-links"))
    with pytest.raises(NotImplementedError, match="has structural damping, expected viscous damping"):
        jaxmb.state_space(model, jaxmb.reference_posture(model), [("ground", "x")])


def test_coordinates_without_mass_between_them_are_refused():
    """Of two springs in series `frf` is correct, but no finite state matrix exists."""
    joint = [{"name": name, "stiffness": 1e4, "damping": 1.0} for name in ("a", "b")]
    inertia = {"xx": 1.0, "yy": 1.0, "zz": 1.0}
    body = {"name": "tool", "joint": joint, "mass": 1.0, "inertia_products": inertia}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "series", "body": [body]}))
    with pytest.raises(
        ValueError, match="the mass matrix is singular: a motion of mainly coordinate 'a' moves no mass"
    ):
        jaxmb.state_space(model, np.zeros(2))


@pytest.mark.parametrize("method", ["balanced", "modal"])
def test_reduction(method):
    """The stated error is that of the FRFs; the balanced one is below its bound; all states are exact."""
    system = jaxmb.state_space(MODEL, Q, INPUTS, OUTPUTS)
    lines = np.append(FREQUENCY_HZ, jaxmb.modes(jaxmb.linearize(MODEL, Q)).frequency_hz)
    whole = response(system, lines)
    peak = max(np.linalg.norm(h, 2) for h in whole)
    errors = []
    for states in (4, 8, 18):
        reduced, error, bound = jaxmb.reduce_state_space(system, states, method)
        assert reduced.A.shape[0] <= states
        left = max(np.linalg.norm(h, 2) for h in response(reduced, lines) - whole)
        assert left <= 1.05 * error * peak + 1e-9 * peak  # the lines here are not those of the largest error
        assert (bound is None) == (method == "modal")
        assert bound is None or error <= bound * (1.0 + 1e-6) + 1e-9
        errors.append(error)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


def test_modal_truncation_keeps_the_static_response():
    system = jaxmb.state_space(MODEL, Q, INPUTS, OUTPUTS)
    with pytest.warns(UserWarning, match="4 states are kept, not 5: the last one is half of the pair of a mode"):
        reduced = jaxmb.reduce_state_space(system, 5, "modal").system
    assert reduced.A.shape == (4, 4)
    kept, modes = np.linalg.eigvals(np.asarray(reduced.A)), jaxmb.modes(jaxmb.linearize(MODEL, Q))
    np.testing.assert_allclose(np.sort(np.abs(kept))[::2], np.abs(np.asarray(modes.eigenvalue[:2])), rtol=1e-9)
    static = [np.asarray(d - c @ np.linalg.solve(a, b)) for a, b, c, d in (system, reduced)]
    np.testing.assert_allclose(static[1], static[0], rtol=1e-9, atol=1e-9 * np.abs(static[0]).max())


def test_equal_modes_of_uncoupled_masses():
    """Both truncations of two equal oscillators, whose eigenvalues are equal to the last digit."""
    rates = np.block([[np.zeros((2, 2)), np.eye(2)], [-100.0 * np.eye(2), -0.2 * np.eye(2)]])
    forces = np.vstack([np.zeros((2, 2)), np.eye(2)])
    system = StateSpace(rates, forces, np.eye(2, 4), np.zeros((2, 2)))
    for method in ("balanced", "modal"):
        assert jaxmb.reduce_state_space(system, 4, method).error < 1e-12
    assert jaxmb.reduce_state_space(system, 2, "modal").system.A.shape == (2, 2)  # one pair, without a warning


UNDAMPED = StateSpace(
    np.block([[np.zeros((2, 2)), np.eye(2)], [-np.diag([100.0, 900.0]), -np.diag([0.0, 0.6])]]), np.eye(4, 2, -2),
    np.eye(2, 4), np.zeros((2, 2)),
)  # fmt: skip
"""Two oscillators, the first without damping."""


def test_modal_truncation_keeps_an_undamped_mode():
    reduced, error, _ = jaxmb.reduce_state_space(UNDAMPED, 2, "modal")
    np.testing.assert_allclose(np.linalg.eigvals(np.asarray(reduced.A)), [10.0j, -10.0j], atol=1e-9)
    assert 0.0 < error < 1.0
    np.testing.assert_allclose(response(reduced, np.zeros(1)), response(UNDAMPED, np.zeros(1)), atol=1e-15)


def test_wrong_reductions():
    free = jaxmb.build_model(jaxmb.load_machine("kuka-kr300"))
    system = jaxmb.state_space(free, jaxmb.reference_posture(free) * 0.0)
    for method in ("balanced", "modal"):
        with pytest.raises(ValueError, match="a motion of the machine without stiffness and damping: expected one"):
            jaxmb.reduce_state_space(system, 2, method)
    with pytest.raises(ValueError, match=r"a motion of the machine does not decay: .* expected method 'modal'"):
        jaxmb.reduce_state_space(UNDAMPED, 4)
    for states, message in ((0, "states is 0, expected 1 to 18"), (19, "states is 19")):
        with pytest.raises(ValueError, match=message):
            jaxmb.reduce_state_space(jaxmb.state_space(MODEL, Q), states)


def test_files(tmp_path):
    system = jaxmb.state_space(MODEL, Q, INPUTS, OUTPUTS, kind="mobility")
    for name in ("arm.mat", "arm.npz"):
        jaxmb.write_state_space(tmp_path / name, system, INPUTS, OUTPUTS, kind="mobility")
        found = scipy.io.loadmat(tmp_path / name) if name.endswith("mat") else np.load(tmp_path / name)
        for key, expected in system._asdict().items():
            np.testing.assert_array_equal(found[key], expected)
        assert [str(x).strip() for x in np.ravel(found["outputs"])] == ["tool x", "p05 Y", "z2 angle"]
        assert str(np.ravel(found["kind"])[0]) == "mobility"
    with pytest.raises(ValueError, match=r"expected a file ending in \.mat or \.npz"):
        jaxmb.write_state_space(tmp_path / "arm.txt", system, INPUTS, OUTPUTS)
    with pytest.raises(ValueError, match="inputs: 3 names, expected 2"):
        jaxmb.write_state_space(tmp_path / "arm.npz", system, OUTPUTS, OUTPUTS)
