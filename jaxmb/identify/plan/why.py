"""Causes of and remedies for parameters that are not identifiable, as sentences with numbers."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.modal_agreement import GOVERNS, ModeShares
from jaxmb.identify.estimation.identifiability import TOGETHER, Group, Identifiability, identifiability
from jaxmb.identify.experiments.components import Probe, can_be_planned
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.plan.candidates import (
    Candidate,
    OperatingPoint,
    observation,
    planned,
    triangular_information,
)
from jaxmb.io.validation import listed
from jaxmb.machine.build import Model
from jaxmb.machine.families import FAMILIES
from jaxmb.mechanics.loops import independent_coordinates

BEYOND = 1.1
"""End of an extended band over the frequency of the mode whose resonance it includes."""
MOST_EXTRA_LINES = 4000
"""Largest number of lines by which a band is extended."""
MOST_FRAMES = 32
"""Largest number of frames for trial sensors."""
HELPS = 0.9
"""Ratio of the standard deviations after and before a remedy below which it is an improvement."""
NAMED = 3
"""Largest number of modes named in a sentence."""
SHOWN = 6
"""Largest number of points named in a sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Remedy:
    """A trial change of the planned tests."""

    text: str
    std: Float[np.ndarray, "d"]
    """Standard deviations of u after it."""
    test: str | None = None
    """Test whose band it extends, if any."""
    end_hz: float = np.inf
    """End of the extended band."""


def remedies(
    operating_point: OperatingPoint,
    tests: Sequence[Test],
    shares: Sequence[ModeShares],
    made: Float[np.ndarray, "m d"],
    pool: Sequence[Candidate],
    information: Float[np.ndarray, "c d d"] | None,
) -> list[Remedy]:
    """Trial remedies: wider bands, sensors and forces at other frames, and candidates for the next test.

    Args:
        operating_point: machine, free parameters, values.
        tests: planned tests.
        shares: modes at the posture of each.
        made: information rows of the planned tests.
        pool: candidates for the next test.
        information: their `triangular_information` rows.
    """
    own = [(test, modes) for test, modes in zip(tests, shares, strict=True) if can_be_planned(test)]
    many = len(tests) > 1
    found = [
        *(remedy for test, modes in own for remedy in _wider_bands(operating_point, test, modes, made, many)),
        *(remedy for test, _ in own for remedy in _other_points(operating_point, test, made, many)),
    ]
    for candidate, rows in zip(pool, () if information is None else information, strict=True):
        first, last = candidate.probe.band_hz
        text = f"one more test at {posture_text(operating_point.model, candidate.q)}, {first:.3g} to {last:.3g} Hz"
        if candidate.probe.ends not in [planned(test)[0].ends for test, _ in own]:
            text += f", sensors {points_text(candidate.probe.ends[0])}, forces {points_text(candidate.probe.ends[1])}"
        found.append(Remedy(text, _after(made, rows)))
    return found


def _wider_bands(
    operating_point: OperatingPoint, test: Test, modes: ModeShares, made: np.ndarray, many: bool
) -> Iterator[Remedy]:
    """Extensions of the band to just above each mode beyond it, with the same line spacing."""
    probe, q = planned(test)
    omega, end = np.asarray(probe.omega), _highest_hz(test)
    beyond = BEYOND * modes.frequency_hz[modes.frequency_hz > end]
    if omega.size < 2 or not beyond.size:
        return
    step_hz = float(np.median(np.diff(omega))) / (2 * np.pi)
    count = min(int(np.ceil((beyond.max() - end) / step_hz)), MOST_EXTRA_LINES)
    lines_hz = end + step_hz * np.arange(1, count + 1)
    # with the points of `_other_points`, which then share the program of the kinematics
    wider = probe.changed(2 * np.pi * lines_hz, points=_points_beside(operating_point.model, probe))
    rows = observation(operating_point, Candidate(wider, q)).reshape(2, count, -1, made.shape[1])
    for to_hz in beyond[beyond <= lines_hz[-1] + step_hz]:
        part = triangular_information(rows[:, lines_hz <= to_hz + step_hz].reshape(-1, made.shape[1]))
        text = f"the band{f' of {test.name}' if many else ''} extended to {to_hz:.3g} Hz"
        yield Remedy(text, _after(made, part), test.name, float(to_hz))


