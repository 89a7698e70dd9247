"""A pose test: poses, inclinations and distances of points of a machine at recorded joint values.

A measuring device at stations of unknown pose, or in the ground frame, sees the poses or measures the distances from
itself; accelerometers at rest measure the inclinations. Drives hold the recorded values; the machine deflects under its
weight (`jaxmb.response.static.frame_poses_under_weight`).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import Attached, Noise, OwnParameters
from jaxmb.identify.experiments.poses.pose_errors import PoseDescription
from jaxmb.identify.experiments.poses.pose_rows import (
    DISTANCE,
    INCLINATION,
    KIND,
    POSITION,
    ROTATION,
    UPWARD,
    PoseRows,
    axes_about,
    measured_arrays,
    measured_kinds,
)
from jaxmb.identify.experiments.test import Entry, Score, Source, Test
from jaxmb.identify.parameters.free_parameters import Bound
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.machine.families import DISTANCE_OFFSET, STATION
from jaxmb.measurement.noise import correlation_length
from jaxmb.mechanics.dynamics import gravity_effort
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_pose, whole
from jaxmb.response.static import frame_poses_under_weight
from jaxmb.spatial import rotation_by, rotation_vector, skew, transform

REACH_M, REACH_RAD = 0.25, 0.25
"""Bounds of a station's pose on either side of its initial value."""
LEAST_EXPLAINED = 90.0
"""Least explained part of the scatter of the measured positions, or of a radian of the measured rotations, %: the
geometry of a machine is known to a per cent of its size, while a wrong frame, unit or sign costs more."""
LEAST_STATIONS = 3
"""Fewest stations whose errors are compared with each other."""


def row_poses(
    model: Model, q: Float[Array, "n"], device: Float[Array, "6"] | None, points: tuple[str, ...], elastic: bool
) -> Float[Array, "p 4 4"]:
    """Poses of points in the ground frame, gravity along the z axis of a levelled device."""
    return frame_poses_under_weight(_levelled(model, device), q, points, elastic)


def _levelled(model: Model, device: Float[Array, "6"] | None) -> Model:
    """The machine with gravity along the z axis of a levelled device."""
    if device is None:
        return model
    size = jnp.linalg.norm(model.gravity)
    return dataclasses.replace(model, gravity=-size * rotation_by(device[3:])[:, 2])


@eqx.filter_custom_jvp
def poses_by_row(
    model: Model,
    q: Float[Array, "t n"],
    device: Float[Array, "t 6"] | None,
    points: tuple[str, ...],
    elastic: bool,
    varied: tuple[tuple[bool, bool], ...],
) -> Float[Array, "t p 4 4"]:
    """Poses of points at all rows, differentiated row by row in reverse mode.

    A row has three or six components, a machine tens of free parameters: the derivatives of a row by the numbers of the
    machine are computed once, in reverse mode, and multiplied by all directions. `varied` says of each point whether
    those of its position and of its rotation are needed; the others are left out (0), since they take as much time.
    """
    return jax.vmap(lambda q, device: row_poses(model, q, device, points, elastic))(q, device)


