"""Selection of the next FRF tests and postures of pose tests from candidates, in addition to the planned ones; those of
FRF tests are then refined."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.design import Observability, choose_tests, observability
from jaxmb.identify.estimation.identifiability import Identifiability, identifiability, scaled_svd
from jaxmb.identify.experiments.components import Probe, can_be_planned
from jaxmb.identify.experiments.poses.pose_rows import KIND
from jaxmb.identify.experiments.poses.pose_test import PoseTest, with_scatter
from jaxmb.identify.fit.problem import state_of_test, test_at
from jaxmb.identify.plan.candidates import (
    Candidate,
    OperatingPoint,
    Planned,
    candidates_of,
    information_of,
    motion_of,
    observation,
    observed,
    posture_keys,
    posture_near,
    postures_of,
    proposal_toml,
    ranges_of,
)
from jaxmb.identify.plan.why import posture_text
from jaxmb.identify.study.format.next_format import NextPart, NextPosePart
from jaxmb.identify.study.reading.tests import test_names
from jaxmb.identify.study.study import Study
from jaxmb.io.files import plain
from jaxmb.io.validation import Table, check_known
from jaxmb.machine.build import Model
from jaxmb.machine.families import OF_TESTS
from jaxmb.mechanics.loops import independent_coordinates, motion_map

MOST_STEPS = 40
NO_VALUE = 1e30
"""Criterion of postures with a singular information matrix: large but finite."""


def improved(
    operating_point: OperatingPoint,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> tuple[Candidate, ...]:
    """The chosen tests at postures within their ranges with a smaller criterion, if possible at a minimum.

    With M the information of all tests, the criterion changes by -tr(G dM), G = M^-2 / tr M^-1 for log tr M^-1 ("A")
    and M^-1 for -log det M ("D"); tr(G J^T J) is differentiated through the derivative J of the frequency responses.
    All coordinates of all tests are optimized together by L-BFGS-B with at most `MOST_STEPS` steps. Without an
    improvement the initial tests are returned.

    Args:
        operating_point: machine, free parameters and their values.
        chosen: tests at their initial postures.
        made: observation rows of the planned tests.
        basis: orthonormal basis of the identifiable directions of the parameters, in columns.
        criterion: "A" or "D".
        where: indices of the varying coordinates.
        ends: lower and upper ends of their ranges, rad or m.
    """
    from scipy.optimize import minimize

    value = objective(operating_point, chosen, made, basis, criterion, where, ends)
    first = np.stack([(c.q[where] - ends[0]) / (ends[1] - ends[0]) for c in chosen]).ravel()
    best = minimize(value, first, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * first.size,
                    options={"maxiter": MOST_STEPS})  # fmt: skip
    if best.fun >= value(first)[0]:
        return tuple(chosen)
    return tuple(_at_postures(operating_point.model, chosen, where, ends, best.x))


def objective(
    operating_point: OperatingPoint,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Objective of `improved` with its gradient: log tr M^-1 or -log det M up to a constant.

    Its argument is the relative position of each coordinate in its range, 0 to 1, test by test.
    """
    # Coordinates of the parameters in which the information of all initial tests is the identity.
    all_rows = np.concatenate([made, *(observation(operating_point, c) for c in chosen)]) @ basis
    length = np.linalg.norm(all_rows, axis=0)
    whitening = np.linalg.inv(np.linalg.qr(all_rows / length, mode="r")) / length[:, None]
    transform = basis @ whitening
    before = (made @ transform).T @ (made @ transform)
    weight = whitening.T @ whitening

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        tests = _at_postures(operating_point.model, chosen, where, ends, x)
        found = [_observed_along(operating_point, t.probe, jnp.asarray(t.q), jnp.asarray(where)) for t in tests]
        rows, slopes = zip(*(map(np.asarray, each) for each in found), strict=True)
        matrix = before + sum(r.T @ r for r in (part @ transform for part in rows))
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix, hermitian=True) < len(matrix):
            return NO_VALUE, np.zeros(x.size)
        inverse = np.linalg.inv(matrix)
        if criterion == "D":
            criterion_value, gain = -float(np.linalg.slogdet(matrix)[1]), inverse
        else:
            covariance = inverse @ weight
            trace = np.trace(covariance)
            criterion_value, gain = float(np.log(trace)), covariance @ inverse / trace
        gain = transform @ gain @ transform.T
        slope = [2.0 * np.einsum("md,mdk->k", part @ gain, own) for part, own in zip(rows, slopes, strict=True)]
        return criterion_value, -(np.stack(slope) * (ends[1] - ends[0])).ravel()

    return value


