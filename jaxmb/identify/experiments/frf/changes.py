"""What in the description of an FRF test may be wrong: its frequencies, gains, delays and posture."""

import functools
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.experiments.test import Hypothesis, display_name
from jaxmb.machine.build import Model
from jaxmb.response.frf_kind import Point, dof_names


def frf_changes(
    test: str, outputs: Sequence[Point], inputs: Sequence[Point], highest: float, model: Model
) -> tuple[Hypothesis, ...]:
    """Factors on frequencies, on FRFs of a test, on an output or input of all tests or of this one; delays of all tests
    and of this one; coordinates of the posture.

    Args:
        test: its name.
        outputs: points of its responses.
        inputs: points of its forces.
        highest: its last line, rad/s.
        model: the machine.
    """
    name, late = display_name(test), 0.1 / highest
    found = [
        Hypothesis("frequency", 0.01, lambda x: f"frequencies {np.exp(x):.4g} times as high"),
        Hypothesis(f"gain {test}", 0.1, lambda x: f"a factor of {np.exp(-x):.3g} on the FRFs of {name}"),
        Hypothesis(f"delay {test}", late, lambda x: f"responses of {name} that are {1e3 * x:.3g} ms late"),
        Hypothesis("delay", late, lambda x: f"responses of all FRF tests that are {1e3 * x:.3g} ms late"),
    ]
    for suffix, where in (("", ""), (f" {test}", f" of {name}")):
        for what, points in (("output", outputs), ("input", inputs)):
            for point in dof_names(points):
                text = functools.partial(_factor_text, what, f"{point}{where}")
                found.append(Hypothesis(f"{what} {point}{suffix}", 0.1, text))
    for coordinate, turns in zip(model.joints, model.revolute, strict=False):
        text = functools.partial(_posture_text, coordinate, name, turns)
        found.append(Hypothesis(f"posture {test} {coordinate}", 0.05 if turns else 0.01, text))
    return tuple(found)


def _factor_text(what: str, point: str, value: float) -> str:
    return f"a factor of {np.exp(-value):.3g} on {what} {point}"


def _posture_text(coordinate: str, test: str, turns: bool, value: float) -> str:
    amount = f"{np.degrees(value):+.3g} deg" if turns else f"{1e3 * value:+.3g} mm"
    return f"{amount} of {coordinate} in the posture of {test}"
