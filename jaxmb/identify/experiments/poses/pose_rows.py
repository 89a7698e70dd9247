"""Rows of pose tests as measured, and poses of measuring devices by least squares; without JAX."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

LEAST_SPREAD = 1e-3
"""Second singular value of the points of a station over the first, below which they are in line."""
ROBUST_STEPS = 10
"""Steps of reweighted least squares to the pose of a device."""
LEAST_DISTANCES = 4
"""Fewest distances that determine the position of a device."""
LEAST_HEIGHT = 1e-2
"""Third singular value of their points over the first, below which they are in a plane: an error of 1 mm then moves the
linear start by about 0.1 m across it, and may lead to the mirror image."""
POSITION, ROTATION, INCLINATION, DISTANCE = slice(0, 3), slice(3, 6), slice(6, 8), slice(8, 9)
"""Components of a point: position [m], rotation vector [rad], two of the direction of the vertical [rad], and distance
from the device [m]."""
KIND = np.repeat([0, 1, 2, 3], [3, 3, 2, 1])
"""Index in `PoseTest.kind_std` of each component of a point."""
UPWARD, LENGTH = slice(6, 9), 9
"""Upward direction and distance in `PoseRows.measured`, whose first six columns are position and rotation vector."""


class PoseRows(NamedTuple):
    """Rows of a pose test as measured."""

    points: tuple[str, ...]
    q: Float[np.ndarray, "t n"]
    measured: Float[np.ndarray, "t p 10"]
    """Position [m] and rotation vector [rad] in the device's frame, upward direction of any length in the axes of the
    point, and distance from the origin of the device's frame [m]; NaN where not measured."""
    station: tuple[str, ...]
    """Label of the station of each row; empty for a device in the ground frame."""
    held_out: np.ndarray
    """Whether each row is predicted only [t]."""
    row: tuple[str, ...]
    """Name of each row."""
    approach: Float[np.ndarray, "t n"] | None = None
    """As in `PoseTest`."""
    approach_is_stated: bool = False
    """As in `PoseTest`."""
    kinds: tuple[tuple[bool, ...], ...] | None = None
    """As in `PoseTest`, of the table of which these rows are a part; None for those of these rows."""
    by_distance: tuple[str, ...] = ()
    """Stations from which the table has distances alone."""

    def chosen(self, rows: np.ndarray) -> "PoseRows":
        """Some of the rows, by a mask."""
        kept = np.flatnonzero(rows).tolist()
        return self._replace(
            q=self.q[kept],
            measured=self.measured[kept],
            station=tuple(self.station[i] for i in kept) if self.station else (),
            held_out=self.held_out[kept],
            row=tuple(self.row[i] for i in kept),
            approach=None if self.approach is None else self.approach[kept],
        )


def measured_kinds(measured: Float[np.ndarray, "t p 10"]) -> tuple[tuple[bool, ...], ...]:
    """Whether any position, rotation, inclination and distance of each point is measured."""
    seen, parts = np.isfinite(measured), (POSITION, ROTATION, UPWARD, slice(LENGTH, None))
    return tuple(map(tuple, np.stack([seen[..., part].any(axis=(0, 2)) for part in parts], axis=1).tolist()))


def measured_arrays(measured: Float[np.ndarray, "t p 10"]) -> dict[str, np.ndarray]:
    """Position, rotation, vertical and distance of a `PoseTest`."""
    seen = np.isfinite(measured)
    upward = np.where(seen[..., UPWARD], measured[..., UPWARD], [0.0, 0.0, 1.0])
    turns = np.where(seen[..., ROTATION], measured[..., ROTATION], 0.0)
    return {
        "position": np.where(seen[..., POSITION], measured[..., POSITION], 0.0),
        "rotation": rotation_of(turns),
        "vertical": axes_about(upward),
        "distance": np.where(seen[..., LENGTH], measured[..., LENGTH], 0.0),
    }


def rotation_of(vector: Float[np.ndarray, "*k 3"]) -> Float[np.ndarray, "*k 3 3"]:
    """Rotation matrices of rotation vectors [rad]."""
    found = scipy.spatial.transform.Rotation.from_rotvec(vector.reshape(-1, 3))
    return found.as_matrix().reshape(*vector.shape, 3)


def axes_about(direction: Float[np.ndarray, "*k 3"]) -> Float[np.ndarray, "*k 3 3"]:
    """Right-handed perpendicular axes, as rows, whose last one has a direction, of any length but 0.

    The first one is nearly the coordinate axis that follows the one nearest the direction.
    """
    last = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    first = np.eye(3)[(np.argmax(np.abs(last), axis=-1) + 1) % 3]
    first = first - np.sum(first * last, axis=-1, keepdims=True) * last
    first /= np.linalg.norm(first, axis=-1, keepdims=True)
    return np.stack([first, np.cross(last, first), last], axis=-2)


