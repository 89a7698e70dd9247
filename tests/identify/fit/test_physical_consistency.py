"""Torque studies end at machines that can exist, and follow the data as well as such machines do."""

import dataclasses
import math
import re
import types

import numpy as np
import pinocchio as pin
import pytest
from scipy.optimize import minimize

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.linear_estimate import linear_estimate
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.experiments.torque.torque_test import TorqueSource, TorqueTest
from jaxmb.identify.fit.linear import linear_step
from jaxmb.identify.fit.physical_consistency import INERTIAL_NUMBERS, _active, pseudo_inertia
from jaxmb.identify.parameters.model_parameters import parameter_table
from jaxmb.identify.study.study import make_study

NOISE = 0.3
BOUND = {"lower": -1e3, "upper": 1e3}
INERTIAL = {"mass.*": BOUND | {"lower": 0.0}, "first_moment.*": BOUND, "inertia.*": BOUND}


def ball(draw, mass):
    """A body: some points of mass about a place, so that it can exist."""
    points = draw.normal(size=(6, 3)) * [0.1, 0.05, 0.08] + draw.normal(size=3) * 0.15
    each = mass * draw.dirichlet(np.ones(6))
    center = each @ points / mass
    r = points - center
    tensor = sum(m * (x @ x * np.eye(3) - np.outer(x, x)) for m, x in zip(each, r, strict=True))
    return {"mass": mass, "center_of_mass": center.tolist(), "inertia_tensor": (0.5 * (tensor + tensor.T)).tolist()}


def arm(draw, joints):
    axes = np.eye(3)
    body = [
        ball(draw, float(10.0 ** draw.uniform(-1.5, 1.5)))
        | {"name": f"b{i}", "parent": f"b{i - 1}" if i else "ground", "origin": {"xyz": draw.normal(size=3).tolist()},
           "joint": [{"name": f"q{i}", "axis": axes[draw.integers(3)].tolist(), "damping": 0.3}]}
        for i in range(joints)
    ]  # fmt: skip
    return jaxmb.Machine.model_validate({"name": "arm", "body": body})


def four_bar(draw):
    planar = {"joint": [{"name": "q2"}]}
    return jaxmb.Machine.model_validate({
        "name": "four-bar", "independent": ["q1"], "gravity": [0.0, -9.81, 0.0],
        "body": [ball(draw, 1.0) | {"name": "crank", "joint": [{"name": "q1"}]},
                 ball(draw, 2.0) | planar | {"name": "coupler", "parent": "crank", "origin": {"xyz": [0.3, 0.0, 0.0]}},
                 ball(draw, 1.5) | {"name": "rocker", "origin": {"xyz": [0.9, 0.0, 0.0]}, "joint": [{"name": "q3"}]}],
        "frame": [{"name": "end", "body": "coupler", "origin": {"xyz": [0.8, 0.0, 0.0]}},
                  {"name": "pin", "body": "rocker", "origin": {"xyz": [0.6, 0.0, 0.0]}}],
        "loop": [{"name": "closure", "frame_a": "end", "frame_b": "pin"}],
        "posture": {"q1": 1.0, "q2": -0.6, "q3": 1.5},
    })  # fmt: skip


def changed(machine, **by_body):
    """The machine with other numbers of some bodies."""
    data = machine.model_dump(exclude_unset=True)
    return jaxmb.Machine.model_validate(data | {"body": [b | by_body.get(b["name"], {}) for b in data["body"]]})


def disturbed(machine, draw):
    """The machine as its maker would describe it: other masses and shapes."""
    return changed(machine, **{b.name: ball(draw, 1.3 * b.mass) for b in machine.body})


def states(model, draw, count):
    if not model.loops:
        return tuple(draw.normal(size=(count, len(model.coordinates))) for _ in range(3))
    turns = 1.2 - np.cos(np.linspace(0.0, 2.0 * np.pi, count))
    q, near = [], jaxmb.reference_posture(model)
    for angle in turns:
        near = jaxmb.close_loops(model, {"q1": angle}, near=near)
        q.append(np.asarray(near))
    return np.array(q), draw.normal(size=(count, 1)) * 3.0, draw.normal(size=(count, 1)) * 20.0


