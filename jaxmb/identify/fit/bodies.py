"""Pseudo-inertias of bodies as functions of what is free: positive definite where a body can exist."""

import dataclasses
from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_numbers
from jaxmb.machine.build import Model

FAMILIES = ("mass", "first_moment", "inertia")
SMALLEST_PART = 0.1
"""Mass and length of a body that has none, over the largest ones of the machine."""
_AXES = ("x", "y", "z")
_TENSOR = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}
NUMBERS = ("mass", *(f"first_moment.{a}" for a in _AXES), *(f"inertia.{a}" for a in _TENSOR))
"""The ten numbers of a body."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bodies:
    """Pseudo-inertias of the bodies that a fit touches, affine in y: the free values, then the added numbers."""

    names: tuple[str, ...]
    base: Float[np.ndarray, "b 4 4"]
    """At y = 0."""
    slope: Float[np.ndarray, "k b 4 4"]
    size: Float[np.ndarray, "b 4"]
    """Diagonal of a pseudo-inertia of each body's size: m l^2, three times, and m."""
    scale: Float[np.ndarray, "k"]
    """Of y: m, m l or m l^2; 0 of what is no inertial number."""
    added: tuple[str, ...]
    """Numbers that are not free and that no measurement depends on; they may move for a body to be possible."""


def pseudo_inertia(numbers: Float[np.ndarray, "... 10"]) -> Float[np.ndarray, "... 4 4"]:
    """[[tr(I) / 2 E - I, h], [h^T, m]] of mass m, first moment h and inertia I about the frame's origin.

    It is positive definite if and only if some distribution of mass in space has these ten numbers.

    Args:
        numbers: in the order of `NUMBERS`.

    Source: Wensing, Kim and Slotine, "Linear matrix inequalities for physically consistent inertial parameter
        identification", IEEE Robotics and Automation Letters 3 (2018), eq. 12.
    """
    numbers = np.asarray(numbers, float)
    inertia = np.zeros((*numbers.shape[:-1], 3, 3))
    for k, (i, j) in enumerate(_TENSOR.values(), 4):
        inertia[..., i, j] = inertia[..., j, i] = numbers[..., k]
    found = np.zeros((*numbers.shape[:-1], 4, 4))
    trace = np.trace(inertia, axis1=-2, axis2=-1)[..., None, None]
    found[..., :3, :3] = 0.5 * trace * np.eye(3) - inertia
    found[..., :3, 3] = found[..., 3, :3] = numbers[..., 1:4]
    found[..., 3, 3] = numbers[..., 0]
    return found


def touched_bodies(free: FreeParameters) -> tuple[str, ...]:
    """Bodies and payloads of which an inertial number is free."""
    named = (name.split(".") for names in free.tied for name in names)
    return tuple(dict.fromkeys(item for family, item, *_ in named if family in FAMILIES))


def numbers_of(body: str) -> tuple[str, ...]:
    """Names of the ten numbers of a body."""
    return tuple(f"{family}.{body}{dot}{axes}" for family, dot, axes in (name.partition(".") for name in NUMBERS))


def bodies(model: Model, free: FreeParameters, idle: Collection[str]) -> Bodies | None:
    """What must be positive definite where inertial numbers are free; None where none is.

    Args:
        model: the machine's, whose own bodies give the sizes.
        free: the free parameters.
        idle: numbers that may be moved beside them.
    """
    names = touched_bodies(free)
    if not names:
        return None
    ten = [numbers_of(name) for name in names]
    added = tuple(number for numbers in ten for number in numbers if number in idle)
    masses, inertias = np.asarray(model.mass), np.asarray(model.inertia)
    turned = 0.5 * np.trace(inertias, axis1=1, axis2=2)
    lengths = np.sqrt(np.maximum(turned, 0.0) / np.where(masses > 0.0, masses, np.inf))
    most, longest = float(masses.max(initial=0.0)) or 1.0, float(lengths.max(initial=0.0)) or 1.0
    rows = [model.masses.index(name) for name in names]
    mass = np.array([masses[i] or SMALLEST_PART * most for i in rows])
    length = np.array([lengths[i] or SMALLEST_PART * longest for i in rows])
    base, slope = np.zeros((len(names), 4, 4)), np.zeros((free.size + len(added), len(names), 4, 4))
    scale = np.zeros(free.size + len(added))
    for b, numbers in enumerate(ten):
        matrix, constant = affine_numbers(model, free, numbers)
        base[b] = pseudo_inertia(constant)
        slope[: free.size, b] = pseudo_inertia(matrix.T)
        powers = np.array([mass[b], *[mass[b] * length[b]] * 3, *[mass[b] * length[b] ** 2] * 6])
        for k, number in enumerate(numbers):
            own = [i for i, tied in enumerate(free.tied) if number in tied]
            if number in added:
                own = [free.size + added.index(number)]
                slope[own[0], b] = pseudo_inertia(np.eye(10)[k])
            scale[own] = np.maximum(scale[own], powers[k])
    size = np.stack([mass * length**2] * 3 + [mass], axis=1)
    return Bodies(names, base, slope, size, scale, added)
