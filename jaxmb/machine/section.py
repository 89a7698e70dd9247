"""Properties of the cross-sections of beams, from their dimensions."""

import math
from typing import Any

EXPECTED = "expected { tube = [outer, inner] } or { box = [width, height] or [width, height, wall] }, in m"


def section_properties(section: Any, young_modulus: Any, shear_modulus: Any) -> dict[str, float]:
    """Section properties by the keys of a beam: area, second moments, torsion constant, shear factors if known.

    Args:
        section: {"tube": [outer, inner]}, diameters, or {"box": [width, height, wall]}, outer sides along y and z, full
            without a wall; m.
        young_modulus: of the beam, Pa, for the shear factors, which are omitted where it is no number.
        shear_modulus: likewise.

    Raises:
        ValueError: the section has another form.

    Source: torsion of a rectangle Timoshenko and Goodier, section 109, of a box Bredt's formula with the torsion of its
    walls added; shear factors Cowper 1966.
    """
    kind, sides = next(iter(section.items())) if isinstance(section, dict) and len(section) == 1 else ("", [])
    numbers = isinstance(sides, list | tuple) and all(
        isinstance(side, int | float) and not isinstance(side, bool) and 0.0 <= side < math.inf for side in sides
    )
    if not numbers or len(sides) not in {"tube": (2,), "box": (2, 3)}.get(kind, ()):
        raise ValueError(f"section is {section!r}, {EXPECTED}")
    try:
        poisson = young_modulus / (2.0 * shear_modulus) - 1.0
    except (TypeError, ZeroDivisionError):
        poisson = math.nan
    outer, inner = (sides[0], sides[1]) if kind == "tube" else (min(sides[:2]), 2.0 * sides[2] if sides[2:] else 0.0)
    if not inner < outer or not all(sides if kind == "box" else sides[:1]):
        raise ValueError(f"section {kind} = {list(sides)} has no area; {EXPECTED}")
    values, shear = _tube(outer, inner, poisson) if kind == "tube" else _box(*sides, poisson=poisson)
    names = ("area", "second_moment_y", "second_moment_z", "torsion_constant")
    properties: dict[str, float] = dict(zip(names, values, strict=True))
    if all(0.0 < factor <= 1.0 for factor in shear):  # the formulas do not hold for every Poisson's ratio
        properties |= {"shear_factor_y": shear[0], "shear_factor_z": shear[1]}
    return properties


Numbers = tuple[tuple[float, float, float, float], tuple[float, float]]


def _tube(outer: float, inner: float, poisson: float) -> Numbers:
    moment = math.pi / 64.0 * (outer**4 - inner**4)
    m, v = (inner / outer) ** 2, poisson
    shear = 6.0 * (1.0 + v) * (1.0 + m) ** 2 / ((7.0 + 6.0 * v) * (1.0 + m) ** 2 + (20.0 + 12.0 * v) * m)
    return (math.pi / 4.0 * (outer**2 - inner**2), moment, moment, 2.0 * moment), (shear, shear)


def _box(width: float, height: float, wall: float = 0.0, *, poisson: float) -> Numbers:
    def moment(b: float, h: float) -> float:
        return b * h**3 / 12.0

    if not wall:
        long, short = max(width, height), min(width, height)
        series = sum(math.tanh(n * math.pi * long / (2.0 * short)) / n**5 for n in range(1, 20, 2))
        torsion = long * short**3 * (1.0 / 3.0 - 64.0 / math.pi**5 * short / long * series)
        numbers = (width * height, moment(width, height), moment(height, width), torsion)
        return numbers, (5.0 / 6.0, 5.0 / 6.0)
    b, h, perimeter = width - wall, height - wall, 2.0 * (width + height - 2.0 * wall)
    inner_b, inner_h = width - 2.0 * wall, height - 2.0 * wall
    numbers = (
        width * height - inner_b * inner_h,
        moment(width, height) - moment(inner_b, inner_h),
        moment(height, width) - moment(inner_h, inner_b),
        4.0 * (b * h) ** 2 * wall / perimeter + perimeter * wall**3 / 3.0,
    )
    return numbers, (_shear_of_box(h / b, poisson), _shear_of_box(b / h, poisson))


def _shear_of_box(m: float, v: float) -> float:
    """Shear factor of a thin-walled box, m its side across the force over that along it, v Poisson's ratio."""
    walls = 12.0 + 72.0 * m + 150.0 * m**2 + 90.0 * m**3
    poisson = 11.0 + 66.0 * m + 135.0 * m**2 + 90.0 * m**3
    return 10.0 * (1.0 + v) * (1.0 + 3.0 * m) ** 2 / (walls + v * poisson + 10.0 * m**2 * ((3.0 + v) * m + 3.0 * m**2))