class Independent(TorqueSource):
    """States drawn one by one, which are no motion: gross errors, found along one, are not."""

    def gross_errors(self, test, model, jacobian=None):
        return ""


def study_of(machine, draw, free=INERTIAL, count=60, noise=NOISE, own=None, **settings):
    """Torques of a machine in random states, and a study that starts from what its maker says of it."""
    true, own = jaxmb.build_model(machine), machine if own is None else own
    q, qd, qdd = states(true, draw, count)
    regressor = jaxmb.stacked_torque_regressor(true, q, qd, qdd)
    model = jaxmb.build_model(own)
    values = jaxmb.parameters(true)
    names = jaxmb.regressor_names(true)
    effort = regressor @ np.array([values[name] for name in names])
    k, m = effort.shape
    test = TorqueTest("t", names, tuple(parameter_table(model)[n] for n in names), regressor.reshape(k * m, -1),
                      (effort + noise * draw.normal(size=effort.shape)).ravel(), np.full(k * m, max(noise, 1e-9)),
                      np.tile(np.arange(m), k), np.zeros(0), np.zeros((k * m, 0)),
                      correlation_length=np.ones(k * m), constant=np.zeros(k * m))  # fmt: skip
    source = Independent(time_s=np.arange(k * m) * 1.0, velocity=np.zeros(k * m), noise_bound=np.full(m, np.inf),
                          coordinates=jaxmb.independent_coordinates(model), revolute=(True,) * m,
                          rebuild=lambda model, **readings: test, gravity=np.asarray(model.gravity),
                          origin=np.asarray(model.origin))  # fmt: skip
    data = {"machine": "machine.toml", "free": free, "test": [{"kind": "torque", "simulate": {
        "duration_s": 1.0, "rate_hz": 100.0, "motion": {"q1": {"sine": [0.1]}}}, "cutoff_hz": 20.0}]}  # fmt: skip
    return own, data | settings, test, source


def made(folder, own, data, test, source):
    """The study, with its test in place of the one that its file asks for."""
    jaxmb.write_machine(own, folder / "machine.toml")
    study = make_study(data | {"tolerances": "exact"}, "study", folder)
    entry = Entry("torque", test, source, None)
    problem = dataclasses.replace(
        study.problem, tests=(test,), views=(test.evaluation.affine_view(study.model, study.free),)
    )
    return dataclasses.replace(study, entries=(entry,), problem=problem)


def possible(machine):
    """Whether every body's pseudo-inertia is positive definite, by Pinocchio, but for rounding."""
    least = []
    for b in machine.body:
        inertia = pin.Inertia(b.mass, np.array(b.center_of_mass), b.central_inertia)
        values = np.linalg.eigvalsh(pin.PseudoInertia.FromInertia(inertia).toMatrix())
        least.append(values[0] / values[-1])
    return min(least) > -1e-10


def test_pseudo_inertia_beside_pinocchio():
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=10)
    m, hx, hy, hz, xx, yy, zz, xy, xz, yz = numbers
    expected = pin.PseudoInertia.FromDynamicParameters(np.array([m, hx, hy, hz, xx, xy, yy, xz, yz, zz])).toMatrix()
    assert INERTIAL_NUMBERS[4:] == ("inertia.xx", "inertia.yy", "inertia.zz", "inertia.xy", "inertia.xz", "inertia.yz")
    np.testing.assert_allclose(pseudo_inertia(numbers), expected, rtol=1e-12, atol=1e-12)


def all_rows(estimate):
    """Weighted equations of an estimate."""
    found, rows, _, _ = estimate.linear
    del found
    return rows.matrix / rows.std[:, None], rows.measured / rows.std