def _other_points(operating_point: OperatingPoint, test: Test, made: np.ndarray, many: bool) -> Iterator[Remedy]:
    """Tests in the same posture with sensors and forces along x, y and z of another frame."""
    probe, q = planned(test)
    points = _points_beside(operating_point.model, probe)
    every = [*points, *probe.ends[0], *probe.ends[1]]
    for end in (points[k : k + 3] for k in range(0, len(points), 3)):
        frame, candidate = end[0][0], Candidate(probe.changed(None, (end, end), every), q)
        rows = triangular_information(observation(operating_point, candidate))
        where = f" in the posture of {test.name}" if many else ""
        yield Remedy(f"a second sensor and forces along x, y and z of {frame}{where}", _after(made, rows))


def _points_beside(model: Model, probe: Probe) -> list[tuple[str, str]]:
    """Points along x, y and z of frames at which a probe has none."""
    used = {frame for end in probe.ends for frame, _ in end}
    frames = [frame for frame in model.frames[1:] if frame not in used][:MOST_FRAMES]
    return [(frame, axis) for frame in frames for axis in "xyz"]


def _after(made: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if not np.isfinite(rows).all():
        return np.full(made.shape[1], np.inf)
    both = np.concatenate([made, rows])
    return identifiability(both, np.ones(len(both))).std


def why(
    index: int,
    names: Sequence[str],
    known: Identifiability,
    correlation: Float[np.ndarray, "d d"],
    groups: Sequence[Group],
    tests: Sequence[Test],
    shares: Sequence[ModeShares],
    tried: Sequence[Remedy],
) -> str:
    """A sentence on why a parameter is weakly or not identifiable: its modes, correlated parameters, best remedy.

    Args:
        index: of the parameter.
        names: of all parameters.
        known: predicted identifiability from the planned tests.
        correlation: of the parameters.
        groups: see `identifiability.groups`.
        tests: planned tests.
        shares: modes at the posture of each.
        tried: remedies.
    """
    null = [group.members for group in groups if np.isinf(group.std) and index in group.members]
    coupling = np.where(np.arange(len(names)) == index, 0.0, correlation[index])
    partner, clauses = int(np.argmax(np.abs(coupling))), list[str]()
    if any(len(members) == 1 for members in null):
        clauses.append("has no effect on the data" + _unobserved_clause(index, names[index], tests, shares))
    else:
        if any(modes.frequency_hz.size for modes in shares):
            clauses.append(_modes_clause(index, names[index], tests, shares))
        if null:
            clauses.append(
                f"is identifiable only in combination with {listed([names[i] for i in null[0] if i != index])}"
            )
        elif abs(coupling[partner]) >= TOGETHER:
            clauses.append(f"is correlated with {names[partner]} (correlation {coupling[partner]:+.2f})")
    if tried:
        clauses.append(_remedy_clause(index, known, tests, shares, tried))
    return "; ".join(clauses) if clauses else "the measurements are too few or too noisy for it"


def _governed(index: int, test: Test, modes: ModeShares, inside: bool) -> list[tuple[float, float]]:
    """Frequency and share of the modes that a parameter governs inside the band of a test, or beyond it."""
    shares = zip(modes.frequency_hz, modes.share[:, index], strict=True)
    return [(f, share) for f, share in shares if share >= GOVERNS and (f <= _highest_hz(test)) == inside]


def _unobserved_clause(index: int, name: str, tests: Sequence[Test], shares: Sequence[ModeShares]) -> str:
    """Clause on unobserved modes that a parameter without effect governs within the band of a test."""
    for test, modes in zip(tests, shares, strict=True):
        governed = _governed(index, test, modes, inside=True)
        if can_be_planned(test) and governed:
            text = _modes_text(governed, _energy(name), f"below {_end_text(test)}")
            noun = "that mode" if len(governed) == 1 else "those modes"
            return f": it governs {text}, but no sensor of the test observes {noun}"
    return ""


def _modes_clause(index: int, name: str, tests: Sequence[Test], shares: Sequence[ModeShares]) -> str:
    """Clause on the modes that a parameter governs, in the test whose band is closest to one of them."""
    of = _energy(name)
    each = [
        (test, modes, f, share)
        for test, modes in zip(tests, shares, strict=True)
        for f, share in zip(modes.frequency_hz, modes.share[:, index], strict=True)
    ]
    governed = [(test, modes, f) for test, modes, f, share in each if share >= GOVERNS]
    if not governed:
        share, frequency_hz = max((share, f) for _, _, f, share in each)
        most = f", at most {_percent(share)} of the {of} of the mode at {frequency_hz:.3g} Hz" if share else ""
        return f"governs no mode{most}"
    test, modes, _ = min(governed, key=lambda one: one[2] / _highest_hz(one[0]))
    found = [(where, _governed(index, test, modes, where == "below")) for where in ("below", "above")]
    texts = [_modes_text(own, of, f"{where} {_end_text(test)}") for where, own in found if own]
    return f"governs {', and '.join(texts)}"


def _energy(name: str) -> str:
    """Modal quantity of which a parameter has a share."""
    matrix = next(family.matrix for family in FAMILIES if family.name == name.split(".")[0])
    return {"damping": "damping", "mass": "kinetic energy"}.get(matrix, "strain energy")


def _highest_hz(test: Test) -> float:
    return 0.0 if test.vibration is None else test.vibration.highest_hz


def _end_text(test: Test) -> str:
    return "" if test.vibration is None else f"{test.vibration.highest_text} {test.vibration.highest_hz:.3g} Hz"


def _modes_text(governed: Sequence[tuple[float, float]], of: str, where: str) -> str:
    """Text on modes by their frequency, with a parameter's share of each."""
    each = [f"{f:.3g} Hz ({_percent(share)} of its {of})" for f, share in governed[:NAMED]]
    return f"the mode{'s' if len(each) > 1 else ''} at {listed(each)}, {where}"


def _remedy_clause(
    index: int, known: Identifiability, tests: Sequence[Test], shares: Sequence[ModeShares], tried: Sequence[Remedy]
) -> str:
    ends = {test.name: _end_for(index, test, modes) for test, modes in zip(tests, shares, strict=True)}
    own = [r for r in tried if r.test is None or r.end_hz == ends[r.test]]
    best = min(own, key=lambda r: float(r.std[index]), default=None)
    before = float(known.std[index])
    if best is None or not float(best.std[index]) < HELPS * before:
        return f"none of {len(own)} remedies tried improves it"
    return (
        f"best of {len(own)} remedies tried: {best.text}, which reduces its standard deviation due to noise from"
        f" {std_text(before)} to {std_text(float(best.std[index]))}"
    )


def _end_for(index: int, test: Test, modes: ModeShares) -> float | None:
    """End of the extended band for a parameter: above the modes beyond the band that it governs, else above the mode
    with its largest share, else above the next mode."""
    beyond = modes.frequency_hz > _highest_hz(test)
    if not beyond.any():
        return None
    share = np.where(beyond, modes.share[:, index], 0.0)
    selected = share >= GOVERNS if (share >= GOVERNS).any() else share == share.max()
    frequency_hz = modes.frequency_hz[selected & beyond]
    return float(BEYOND * (frequency_hz.max() if share.any() else frequency_hz.min()))


def posture_text(model: Model, q: Float[np.ndarray, "n"]) -> str:
    """Text of the independent coordinates that are not 0 both here and in the reference posture, in deg or m."""
    coordinates = [
        f"{name} {np.degrees(value):.0f} deg" if turns else f"{name} {value:.3g} m"
        for name, turns, value, own in zip(
            model.coordinates, model.revolute, q.tolist(), np.asarray(model.reference), strict=True
        )
        if (value != 0.0 or own != 0.0) and name in independent_coordinates(model)
    ]
    return ", ".join(coordinates) or "the zero posture"


def points_text(points: Sequence[tuple[str, str]]) -> str:
    """Text of points: "tool x, y, z" for directions of one frame, else each point by name."""
    if len({frame for frame, _ in points}) == 1:
        return f"{points[0][0]} {', '.join(axis for _, axis in points)}"
    return listed([" ".join(point) for point in points], SHOWN)


def std_text(std: float) -> str:
    """Text of a standard deviation of a logarithm, as a percentage."""
    if not np.isfinite(std):
        return "unbounded"
    return ">1000 %" if std > 10.0 else f"{100.0 * std:.2g} %" if std < 0.995 else f"{100.0 * std:.0f} %"


def _percent(share: float) -> str:
    return f"{100.0 * min(share, 1.0):.0f} %"
