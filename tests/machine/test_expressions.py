"""Arithmetic of symbols against Python's own, and what it refuses."""

import math

import pytest

from jaxmb.machine.khalil import value_of, values_of

SYMBOLS = {"Lp": 0.95, "Lc": 0.125}


@pytest.mark.parametrize(
    ("text", "value"),
    [("Lp/3", 0.95 / 3), ("-pi/2", -math.pi / 2), ("2*(Lp - Lc)**2", 2 * 0.825**2), (" 1e-3 ", 1e-3), (3, 3.0)],
)  # fmt: skip
def test_values(text, value):
    assert value_of(text, SYMBOLS) == pytest.approx(value, rel=1e-15)


def test_symbols_of_symbols():
    assert values_of({"a": "2*b", "b": "c + 1", "c": 0.5}) == {"a": 3.0, "b": 1.5, "c": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Lx", "'Lx': the symbol 'Lx' has no value"),
        ("__import__('os')", "has other elements than numbers"),
        ("Lp.real", "has other elements than numbers"),
        ("Lp if Lp else 1", "has other elements than numbers"),
        ("Lp +", "is no expression"),
        ("1/0", "has no finite value"),
        ("(-1)**0.5", "has no real value"),
        ("9**9**9", "is larger than 10"),
        ("1e999", "expected a finite number"),
        ("(" * 150 + "1" + ")" * 150, "characters"),
        (True, "expected a number or an expression"),
        (None, "expected a number or an expression"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ValueError, match=r".") as raised:
        value_of(text, SYMBOLS)
    assert message in str(raised.value)


def test_circles():
    with pytest.raises(ValueError, match="symbols: definitions form a cycle: a -> b -> a"):
        values_of({"a": "b + 1", "b": "2*a"})
