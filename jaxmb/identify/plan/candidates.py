"""Candidate FRF tests and their information on the free parameters."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tomli_w
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import Probe
from jaxmb.identify.experiments.frf.frf_test import predict_frf
from jaxmb.identify.experiments.frf.weights import SMALLEST_RATIO
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.vibration_view import VibrationView, vibration_view, view_slope
from jaxmb.identify.fit.linear import NO_EFFECT
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.format.next_format import NextPart, PosturesPart
from jaxmb.identify.study.reading.tests import test_names
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import Table, display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import reference_posture
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import closed_posture
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import Point

NOT_COPIED: Table = {
    **dict.fromkeys(("role", "check_every", "from_s", "to_s"), True),
    "simulate": {"noise_seed"},
    "modal": {"chosen_hz"},
}
"""Keys of an existing test that proposed tests do not take over: they hold for its own record or posture."""


def proposal_toml(study: Study, like: str, proposed: Sequence[Table]) -> str:
    """`[[test]]` tables of proposed tests, measured or simulated as an existing test.

    Args:
        study: the study.
        like: name of the existing test, whose other keys are copied.
        proposed: keys of each proposed test that replace those of the existing one; None removes a key, and `simulate`
            is merged with that of a simulated test only.

    Returns:
        TOML. The file of a measured test is named after the test and does not exist yet.
    """
    parts = study.origin.file.test
    names = test_names(parts)
    part = parts[names.index(like)]
    copied = part.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=NOT_COPIED, warnings=False)
    new_names = (name for k in itertools.count(1) if (name := f"next-{k}") not in names)
    tests = []
    for name, keys in zip(new_names, proposed, strict=False):
        test = {"kind": "", "name": ""} | copied | dict(keys) | {"name": name, "kind": part.kind}
        if part.source_file is not None:
            test |= {"file": f"{name}{Path(part.source_file).suffix}", "simulate": None}
        else:
            test["simulate"] = simulate = copied["simulate"] | keys.get("simulate", {})
            if "hits" in simulate and "lines" in simulate:  # the lines of hits follow from the length of a record
                simulate["hits"] = simulate["hits"] | {"record_s": 1.0 / simulate.pop("lines")["step_hz"]}
        tests.append({key: value for key, value in test.items() if value is not None})
    text = tomli_w.dumps({"test": tests})
    for pattern, short in ((r",\n\s*(?=\])", ""), (r"(?<=\[)\n\s*", ""), (r",\n\s*", ", ")):  # one line per array
        text = re.sub(pattern, short, text)
    return text


def posture_keys(model: Model, q: Float[np.ndarray, "n"]) -> dict[str, str | float]:
    """`posture` of a test: the independent coordinates that differ from the reference posture."""
    return {
        name: f"{np.degrees(value):.6g} deg" if turns else float(f"{value:.6g}")
        for name, turns, value, reference in zip(
            model.coordinates, model.revolute, q.tolist(), np.asarray(reference_posture(model)).tolist(), strict=True
        )
        if value != reference and name in independent_coordinates(model)
    }


class OperatingPoint(eqx.Module):
    """Linearization point of the predictions: the machine, its free parameters, and their values."""

    model: Model
    free: FreeParameters
    u: Float[Array, "d"]

    @property
    def values(self) -> Float[np.ndarray, "d"]:
        """Physical values of the free parameters."""
        return self.free.values(np.asarray(self.u))


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A probe at a posture."""

    probe: Probe
    q: Float[np.ndarray, "n"]


def candidates_of(part: NextPart, like: Test, model: Model) -> tuple[Candidate, ...]:
    """Every posture of `[next]` combined with each of its points and bands.

    Args:
        part: the table `[next]`.
        like: template test, for everything not in `part`.
        model: the machine.
    """
    probe, q = planned(like)
    ends = [points.ends for points in part.points] or [probe.ends]
    points = [p for pair in ends for end in pair for p in end]
    bands: list[np.ndarray | None] = [
        2 * np.pi * np.arange(first, last + 1e-9 * step, step)
        for (first, last), step in zip(part.bands_hz, part.steps, strict=True)
    ]
    probes = [probe.changed(omega, pair, points) for omega in bands or [None] for pair in ends]
    return tuple(Candidate(changed, at) for changed in probes for at in postures_of(part, q, model))


def planned(test: Test) -> tuple[Probe, Float[np.ndarray, "n"]]:
    """Probe with the settings of a test, and the posture [n] of the test.

    Raises:
        ValueError: tests of this kind cannot be planned.
    """
    probe = None if test.vibration is None else test.vibration.probe()
    if test.vibration is None or probe is None:
        raise ValueError(f"{display_name(test.name)} is of a kind that cannot be planned, expected an FRF test")
    return probe, np.asarray(test.vibration.q)