def chi_square_by_scipy(estimate, starts):
    """Least chi^2 over all bodies P = L L^T, by BFGS over the lower triangles."""
    matrix, right = all_rows(estimate)
    names = estimate.study.free.names
    corner = np.linalg.qr(np.column_stack([matrix, right]), mode="r")
    bodies = list(dict.fromkeys(name.split(".")[1] for name in names))
    columns = np.array([[names.index(f"{n.split('.')[0]}.{b}" + (f".{n.split('.')[1]}" if "." in n else ""))
                         for n in INERTIAL_NUMBERS] for b in bodies])  # fmt: skip
    basis = np.stack([pseudo_inertia(row) for row in np.eye(10)])
    gram = np.linalg.inv(np.einsum("kij,lij->kl", basis, basis))
    low = np.tril_indices(4)
    size = np.array([estimate.study.model.mass[estimate.study.model.masses.index(b)] for b in bodies])

    def objective(t):
        t = t.reshape(len(bodies), 10)
        x, factors = np.zeros(len(names)), []
        for c, row, s in zip(columns, t, size, strict=True):
            factor = np.zeros((4, 4))
            factor[low] = row * np.sqrt(s)
            factors.append(factor)
            x[c] = gram @ np.einsum("kij,ij->k", basis, factor @ factor.T)
        left = corner[:, :-1] @ x - corner[:, -1]
        slope = 2.0 * corner[:, :-1].T @ left
        each = []
        for c, factor, s in zip(columns, factors, size, strict=True):
            by_matrix = np.einsum("k,kij->ij", gram @ slope[c], basis)
            each.append((2.0 * by_matrix @ factor)[low] * np.sqrt(s))
        return float(left @ left), np.concatenate(each)

    found = []
    for start in starts:
        first = []
        for b, s in zip(bodies, size, strict=True):
            numbers = np.array([jaxmb.parameters(start)[names[i]] for i in columns[bodies.index(b)]])
            pseudo = pseudo_inertia(numbers) / s
            first.append(np.linalg.cholesky(pseudo + 1e-6 * np.eye(4))[low])
        best = minimize(objective, np.concatenate(first), jac=True, method="L-BFGS-B",
                        options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-9})  # fmt: skip
        found.append(best.fun)
    return min(found)


