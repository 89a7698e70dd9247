"""Proposed tests as TOML that can be appended to the study file."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from jaxtyping import Float

from jaxmb.identify.study.reading.tests import test_names
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import reference_posture
from jaxmb.mechanics.loops import independent_coordinates


def proposal_toml(study: Study, like: str, proposed: Sequence[Mapping[str, Any]]) -> str:
    """`[[test]]` tables of proposed tests, measured or simulated as an existing test.

    Args:
        study: the study.
        like: name of the existing test, whose other keys are copied.
        proposed: keys of each proposed test that replace those of the existing one; None removes a key, and `simulate`
            is merged with that of a simulated test only.

    Returns:
        TOML. The file of a measured test is named after the test and does not exist yet.
    """
    if study.origin is None:
        return ""
    parts = study.origin.file.test
    names = test_names(parts)
    part = parts[names.index(like)]
    copied = part.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"role", "check_every"})
    new_names = (name for k in itertools.count(1) if (name := f"next-{k}") not in names)
    tests = []
    for k, (name, keys) in enumerate(zip(new_names, proposed, strict=False), 1):
        test = {"kind": "", "name": ""} | copied | dict(keys) | {"name": name, "kind": part.kind}
        if part.source_file is not None:
            test |= {"file": f"{name}{Path(part.source_file).suffix}", "simulate": None}
        else:
            simulate = copied["simulate"] | keys.get("simulate", {})
            test["simulate"] = simulate | {"noise_seed": simulate.get("noise_seed", 0) + k}
        tests.append({key: value for key, value in test.items() if value is not None})
    text = tomli_w.dumps({"test": tests})
    for pattern, short in ((r",\n\s*(?=\])", ""), (r"(?<=\[)\n\s*", ""), (r",\n\s*", ", ")):  # one line per array
        text = re.sub(pattern, short, text)
    return text


def posture_keys(model: Model, q: Float[np.ndarray, "n"]) -> dict[str, Any]:
    """`posture` of a test: the independent coordinates that differ from the reference posture."""
    given = independent_coordinates(model)
    return {
        name: f"{np.degrees(value):.6g} deg" if turns else float(f"{value:.6g}")
        for name, turns, value, reference in zip(
            model.coordinates, model.revolute, q.tolist(), np.asarray(reference_posture(model)).tolist(), strict=True
        )
        if value != reference and name in given
    }
