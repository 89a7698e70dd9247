"""The complete elastostatic model of a serial machine, elastic joints and links, and its physical reduction.

Parameters are compliances: one of each coordinate, "q2", and those of the 6x6 matrix of each virtual spring,
"link2 y,rz". The subsequent algebraic reduction is that of `jaxmb.identify.estimation.reduction`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import components
from jaxmb.identify.estimation.reduction import Reduction, Step, reduction, selection_step
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
from jaxmb.mechanics.compliance import has_guides
from jaxmb.mechanics.kinematics import ELASTIC_AXES, frame_index


def ends_of(name: str) -> tuple[str, str]:
    """The two degrees of freedom of a compliance: "link1 y" and "link1 rz" of "link1 y,rz"."""
    spring, _, entry = name.partition(" ")
    a, _, b = entry.partition(",")
    return (f"{spring} {a}", f"{spring} {b}") if entry else (name, name)


def diagonal_of(end: str) -> str:
    """Name of the diagonal compliance of one degree of freedom."""
    spring, _, axis = end.partition(" ")
    return f"{spring} {axis},{axis}" if axis else end


def is_diagonal(name: str) -> bool:
    """Whether a compliance is on the diagonal of its matrix."""
    a, b = ends_of(name)
    return a == b


def block_matrices(names: Sequence[str]) -> np.ndarray:
    """Positions of each compliance [parameter, block, n, n], 1 or 0, in the smallest blocks of the block-diagonal
    matrices, with an additional empty block."""
    ends, number = np.unique([ends_of(name) for name in names], return_inverse=True)
    coupled = np.eye(ends.size, dtype=bool)
    coupled[number[:, 0], number[:, 1]] = coupled[number[:, 1], number[:, 0]] = True
    blocks = components(coupled)
    position = {int(end): (i, k) for i, block in enumerate(blocks) for k, end in enumerate(block)}
    n = max(map(len, blocks))
    found = np.zeros((len(names), len(blocks) + 1, n, n))
    for i, pair in enumerate(number.tolist()):
        (block, a), (_, b) = (position[end] for end in pair)
        found[i, block, [a, b], [b, a]] = 1.0
    return found


def joints_and_links(names: Sequence[str], values: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compliances of joints by name, and compliance matrices [6, 6] of links by name."""
    joints, links = {}, {}
    for name, value in zip(names, values.tolist(), strict=True):
        spring, _, entry = name.partition(" ")
        if entry:
            a, b = (ELASTIC_AXES.index(axis) for axis in entry.split(","))
            links.setdefault(spring, np.zeros((6, 6)))[[a, b], [b, a]] = value
        else:
            joints[name] = value
    return joints, links


BEAM_TEMPLATE = (*((axis, axis) for axis in ELASTIC_AXES), ("y", "rz"), ("z", "ry"))
"""Non-zero entries of the compliance of a straight beam along x with symmetric cross section (eq. 13)."""
ON_AXIS = 1e-9
"""Largest offset [m], or sine of the angle, between a joint's axis and a spring's axis for their compliances to add."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompleteModel:
    """Compliances of a serial machine before and after its physical reduction."""

    original_terms: tuple[Term, ...]
    """Terms of the complete model's parameters, named as before the first step."""
    terms: tuple[Term, ...]
    """Terms of the reduced model's parameters."""
    steps: tuple[Step, ...]
    """M1, M2 (if requested) and M3."""
    aggregated: dict[str, str]
    """Joint -> parameter of the preceding link to which its compliance was added."""
    kept: dict[str, str]
    """Joint that could not be added to a link -> reason."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reduced model's parameters."""
        return self.steps[-1].names


def complete_model(model: Model, frames: Sequence[str] = (), sparse: bool = True) -> CompleteModel:
    """Complete model of a serial machine, n + 36 k compliances for n joints and k virtual springs, and its physical
    reduction.

    M1: compliances are symmetric, n + 21 k. M2: links are beams along the x axes of their springs, n + 8 k. M3: the
    compliance of a joint adds to a diagonal term of the preceding link, whose spring must be on the joint's axis with
    one of its axes along it; other joints are kept, see `kept`.

    Args:
        model: the machine.
        frames: loaded or measured frames: one between a link's spring and the next joint distinguishes the two.
        sparse: whether to apply step M2.

    Raises:
        ValueError: the machine is not a serial chain, has no virtual spring, or has no such frame.
        NotImplementedError: the machine has motors behind gears, locked coordinates, or guides or play.

    Source: Klimchik et al. 2014, section 3.1 and eq. 10-13.
    """
    _check_serial(model)
    joints, springs = model.coordinates, model.virtual_springs
    full = [(s, a, b) for s in springs for a in ELASTIC_AXES for b in ELASTIC_AXES]
    triangle = [(s, a, b) for s, a, b in full if ELASTIC_AXES.index(a) <= ELASTIC_AXES.index(b)]
    beams = [(s, a, b) for s, a, b in triangle if (a, b) in BEAM_TEMPLATE]
    names = [*joints, *(_name(*entry) for entry in full)]
    original = [*joint_terms(model, joints), *(spring_term(model, *entry, symmetric=False) for entry in full)]
    steps = [_symmetrisation(names, [*joints, *(_name(*entry) for entry in triangle)])]
    if sparse:
        symmetric = steps[-1].names
        kept = [symmetric.index(name) for name in (*joints, *(_name(*entry) for entry in beams))]
        steps.append(selection_step("M2", symmetric, kept, exact=False))
    aggregated, kept = _aggregation(model, frames)
    before = steps[-1].names
    addition = selection_step("M3", before, [i for i, name in enumerate(before) if name not in aggregated])
    for joint, term in aggregated.items():
        addition.reduce[addition.names.index(term), before.index(joint)] = 1.0
    steps.append(addition)
    reduced = [
        *joint_terms(model, tuple(kept)),
        *(spring_term(model, *entry) for entry in (beams if sparse else triangle)),
    ]
    return CompleteModel(tuple(original), tuple(reduced), tuple(steps), aggregated, kept)