def _at_postures(
    model: Model, chosen: Sequence[Candidate], where: np.ndarray, ends: tuple[np.ndarray, np.ndarray], x: np.ndarray
) -> list[Candidate]:
    """The tests with the varying coordinates at relative positions in their ranges."""
    (low, high), names = ends, [model.coordinates[i] for i in where]
    values = (low + (high - low) * x.reshape(-1, low.size)).tolist()
    return [
        Candidate(c.probe, posture_near(model, c.q, dict(zip(names, row, strict=True))))
        for c, row in zip(chosen, values, strict=True)
    ]


@compiled
def _observed_along(
    operating_point: OperatingPoint, probe: Probe, q: Float[Array, "n"], where: Int[Array, "k"]
) -> tuple[Float[Array, "m d"], Float[Array, "m d k"]]:
    """Observation matrix of a probe at a posture, and its derivative by the varying coordinates."""

    model = operating_point.model
    independent = jnp.array([model.coordinates.index(name) for name in independent_coordinates(model)])
    # first order suffices for the gradient; columns of coordinates with a range, which are independent
    slope = motion_map(model, q) @ (independent[:, None] == where)

    def rows(values: Array) -> Array:
        moved = q + slope @ (values - q[where])
        return observed(probe, *motion_of(operating_point, moved, probe.at, probe.points))

    return rows(q[where]), jax.jacfwd(rows)(q[where])


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Selection:
    """A choice from candidates, and the predicted identifiability after it."""

    like: str
    """Test with the same kind, noise and instruments."""
    candidates: int
    """Number of feasible candidates."""
    before: float
    """Criterion after the planned tests alone: the sum of the variances of u ("A"), or the logarithm of the determinant
    of its covariance ("D"); inf if a parameter is not identifiable."""
    chosen: float
    """Criterion after the planned and the chosen tests."""
    known: Identifiability
    """Identifiability after all tests."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NextTests(Selection):
    """Tests chosen from candidates."""

    part: NextPart
    left_out: int
    """Number of infeasible candidates."""
    tests: tuple[Candidate, ...]
    drawn: tuple[Candidate, ...]
    """The same tests at the chosen postures before refinement."""
    improved: float
    """Criterion after refinement of the postures; equal to `chosen` for listed postures."""
    directions: int
    """Number of identifiable directions of the parameters, over which the criterion is evaluated."""

    def as_json(self, model: Model) -> Table:
        """The tests in the layout of `inspect.json`."""
        reference = np.asarray(model.reference)

        def stated(q: np.ndarray) -> dict[str, float]:  # zeros only where the reference posture is not 0
            values = zip(model.coordinates, q.tolist(), reference, strict=True)
            return {name: value for name, value, own in values if value != 0.0 or own != 0.0}

        return {
            "count": len(self.tests),
            "like": self.like,
            "candidates": self.candidates,
            "left_out": self.left_out,
            "seed": self.part.seed,
            "directions": self.directions,
            "criterion_before": self.before,
            "criterion_chosen": self.chosen,
            "criterion_improved": self.improved,
            "tests": [
                {
                    "posture": stated(test.q),
                    "posture_text": posture_text(model, test.q),
                    "drawn": stated(drawn.q),
                    "outputs": test.probe.ends[0],
                    "inputs": test.probe.ends[1],
                    "band_hz": test.probe.band_hz,
                    "lines": test.probe.omega.size,
                }
                for test, drawn in zip(self.tests, self.drawn, strict=True)
            ],
        }

    def as_toml(self, study: Study) -> str:
        """The tests as TOML that can be appended to the study file."""
        return proposal_toml(study, self.like, [self._keys(study.model, test) for test in self.tests])

    def _keys(self, model: Model, test: Candidate) -> Table:
        keys: Table = {"posture": posture_keys(model, test.q)}
        if self.part.points:
            outputs, inputs = test.probe.ends
            keys |= {"frame": None, "outputs": outputs, "inputs": None if inputs == outputs else inputs}
        if self.part.bands_hz:
            lines_hz = [float(f"{line:.9g}") for line in np.asarray(test.probe.omega) / (2 * np.pi)]
            first, last = keys["band_hz"] = lines_hz[0], lines_hz[-1]
            step_hz = float(f"{(last - first) / max(len(lines_hz) - 1, 1) or first:.9g}")
            keys["simulate"] = {"lines": {"first_hz": first, "last_hz": last, "step_hz": step_hz}}
        return keys


def plan_tests(study: Study, operating_point: OperatingPoint, made: Float[np.ndarray, "m d"]) -> Planned:
    """The next FRF tests requested by a study, or a remark on why none could be chosen.

    Raises:
        ValueError: no candidate is feasible.
    """
    part: Any = study.next
    like = next(test for test in study.tests if can_be_planned(test) and part.like in (None, test.name))
    candidates = candidates_of(part, like, study.model)
    information = information_of(operating_point, candidates)
    feasible = [i for i, rows in enumerate(information) if np.isfinite(rows).all()]
    if not feasible:
        raise ValueError(f"[next]: none of {len(candidates)} candidates has finite frequency responses")
    pool, information = tuple(candidates[i] for i in feasible), information[feasible]
    left_out = len(candidates) - len(pool)
    try:
        chosen = choose_next(
            part, like.name, pool, information, left_out, made, operating_point, study.problem.prior_std
        )
    except ValueError as error:
        return Planned(None, f"no next test could be chosen: {error}", pool, information)
    infeasible = f" ({left_out} more are infeasible)" if left_out else ""
    count = f"{len(chosen.tests)} test{'s' if len(chosen.tests) > 1 else ''} chosen out of {len(pool)} candidates"
    return Planned(chosen, count + infeasible + _of_directions(chosen.directions, study), pool, information)


def _of_directions(identifiable: int, study: Study) -> str:
    """Clause on the number of identifiable directions of the parameters; empty where all are."""
    size = study.free.size
    return f" for the {identifiable} identifiable of {size} directions of the parameters" if identifiable < size else ""


def choose_next(
    part: NextPart,
    like: str,
    pool: Sequence[Candidate],
    information: Float[np.ndarray, "c d d"],
    left_out: int,
    made: Float[np.ndarray, "m d"],
    operating_point: OperatingPoint,
    prior_std: Float[np.ndarray, "d"] | None = None,
) -> NextTests:
    """Next tests chosen from a pool of candidates.

    The criterion is evaluated over the directions of the parameters that are identifiable from all candidates and
    planned tests together.

    Args:
        part: the table `[next]`, with the number of tests and the criterion.
        like: name of the template test.
        pool: candidates.
        information: `triangular_information` rows of each.
        left_out: number of candidates that are not in the pool.
        made: information rows of the planned tests and the prior.
        operating_point: machine, free parameters, values.
        prior_std: the prior's standard deviations, if any; its rows are in `made`.

    Raises:
        ValueError: the number of tests is too small to identify a parameter that more candidates could.
    """
    basis = known_directions(np.concatenate([made, *information]))
    design = choose_tests(information @ basis, part.count, part.criterion, made=made @ basis)
    drawn = tuple(pool[i] for i in design.chosen)
    rows = [information[i] for i in design.chosen]
    varied, low, high = ranges_of(part, operating_point.model.coordinates)
    tests, after = drawn, rows
    if varied.size:
        tests = improved(operating_point, drawn, made, basis, part.criterion, varied, (low, high))
        after = information_of(operating_point, tests)
    return NextTests(
        part=part,
        like=like,
        candidates=len(pool),
        left_out=left_out,
        tests=tests,
        drawn=drawn,
        before=criterion_of(part.criterion, made @ basis),
        chosen=criterion_of(part.criterion, np.concatenate([made, *rows]) @ basis),
        improved=criterion_of(part.criterion, np.concatenate([made, *after]) @ basis),
        directions=basis.shape[1],
        known=identifiability(np.concatenate([made, *after]), np.ones(len(made) + sum(map(len, after))), prior_std),
    )


def known_directions(rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "d r"]:
    """Orthonormal basis of the identifiable directions of the parameters; the identity if all are identifiable."""
    svd = scaled_svd(rows)
    if svd.rank == svd.scale.size:
        return np.eye(svd.rank)
    return np.linalg.qr((svd.right[: svd.rank] * svd.scale).T)[0]


def criterion_of(criterion: str, rows: Float[np.ndarray, "m d"]) -> float:
    """trace M^-1 ("A") or -log det M ("D") with M = R^T R; inf if M is rank-deficient."""
    svd = scaled_svd(rows)
    if svd.rank < svd.scale.size:
        return float("inf")
    if criterion == "D":
        return -2.0 * float(np.sum(np.log(svd.values)) + np.sum(np.log(svd.scale)))
    return float(np.sum((svd.right.T / svd.values / svd.scale[:, None]) ** 2))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NextPoses(Selection):
    """Postures chosen from candidates."""

    part: NextPosePart
    station: str
    """At which they are measured; empty for a device in the ground frame."""
    q: Float[np.ndarray, "k n"]
    """rad or m."""
    observability: Observability | None
    """Observability indices of all rows; None unless all tests are pose tests."""

    def as_json(self, model: Model) -> Table:
        """The postures in the layout of `inspect.json`."""
        return {
            "count": len(self.q),
            "like": self.like,
            "station": self.station,
            "candidates": self.candidates,
            "seed": self.part.seed,
            "criterion_before": self.before,
            "criterion_chosen": self.chosen,
            "observability": plain(self.observability),
            "postures": [dict(zip(model.coordinates, row, strict=True)) for row in self.q.tolist()],
        }

    def as_toml(self, study: Study) -> str:
        """Nothing: postures are lines of the table of a pose test."""
        return ""


def observability_of(study: Study, jacobian: np.ndarray) -> Observability | None:
    """Observability indices of the machine's parameters by the planned rows; None unless all tests are pose tests.

    Rows are in units of the noise, parameters in units of u; stations and offsets of distances are
    eliminated.
    """
    tests = _pose_tests(study)
    if len(tests) < len(study.tests):
        return None
    return _indices(study, jacobian[: study.problem.data_rows], sum(len(test.q) for test in tests))


def _indices(study: Study, rows: np.ndarray, poses: int) -> Observability | None:
    of_tests = np.array([name.split(".")[0] in OF_TESTS for name in study.free.names])
    return None if of_tests.all() else observability(rows[:, ~of_tests], poses, rows[:, of_tests])


def _pose_tests(study: Study) -> list[PoseTest]:
    return [test for test in study.tests if isinstance(test, PoseTest)]


def plan_poses(study: Study, operating_point: OperatingPoint, made: Float[np.ndarray, "m d"]) -> Planned:
    """The next postures requested by a study, or a remark on why none could be chosen.

    Raises:
        ValueError: there is no such station.
    """
    part, tests, values, u = (
        cast(NextPosePart, study.next),
        _pose_tests(study),
        operating_point.values,
        operating_point.u,
    )
    like = cast(PoseTest, test_at(next(t for t in tests if part.like in (None, t.name)), study.free, values))
    station = 0
    if part.station is not None:
        check_known("[next]: station", [part.station], like.stations)
        station = like.stations.index(part.station)
    q = postures_of(part, np.asarray(study.model.reference), study.model)
    template: Any = study.origin.file.test[test_names(study.origin.file.test).index(like.name)]
    candidates = with_scatter(
        _measured_at(like, q, station, study.free.apply(study.model, values)), study.model, template.scatter
    )
    _, slope = state_of_test(study.problem, candidates, np.asarray(u))
    finite = np.isfinite(slope).all(axis=1).reshape(len(q), -1).all(axis=1)
    information = slope.reshape(len(q), -1, slope.shape[1])[finite]
    if not len(information):
        raise ValueError(f"[next]: none of {len(q)} candidates can be predicted")
    basis = known_directions(np.concatenate([made, *information]))
    try:
        design = choose_tests(information @ basis, part.count, part.criterion, made=made @ basis)
    except ValueError as error:
        return Planned(None, f"no next posture could be chosen: {error}")
    new = np.concatenate(information[list(design.chosen)])
    rows, indices = np.concatenate([made, new]), None
    if len(tests) == len(study.tests):
        planned = (state_of_test(study.problem, test, np.asarray(u))[1] for test in tests)
        poses = sum(len(test.q) for test in tests) + len(design.chosen)
        indices = _indices(study, np.concatenate([*planned, new]), poses)
    chosen = NextPoses(
        part=part,
        like=like.name,
        station=like.stations[station] if like.stations else "",
        q=q[finite][list(design.chosen)],
        candidates=len(information),
        before=criterion_of(part.criterion, made @ basis),
        chosen=criterion_of(part.criterion, rows @ basis),
        known=identifiability(rows, np.ones(len(rows)), study.problem.prior_std),
        observability=indices,
    )
    remark = f"{len(chosen.q)} postures chosen out of {chosen.candidates} candidates"
    return Planned(chosen, remark + _of_directions(basis.shape[1], study))


def _measured_at(like: PoseTest, q: np.ndarray, station: int, model: Model) -> PoseTest:
    """A test like another one at other postures, each measured in all components that the other one measures from a
    station, as predicted for a machine."""
    count, size = len(q), KIND.size * len(like.points)
    row, component = np.divmod(np.asarray(like.component), size)
    seen = np.unique(component[np.asarray(like.station)[row] == station])
    shape: Any = (count, len(like.points))
    axes = jnp.broadcast_to(jnp.eye(3), (*shape, 3, 3))
    empty = dataclasses.replace(
        like, q=jnp.asarray(q), position=jnp.zeros((*shape, 3)), rotation=axes, vertical=axes,
        distance=jnp.zeros(shape), component=jnp.zeros(0, int), station=jnp.full(count, station), approach=None,
        scatter=None,
    )  # fmt: skip
    return empty.completed((np.arange(count)[:, None] * size + seen).ravel(), model)
