"""Selection of the next postures of a pose test, in addition to the planned rows."""

import dataclasses
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.design import Observability, choose_tests, observability
from jaxmb.identify.estimation.identifiability import Identifiability, identifiability
from jaxmb.identify.experiments.pose_test import KIND, PoseTest
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.fit.problem import state_of_test, test_at
from jaxmb.identify.plan.candidates import OperatingPoint, Planned, PlannedInformation, postures_of
from jaxmb.identify.plan.next_tests import criterion_of, known_directions
from jaxmb.identify.study.format.next_format import NextPosePart
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import Table, known_name
from jaxmb.machine.build import Model
from jaxmb.machine.families import STATION


@dataclasses.dataclass(frozen=True, eq=False)
class NextPoses:
    """Postures chosen from candidates, and the predicted identifiability after them."""

    part: NextPosePart
    like: str
    """Test with the same points, noise and device."""
    station: str
    """At which they are measured; empty for a device in the ground frame."""
    q: Float[np.ndarray, "k n"]
    """rad or m."""
    candidates: int
    before: float
    """Criterion after the planned rows alone; inf if a parameter is not identifiable."""
    chosen: float
    """Criterion after them and the chosen postures."""
    known: Identifiability
    """Identifiability after all rows."""
    observability: Observability
    """Observability indices of all rows."""

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
            "observability": dataclasses.asdict(self.observability),
            "postures": [dict(zip(model.coordinates, row, strict=True)) for row in self.q.tolist()],
        }

    def as_toml(self, study: Study) -> str:
        """Nothing: postures are lines of the table of a pose test."""
        return ""


def observability_of(study: Study, values: np.ndarray, jacobian: np.ndarray) -> Observability | None:
    """Observability indices of the machine's parameters by the planned rows; None unless all tests are pose tests.

    Rows are in units of the noise, parameters in units of u; the stations are eliminated.
    """
    entries = [entry for entry in study.fitted if entry.kind == "pose"]
    if len(entries) < len(study.fitted):
        return None
    return _indices(study, jacobian[: study.problem.data_rows], sum(len(_test(entry).q) for entry in entries))


def _indices(study: Study, rows: np.ndarray, poses: int) -> Observability | None:
    of_stations = np.array([name.split(".")[0] == STATION for name in study.free.names])
    if of_stations.all():
        return None
    return observability(rows[:, ~of_stations], poses, rows[:, of_stations])


def _test(entry: Entry) -> PoseTest:
    return cast(PoseTest, entry.test)


def plan_poses(study: Study, operating_point: OperatingPoint, before: PlannedInformation) -> Planned:
    """The next postures requested by a study, or a remark on why none could be chosen.

    Raises:
        ValueError: there is no such station.
    """
    part = cast(NextPosePart, study.next)
    tests = [_test(entry) for entry in study.fitted if entry.kind == "pose"]
    like = cast(PoseTest, test_at(next(t for t in tests if part.like in (None, t.name)), study.free, before.values))
    if part.station is not None and part.station not in like.stations:
        raise ValueError(known_name("[next]: station", part.station, like.stations))
    station = like.stations.index(part.station) if part.station is not None else 0
    q = postures_of(part, np.asarray(study.model.reference), study.model.coordinates)
    u = np.asarray(operating_point.u)
    candidates = _at_postures(like, q, station, study.free.apply(study.model, before.values))
    _, slope = state_of_test(study.problem, candidates, u)
    finite = np.isfinite(slope).all(axis=1).reshape(len(q), -1).all(axis=1)
    information = slope.reshape(len(q), -1, slope.shape[1])[finite]
    if not len(information):
        raise ValueError(f"[next]: none of {len(q)} candidates can be predicted")
    basis = known_directions(np.concatenate([before.made, *information]))
    try:
        design = choose_tests(information @ basis, part.count, part.criterion, made=before.made @ basis)
    except ValueError as error:
        return Planned(None, f"no next posture could be chosen: {error}")
    rows = np.concatenate([before.made, *(information[i] for i in design.chosen)])
    made = np.concatenate([state_of_test(study.problem, test, u)[1] for test in tests])
    indices = _indices(
        study, np.concatenate([made, *(information[i] for i in design.chosen)]),
        sum(len(test.q) for test in tests) + len(design.chosen),
    ) or Observability(0.0, 0.0, 0.0, 0.0, 0.0)  # fmt: skip
    chosen = NextPoses(
        part=part,
        like=like.name,
        station=like.stations[station] if like.stations else "",
        q=q[finite][list(design.chosen)],
        candidates=len(information),
        before=criterion_of(part.criterion, before.made @ basis),
        chosen=criterion_of(part.criterion, rows @ basis),
        known=identifiability(rows, np.ones(len(rows)), before.prior_std),
        observability=indices,
    )
    remark = f"{len(chosen.q)} postures chosen out of {chosen.candidates} candidates"
    if basis.shape[1] < study.free.size:
        remark += f" for the {basis.shape[1]} identifiable of {study.free.size} directions of the parameters"
    return Planned(chosen, remark)


def _at_postures(like: PoseTest, q: np.ndarray, station: int, model: Model) -> PoseTest:
    """A test like another one at other postures, each measured in all components that the other one measures, as
    predicted for a machine."""
    count, size = len(q), KIND.size * len(like.points)
    seen = np.unique(np.asarray(like.component) % size)
    shape: Any = (count, len(like.points))
    axes = jnp.broadcast_to(jnp.eye(3), (*shape, 3, 3))
    empty = dataclasses.replace(
        like, q=jnp.asarray(q), position=jnp.zeros((*shape, 3)), rotation=axes, vertical=axes,
        component=jnp.zeros(0, int), station=jnp.full(count, station), approach=None,
    )  # fmt: skip
    return empty.completed((np.arange(count)[:, None] * size + seen).ravel(), model)
