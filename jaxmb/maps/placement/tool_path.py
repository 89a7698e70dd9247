"""Path of tool poses and loads of a task, and its transformation to the ground for a placement."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

VARIABLES = ("x", "y", "z", "yaw", "spin")
"""Variables of a placement: offset of the task's origin [m], rotation of the task about the ground's z axis and of the
tool about its own z axis [rad]."""


@dataclass(frozen=True)
class ToolPath:
    """Desired poses of the tool and loads on it, in the frame of the task."""

    poses: np.ndarray
    """T_task,tool [k, 4, 4], m."""
    wrenches: np.ndarray
    """Force [N] then moment [Nm] on the machine at the tool's origin, in the task's axes [k, 6]."""


def placed_path(
    path: ToolPath, place: Mapping[str, float]
) -> tuple[Float[np.ndarray, "k 4 4"], Float[np.ndarray, "k 6"]]:
    """Poses T_0tool [k, 4, 4] and wrenches in ground axes [k, 6] of a task at a placement."""
    poses, wrenches = placed_paths(path, np.array([[place.get(name, 0.0) for name in VARIABLES]]))
    return poses[0], wrenches[0]


def placed_paths(
    path: ToolPath, places: Float[np.ndarray, "p 5"]
) -> tuple[Float[np.ndarray, "p k 4 4"], Float[np.ndarray, "p k 6"]]:
    """Poses T_0tool [p, k, 4, 4] and wrenches in ground axes [p, k, 6] of a task at placements [p, 5]."""
    base, turn = _about_z(places[:, 3]), _about_z(places[:, 4])
    base[:, :3, 3] = places[:, :3]
    poses = base[:, None] @ path.poses[None] @ turn[:, None]
    rotation = base[:, None, :3, :3]
    parts = (np.squeeze(rotation @ path.wrenches[None, :, part, None], -1) for part in (slice(0, 3), slice(3, 6)))
    return poses, np.concatenate(list(parts), axis=-1)


def _about_z(angle: np.ndarray) -> np.ndarray:
    turn = np.tile(np.eye(4), (len(angle), 1, 1))
    turn[:, 0, 0] = turn[:, 1, 1] = np.cos(angle)
    turn[:, 1, 0] = np.sin(angle)
    turn[:, 0, 1] = -turn[:, 1, 0]
    return turn


def check_tool_path(path: ToolPath) -> None:
    """Raise ValueError if sizes do not match, a number is not finite, or a pose is not a rigid transformation."""
    poses, wrenches = np.asarray(path.poses), np.asarray(path.wrenches)
    if poses.ndim != 3 or poses.shape[1:] != (4, 4) or not len(poses):
        raise ValueError(f"path: poses have shape {poses.shape}, expected (number of poses, 4, 4)")
    if wrenches.shape != (len(poses), 6):
        raise ValueError(f"path: wrenches have shape {wrenches.shape}, expected ({len(poses)}, 6) for as many poses")
    if not (np.all(np.isfinite(poses)) and np.all(np.isfinite(wrenches))):
        raise ValueError("path: a number of its poses or wrenches is not finite")
    for number, pose in enumerate(poses):
        rotation = pose[:3, :3]
        skewed = np.abs(rotation.T @ rotation - np.eye(3)).max() > 1e-6
        if skewed or np.linalg.det(rotation) < 0.0 or np.any(pose[3] != [0.0, 0.0, 0.0, 1.0]):
            raise ValueError(f"path: pose {number} is not a rotation and translation: {pose.tolist()}")
