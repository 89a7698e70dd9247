"""Possible errors in the description of a pose test: zeros, scales, backlash, units, exchanged and reversed columns."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmb.identify.experiments.components import Description, column_alternatives, coordinate_alternatives, exchanged
from jaxmb.identify.experiments.poses.pose_rows import (
    KIND,
    LENGTH,
    POSITION,
    ROTATION,
    UPWARD,
    device_pose,
    measured_arrays,
    rotation_of,
    rotation_vector_of,
)
from jaxmb.identify.experiments.tolerances import StatedError, error_with_text, scale_error, zero_error
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import gravity_effort
from jaxmb.mechanics.kinematics import frame_offsets
from jaxmb.mechanics.loops import independent_joints

if TYPE_CHECKING:
    from jaxmb.identify.experiments.poses.pose_test import PoseTest


CONVENTIONS: Mapping[str, Callable[[Float[np.ndarray, "k 3"]], Float[np.ndarray, "k 3"]]] = {
    "rotation vectors in degrees": np.radians,
    "rotation vectors of the inverse rotations": np.negative,
    "angles about fixed axes x, y and z instead of rotation vectors": lambda x: _of_angles("xyz", x),
    "angles A, B and C about moving axes z, y and x instead of rotation vectors": lambda x: _of_angles("ZYX", x),
    "quaternions w, x, y, z read as x, y, z, w": lambda x: _of_quaternions(x, -1),
    "quaternions x, y, z, w read as w, x, y, z": lambda x: _of_quaternions(x, 1),
}
"""What columns rx, ry, rz may contain, and the rotation vectors."""
LEAST_EFFORT, YIELDING, SCALED = 1e-3, 1e-3, 8
"""Least effort by the weight, N m or N, for which a coordinate may yield, its typical displacement, rad or m, and
largest number of rows at which the effort is computed."""


class PoseErrors(NamedTuple):
    """Errors of a pose test, 0 where it is as described."""

    zero: Float[np.ndarray, "n"] | Array
    """True minus stated zero of each coordinate, rad or m."""
    scale: Float[np.ndarray, "n"] | Array
    """Relative change of the actual value over that of its reading."""
    backlash: Float[np.ndarray, "n"] | Array
    """Actual values are behind their readings, by half of it in the direction of approach, rad or m."""
    compliance: Float[np.ndarray, "n"] | Array
    """Of each coordinate under the weight of the machine, beside its own, rad/Nm or m/N."""
    log_length: Float[np.ndarray, ""] | Array
    """Logarithm of measured over true positions and distances."""
    offset: Float[np.ndarray, "s"] | Array
    """Measured minus true distances at each station, m."""
    bias: Float[np.ndarray, "p 3"] | Array
    """Offsets of the axes of the accelerometer at each point, over the acceleration of gravity."""
    gain: Float[np.ndarray, "p 3"] | Array
    """Relative errors of their sensitivities."""


@dataclasses.dataclass(frozen=True, eq=False)
class PoseDescription(Description["PoseTest"]):
    """Possible errors of the description of a pose test."""

    def none(self, model: Model) -> PoseErrors:
        """No errors."""
        each = np.zeros(self.test.q.shape[1])
        stations, axes = np.zeros(max(len(self.test.stations), 1)), np.zeros((len(self.test.points), 3))
        return PoseErrors(each, each, each, each, np.zeros(()), stations, axes, axes)

    def errors(self, model: Model) -> Iterator[tuple[StatedError, PoseErrors]]:
        """Zero, scale and backlash of each coordinate, and compliance of rigid ones, common to all tests; scale and
        offset of the device."""
        test, none, q = self.test, self.none(model), np.asarray(self.test.q)
        rigid = (np.asarray(model.stiffness) == 0.0) & ~np.array(model.locked, bool)
        some = q[:: len(q) // SCALED + 1] if rigid.any() else q[:0]
        effort = np.max(np.abs([gravity_effort(model, row) for row in some]), axis=0, initial=0.0)
        for k, name, revolute in independent_joints(model):
            one = np.eye(q.shape[1])[k]
            yield zero_error(name, revolute), none._replace(zero=one)
            if q[:, k].any():
                yield scale_error(name), none._replace(scale=one)
            if test.approach is not None and np.any(np.asarray(test.approach)[:, k]):
                what = name, revolute, test.approach_is_stated
                error = error_with_text(f"backlash of {name}", _backlash_text, *what, size=1e-3, least=-0.1, most=0.1)
                yield error, none._replace(backlash=one)
            if rigid[k] and effort[k] > LEAST_EFFORT:
                what, size = (name, "N m/rad" if revolute else "N/m"), YIELDING / float(effort[k])
                error = error_with_text(
                    f"compliance of {name}", _yielding_text, *what, size=size, least=0.0, most=np.inf
                )
                yield error, none._replace(compliance=one)
        for p, axis in itertools.product(range(len(test.points)), range(3)):
            if test.kinds[p][2]:
                what = f"a{'xyz'[axis]} of {test.points[p]}", f" of {display_name(test.name)}"
                one = np.zeros_like(none.bias)
                one[p, axis] = 1.0
                limits = {"size": 1e-2, "least": -0.9, "most": 9.0}
                yield error_with_text(f"gain of {''.join(what)}", _gain_text, *what, **limits), none._replace(gain=one)
                yield (
                    error_with_text(f"offset of {''.join(what)}", _bias_text, *what, size=1e-3),
                    none._replace(bias=one),
                )
        if test.measures(0) or test.measures(3):
            error = error_with_text(
                f"scale of the device of {test.name}", _scale_text, display_name(test.name),
                tolerance="device_scale_ppm", unit=1e-6, least=-0.1, most=0.1,
            )  # fmt: skip
            yield error, none._replace(log_length=np.ones(()))
        if test.measures(3):
            key, parameter = f"offset of the distances of {test.name}", f"distance_offset.{test.name}"
            error = StatedError(key, "distance_offset_mm", 1e-3, parameter=parameter)
            yield error, none._replace(offset=np.ones_like(none.offset))
            for k, station in enumerate(test.stations if len(test.stations) > 1 else ()):
                what = display_name(test.name), station
                yield (
                    error_with_text(f"{key} at {station}", _offset_text, *what, size=1e-3),
                    none._replace(offset=np.eye(len(test.stations))[k]),
                )

    def residual(self, model: Model, errors: PoseErrors) -> Float[Array, "m"]:
        """The residual with the description corrected. A scale of the device is one of the predicted lengths: a factor
        on the measured ones would fit their noise."""
        test, larger = self.test, jnp.exp(errors.log_length)
        q = test.q * (1.0 + errors.scale) + errors.zero - errors.compliance * test.weight_effort(model)
        if test.approach is not None:
            q = q - 0.5 * test.approach * errors.backlash
        actual = dataclasses.replace(
            test, q=q, position=test.position / larger,
            distance=(test.distance - jnp.asarray(errors.offset)[test.station][:, None]) / larger,
            # readings turn as the predicted vertical does by the same offsets and gains
            vertical=test.vertical * (1.0 + errors.gain[:, None])
            + (test.vertical @ errors.bias[:, :, None]) * test.vertical[..., 2:, :],
        )  # fmt: skip
        is_length = jnp.asarray(np.isin(KIND, [0, 3]))[test.component % KIND.size]
        return jnp.where(is_length, larger, 1.0) * actual.residual(actual.view(model))

    def described_otherwise(
        self, model: Model, measured: Float[np.ndarray, "t p 10"], beside: Sequence[Float[np.ndarray, "t n"]]
    ) -> Iterator[tuple[str, str, "PoseTest"]]:
        """Alternatives to the test: units, reversed and exchanged coordinates and columns, other conventions of
        rotations, exchanged points, and other frames of the body.

        Args:
            model: the machine.
            measured: as in `PoseRows`.
            beside: joint values of the lines above and below each row.
        """
        q = np.asarray(self.test.q)
        for text, there in coordinate_alternatives(model, q, beside):
            yield text, text, self._with(model, there, measured)
        columns = list(self._columns(measured))
        for text, seen in (*columns, *self._at_stations(measured, columns), *self._points(measured)):
            if np.array_equal(np.isfinite(seen), np.isfinite(measured)):
                yield text, text, self._with(model, q, seen)
        yield from self._frames(model, q, measured)

    def _frames(
        self, model: Model, q: np.ndarray, measured: Float[np.ndarray, "t p 10"]
    ) -> Iterator[tuple[str, str, "PoseTest"]]:
        """Texts of other frames of the body of a point, and the tests with them; of rotations alone, the measured ones
        are corrected."""
        test, offsets = self.test, np.asarray(frame_offsets(model))
        for p, (point, kinds) in enumerate(zip(test.points, test.kinds, strict=True)):
            turns = offsets[:, :3, :3]
            for alike in _other_frames(model, point, offsets if kinds[1] or kinds[2] else offsets[:, :3, 3]):
                names = [model.frames[k] for k in alike]
                if names[0] not in test.points:
                    text = f"frame {' or '.join(names)} instead of {point}"
                    named = dataclasses.replace(test, points=(*test.points[:p], names[0], *test.points[p + 1 :]))
                    yield text, text, PoseDescription(named)._with(model, q, measured)
            for alike in _other_frames(model, point, turns) if kinds[1] else ():
                text = f"rotations of {' or '.join(model.frames[k] for k in alike)} instead of {point}"
                turn, changed = turns[alike[0]].T @ turns[model.frames.index(point)], measured.copy()
                changed[:, p, ROTATION] = _read(functools.partial(_turned, turn), measured[:, p, ROTATION])
                yield text, text, self._with(model, q, changed)

    def _with(self, model: Model, q: np.ndarray, measured: Float[np.ndarray, "t p 10"]) -> "PoseTest":
        """The test with other joint values and measured values; its stations start where these fit the machine."""
        test = dataclasses.replace(self.test, **jax.device_put(measured_arrays(measured) | {"q": q}))
        pose, station = np.array(test.pose), np.asarray(test.station)
        if not test.stations:
            return test
        poses = np.asarray(test.view(model).poses)
        if np.isfinite(poses).all():
            for k, oriented in enumerate(test.oriented):
                there = poses[station == k].reshape(-1, 4, 4)
                found = device_pose(there, measured[station == k].reshape(-1, LENGTH + 1), oriented)
                pose[k] = pose[k] if found is None else found
        return dataclasses.replace(test, pose=jax.device_put(pose), shift=jax.device_put(pose - np.asarray(test.start)))

    def _columns(self, measured: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Texts of errors of the columns of all points, and the corrected values."""
        test = self.test
        parts = ((POSITION, ("x", "y", "z")), (ROTATION, ("rx", "ry", "rz")), (UPWARD, ("ax", "ay", "az")))
        # a free rotation of the device makes one mirror image of all
        mirrored = test.stations and all(test.oriented) and not (test.levelled or test.measures(1))

        def with_part(part: slice, values: np.ndarray) -> np.ndarray:
            changed = measured.copy()
            changed[..., part] = values
            return changed

        for kind, (part, names) in enumerate(parts):
            own = measured[..., part]
            if not test.measures(kind):
                continue
            if kind == 0 and mirrored:
                yield "the sign of x, y or z, or two of them exchanged,", with_part(part, own * [1.0, 1.0, -1.0])
                continue
            for text, order, sign in column_alternatives(names):
                yield text, with_part(part, own[..., order] * sign)
                sensors = [p for p, each in enumerate(test.kinds) if each[2]] if kind == 2 else []
                for p in sensors if len(sensors) > 1 else ():  # each has its own axes
                    yield (
                        f"{text} of {test.points[p]}",
                        with_part(
                            part, np.where(np.arange(len(test.points))[:, None] == p, own[..., order] * sign, own)
                        ),
                    )
        lengths = np.isin(np.arange(LENGTH + 1), [0, 1, 2, LENGTH])
        if test.measures(0) or test.measures(3):
            for unit, size in (("mm", 1e-3), ("inches", 0.0254)):
                yield f"lengths in {unit} instead of m", np.where(lengths, size * measured, measured)
            yield "lengths 1000 times too small", np.where(lengths, 1e3 * measured, measured)
        if test.measures(1):
            for text, read in CONVENTIONS.items():
                yield text, with_part(ROTATION, _read(read, measured[..., ROTATION]))

    def _at_stations(
        self, measured: np.ndarray, columns: Sequence[tuple[str, np.ndarray]]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Errors of columns in the rows of a single one of several stations."""
        stations, of_row = self.test.stations, np.asarray(self.test.station)[:, None, None]
        for (k, name), (text, seen) in itertools.product(enumerate(stations if len(stations) > 1 else ()), columns):
            yield f"{text} at station {name}", np.where(of_row == k, seen, measured)

    def _points(self, measured: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Texts of exchanged points, in all rows and in those of one station, and the corrected values."""
        station = np.asarray(self.test.station)
        rows = {"": np.ones(station.size, dtype=bool)}
        if len(self.test.stations) > 1:
            rows |= {f" at station {name}": station == k for k, name in enumerate(self.test.stations)}
        for i, k in itertools.combinations(range(len(self.test.points)), 2):
            for where, own in rows.items():
                changed = measured.copy()
                changed[own] = measured[own][:, exchanged(len(self.test.points), i, k)]
                yield f"exchanged points {self.test.points[i]} and {self.test.points[k]}{where}", changed


def _of_angles(axes: str, angles: Float[np.ndarray, "k 3"]) -> Float[np.ndarray, "k 3"]:
    return scipy.spatial.transform.Rotation.from_euler(axes, angles).as_rotvec()


def _of_quaternions(vector: Float[np.ndarray, "k 3"], by: int) -> Float[np.ndarray, "k 3"]:
    """Rotation vectors whose quaternions have another order than was read."""
    found = scipy.spatial.transform.Rotation.from_rotvec(vector).as_quat()
    return scipy.spatial.transform.Rotation.from_quat(np.roll(found, by, axis=-1)).as_rotvec()


def _other_frames(model: Model, point: str, form: Float[np.ndarray, "f *k"]) -> list[list[int]]:
    """Other frames of the body of a point, those of one pose, position or rotation (`form`) together."""
    own, found = model.frames.index(point), dict[bytes, list[int]]()
    for k, node in enumerate(model.frame_node):
        if node == model.frame_node[own] and not np.array_equal(form[k], form[own]):
            found.setdefault(form[k].tobytes(), []).append(k)
    return list(found.values())


def _turned(turn: Float[np.ndarray, "3 3"], vector: Float[np.ndarray, "k 3"]) -> Float[np.ndarray, "k 3"]:
    return rotation_vector_of(rotation_of(vector) @ turn)


def _read(
    convention: Callable[[Float[np.ndarray, "k 3"]], Float[np.ndarray, "k 3"]], numbers: Float[np.ndarray, "*t 3"]
) -> Float[np.ndarray, "*t 3"]:
    """Rotation vectors of numbers in some convention; NaN where there are none."""
    seen, found = np.isfinite(numbers).all(axis=-1), np.full(numbers.shape, np.nan)
    found[seen] = convention(numbers[seen])
    return found


def _backlash_text(coordinate: str, revolute: bool, is_stated: bool, value: float) -> str:
    reversed_text = " with the directions of approach reversed" if value < 0.0 else ""
    from_text = "" if is_stated else " approached from the row before"
    return (
        f"a backlash of {1e3 * abs(value):.3g} {'mrad' if revolute else 'mm'} of {coordinate}{from_text}{reversed_text}"
    )


def _yielding_text(coordinate: str, of: str, value: float) -> str:
    size = f"a stiffness of {1.0 / value:.3g} {of}" if value > 0.0 else "stiffness"
    return f"{size} of {coordinate}, which is rigid,"


def _bias_text(axis: str, where: str, value: float) -> str:
    return f"an offset of {value:.3g} times the acceleration of gravity of {axis}{where}"


def _gain_text(axis: str, where: str, value: float) -> str:
    return f"a factor of {1.0 + value:.4g} on {axis}{where}"


def _offset_text(where: str, station: str, value: float) -> str:
    return (
        f"distances of {where} at station {station} {1e3 * abs(value):.3g} mm too {'long' if value > 0.0 else 'short'}"
    )


def _scale_text(where: str, value: float) -> str:
    return f"lengths of {where} {1e6 * np.expm1(value):+.3g} ppm too large"