@poses_by_row.def_jvp
def poses_by_row_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    model, q, device, points, elastic, needed = primals
    moving, turning = (np.flatnonzero(np.repeat(each, 3)) for each in np.array(needed).T)
    varies = jax.tree.map(lambda tangent: tangent is not None, tangents[0], is_leaf=lambda tangent: tangent is None)
    varied, constant = eqx.partition(model, varies)

    def row(q: Array, device: Any, by_q: Any, by_device: Any) -> tuple[Array, Array]:
        def twist(varied: Any, q: Array, device: Any) -> tuple[tuple[Array, Array], Array]:
            poses = row_poses(eqx.combine(varied, constant), q, device, points, elastic)
            turn = poses[:, :3, :3] @ jnp.swapaxes(jax.lax.stop_gradient(poses[:, :3, :3]), 1, 2)
            return (poses[:, :3, 3], jax.vmap(rotation_vector)(turn)), poses

        (shift, _), pull, poses = jax.vjp(twist, varied, q, device, has_aux=True)
        basis, zero = np.eye(shift.size).reshape(-1, *shift.shape), jnp.zeros_like(shift)
        directions = tangents[0], by_q, by_device

        def along(slope: Any, component: np.ndarray) -> Array:
            used = eqx.filter(slope, jax.tree.map(lambda t: t is not None, directions, is_leaf=lambda t: t is None))
            parts = zip(jax.tree.leaves(used), jax.tree.leaves(directions), strict=True)
            found = sum((s.reshape(len(s), -1) @ t.ravel() for s, t in parts), start=jnp.zeros(component.size))
            return jnp.zeros(shift.size).at[component].set(found, unique_indices=True).reshape(shift.shape)

        change = jnp.zeros_like(poses)
        if moving.size:
            moved = along(jax.vmap(lambda c: pull((c, zero)))(basis[moving]), moving)
            change = change.at[:, :3, 3].set(moved)
        if not turning.size:
            return poses, change
        turned = along(jax.vmap(lambda c: pull((zero, c)))(basis[turning]), turning)
        return poses, change.at[:, :3, :3].set(jax.vmap(skew)(turned) @ poses[:, :3, :3])

    return jax.vmap(row)(q, device, tangents[1], tangents[2])


compiled_poses = compiled(lambda *arguments: poses_by_row(*arguments))


class PoseView(NamedTuple):
    """Poses that a pose test depends on."""

    poses: Float[Array, "t p 4 4"]
    """Of each point at each row, in the ground frame, deflected under the machine's weight."""
    vertical: Float[Array, "t 3"] | None
    """Upward direction at each row, in ground axes; None where no inclination is measured."""


class PoseNoise(Noise["PoseTest"]):
    """Noise of poses, as stated or with one factor to be estimated; neighbouring rows have similar postures, and
    correlated errors."""

    @property
    def kind(self) -> int:
        """First measured kind of components: positions, rotations, inclinations or distances."""
        return int(KIND[np.asarray(self.test.component) % KIND.size].min(initial=3))

    @property
    def level(self) -> float:
        """Standard deviation of a component of the first measured kind, m or rad."""
        return float(self.test.kind_std[self.kind])

    @property
    def level_text(self) -> str:
        """`level` with its unit and quantity."""
        return f"{1e3 * self.level:.3g} {LEVELS[self.kind]}"

    def with_level(self, std: float) -> "PoseTest":
        """The test with another `level`."""
        factor, scatter = std / self.level, self.test.scatter
        kind_std = jax.device_put(np.asarray(self.test.kind_std) * factor)
        scatter = None if scatter is None else jax.device_put(np.asarray(scatter) * factor)
        return dataclasses.replace(self.test, kind_std=kind_std, scatter=scatter)

    def change_from(self, other: "PoseTest") -> float:
        """|log| of the ratio of the noise to that in another version of the test."""
        return abs(math.log(self.level / other.noise.level))

    def correlation_length(self, residual: np.ndarray, stated_variances: np.ndarray) -> float:
        """Correlation length of the residual, in rows of the table (see `correlation_length`); 1 where stations are
        compared, whose differences contain it (`errors_between_stations`)."""
        if len(self.test.stations) >= LEAST_STATIONS:
            return 1.0
        errors = np.zeros((2, KIND.size * len(self.test.q) * len(self.test.points)))
        errors[:, np.asarray(self.test.component)] = residual, np.ones_like(residual)
        by_row = errors.reshape(2, len(self.test.q), -1).swapaxes(1, 2)
        return correlation_length(by_row[0], by_row[1] > 0.0)

    @property
    def groups(self) -> Int[np.ndarray, "g m"]:
        """Rows of each station; neighbouring rows where there are fewer than `LEAST_STATIONS`."""
        if len(self.test.stations) < LEAST_STATIONS:
            return super().groups
        row = np.asarray(self.test.component) // (KIND.size * len(self.test.points))
        return np.asarray(self.test.station)[row][None]


