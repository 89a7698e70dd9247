"""Entries of a study file on a modal test."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from jaxmb.identify.study.format.test_format import Points, PostureTestPart, SimulateModes
from jaxmb.machine.values import Number, Positive


def _component(value: Any, number: Callable[[Any], Any]) -> Any:
    """A pair for a complex number beside a plain one, without the two messages that a union gives."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return complex(number(value[0]), number(value[1]))
    return number(value)


Component = Annotated[Number, WrapValidator(_component)]
"""Component of a mode shape."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


class ModesTestPart(PostureTestPart):
    """Natural frequencies and damping ratios, which coordinates dominate each mode, and shapes at sensors."""

    kind: Literal["modes"]
    """Kind of the test."""
    simulate: SimulateModes | None = None
    """Pseudo-measured modes instead of measured values."""
    frequency_hz: tuple[Positive, ...] | None = Field(None, min_length=1)
    """Damped natural frequency of each mode; not beside `simulate`."""
    damping_percent: tuple[Annotated[Positive, Field(lt=100.0)], ...] | None = None
    """Damping ratio of each mode; not beside `simulate`."""
    content: tuple[tuple[str, ...], ...] | None = None
    """For each mode the coordinates, or springs between frames, that dominate its strain energy."""
    outputs: Points = ()
    """Sensors of the shapes, as points."""
    shapes: tuple[tuple[Component, ...], ...] | None = None
    """For each mode the component at each sensor, in any scale: a number, or a pair of real and imaginary part [1]."""
    frequency_std_hz: Annotated[tuple[Positive, ...], BeforeValidator(_listed)]
    """Standard deviation of the frequency, one for all or one for each mode."""
    damping_std_percent: Annotated[tuple[Positive, ...], BeforeValidator(_listed)]
    """Standard deviation of the damping ratio, one for all or one for each mode."""
    shape_std: Positive = 0.05
    """Standard deviation of each component of a shape, real and imaginary part, relative to the largest [1]."""
    content_share: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.5
    """Smallest share of the strain energy of `content` [1]."""
    content_std: Positive = 0.1
    """Standard deviation of that share [1]."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.simulate is not None:
            for name in ("frequency_hz", "damping_percent", "content", "shapes"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is measured, expected none beside simulate")
            return self
        if self.frequency_hz is None or self.damping_percent is None:
            raise ValueError("expected frequency_hz and damping_percent, or simulate")
        if (self.shapes is None) != (not self.outputs):
            raise ValueError("shapes and outputs belong together, expected both or neither")
        if self.shapes is not None:
            for mode, shape in enumerate(self.shapes, 1):
                if len(shape) != len(self.outputs):
                    raise ValueError(f"shape {mode} has {len(shape)} entries for {len(self.outputs)} outputs")
        count = len(self.frequency_hz)
        for name in ("damping_percent", "content", "shapes", "frequency_std_hz", "damping_std_percent"):
            given = getattr(self, name)
            allowed = (1, count) if name.endswith(("std_hz", "std_percent")) else (count,)
            if given is not None and len(given) not in allowed:
                raise ValueError(f"{name} has {len(given)} entries for {count} frequencies")
        return self
