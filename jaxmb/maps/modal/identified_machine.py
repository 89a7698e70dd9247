"""An identified machine with the covariance of its parameters, from a result or from its folder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.saved.saved_format import read_saved
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters
from jaxmb.identify.parameters.model_parameters import OF_CHANNELS
from jaxmb.io.validation import InputError
from jaxmb.machine.build import Model
from jaxmb.machine.file import load_machine
from jaxmb.maps.modal.uncertainty import checked_covariance
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import LinearizeAt


@dataclass(frozen=True)
class Identified:
    """An identified machine with the covariance of its free parameters."""

    model: Model
    free: FreeParameters
    covariance: Float[np.ndarray, "d d"]
    """Of the entries u of the free parameters; NaN in the rows and columns of unidentified ones."""
    linearize_at: LinearizeAt = "posture"
    """Linearization point of the tests."""


def identified(result: Result) -> Identified:
    """The machine of a result with the covariance of its parameters.

    Raises:
        ValueError: the fit was not of the study's free parameters, as with a complete stiffness model.
    """
    covariance = result.covariance
    if covariance is None:
        raise ValueError(f"study '{result.study.name}': the fit has no covariance of the study's free parameters")
    free = result.study.free
    bounds = [
        Bound(tied, float(lower), float(upper), None, log)
        for tied, lower, upper, log in zip(free.tied, free.lower_value, free.upper_value, free.logarithmic, strict=True)
    ]
    kept = _of_machine(free.tied)
    of_machine = free_parameters(result.model, [bounds[i] for i in kept])
    return Identified(result.model, of_machine, covariance[np.ix_(kept, kept)], result.linearize_at)


def load_identified(folder: str | os.PathLike[str]) -> Identified:
    """The machine in an output folder of `jaxmb identify`, with the covariance of its parameters.

    Args:
        folder: with machine.toml and result.json.

    Raises:
        InputError: a file is missing or is not one written by `jaxmb identify`.
    """
    path = Path(folder) / "result.json"
    model = build_model(load_machine(folder))
    data = read_saved(path, others=True)
    saved = data.get("covariance") if isinstance(data, dict) else None
    if saved is None:
        raise InputError(f"{path}: found no covariance of the parameters, expected one written by jaxmb identify")
    try:
        if any(name.startswith("compliance.") for name in saved["names"]):
            raise ValueError(
                "the fitted parameters are compliances of a stiffness model, not parameters of the machine"
            )
        bounds = [
            _bound(data["parameters"][tied[0]], tied, scale)
            for tied, scale in zip(saved["tied"], saved["scale"], strict=True)
        ]
        kept = _of_machine(saved["tied"])
        of_tests = [name for i, tied in enumerate(saved["tied"]) if i not in kept for name in tied]
        every = free_parameters(model, bounds, of_tests)
        width = np.where(every.logarithmic, 1.0, every.width)
        covariance = checked_covariance(every, saved["matrix"]) / np.outer(width, width)  # null becomes NaN
        free, covariance = free_parameters(model, [bounds[i] for i in kept]), covariance[np.ix_(kept, kept)]
        at = data.get("linearize_at", "posture")
        if at not in ("posture", "equilibrium"):
            raise ValueError(f"linearize_at is '{at}', expected 'posture' or 'equilibrium'")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path}: not a result of an identification: {error}") from None
    return Identified(model, free, covariance, at)


def _of_machine(tied: Sequence[Sequence[str]]) -> list[int]:
    """Indices of the free parameters of the machine, without those of test channels."""
    return [i for i, names in enumerate(tied) if names[0].partition(".")[0] not in OF_CHANNELS]


def _bound(saved: Mapping[str, Any], tied: Sequence[str], scale: str) -> Bound:
    if scale not in ("log", "linear"):
        raise ValueError(f"covariance: the scale of {tied[0]} is '{scale}', expected 'log' or 'linear'")
    return Bound(tuple(tied), float(saved["lower"]), float(saved["upper"]), None, scale == "log")