class DeviceParameters(OwnParameters["PoseTest"]):
    """Poses of the device in the ground frame, positions alone where its rotation has no effect, which are free unless
    a study holds them; offset of its distances, which a study may free."""

    @property
    def free(self) -> np.ndarray:
        """Which of `PoseTest.pose` are parameters [s, 6]."""
        return np.array([[True] * 3 + [oriented] * 3 for oriented in self.test.oriented], dtype=bool).reshape(-1, 6)

    @property
    def names(self) -> tuple[str, ...]:
        """station.TEST.LABEL.x (y, z, rx, ry, rz), distance_offset.TEST."""
        stations, axes = np.nonzero(self.free)
        of_stations = (
            f"{STATION}.{self.test.name}.{self.test.stations[k]}.{ELASTIC_AXES[axis]}"
            for k, axis in zip(stations.tolist(), axes.tolist(), strict=True)
        )
        return (*of_stations, *([f"{DISTANCE_OFFSET}.{self.test.name}"] if self.test.measures(3) else []))

    @property
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """m and rad."""
        xp = self.test.pose.__array_namespace__()
        offset = [self.test.offset] if self.test.measures(3) else []
        return xp.concatenate([(self.test.pose - self.test.shift)[self.free], xp.asarray(offset)])

    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> "PoseTest":
        """The test with other poses and another offset of the device."""
        xp, free = values.__array_namespace__(), self.free
        entry = np.where(free, np.cumsum(free).reshape(free.shape), 0)
        pose = xp.concatenate([xp.zeros(1), values])[entry] + self.test.shift
        offset = values[-1] if self.test.measures(3) else self.test.offset
        return dataclasses.replace(self.test, pose=pose, offset=offset)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Bounds of the poses about the initial ones."""
        reach = np.tile([REACH_M] * 3 + [REACH_RAD] * 3, (len(self.test.stations), 1))[self.free]
        start = np.asarray(self.test.start)[self.free]
        return tuple(
            Bound((name,), value - by, value + by, value, logarithmic=False)
            for name, value, by in zip(self.names, start.tolist(), reach.tolist(), strict=False)
        )


class PoseTest(Test[PoseView]):
    """Poses of points at recorded joint values, row by row: T_device^-1 T_point(q), or its distance."""

    name: str = eqx.field(static=True)
    points: tuple[str, ...] = eqx.field(static=True)
    """Measured frames."""
    stations: tuple[str, ...] = eqx.field(static=True)
    """Labels of the stations; empty for a device in the ground frame."""
    elastic: bool = eqx.field(static=True)
    """Whether the machine deflects under its weight."""
    oriented: tuple[bool, ...] = eqx.field(static=True)
    """Whether the rotation of the device at each station has an effect; it has none on distances alone, and is 0."""
    kinds: tuple[tuple[bool, ...], ...] = eqx.field(static=True)
    """Whether positions, rotations, inclinations and distances of each point are measured in any row of the table."""
    levelled: bool = eqx.field(static=True)
    """Whether the device's z axis is vertical at every station; the weight of the machine then acts along it."""
    q: Float[Array, "t n"]
    """Recorded values of each row, rad or m."""
    position: Float[Array, "t p 3"]
    """In the device's frame, m; 0 where not measured."""
    rotation: Float[Array, "t p 3 3"]
    """Likewise; the identity where not measured."""
    vertical: Float[Array, "t p 3 3"]
    """Axes whose last one is the upward direction in the axes of the point; the identity where not measured."""
    distance: Float[Array, "t p"]
    """From the origin of the device's frame, m; 0 where not measured."""
    component: Int[Array, "m"]
    """Measured components, as flat indices of [t, p, 9]."""
    kind_std: Float[Array, "4"]
    """Standard deviation of a component of a position, m, of a rotation about an axis, of a component of the direction
    of the vertical, rad, and of a distance, m."""
    noise_is_known: bool = eqx.field(static=True)
    """Whether they are as stated; otherwise their common factor is estimated."""
    station: Int[Array, "t"]
    """Station of each row."""
    pose: Float[Array, "s 6"]
    """Pose of the device in the ground frame at each station: translation [m], rotation vector [rad]."""
    start: Float[Array, "s 6"]
    """Initial pose, about which it is bounded."""
    shift: Float[Array, "s 6"]
    """`pose` less the values of its parameters: 0, but of alternatives to the test, whose stations are elsewhere."""
    offset: Float[Array, ""]
    """Measured less true distances, m."""
    approach: Float[Array, "t n"] | None
    """Sign of the direction from which each coordinate was approached, 0 where it is unknown; None without any."""
    approach_is_stated: bool = eqx.field(static=True)
    """Whether it was recorded; otherwise it is that of the last motion in the rows before."""
    scatter: Float[Array, "t p 9 r"] | None = None
    """Effect of one standard deviation of each random displacement of virtual springs on all components, m or rad; it
    is common to the components of a row. None for none."""

    def view(self, model: Model) -> PoseView:
        """Poses of all points at all rows."""
        device = self.pose[self.station] if self.levelled else None
        varied = tuple((kind[0] or kind[3], kind[1] or kind[2]) for kind in self.kinds)
        poses = compiled_poses(model, self.q, device, self.points, self.elastic, varied)
        if not self.measures(2):
            return PoseView(poses, None)
        if device is None:
            return PoseView(poses, jnp.tile(-model.gravity / jnp.linalg.norm(model.gravity), (len(self.q), 1)))
        return PoseView(poses, jax.vmap(rotation_by)(device[:, 3:])[:, :, 2])

    def weight_effort(self, model: Model) -> Float[Array, "t n"]:
        """Effort that balances the weight of the machine in each row, Nm or N by coordinate."""
        device = self.pose[self.station] if self.levelled else None
        return jax.vmap(lambda q, device: gravity_effort(_levelled(model, device), q))(self.q, device)

    def measures(self, kind: int) -> bool:
        """Whether positions (0), rotations (1), inclinations (2) or distances (3) of any point are measured."""
        return any(each[kind] for each in self.kinds)

    def predict(self, view: PoseView) -> Float[Array, "t p 4 4"]:
        """Poses of all points at all rows in the device's frame."""
        if not self.stations:
            return view.poses
        device = jax.vmap(lambda vector: transform(rotation_by(vector[3:]), vector[:3]))(self.pose)
        turned = jnp.swapaxes(device[:, :3, :3], 1, 2)[self.station]
        position = view.poses[..., :3, 3] - device[self.station, None, :3, 3]
        rotation = turned[:, None] @ view.poses[..., :3, :3]
        upper = jnp.concatenate([rotation, jnp.einsum("tij,tpj->tpi", turned, position)[..., None]], axis=-1)
        return view.poses.at[..., :3, :].set(upper)

    def upward(self, view: PoseView) -> Float[Array, "t p 3"]:
        """Upward direction in the axes of all points at all rows; 0 where no inclination is measured."""
        if view.vertical is None:
            return jnp.zeros((*view.poses.shape[:2], 3))
        return jnp.einsum("tpij,ti->tpj", view.poses[..., :3, :3], view.vertical)

    def errors(self, view: PoseView) -> Float[Array, "m"]:
        """Predicted minus measured components: positions [m], rotation vectors [rad], in the device's axes, directions
        of the vertical [rad] in two directions across the measured one, and distances [m].

        The length of those of the vertical is 2 tan(angle / 2), which exceeds the angle by its third power over 12.
        """
        predicted = self.predict(view)
        translation = predicted[..., :3, 3] - self.position
        rotation, inclination = jnp.zeros_like(translation), jnp.zeros_like(translation[..., :2])
        if self.measures(1):  # their derivatives are not computed otherwise
            turn = predicted[..., :3, :3] @ jnp.swapaxes(self.rotation, -1, -2)
            rotation = jax.vmap(jax.vmap(rotation_vector))(turn)
        if self.measures(2):
            along = jnp.einsum("tpij,tpj->tpi", self.vertical, self.upward(view))
            inclination = 2.0 * along[..., :2] / (1.0 + along[..., 2:])
        distance = jnp.zeros_like(self.distance)
        if self.measures(3):  # of other points, one may be at the device, where the length has no derivative
            seen = np.array(self.kinds)[:, 3:]
            length = jnp.linalg.norm(jnp.where(seen, predicted[..., :3, 3], 1.0), axis=-1)
            distance = length + self.offset - self.distance
        parts = [translation, rotation, inclination, distance[..., None]]
        return jnp.concatenate(parts, axis=-1).ravel()[self.component]

    def residual(self, view: PoseView) -> Float[Array, "m"]:
        """Errors over their standard deviations; those of a row that random displacements have in common, combined to
        independent ones."""
        scaled = self.errors(view) / self.std
        if self.scatter is None:
            return scaled
        size = len(self.q), KIND.size * len(self.points)
        whole = jnp.zeros(size).ravel().at[self.component].set(scaled).reshape(size)
        seen = jnp.zeros(size).ravel().at[self.component].set(1.0 / self.std).reshape(size)
        common = self.scatter.reshape(*size, -1) * seen[..., None]
        lower = jnp.linalg.cholesky(jnp.eye(size[1]) + common @ jnp.swapaxes(common, 1, 2))
        return jax.scipy.linalg.solve_triangular(lower, whole[..., None], lower=True).ravel()[self.component]

    def at_all_points(self, model: Model) -> "PoseTest":
        """The test with all `kinds` of all points in all rows; those predicted for a machine where they are not
        measured."""
        chosen = np.tile(np.array(self.kinds)[:, KIND], (len(self.q), 1, 1))
        return self.completed(np.flatnonzero(chosen), model)

    def completed(self, component: np.ndarray, model: Model) -> "PoseTest":
        """The test with other measured components, those predicted for a machine where they are not measured: at
        them the derivatives of errors are those of the prediction."""
        poses, upward = predicted_poses(self, model)
        seen = np.isin(np.arange(KIND.size * len(self.q) * len(self.points)), np.asarray(self.component))
        seen = seen.reshape(*poses.shape[:2], KIND.size)[..., None]
        vertical = axes_about(upward) if self.measures(2) else self.vertical
        return dataclasses.replace(
            self,
            position=jax.device_put(np.where(seen[..., POSITION, 0], self.position, poses[..., :3, 3])),
            rotation=jax.device_put(np.where(seen[..., ROTATION, :].any(axis=-2, keepdims=True), self.rotation,
                                             poses[..., :3, :3])),
            vertical=jax.device_put(np.where(seen[..., INCLINATION, :].any(axis=-2, keepdims=True), self.vertical,
                                             vertical)),
            distance=jax.device_put(np.where(seen[..., DISTANCE, 0].any(axis=-1), self.distance,
                                             np.linalg.norm(poses[..., :3, 3], axis=-1) + np.asarray(self.offset))),
            component=jax.device_put(component),
        )  # fmt: skip

    @property
    def std(self) -> Float[Array, "m"]:
        """Standard deviation of each measured component, m or rad."""
        return _of_components(self.kind_std, self.component)

    @property
    def rows(self) -> int:
        """Number of measured components."""
        return self.component.size

    def score(self, view: PoseView, reference_hz: np.ndarray | None) -> Score:
        """Explained part of the measurement, the smaller one of lengths and angles.

        Of positions and distances that of their scatter: of each point, along each axis, at each station about their
        mean. Of rotations and inclinations, which may hardly differ, that of a radian.
        """
        component, size = np.asarray(self.component), KIND.size * len(self.points)
        length = np.isin(KIND[component % KIND.size], [0, 3])
        errors = np.asarray(compiled_errors(self, view))
        by_point = with_angles(self.by_point(errors))
        turns = np.stack([np.linalg.norm(by_point[..., part], axis=-1) for part in (ROTATION, INCLINATION)])
        turns = turns[np.isfinite(turns)]
        explained = [1.0 - float(np.sqrt(np.mean(turns**2)))] if turns.size else []
        lengths = np.pad(self.position, ((0, 0), (0, 0), (0, KIND.size - 3)))
        lengths[..., DISTANCE] = np.asarray(self.distance)[..., None]
        measured, error = lengths.ravel()[component][length], errors[length]
        row, column = np.divmod(component[length], size)
        _, group = np.unique(np.asarray(self.station)[row] * size + column, return_inverse=True)
        mean = np.bincount(group, measured) / np.bincount(group)
        total, part = float(np.sum((measured - mean[group]) ** 2)), float(np.sum(error**2))
        explained += [1.0 - math.sqrt(part / total)] if total else []
        return Score(explained_percent=100.0 * min(explained) if explained else None, least_percent=LEAST_EXPLAINED)

    def by_point(self, values: np.ndarray) -> Float[np.ndarray, "t p 9"]:
        """Values of the measured components by row, point and component; NaN elsewhere."""
        found = np.full((len(self.q), len(self.points), KIND.size), np.nan)
        found.ravel()[np.asarray(self.component)] = values
        return found

    noise = Attached(PoseNoise)
    """Noise of the rows."""
    description = Attached(PoseDescription)
    """Possible errors of its description."""

    own = Attached(lambda test: DeviceParameters(test) if test.stations or test.measures(3) else None)
    """Poses of the device at its stations and the offset of its distances; None without any."""


