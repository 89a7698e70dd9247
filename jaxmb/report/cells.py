"""How numbers are written in tables and sentences."""

import math


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, as "2.8e6" where it is large; "unknown" where it is not finite."""
    if not math.isfinite(value):
        return "unknown"
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:#.{digits}g}"
    return (f"{value:.0f}" if "e" in text else text).removesuffix(".")


def short(value: float) -> str:
    """A number that somebody gave, such as a bound: up to three digits, without zeros at the end."""
    mantissa, e, exponent = number(value, 3).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + e + exponent


def percent(value: float, signed: bool = False) -> str:
    """A percentage with two significant digits, as an integer from ten on, and ">1000" beyond that."""
    if abs(value) > 1000.0 and math.isfinite(value):
        return ">1000" if value > 0.0 else "<-1000"
    if 9.95 <= abs(value) <= 1000.0:
        return f"{value:+.0f}" if signed else f"{value:.0f}"
    return f"{value:+.2g}" if signed else number(value, 2)


def deviation(percentage: float) -> str:
    """A standard deviation by `percent`, with more digits where it is rounded up to a limit of "yes" or "weak"."""
    text, digits = percent(percentage), 3
    while text in ("10", "100") and percentage < float(text) and digits < 10:
        rounded = f"{percentage:.{digits}g}"
        text, digits = (text if float(rounded) == float(text) else rounded), digits + 1
    return text


def hertz(frequency_hz: float) -> str:
    """A frequency to a thousandth of a hertz, or to four digits where it is below one."""
    return f"{frequency_hz:.3f}" if frequency_hz >= 1.0 else f"{frequency_hz:.4g}"


def signed(value: float) -> str:
    """A difference to three decimals."""
    return f"{round(value, 3) + 0.0:+.3f}"  # adding 0 makes +0 of -0


def chance(value: float) -> str:
    """A probability."""
    return "<1e-9" if value < 1e-9 else number(value, 2)