def postures_of(part: PosturesPart, start: Float[np.ndarray, "n"], model: Model) -> Float[np.ndarray, "c n"]:
    """Postures [candidate, n] as listed, or drawn uniformly from the ranges, see `posture_near`."""
    if isinstance(part.postures, dict):
        _, low, high = ranges_of(part, model.coordinates)
        values = np.random.default_rng(part.seed).uniform(low, high, (part.candidates, low.size))
        stated = [dict(zip(part.postures, row, strict=True)) for row in values.tolist()]
    else:
        stated = part.postures
    return np.stack([posture_near(model, start, values) for values in stated])


def posture_near(model: Model, start: Float[np.ndarray, "n"], values: Mapping[str, float]) -> Float[np.ndarray, "n"]:
    """Posture [n] with coordinates at the given values, the others as in `start`, loops closed; NaN where they do not
    close."""
    try:
        return closed_posture(model, values, start)[0]
    except ValueError:
        return np.full(start.shape, np.nan)


def ranges_of(part: PosturesPart, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the coordinates with a range, and their lower and upper ends; empty for listed postures."""
    ranges = part.postures if isinstance(part.postures, dict) else {}
    varied = np.array([names.index(name) for name in ranges], int)
    low, high = np.array(list(ranges.values()), float).reshape(-1, 2).T
    return varied, low, high


@compiled
def motion_of(
    operating_point: OperatingPoint, q: Float[Array, "n"], at: LinearizeAt, points: tuple[Point, ...]
) -> tuple[VibrationView, VibrationView]:
    """View of points at a posture, and its derivatives by u [..., d]."""
    model, free, u = operating_point.model, operating_point.free, operating_point.u
    view = vibration_view(free.apply(model, free.values(u)), q, at, points, points)
    return view, view_slope(model, free, u, q, at, points)


def observed(probe: Probe, view: VibrationView, slope: VibrationView) -> Float[Array, "m d"]:
    """Rows d log H / du over the noise [m, d], real parts then imaginary parts; 0 where H is 0 to rounding.

    Args:
        probe: the test.
        view: of all its points.
        slope: derivatives of the view by u.
    """
    size = slope.tangent.stiffness.shape[-1]

    def response(step: Array) -> Array:
        there = jax.tree.map(lambda part, by: part + by @ step, view, slope)
        rows = there.output_rows
        inputs = None if probe.inputs is None else rows[probe.inputs]
        there = dataclasses.replace(there, output_rows=rows[probe.outputs], input_rows=inputs)
        return predict_frf(there, probe.omega, probe.derivatives, probe.decay)

    h, change = response(jnp.zeros(size)), jax.jacfwd(response)(jnp.zeros(size))
    used = jnp.abs(h) > SMALLEST_RATIO * jnp.max(jnp.abs(h), axis=(1, 2), keepdims=True)
    rows = jnp.where(used[..., None], change / jnp.where(used, h, 1.0)[..., None], 0.0) / probe.noise_std
    rows = jnp.where(jnp.all(jnp.isfinite(h)), rows, jnp.nan)
    return jnp.concatenate([part.reshape(-1, size) for part in (rows.real, rows.imag)])


_compiled_observed = compiled(observed)


def observation(operating_point: OperatingPoint, candidate: Candidate) -> Float[np.ndarray, "m d"]:
    """Observation matrix of a candidate: `observed` at its posture. Kinematics and responses are compiled separately,
    so that candidates with other bands and points share the program of the kinematics."""
    probe = candidate.probe
    return np.asarray(
        _compiled_observed(probe, *motion_of(operating_point, jnp.asarray(candidate.q), probe.at, probe.points))
    )


def triangular_information(rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "d d"]:
    """Triangular factor of an observation matrix, which has the same information; columns of rounding are set to 0.

    NaN if the matrix is not finite.
    """
    d = rows.shape[1]
    if not np.isfinite(rows).all():
        return np.full((d, d), np.nan)
    size = np.linalg.norm(rows, axis=0)
    rows = np.where(size > NO_EFFECT * size.max(initial=0.0), rows, 0.0)
    factor = np.linalg.qr(rows, mode="r")
    return np.pad(factor, ((0, d - len(factor)), (0, 0)))


def information_of(operating_point: OperatingPoint, candidates: Sequence[Candidate]) -> Float[np.ndarray, "c d d"]:
    """Information rows R [candidate, d, d] of FRF tests, R^T R their information on u; NaN where out of reach."""
    return np.stack([triangular_information(observation(operating_point, candidate)) for candidate in candidates])


class Planned(NamedTuple):
    """The next tests, or why there are none."""

    chosen: Any
    """An object with `part`, `known` and `as_json`; None without next tests."""
    remark: str
    """A sentence on them."""
    pool: tuple[Candidate, ...] = ()
    """Feasible candidates."""
    information: Float[np.ndarray, "c r d"] | None = None
    """Information rows of each candidate."""
