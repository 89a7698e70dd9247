"""The complete elastostatic model of a serial machine, elastic joints and links, and its physical reduction.

Parameters are compliances: of each coordinate one, "q2", and of each virtual spring those of its 6x6 matrix,
"link2 y,rz". The algebraic reduction behind it is that of any linear model, `jaxmb.identify.estimation.reduction`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.reduction import Reduction, Step, reduction
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    Term,
    compliances,
    joint_terms,
    measured_displacements,
    observation_matrix,
    spring_term,
)
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_index

BEAM_TEMPLATE = (*((axis, axis) for axis in ELASTIC_AXES), ("y", "rz"), ("z", "ry"))
"""What is not zero in the compliance of a straight beam along x that is symmetric about its planes (eq. 13)."""
ON_AXIS = 1e-9
"""m, or sine of the angle, by which a joint may lie off a spring's axis for their compliances to add."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompleteModel:
    """Compliances of a serial machine before and after its physical reduction."""

    original_terms: tuple[Term, ...]
    """Of the complete model's parameters, whose names are those before the first step."""
    terms: tuple[Term, ...]
    """Of the parameters that are left."""
    steps: tuple[Step, ...]
    """M1, M2 (where it was asked for) and M3."""
    aggregated: dict[str, str]
    """Joint, and the parameter of the link before it that its compliance has been added to."""
    kept: dict[str, str]
    """Joint that could not be added to a link, and why."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that are left."""
        return self.steps[-1].names


def complete_model(model: Model, frames: Sequence[str] = (), sparse: bool = True) -> CompleteModel:
    """Complete model of a serial machine: n + 36 k compliances for n joints and k virtual springs, reduced to what
    physics leaves of them.

    M1: compliances are symmetric, n + 21 k. M2: links are beams along the x axes of their springs, n + 8 k. M3: the
    compliance of a joint adds to a diagonal term of the link before it, whose spring must lie on the joint's axis with
    one of its own axes along it; a joint for which that does not hold is kept, see `kept`.

    Args:
        model: the machine.
        frames: that are loaded or measured: one that sits between a link's spring and the next joint tells them apart.
        sparse: whether to take step M2.

    Raises:
        ValueError: the machine is not a chain, has no virtual spring, or has no such frame.

    Source: Klimchik et al. 2014, section 3.1 and eq. 10-13.
    """
    _check_serial(model)
    joints, springs = model.coordinates, model.virtual_springs
    everything = [(s, a, b) for s in springs for a in ELASTIC_AXES for b in ELASTIC_AXES]
    triangle = [(s, a, b) for s, a, b in everything if ELASTIC_AXES.index(a) <= ELASTIC_AXES.index(b)]
    beams = [(s, a, b) for s, a, b in triangle if (a, b) in BEAM_TEMPLATE]
    names = [*joints, *(_name(*entry) for entry in everything)]
    original = [*joint_terms(model, joints), *(spring_term(model, *entry, symmetric=False) for entry in everything)]
    steps = [_symmetrisation(names, [*joints, *(_name(*entry) for entry in triangle)])]
    if sparse:
        steps.append(_restriction("M2", steps[-1].names, [*joints, *(_name(*entry) for entry in beams)]))
    aggregated, kept = _aggregation(model, frames)
    steps.append(_addition(steps[-1].names, aggregated))
    left = [
        *joint_terms(model, tuple(kept)),
        *(spring_term(model, *entry) for entry in (beams if sparse else triangle)),
    ]
    return CompleteModel(tuple(original), tuple(left), tuple(steps), aggregated, kept)


def complete_reduction(
    model: Model,
    tests: Sequence[LoadCase],
    preference: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    sparse: bool = True,
) -> tuple[CompleteModel, Reduction]:
    """Complete model of a machine and its reduction to what deflection tests can tell apart, M1 to M5.

    The parameters that are kept by preference are those that hold a joint, then what else is on a diagonal, where no
    preference is given.

    Raises:
        ValueError: see `complete_model` and `reduction`.
    """
    frames = dict.fromkeys(name for test in tests for name in (test.frame, *test.points))
    complete = complete_model(model, tuple(frames), sparse)
    _, std = measured_displacements(tests)
    matrix = observation_matrix(model, tests, complete.terms) / std[:, None]
    wanted = physical_preference(complete) if preference is None else preference
    return complete, reduction(matrix, complete.names, wanted, constants, before=complete.steps)