@pytest.mark.parametrize("joints", [3, 4, 6, "loop"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_machines(tmp_path, joints, seed):
    """What an impossible machine explains more of the noise is a chi-square of no more degrees than base parameters."""
    draw = np.random.default_rng(seed)
    machine = four_bar(draw) if joints == "loop" else arm(draw, joints)
    study = made(tmp_path, *study_of(machine, draw, own=disturbed(machine, draw), noise=3.0))
    result = identify(study)
    estimate = linear_estimate(study)
    assert possible(result.machine)
    files = jaxmb.write_result(result, tmp_path)
    assert ("machine.urdf" in files) == (joints != "loop")
    read = [jaxmb.load_machine(tmp_path / name) for name in files if name.startswith("machine")]
    for found in read:
        model, q = jaxmb.build_model(found), np.full(len(found.coordinates), 0.4)
        np.testing.assert_allclose(
            jaxmb.mass_matrix(model, q), jaxmb.mass_matrix(result.model, q), rtol=1e-7, atol=1e-9
        )
    found, rows, step, start = estimate.linear
    plain = linear_step(found, rows, start)
    assert step.cost >= plain.cost * (1.0 - 1e-12)
    assert step.consistent.rise == pytest.approx(step.cost - plain.cost, abs=1e-6 * plain.cost)
    assert step.consistent.rise < 3.0 * step.consistent.determined
    assert not any("does not explain" in text for text in result.remarks)
    seen = np.asarray(estimate.study.tests[0].predict(estimate.views[0]))
    np.testing.assert_allclose(seen - study.tests[0].effort, -step.residual, atol=1e-6 * np.abs(seen).max())


@pytest.mark.parametrize("joints", [3, 4])
@pytest.mark.parametrize("seed", [4, 5])
def test_beside_another_solver(tmp_path, joints, seed):
    """Bodies as products L L^T are possible too. From the truth and from the machine's description it comes no lower
    than a convex search, whose gap of 1e-10, least eigenvalue of 1e-6 and pull of 1e-4 (100 sizes^2 at most) are the
    tolerance."""
    draw = np.random.default_rng(seed)
    machine = arm(draw, joints)
    study = made(tmp_path, *study_of(machine, draw, own=disturbed(machine, draw), noise=3.0, free=INERTIAL))
    estimate = linear_estimate(study)
    by_scipy = chi_square_by_scipy(estimate, [jaxmb.build_model(machine), study.model])
    assert estimate.linear.step.cost <= by_scipy + 0.02
    assert by_scipy <= estimate.linear.step.cost + 0.5  # a local search of many flat directions ends somewhat above


def test_what_is_possible_is_left_alone(tmp_path):
    """Everything determined and possible: to the last digit what linear least squares gives."""
    draw = np.random.default_rng(6)
    machine = arm(draw, 3)
    base = jaxmb.base_parameters(jaxmb.build_model(machine))
    free = {name: BOUND | {"lower": 0.0 if name.startswith(("mass", "damping")) else -1e3, "scale": "linear"}
            for name in base.names}  # fmt: skip
    study = made(tmp_path, *study_of(machine, draw, free=free, noise=1e-3))
    found, rows, step, start = linear_estimate(study).linear
    plain = linear_step(found, rows, start)
    assert np.isfinite(step.identifiability.std).all()
    np.testing.assert_array_equal(step.x, plain.x)
    np.testing.assert_array_equal(step.identifiability.std, plain.identifiability.std)


def test_what_the_data_do_not_tell_stays_as_it_was(tmp_path):
    """Without noise, from the machine itself: nothing asks for other values than its own."""
    draw = np.random.default_rng(7)
    machine = arm(draw, 4)
    study = made(tmp_path, *study_of(machine, draw, noise=0.0))
    result = identify(study)
    own = jaxmb.parameters(study.model)
    sizes = {"mass": 1e-5, "first_moment": 1e-5, "inertia": 1e-5}  # the least squares' rounding, in the largest body's
    for name, p in result.parameters.items():
        assert p.value == pytest.approx(own[name], abs=30.0 * sizes[name.split(".")[0]])


def test_friction_without_effect_stays_on_the_bound_where_it_began(tmp_path):
    """The search for possible bodies ends a little inside of the bounds: what does not act is put back."""
    draw = np.random.default_rng(7)
    machine = arm(draw, 3)
    free = INERTIAL | {"friction.q1": {"lower": 0.0, "upper": 50.0}}
    own, data, test, source = study_of(machine, draw, free=free, noise=1.0)
    regressor = np.where(np.array(test.parameters) == "friction.q1", 0.0, test.regressor)  # no torque of this joint
    result = identify(made(tmp_path, own, data, dataclasses.replace(test, regressor=regressor), source))
    assert result.parameters["friction.q1"].value == 0.0


def test_fixed_numbers_that_no_body_can_have(tmp_path):
    """A mass that is far too small for the first moments: it acts, stays, and the remark says what it costs."""
    draw = np.random.default_rng(8)
    machine = arm(draw, 3)
    last = machine.body[2]
    own = changed(machine, b2={"mass": 0.01 * last.mass, "inertia_tensor": (0.01 * last.central_inertia).tolist()})
    free = {"first_moment.b2.*": BOUND, "inertia.b2.*": BOUND}
    study = made(tmp_path, *study_of(machine, draw, own=own, free=free, noise=0.05))
    result = identify(study)
    assert jaxmb.parameters(result.model)["mass.b2"] == 0.01 * last.mass
    assert possible(result.machine)
    impossible = next(text for text in result.doubts if "physically inconsistent bodies (b2)" in text)
    assert "more than noise explains" in impossible
    # the data are not followed, which no standard deviation would describe; that of least squares contains the misfit
    assert result.status.startswith("data not followed")
    assert all(math.isinf(p.std) for p in result.parameters.values())
    estimate = linear_estimate(study)
    widened = estimate.linear.step.misfit.widening * estimate.linear.step.identifiability.std
    np.testing.assert_allclose(estimate.identifiability.std, widened, rtol=1e-9)


def test_saved_machine(tmp_path):
    """Numbers that nothing measured depends on move for a plane mechanism's bodies to be possible, and are saved."""
    draw = np.random.default_rng(9)
    machine = four_bar(draw)
    thin = {"inertia_tensor": [[0.0, 0.0, 0.0], [0.0, 1e-6, 0.0], [0.0, 0.0, 1e-6]]}
    own = changed(machine, crank=thin, coupler=thin, rocker=thin)
    free = {"first_moment.*.[xy]": BOUND, "inertia.*.zz": BOUND}
    study = made(tmp_path, *study_of(machine, draw, own=own, free=free))
    result = identify(study)
    assert possible(result.machine)
    moved = result.metrics["moved_numbers"]
    assert moved
    assert not set(moved) & set(result.parameters)
    found = jaxmb.parameters(result.model)
    assert {name: found[name] for name in moved} == pytest.approx(moved)
    assert found["mass.coupler"] == machine.body[1].mass


@pytest.mark.parametrize("inertia", [1.0, 1e-3])
def test_a_mass_is_not_below_its_lower_bound(tmp_path, inertia):
    """The data tell a mass below it: then it is on it, and chi^2 is that of the mass held there. Whether least squares
    is possible (the inertia free) or not (kept, far too small)."""
    draw = np.random.default_rng(11)
    machine = arm(draw, 3)
    last = machine.body[2]
    least = 1.5 * last.mass
    rest = {"first_moment.b2.*": BOUND} | ({"inertia.b2.*": BOUND} if inertia == 1.0 else {})
    costs = []
    for mass, free in ((last.mass, {"mass.b2": BOUND | {"lower": least}} | rest), (least, rest)):
        # a mass that is free takes inertias that are not along
        tensor = (inertia * mass / last.mass * last.central_inertia).tolist()
        own = changed(machine, b2={"mass": mass, "center_of_mass": [0.0] * 3, "inertia_tensor": tensor})
        study = made(tmp_path, *study_of(machine, np.random.default_rng(12), own=own, free=free))
        step = linear_estimate(study).linear.step
        costs.append(step.cost)
        if len(costs) == 1:
            assert step.x[0] == least
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)  # a value is on a bound from 1e-6 of its size on


def test_one_sentence_for_each_reason(tmp_path):
    """Many numbers of an arm are not known, by few reasons; one of them comes to its bound, and is not beyond."""
    draw = np.random.default_rng(13)
    machine = arm(draw, 3)
    bounds = {"mass.b2": {"lower": 0.0, "upper": 0.5 * machine.body[2].mass, "scale": "linear"}}
    result = identify(made(tmp_path, *study_of(machine, draw, free=INERTIAL | bounds, noise=1e-3)))
    free = result.study.free
    form = re.compile(r"(.*?)(?: and (\d+) more)? (?:is|are) ((?:not known|identifiable only in combination).*)")
    found = [
        match for text in result.remarks if (match := form.fullmatch(text)) and match[1].split(", ")[0] in free.names
    ]
    assert len({match[3] for match in found}) == len(found) <= 3
    told = [name for match in found for name in match[1].split(", ")]
    unknown = {name for name, p in result.parameters.items() if p.std is None or not np.isfinite(p.std)}
    assert {"mass.b0", "mass.b2"} <= unknown
    assert set(told) <= unknown
    assert len(told) + sum(int(match[2] or 0) for match in found) == len(unknown)
    assert set(told) <= set(free.names)
    assert result.parameters["mass.b2"].value == 0.5 * machine.body[2].mass


def test_a_body_whose_constraint_is_active_up_to_rounding():
    """Its pseudo-inertia is singular then."""
    problem = types.SimpleNamespace(bodies=types.SimpleNamespace(names=("arm", "hand")))
    assert _active(problem, np.stack([np.eye(4), np.diag([0.0, 1.0, 1.0, 1.0])])) == ("hand",)