def rotation_vector_of(rotation: Float[np.ndarray, "*k 3 3"]) -> Float[np.ndarray, "*k 3"]:
    """Rotation vectors [rad] of rotation matrices, for any angle up to pi."""
    found = scipy.spatial.transform.Rotation.from_matrix(rotation.reshape(-1, 3, 3))
    return found.as_rotvec().reshape(rotation.shape[:-1])


def device_pose(
    predicted: Float[np.ndarray, "k 4 4"], measured: Float[np.ndarray, "k 10"], oriented: bool
) -> Float[np.ndarray, "6"] | None:
    """Pose of a device in the ground frame, translation [m] and rotation vector [rad], by least squares.

    Args:
        predicted: poses of points in the ground frame.
        measured: as in `PoseRows`, NaN where not measured.
        oriented: whether its rotation has an effect; it is 0 otherwise, and distances determine the position.

    Returns:
        None where the points do not determine it.
    """
    if not oriented:
        position = station_position(predicted, measured[:, LENGTH])
        return None if position is None else np.append(position, np.zeros(3))
    device = station_pose(predicted, measured)
    return None if device is None else np.append(device[1], rotation_vector_of(device[0]))


def station_pose(
    predicted: Float[np.ndarray, "k 4 4"], measured: Float[np.ndarray, "k 10"]
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]] | None:
    """Rotation and translation of a device in the ground frame, from poses in both frames.

    Least squares with Cauchy weights in units of the median error: a row with a wrong label or posture does not
    displace the others.

    Args:
        predicted: in the ground frame.
        measured: as in `PoseRows`, NaN where not measured; inclinations and distances are not used.

    Returns:
        R and t with p_ground = R p_device + t; None where the points do not determine them.

    Source: Umeyama 1991, without scale; measured rotations count as axes of the points' mean radius.
    """
    has_position, has_rotation = (np.isfinite(measured[:, part]).all(axis=1) for part in (POSITION, ROTATION))
    if not has_position.any():
        return None
    a, b = measured[has_position, :3], predicted[has_position, :3, 3]
    turned = predicted[has_rotation, :3, :3] @ np.swapaxes(rotation_of(measured[has_rotation, ROTATION]), 1, 2)
    turn, weight, found = np.sum(turned, axis=0), np.ones(len(a)), None
    for _ in range(ROBUST_STEPS):
        mean_a, mean_b = weight @ a / weight.sum(), weight @ b / weight.sum()
        spread_a, spread_b = a - mean_a, b - mean_b
        radius = max(float(weight @ np.sum(spread_a**2, axis=1)) / weight.sum(), 1e-6)
        left, size, right = np.linalg.svd(spread_b.T @ (weight[:, None] * spread_a) + radius * turn)
        if not size[1] > LEAST_SPREAD * size[0]:
            break
        rotation = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
        found = rotation, mean_b - rotation @ mean_a
        error = np.sum((spread_b - spread_a @ rotation.T) ** 2, axis=1)
        weight = 1.0 / (1.0 + error / max(float(np.median(error)), 1e-30))
    return found


def station_position(
    predicted: Float[np.ndarray, "k 4 4"], distance: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "3"] | None:
    """Position of a device in the ground frame, from its distances to points, by least squares.

    The start is linear: of |p|^2 - 2 p . s + |s|^2 = d^2 the mean over the points is subtracted.

    Args:
        predicted: poses of the points in the ground frame.
        distance: from the device, m; NaN where not measured.

    Returns:
        s [3], m; None with fewer than `LEAST_DISTANCES`, or of points in a plane, where the mirror image fits as well.
    """
    from scipy.optimize import least_squares

    seen = np.isfinite(distance)
    points, d = predicted[seen, :3, 3], distance[seen]
    if len(d) < LEAST_DISTANCES:
        return None
    spread, square = points - points.mean(axis=0), np.sum(points**2, axis=1) - d**2
    size = np.linalg.svd(spread, compute_uv=False)
    if not size[2] > LEAST_HEIGHT * size[0]:
        return None
    start = np.linalg.lstsq(2.0 * spread, square - square.mean())[0]
    return least_squares(lambda s: np.linalg.norm(points - s, axis=1) - d, start, xtol=1e-12, ftol=1e-12).x
