"""Poses of frames in NumPy, for files that are read before there is a model."""

from typing import Any

import numpy as np

from jaxmb.machine.values import Origin


def rotation_matrix(rpy: Any) -> np.ndarray:
    """Rotation matrix of fixed-axis roll, pitch, yaw [rad]: Rz(yaw) Ry(pitch) Rx(roll)."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    rx = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    ry = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    rz = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return rz @ ry @ rx


def roll_pitch_yaw(rotation: np.ndarray) -> tuple[float, float, float]:
    """Fixed-axis roll, pitch, yaw [rad] of a rotation matrix: the inverse of `rotation_matrix`."""
    r = rotation
    # In gimbal lock only roll - yaw or roll + yaw is determined: yaw is set to 0.
    yaw = np.arctan2(r[1, 0], r[0, 0]) if np.hypot(r[0, 0], r[1, 0]) > 1e-12 else 0.0
    c, s = np.cos(yaw), np.sin(yaw)
    pitch = np.arctan2(-r[2, 0], c * r[0, 0] + s * r[1, 0])
    roll = np.arctan2(s * r[0, 2] - c * r[1, 2], c * r[1, 1] - s * r[0, 1])
    return float(roll), float(pitch), float(yaw)


def rotation_about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation matrix about a unit vector by an angle [rad], Rodrigues' formula."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def origin_matrix(origin: Origin) -> np.ndarray:
    """Homogeneous transform [4, 4] of an origin."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_matrix(origin.rpy)
    matrix[:3, 3] = origin.xyz
    return matrix