LEVELS = ("mm of a position", "mrad of a rotation", "mrad of an inclination", "mm of a distance")
"""Units and quantities of `PoseTest.kind_std`, in thousandths."""


@dataclasses.dataclass(frozen=True, eq=False)
class PoseSource(Source):
    """Description of the rows of a pose test."""

    rows: PoseRows = dataclasses.field(kw_only=True)
    """As measured."""
    beside: tuple[Float[np.ndarray, "t n"], ...] = dataclasses.field(kw_only=True)
    """Joint values of the lines above and below each row in the table."""

    @property
    def row(self) -> tuple[str, ...]:
        """Name of each row: its line in the file, or its number."""
        return self.rows.row

    def frames(self, test: PoseTest) -> dict[str, bool]:
        """Measured points, and whether their rotation or inclination is measured."""
        return {name: bool(kind[1] or kind[2]) for name, kind in zip(test.points, test.kinds, strict=True)}

    def alternatives(self, test: PoseTest, model: Model) -> Iterator[tuple[str, str, PoseTest]]:
        """Errors of columns; see `PoseDescription`."""
        return PoseDescription(test).described_otherwise(model, self.rows.measured, self.beside)

    def readings(self, test: PoseTest) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Poses."""
        numbers = [np.asarray(x) for x in (test.q, test.position, test.rotation, test.vertical, test.distance)]
        for i, count in enumerate(np.bincount(self.groups(test)[0], minlength=len(self.row))):
            if count >= 3:
                yield self.row[i], (test.points, *(x[i].tobytes() for x in numbers))

    def groups(self, test: PoseTest) -> tuple[np.ndarray, tuple[str, ...]]:
        """Row of each component, and their names."""
        return np.asarray(test.component) // (KIND.size * len(test.points)), self.row


PoseEntry = Entry[PoseTest, PoseSource]
"""A pose test of a study."""


def pose_test(
    name: str, rows: PoseRows, stations: Sequence[str], pose: Float[np.ndarray, "s 6"], std: Sequence[float],
    elastic: bool, levelled: bool = False, noise_is_known: bool = True,
) -> PoseTest:  # fmt: skip
    """The pose test of some rows.

    Args:
        name: of the test.
        rows: as measured.
        stations: labels, of which those of the rows are some.
        pose: initial pose of the device at each station.
        std: as `PoseTest.kind_std`.
        elastic: whether the machine deflects under its weight.
        levelled: whether the device's z axis is vertical.
        noise_is_known: whether `std` is as stated; otherwise a common factor is estimated.
    """
    seen, pose = np.isfinite(rows.measured), np.asarray(pose, float).reshape(-1, 6)
    component = np.flatnonzero(np.delete(seen, UPWARD.stop - 1, axis=-1))  # two components of a direction
    return PoseTest(
        name=name,
        points=rows.points,
        stations=tuple(stations),
        elastic=elastic,
        oriented=tuple(label not in rows.by_distance for label in stations),
        kinds=measured_kinds(rows.measured) if rows.kinds is None else rows.kinds,
        levelled=levelled,
        q=jnp.asarray(rows.q),
        **{name: jnp.asarray(values) for name, values in measured_arrays(rows.measured).items()},
        component=jnp.asarray(component),
        kind_std=jnp.asarray(std),
        noise_is_known=noise_is_known,
        station=jnp.asarray([list(stations).index(label) for label in rows.station] or [0] * len(rows.q)),
        pose=jnp.asarray(pose),
        start=jnp.asarray(pose),
        shift=jnp.zeros(pose.shape),
        offset=jnp.zeros(()),
        approach=None if rows.approach is None else jnp.asarray(rows.approach),
        approach_is_stated=rows.approach_is_stated,
    )


def with_scatter(test: PoseTest, model: Model, std: Mapping[str, float]) -> PoseTest:
    """The test with random rotations of virtual springs in each row.

    Args:
        test: the test.
        model: the machine.
        std: standard deviation by name of the spring and axis, such as "guide.rx", rad.

    Raises:
        ValueError: the machine has no such spring, or the axis is none of rx, ry, rz.
    """
    if not std:
        return test
    names = [f"{spring}.{axis}" for spring in model.virtual_springs for axis in ELASTIC_AXES]
    rotations = [name for name in names if name.rpartition(".")[2] in ELASTIC_AXES[3:]]
    check_known("rotation of a virtual spring", std, rotations)
    index = np.array([len(model.coordinates) + names.index(name) for name in std])
    whole_test = dataclasses.replace(test.at_all_points(model), name="")
    found = np.zeros((len(test.q) * len(test.points) * KIND.size, len(std)))
    found[np.asarray(whole_test.component)] = _tilt_effects(whole_test, model, index) * np.array(list(std.values()))
    scatter = found.reshape(len(test.q), len(test.points), KIND.size, len(std))
    return dataclasses.replace(test, scatter=jax.device_put(scatter))


@compiled
def _tilt_effects(test: PoseTest, model: Model, index: Int[Array, "r"] | Int[np.ndarray, "r"]) -> Float[Array, "m r"]:
    """Derivative of the errors of a test by displacements of elastic degrees of freedom, common to all rows."""
    view = test.view(model)

    def errors(displacement: Array) -> Array:
        def poses(q: Array) -> Array:
            x = whole(model, q).at[index].add(displacement)
            return jnp.stack([frame_pose(model, x, point) for point in test.points])

        return test.errors(view._replace(poses=jax.vmap(poses)(test.q)))

    return jax.jacfwd(errors)(jnp.zeros(index.shape))


@compiled
def _of_components(kind_std: Float[Array, "4"], component: Int[Array, "m"]) -> Float[Array, "m"]:
    return kind_std[jnp.asarray(KIND)[component % KIND.size]]


def with_angles(errors: Float[np.ndarray, "t p 9"]) -> Float[np.ndarray, "t p 9"]:
    """Errors by row, point and component (see `PoseTest.errors`), of directions of the vertical by their angle."""
    found, along = errors.copy(), errors[..., INCLINATION]
    length = np.linalg.norm(along, axis=-1, keepdims=True)
    found[..., INCLINATION] = along * np.where(length > 0.0, 2.0 * np.arctan(0.5 * length) / length, 1.0)
    return found


compiled_errors = compiled(PoseTest.errors)


def predicted_poses(test: PoseTest, model: Model) -> tuple[Float[np.ndarray, "t p 4 4"], Float[np.ndarray, "t p 3"]]:
    """Poses in the device's frame and upward directions in the axes of the points, as predicted for a machine."""
    unnamed = dataclasses.replace(test, name="", component=jnp.zeros(0, int))
    poses, upward = _predicted(unnamed, unnamed.view(model))
    return np.asarray(poses), np.asarray(upward)


@compiled
def _predicted(test: PoseTest, view: PoseView) -> tuple[Float[Array, "t p 4 4"], Float[Array, "t p 3"]]:
    return test.predict(view), test.upward(view)