def physical_preference(complete: CompleteModel) -> dict[str, float]:
    """3 for joints and what holds one, 2 for other rotations and 1 for translations on a diagonal, 0 for what couples
    them: what a user knows a number for is kept."""
    found = {}
    for name in complete.names:
        _, _, entry = name.partition(" ")
        a, _, b = entry.partition(",")
        joint = not entry or name in complete.aggregated.values()
        found[name] = 3.0 if joint else 0.0 if a != b else 2.0 if a.startswith("r") else 1.0
    return found


def original_values(model: Model, complete: CompleteModel) -> Float[np.ndarray, "d"]:
    """Values of the complete model's first parameters by the machine's own stiffness and springs."""
    compliance = np.asarray(compliances(model, model.reference[None])[0])
    return np.array([compliance[term[0]] for term in complete.original_terms])


def _name(spring: str, a: str, b: str) -> str:
    return f"{spring} {a},{b}"


def _symmetrisation(before: Sequence[str], after: Sequence[str]) -> Step:
    """Each pair (a, b), (b, a) becomes one."""
    expand = np.zeros((len(before), len(after)))
    for i, name in enumerate(before):
        spring, _, entry = name.partition(" ")
        a, _, b = entry.partition(",")
        expand[i, after.index(name if name in after else _name(spring, b, a))] = 1.0
    # The mean of the pair, which is each of them where they are equal.
    reduce = expand.T / expand.sum(axis=0)[:, None]
    return Step("M1", tuple(before), tuple(after), expand, reduce, np.zeros(len(before)), exact=False)


def _restriction(step: str, before: Sequence[str], after: Sequence[str]) -> Step:
    """What is not left is zero."""
    expand = np.eye(len(before))[:, [before.index(name) for name in after]]
    return Step(step, tuple(before), tuple(after), expand, expand.T.copy(), np.zeros(len(before)), exact=False)


def _addition(before: Sequence[str], aggregated: Mapping[str, str]) -> Step:
    """Joints become part of diagonal terms."""
    after = tuple(name for name in before if name not in aggregated)
    expand = np.eye(len(before))[:, [before.index(name) for name in after]]
    reduce = expand.T.copy()
    for joint, term in aggregated.items():
        reduce[after.index(term), before.index(joint)] = 1.0
    return Step("M3", tuple(before), after, expand, reduce, np.zeros(len(before)), exact=True)


def _aggregation(model: Model, frames: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Joints that add to a term of the spring before them, and why the others do not."""
    aggregated, kept = {}, {}
    n = len(model.coordinates)
    between = {model.frame_node[frame_index(model, frame)]: frame for frame in frames}
    for i, joint in enumerate(model.coordinates):
        node = model.parent[i]
        if node < n:
            kept[joint] = f"no virtual spring sits directly before joint '{joint}'"
            continue
        spring = model.virtual_springs[node - n]
        axis = np.asarray(model.origin[i])[:3, :3] @ np.asarray(model.axis[i])
        along = int(np.argmax(np.abs(axis)))
        beside = float(np.linalg.norm(np.cross(axis, np.asarray(model.origin[i])[:3, 3])))
        oblique = float(np.linalg.norm(np.delete(axis, along)))
        if oblique > ON_AXIS:
            kept[joint] = f"the axis of joint '{joint}' is not along an axis of virtual spring '{spring}' before it"
        elif model.revolute[i] and beside > ON_AXIS:
            kept[joint] = f"the axis of joint '{joint}' passes {beside:g} m beside virtual spring '{spring}' before it"
        elif node in between:
            kept[joint] = f"frame '{between[node]}' sits between virtual spring '{spring}' and joint '{joint}'"
        else:
            which = ELASTIC_AXES[along + 3 * model.revolute[i]]
            aggregated[joint] = _name(spring, which, which)
    return aggregated, kept


def _check_serial(model: Model) -> None:
    if not model.virtual_springs:
        raise ValueError(f"machine '{model.name}' has no virtual spring, expected one at the end of each elastic link")
    if model.motors:
        raise NotImplementedError(
            f"machine '{model.name}' has motors behind gears, expected none in a complete stiffness model"
        )
    names = (*model.coordinates, *model.virtual_springs)
    behind: dict[int, str] = {}
    for node, parent in enumerate(model.parent):
        if parent in behind:
            raise ValueError(
                f"machine '{model.name}' is not a chain: '{behind[parent]}' and '{names[node]}' both hang on"
                f" '{'the ground' if parent < 0 else names[parent]}'"
            )
        behind[parent] = names[node]
