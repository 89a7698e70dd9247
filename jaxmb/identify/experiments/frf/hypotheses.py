"""Model-error hypotheses on the description of an FRF test: directions in the space of its description errors."""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.experiments.components import Hypotheses, Hypothesis
from jaxmb.identify.experiments.frf.channels import known_channels, predict_frf
from jaxmb.identify.experiments.motion import Placement, across, as_placed, axes_of, displaced_view, placement_errors
from jaxmb.identify.experiments.tolerances import TIME_BASE, StatedError
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.response.frf_kind import dof_names

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf.frf_test import FrfTest


class DescriptionErrors(NamedTuple):
    """Errors in the description of an FRF test, 0 for a correct description."""

    log_frequency: Float[np.ndarray, ""] | Array
    """Logarithm of true over stated frequencies."""
    log_gain: Float[np.ndarray, "o"] | Array
    """Logarithm of true over stated gain of each output."""
    log_force_gain: Float[np.ndarray, "i"] | Array
    """Logarithm of true over stated gain of each input."""
    delay: Float[np.ndarray, ""] | Array
    """Delay of the responses beyond the stated one, s."""
    place: Placement
    """Of posture and points."""


def no_errors(test: "FrfTest", joints: int) -> DescriptionErrors:
    """Zero errors, for a number of joint coordinates."""
    outputs, inputs = np.zeros(len(test.outputs)), np.zeros(len(test.inputs))
    return DescriptionErrors(np.zeros(()), outputs, inputs, np.zeros(()), as_placed(test, joints))


def directions(test: "FrfTest", model: Model, latest: float) -> Iterator[tuple[DescriptionErrors, Hypothesis]]:
    """All single errors, each a direction with its hypothesis.

    Factors on frequencies, on FRFs of the test, on an output or input of all tests or of this one; delays of all tests
    and of this one; offsets of joint coordinates.

    Args:
        test: the test.
        model: the machine.
        latest: typical size of a delay, s.
    """
    name, where = test.name, display_name(test.name)
    right = no_errors(test, len(model.joints))
    one = np.ones(())
    faster = right._replace(log_frequency=one)
    yield faster, Hypothesis("frequency", 0.01, lambda x: f"frequencies {np.exp(x):.4g} times as high")
    every = right._replace(log_gain=np.ones(len(test.outputs)))
    yield every, Hypothesis(f"gain {name}", 0.1, lambda x: f"a factor of {np.exp(-x):.3g} on the FRFs of {where}")
    delayed = right._replace(delay=one)
    yield delayed, Hypothesis(f"delay {name}", latest, lambda x: f"responses of {where} that are {1e3 * x:.3g} ms late")
    yield delayed, Hypothesis("delay", latest, lambda x: f"responses of all FRF tests that are {1e3 * x:.3g} ms late")
    for suffix, which in (("", ""), (f" {name}", f" of {where}")):
        for k, point in enumerate(dof_names(test.outputs)):
            errors = right._replace(log_gain=np.eye(len(test.outputs))[k])
            text = functools.partial(_factor_text, "output", f"{point}{which}")
            yield errors, Hypothesis(f"output {point}{suffix}", 0.1, text)
        for k, point in enumerate(dof_names(test.inputs)):
            # sign as for an output: positive where the true value is larger than measured
            errors = right._replace(log_force_gain=-np.eye(len(test.inputs))[k])
            text = functools.partial(_factor_text, "input", f"{point}{which}")
            yield errors, Hypothesis(f"input {point}{suffix}", 0.1, text)
    for k, (coordinate, revolute) in enumerate(zip(model.joints, model.revolute, strict=False)):
        errors = right._replace(place=right.place._replace(posture=np.eye(len(model.joints))[k]))
        text = functools.partial(_posture_text, coordinate, where, revolute)
        yield errors, Hypothesis(f"posture {name} {coordinate}", 0.05 if revolute else 0.01, text)


class FrfHypotheses(Hypotheses["FrfTest"]):
    """Single errors in the description of an FRF test."""

    def of(self, model: Model) -> tuple[Hypothesis, ...]:
        """A hypothesis for each of `directions`."""
        latest = 0.1 / float(np.asarray(self.test.omega).max())
        return tuple(hypothesis for _, hypothesis in directions(self.test, model, latest))

    def residual(self, model: Model, numbers: Float[Array, "c"]) -> Float[Array, "m"]:
        """The residual with the description corrected by multiples of `directions`."""
        each = [errors for errors, _ in directions(self.test, model, 1.0)]
        return residual_with(self.test, model, jax.tree.map(lambda *e: jnp.tensordot(numbers, np.stack(e), 1), *each))


def stated_errors(test: "FrfTest", model: Model) -> Iterator[tuple[StatedError, DescriptionErrors]]:
    """Errors of what the description of the test states, each for a size of 1 in SI units."""
    right, degree, one = no_errors(test, len(model.joints)), np.pi / 180.0, np.ones(())
    yield TIME_BASE, right._replace(log_frequency=one)
    yield StatedError("delay", "delay_us", 1e-6), right._replace(delay=one)
    for error, place in placement_errors(test, model):
        yield error, right._replace(place=place)
    for what, points, gain in (("output", test.outputs, "log_gain"), ("input", test.inputs, "log_force_gain")):
        for k, (point, name) in enumerate(zip(points, dof_names(points), strict=True)):
            of_point = np.eye(len(points))[k]
            yield StatedError(f"gain of {what} {name}", "gain_percent", 0.01), right._replace(**{gain: of_point})
            for i in np.flatnonzero(across(point).any(axis=1)):
                by, axis = np.outer(of_point, np.eye(3)[i]), axes_of(point)[i]
                turned = right.place._replace(**{f"{what}_turn": by})
                key = f"{what} {name} of {test.name} about {axis}"
                yield StatedError(f"direction of {key}", "sensor_direction_deg", degree), right._replace(place=turned)
                if across(point)[i, :3].any():
                    shifted = right.place._replace(**{f"{what}_shift": by})
                    key = f"{what} {name} of {test.name} along {axis}"
                    yield StatedError(f"position of {key}", "sensor_position_mm", 1e-3), right._replace(place=shifted)


def residual_with(test: "FrfTest", model: Model, errors: DescriptionErrors) -> Float[Array, "m"]:
    """Residual of an FRF test with its description corrected by description errors."""
    view = displaced_view(test, model, errors.place)
    omega = test.omega * jnp.exp(errors.log_frequency)
    predicted = predict_frf(view, omega, test.derivatives, test.decay, test.sensor)
    channels = known_channels(test).changed(errors.log_gain, errors.log_force_gain, errors.delay)
    return test.compared(channels.applied_to(predicted, test.omega, test.decay))


def _factor_text(what: str, point: str, value: float) -> str:
    return f"a factor of {np.exp(-value):.3g} on {what} {point}"


def _posture_text(coordinate: str, test: str, revolute: bool, value: float) -> str:
    amount = f"{np.degrees(value):+.3g} deg" if revolute else f"{1e3 * value:+.3g} mm"
    return f"{amount} of {coordinate} in the posture of {test}"