def complete_reduction(
    model: Model,
    tests: Sequence[LoadCase],
    sparse: bool = True,
) -> tuple[CompleteModel, Reduction]:
    """Complete model of a machine and its reduction to parameters identifiable from deflection tests, M1 to M5, with
    the preference `physical_preference`.

    Raises:
        ValueError: see `complete_model` and `reduction`.
    """
    frames = dict.fromkeys(name for test in tests for name in (test.frame, *test.points))
    complete = complete_model(model, tuple(frames), sparse)
    _, std = measured_displacements(tests)
    matrix = observation_matrix(model, tests, complete.terms) / std[:, None]
    return complete, reduction(matrix, complete.names, physical_preference(complete), before=complete.steps)


def physical_preference(complete: CompleteModel) -> dict[str, float]:
    """Priority by parameter: 3 for joints and terms that include one, 2 for other diagonal rotations, 1 for diagonal
    translations, 0 for coupling terms, so that parameters with a physical interpretation are kept."""
    found = {}
    for name in complete.names:
        joint = " " not in name or name in complete.aggregated.values()
        found[name] = 3.0 if joint else 0.0 if not is_diagonal(name) else 2.0 if ",r" in name else 1.0
    return found


def original_values(model: Model, complete: CompleteModel) -> Float[np.ndarray, "d"]:
    """Values of the complete model's original parameters from the machine's stiffness and springs, SI units."""
    compliance = np.asarray(compliances(model, model.reference[None])[0])
    return np.array([compliance[term[0]] for term in complete.original_terms])


def _name(spring: str, a: str, b: str) -> str:
    return f"{spring} {a},{b}"


def _symmetrisation(before: Sequence[str], after: Sequence[str]) -> Step:
    """Step M1: each pair (a, b), (b, a) becomes one parameter."""
    expand = np.zeros((len(before), len(after)))
    for i, name in enumerate(before):
        spring, _, entry = name.partition(" ")
        expand[i, after.index(name if name in after else _name(spring, *reversed(entry.split(","))))] = 1.0
    # The mean of the pair, equal to both for symmetric compliances.
    reduce = expand.T / expand.sum(axis=0)[:, None]
    return Step("M1", tuple(before), tuple(after), expand, reduce, np.zeros(len(before)), exact=False)


def _aggregation(model: Model, frames: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Joints that add to a term of the preceding spring, and the reasons for the others."""
    aggregated, kept = {}, {}
    n = len(model.coordinates)
    between = {model.frame_node[frame_index(model, frame)]: frame for frame in frames}
    for i, joint in enumerate(model.coordinates):
        node = model.parent[i]
        if node < n:
            kept[joint] = f"no virtual spring directly precedes joint '{joint}'"
            continue
        spring = model.virtual_springs[node - n]
        axis = np.asarray(model.origin[i])[:3, :3] @ np.asarray(model.axis[i])
        along = int(np.argmax(np.abs(axis)))
        offset = float(np.linalg.norm(np.cross(axis, np.asarray(model.origin[i])[:3, 3])))
        oblique = float(np.linalg.norm(np.delete(axis, along)))
        if oblique > ON_AXIS:
            kept[joint] = f"the axis of joint '{joint}' is not along an axis of the preceding virtual spring '{spring}'"
        elif model.revolute[i] and offset > ON_AXIS:
            kept[joint] = f"the axis of joint '{joint}' is {offset:g} m off the preceding virtual spring '{spring}'"
        elif node in between:
            kept[joint] = f"frame '{between[node]}' is between virtual spring '{spring}' and joint '{joint}'"
        else:
            entry = ELASTIC_AXES[along + 3 * model.revolute[i]]
            aggregated[joint] = _name(spring, entry, entry)
    return aggregated, kept


def _check_serial(model: Model) -> None:
    if not model.virtual_springs:
        raise ValueError(f"machine '{model.name}' has no virtual spring, expected one at the end of each elastic link")
    if has_guides(model) or any(model.has_play):
        raise NotImplementedError(
            f"machine '{model.name}' has virtual springs with a guide or play, expected none in a complete stiffness"
            " model"
        )
    if model.motors:
        raise NotImplementedError(
            f"machine '{model.name}' has motors behind gears, expected none in a complete stiffness model"
        )
    if any(model.locked):
        raise NotImplementedError(
            f"machine '{model.name}' has the locked coordinate '{model.coordinates[model.locked.index(True)]}', which"
            " is rigid, expected none in a complete stiffness model"
        )
    names = (*model.coordinates, *model.virtual_springs)
    child: dict[int, str] = {}
    for node, parent in enumerate(model.parent):
        if parent in child:
            raise ValueError(
                f"machine '{model.name}' is not a serial chain: '{child[parent]}' and '{names[node]}' have the same"
                f" parent '{'the ground' if parent < 0 else names[parent]}'"
            )
        child[parent] = names[node]
