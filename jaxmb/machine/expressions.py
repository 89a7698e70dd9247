"""Numbers given as arithmetic expressions of symbols, such as "Lp/3" or "-pi/2"."""

import ast
import math
import operator
from collections.abc import Mapping

from jaxmb.io.validation import place

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST = 200
LARGEST_POWER = 10.0


def values_of(symbols: Mapping[str, float | str]) -> dict[str, float]:
    """Values of symbols, each a number or an expression of others.

    Raises:
        ValueError: an expression is invalid, or definitions of symbols are circular.
    """
    if "pi" in symbols:
        raise ValueError("symbols: pi has its own value, expected another name")
    found: dict[str, float] = {}

    def look_up(name: str, path: tuple[str, ...]) -> float:
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            raise ValueError(f"symbols: {circle} is a circular definition, expected one without the symbol itself")
        if name not in found:
            with place(f"symbols: {name}"):
                names = names_in(symbols[name])
            known = {n: look_up(n, (*path, name)) for n in names if n in symbols}
            with place(f"symbols: {name}"):
                found[name] = value_of(symbols[name], known)
        return found[name]

    for name in symbols:
        look_up(name, ())
    return found


def value_of(expression: float | str, symbols: Mapping[str, float]) -> float:
    """Value of a number, or of an expression with + - * / **, parentheses, pi and symbols.

    Raises:
        ValueError: the expression is invalid, or has a symbol without a value.
    """
    if isinstance(expression, bool) or not isinstance(expression, int | float | str):
        raise ValueError(f"found {expression!r}, expected a number or an expression")
    if not isinstance(expression, str):
        number = float(expression)
    else:
        number = _value(_parsed(expression).body, expression, symbols)
    if not math.isfinite(number):
        raise ValueError(f"'{expression}' is {number}, expected a finite number")
    return number


def names_in(expression: float | str) -> set[str]:
    """Symbols of an expression, without pi."""
    if not isinstance(expression, str):
        return set()
    return {node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)} - {"pi"}


def _parsed(text: str) -> ast.Expression:
    expected = 'expected arithmetic such as "Lp/3"'
    if len(text) > LONGEST:
        raise ValueError(f"an expression has {len(text)} characters, expected at most {LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is no expression, {expected}") from None


def _value(node: ast.expr, text: str, symbols: Mapping[str, float]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        if node.id != "pi" and node.id not in symbols:
            raise ValueError(f"'{text}': the symbol '{node.id}' has no value")
        return math.pi if node.id == "pi" else symbols[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.operand, text, symbols))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, text, symbols), _value(node.right, text, symbols)
        if isinstance(node.op, ast.Pow) and abs(right) > LARGEST_POWER:
            raise ValueError(f"'{text}': the power {right:g} is larger than {LARGEST_POWER:g}")
        try:
            result = OPERATORS[type(node.op)](left, right)
        except (ZeroDivisionError, OverflowError):
            raise ValueError(f"'{text}' has no finite value") from None
        if isinstance(result, complex):
            raise ValueError(f"'{text}' has no real value")
        return result
    raise ValueError(f"'{text}' has other elements than numbers, symbols, + - * / ** and parentheses")
