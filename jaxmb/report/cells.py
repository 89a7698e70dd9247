"""How numbers are written in tables and sentences."""

import math


def number(value: float, digits: int = 4) -> str:
    """Text with `digits` significant digits, as "2.8e6" for large numbers; "unknown" if not finite."""
    if not math.isfinite(value):
        return "unknown"
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:#.{digits}g}"
    return (f"{value:.0f}" if "e" in text else text).removesuffix(".")


def short(value: float) -> str:
    """Text of a number from the input, such as a bound: up to three digits, no trailing zeros."""
    mantissa, e, exponent = number(value, 3).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + e + exponent


def percent(value: float, signed: bool = False) -> str:
    """A percentage with two significant digits, an integer from 10 to 1000, ">1000" above."""
    if abs(value) > 1000.0 and math.isfinite(value):
        return ">1000" if value > 0.0 else "<-1000"
    if 9.95 <= abs(value) <= 1000.0:
        return f"{value:+.0f}" if signed else f"{value:.0f}"
    return f"{value:+.2g}" if signed else number(value, 2)


def deviation(percentage: float) -> str:
    """A standard deviation by `percent`, with more digits where rounding would reach a limit of "yes" or "weak"."""
    text, digits = percent(percentage), 3
    while text in ("10", "100") and percentage < float(text) and digits < 10:
        rounded = f"{percentage:.{digits}g}"
        text, digits = (text if float(rounded) == float(text) else rounded), digits + 1
    return text


def hertz(frequency_hz: float) -> str:
    """A frequency with three decimals, or four significant digits below 1 Hz."""
    return f"{frequency_hz:.3f}" if frequency_hz >= 1.0 else f"{frequency_hz:.4g}"


def signed(value: float) -> str:
    """A difference with its sign and three decimals."""
    return f"{round(value, 3) + 0.0:+.3f}"  # adding 0 makes +0 of -0


def chance(value: float) -> str:
    """A probability with two significant digits, "<1e-9" below that."""
    return "<1e-9" if value < 1e-9 else number(value, 2)
