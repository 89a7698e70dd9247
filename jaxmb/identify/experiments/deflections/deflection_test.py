"""A deflection test: static displacements of points of a machine under loads, in any number of postures; its source."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from jaxmb.compiled import compiled, on_host
from jaxmb.identify.experiments.components import (
    Attached,
    Description,
    Equations,
    Evaluation,
    LinearForm,
    column_alternatives,
    coordinate_alternatives,
)
from jaxmb.identify.experiments.deflections.load_cases import (
    Decorrelation,
    LoadCase,
    Term,
    check_cases,
    common_errors,
    compliances,
    decorrelation,
    displaced_posture,
    elastic_jacobians,
    elastic_rows,
    frames_of,
    joint_terms,
    measured_displacements,
    observation,
    singular_postures,
    spring_term,
    true_case,
)
from jaxmb.identify.experiments.deflections.table import DEGREE
from jaxmb.identify.experiments.machine_errors import turned
from jaxmb.identify.experiments.test import Entry, Score, Source, Test
from jaxmb.identify.experiments.tolerances import (
    MOST_GAIN,
    USUAL_FACTORS,
    Instruments,
    StatedError,
    error_with_text,
    factor_text,
    posture_text,
    usual,
    zero_error,
)
from jaxmb.identify.experiments.vibration_view import LINEAR_LEAVES, LOSS_FACTORS, directions_of_change
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import DEVIATIONS, parameters, set_parameters
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import (
    closed_stiffness,
    elastic_jacobian,
    elastic_springs,
    elastic_stiffness,
    has_guides,
    stable_inverse,
    weight_deflection,
)
from jaxmb.mechanics.dynamics import elastic_effort, gravity_effort, gravity_energy
from jaxmb.mechanics.kinematics import frame_index, frame_pose, frame_poses, whole
from jaxmb.mechanics.loops import independent_joints, loop_closure

Change = Callable[[LoadCase], LoadCase]


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionSource(Source):
    """Load cases of one table or one plan."""

    cases: tuple[LoadCase, ...] = ()
    instruments: Instruments | None = None
    rotation_weight: float = 1.0
    """Weight of the squared error of a rotation, relative to that of a translation."""

    @property
    def loads(self) -> np.ndarray:
        """Wrenches [case, 6] on the machine."""
        return np.stack([case.wrench for case in self.cases])

    def frames(self, test: Any) -> dict[str, bool]:
        """Loaded and measured frames."""
        return dict.fromkeys(frames_of(self.cases), False)

    def readings(self, test: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Load cases."""
        for case in self.cases:
            if case.measured.sum() >= 3:
                numbers = case.q, case.wrench, case.displacement
                yield f"load case '{case.name}'", (case.frame, case.points, *(x.tobytes() for x in numbers))

    def errors(self, test: Any, model: Model) -> Iterator[StatedError]:
        """Errors of the loads and of the axes of the displacements, common to all cases, of the zeros of coordinates
        and the postures, and factors on one kind of columns where two kinds are known."""
        yield from (error for error, _ in _errors_of_cases(test.name, model))
        yield from (error for error, _ in self._of_columns(test.name))

    def _of_columns(self, name: str) -> Iterator[tuple[StatedError, Callable[[float], Change]]]:
        """Errors of one kind of columns, each with the change of load cases that corrects it, by its size."""
        measured = np.concatenate([case.measured for case in self.cases])
        for own, kinds, fields in (
            (measured, ("translations", "rotations"), ("displacement", "std")),
            (self.loads != 0.0, ("forces", "moments"), ("wrench",)),
        ):
            both = own.reshape(-1, 2, 3).any(axis=(0, 2)).all()
            for k, what in enumerate(kinds if both else ()):
                error = error_with_text(
                    f"{what} of {name}", factor_text, f"the {what} of {display_name(name)}", size=0.1, most=MOST_GAIN,
                    starts=LOG_FACTORS,
                )  # fmt: skip
                yield error, functools.partial(_divided, fields, np.repeat(np.arange(2) == k, 3))
        if _in_space(measured):
            for axis, direction in zip("XYZ", np.eye(3), strict=True):
                error = error_with_text(
                    f"axes of {name} {axis}", _axes_text, display_name(name), axis, size=DEGREE, most=np.pi,
                    starts=QUARTERS,
                )  # fmt: skip
                yield error, functools.partial(_turned_back, direction)

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with its description corrected; see `Source`."""
        z = np.zeros(7 + len(model.coordinates))
        for error, i in _errors_of_cases(test.name, model):
            z[i] += errors.get(error.key, 0.0)
        of_load = np.where((np.arange(z.size) > 0) & (np.arange(z.size) < 7), z, 0.0)
        wide = [_wide(model, case, 1.0 + z[0]) for case in self.cases]
        there = [dataclasses.replace(case, q=displaced_posture(model, case.q, z[7:])) for case in wide]
        cases = [true_case(model, case, _with_lever(model, case, of_load)) for case in there]
        for error, change in self._of_columns(test.name):
            if errors.get(error.key):
                cases = list(map(change(errors[error.key]), cases))
        return self.with_cases(test, model, cases)

    def alternatives(self, test: Any, model: Model) -> Iterator[tuple[str, str, Any]]:
        """Reversed and exchanged axes of displacements and forces, displacements in the axes of the frame, columns
        without values, reversed joint angles, angles in degrees. Axes along which nothing was measured are not
        exchanged with others: zeros in place of the measured displacements would fit a stiff machine."""
        one, plain = np.eye(6), self.cases
        measured = np.concatenate([case.measured for case in plain])
        loads = np.ones((1, 6), dtype=bool)
        for what, field, known in (("displacement", "displacement", measured), ("force", "wrench", loads)):
            for text, order, sign in column_alternatives("xyz", f"{what} ", f"{what}s "):
                if np.array_equal(known[:, order], known[:, :3]):
                    yield text, text, self._turned(test, model, field, one[[*order, 3, 4, 5]] * [*sign, 1.0, 1.0, 1.0])
            text = f"{what}s in the axes of {plain[0].frame}"
            if _in_space(known):
                yield text, text, self._turned(test, model, field, None)
        for k, axis in enumerate("xyz"):
            if measured[:, k].any() and not any(np.nan_to_num(case.displacement)[:, k].any() for case in plain):
                text, there = (
                    f"missing displacement {axis}, 0 throughout,",
                    self._turned(test, model, "displacement", one),
                )
                axes = np.concatenate([np.broadcast_to(np.arange(6), c.measured.shape)[c.measured] for c in plain])
                yield text, text, dataclasses.replace(there, std=jnp.where(jnp.asarray(axes == k), 1e3, there.std))
        for name in frames_of(plain):
            for frame in _other_frames(model, name):
                for what, of_load, of_point in FIELDS:
                    cases = [_renamed(_wide(model, c, 1.0), name, frame, of_load, of_point) for c in plain]
                    if any((c.frame, c.points) != (new.frame, new.points) for c, new in zip(plain, cases, strict=True)):
                        text = f"{what} at {frame} instead of {name}"
                        yield text, text, self.with_cases(test, model, cases)
        if model.loops:
            return
        wide, q = [_wide(model, case, 1.0) for case in plain], np.stack([case.q for case in plain])
        for text, there in coordinate_alternatives(model, q):
            cases = [
                dataclasses.replace(case, q=np.append(own, case.q[own.size :]))
                for case, own in zip(wide, there, strict=True)
            ]
            yield text, text, self.with_cases(test, model, cases)

    def refined(self, test: Any, model: Model) -> Iterator[tuple[str, str, Any]]:
        """Deflections of a machine that sags."""
        if (there := test.after_sag(model)) is not None:
            text = 'deflections from the equilibrium under the weight (linearize_at = "equilibrium")'
            yield text, text, there.about(model)

    def _turned(self, test: Any, model: Model, field: str, matrix: np.ndarray | None) -> Any:
        """The test with displacements or wrenches times a matrix; None for the axes of the frame of each case."""
        turned, cases = _with_wrench if field == "wrench" else _with_displacements, list[LoadCase]()
        for case in (_wide(model, case, 1.0) for case in self.cases):
            turn = matrix
            if turn is None:
                rotation = np.asarray(frame_pose(model, jnp.asarray(case.q), case.frame))[:3, :3]
                turn = scipy.linalg.block_diag(rotation, rotation)
            cases.append(turned(case, turn))
        return self.with_cases(test, model, cases)

    def with_cases(self, test: Any, model: Model, cases: Sequence[LoadCase]) -> Any:
        """The test with its postures, points, loads and displacements as those of other cases on a machine."""
        there = dataclasses.replace(test, **_arrays_of(model, cases))
        return there.about(model) if test.at_equilibrium else there

    def check_linear(self, model: Model) -> None:
        """Raise ValueError, naming a load case, where it does not match the machine or all postures are singular."""
        check_cases(model, self.cases)
        singular = singular_postures(model, self.cases)
        if len(singular) == len(self.cases):
            raise ValueError(f"{singular[0]}: change a posture by some degrees")

    def groups(self, test: Any) -> tuple[Int[np.ndarray, "m"], tuple[str, ...]]:
        """Load case of each row, and their names."""
        return np.asarray(test.case), tuple(f"load case '{case.name}'" for case in self.cases)


LOG_FACTORS = tuple(sign * float(np.log(size)) for size in USUAL_FACTORS for sign in (1.0, -1.0))
"""Starting values of the logarithm of a factor on a kind of columns: usual wrong ones."""
MOST_FRAMES = 16
"""Number of moving frames below which each may be meant instead of another."""
FIELDS = (
    ("loads and displacements", True, True),
    ("displacements", False, True),
    ("loads", True, False),
)
"""Quantities whose frame may be another one: text, whether it is that of the loads, and that of the displacements."""
QUARTERS = (0.25 * np.pi, -0.25 * np.pi, 0.5 * np.pi, -0.5 * np.pi, np.pi)
"""Starting values of a rotation of axes."""
FACTORS = (
    -2.0,
    *(sign * size**power - 1.0 for size in USUAL_FACTORS for power in (1, -1) for sign in (1.0, -1.0)),
)
"""Starting values of the size of the loads: a reversed sign and usual wrong factors."""


def _in_space(measured: Bool[np.ndarray, "p 6"]) -> bool:
    """Whether translations and rotations have all three components or none."""
    return all(parts.all() or not parts.any() for parts in measured.reshape(-1, 3))


def _errors_of_cases(name: str, model: Model) -> Iterator[tuple[StatedError, int]]:
    """Errors common to all load cases of a test with their index in the errors of `true_case`; 0 for a change of the
    loads over their size."""
    yield (
        error_with_text(
            f"size of loads of {name}", loads_text, name, tolerance="load_percent", unit=0.01, size=0.1, most=np.inf,
            of_factor=True, starts=FACTORS,
        ),
        0,
    )  # fmt: skip
    for i, axis in enumerate("XYZ"):
        error = StatedError(f"direction of loads of {name} about {axis}", "load_direction_deg", DEGREE)
        yield error, 1 + i
        yield StatedError(f"lever of loads of {name} along {axis.lower()}", "load_lever_mm", 1e-3), 4 + i
    for k, coordinate, revolute in independent_joints(model):
        yield zero_error(coordinate, revolute), 7 + k
        key, size = f"posture of {name} {coordinate}", DEGREE if revolute else 1e-2
        yield error_with_text(key, posture_text, coordinate, display_name(name), revolute, size=size), 7 + k


def loads_text(name: str, change: float) -> str:
    """Text of a factor on the loads of a test."""
    factor = 1.0 + change
    text = f"a factor of {factor:.3g} on the loads of {display_name(name)}, or {1.0 / factor:.3g} on its displacements"
    return text + usual(factor)


def _axes_text(where: str, axis: str, value: float) -> str:
    return f"displacements of {where} in axes turned by {np.degrees(value):+.3g} deg about {axis}"


def _divided(fields: Sequence[str], columns: Bool[np.ndarray, "6"], value: float) -> Change:
    """Change that divides some columns of fields by exp(value): of displacements with their standard deviations, as a
    factor on the measured values alone would fit their noise."""
    factor = np.where(columns, np.exp(-value), 1.0)
    return lambda case: dataclasses.replace(case, **{name: getattr(case, name) * factor for name in fields})


def _turned_back(direction: Float[np.ndarray, "3"], angle: float) -> Change:
    """Change that turns displacements from axes turned by an angle to those of the ground."""
    turn = scipy.spatial.transform.Rotation.from_rotvec(angle * direction).as_matrix()
    return functools.partial(_with_displacements, turn=scipy.linalg.block_diag(turn, turn))


def _with_displacements(case: LoadCase, turn: Float[np.ndarray, "6 6"]) -> LoadCase:
    """A load case with its displacements times a matrix."""
    turned = np.nan_to_num(case.displacement) @ turn.T
    return dataclasses.replace(case, displacement=np.where(case.measured, turned, np.nan))


def _with_wrench(case: LoadCase, turn: Float[np.ndarray, "6 6"]) -> LoadCase:
    """A load case with its wrench times a matrix."""
    return dataclasses.replace(case, wrench=turn @ case.wrench)


def _other_frames(model: Model, name: str) -> list[str]:
    """Frames that may be meant instead of one: all that move, or those of its body where they are many."""
    nodes = dict(zip(model.frames, model.frame_node, strict=True))
    moving = [frame for frame, node in nodes.items() if node >= 0 and frame != name]
    return moving if len(moving) < MOST_FRAMES else [frame for frame in moving if nodes[frame] == nodes[name]]


def _renamed(case: LoadCase, name: str, frame: str, of_load: bool, of_point: bool) -> LoadCase:
    """A load case with another loaded or measured frame."""
    points = tuple(frame if of_point and point == name else point for point in case.points)
    return dataclasses.replace(case, frame=frame if of_load and case.frame == name else case.frame, points=points)


def _with_lever(model: Model, case: LoadCase, z: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Errors of `true_case` with the lever, whose point of application is fixed to the loaded frame, in ground axes."""
    if not z[4:7].any():
        return z
    axes = np.asarray(frame_pose(model, jnp.asarray(case.q), case.frame))[:3, :3]
    return np.concatenate([z[:4], axes @ z[4:7], z[7:]])


def _wide(model: Model, case: LoadCase, larger: float) -> LoadCase:
    """A load case for a machine with further coordinates behind those stated, under a larger load."""
    further = np.zeros(len(model.coordinates) - case.q.size)
    return dataclasses.replace(case, q=np.append(case.q, further), wrench=larger * case.wrench)


class ElasticView(NamedTuple):
    """Displacement of each row: at_point C effort, with C the compliance of each load case or one for all."""

    compliance: Float[Array, "*t e e"]
    at_point: Float[Array, "m e"]
    """Row of the measured point's elastic Jacobian."""
    effort: Float[Array, "m e"]
    """J_l^T w of the loaded frame."""


class AffineStiffness(eqx.Module):
    """An `ElasticView` of a machine with loops, whose stiffness matrices are affine functions of the free values."""

    base: Float[Array, "t r r"]
    slope: Float[Array, "t r r d"]
    at_point: Float[Array, "m r"]
    effort: Float[Array, "m r"]

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> ElasticView:
        """The view at physical values."""
        return ElasticView(_compliances(self.base, self.slope, jnp.asarray(values)), self.at_point, self.effort)

    def stackable(self, others: list[Self]) -> Self:
        """Unchanged: views of equal shapes can be stacked."""
        return self


def affine_stiffness(
    model: Model,
    free: FreeParameters,
    q: Float[np.ndarray, "t n"],
    rows: tuple[Float[np.ndarray, "m e"], Float[np.ndarray, "m e"], Int[np.ndarray, "m"]],
    gravity: bool,
) -> AffineStiffness | None:
    """The view of a machine with loops, reduced exactly to the degrees of freedom excited by loads and free
    stiffnesses.

    If the free values change a stiffness K_0 by B^T S B, a displacement u under a load g satisfies K_0 u = g - B^T S B
    u: it is a combination of K_0^-1 g and the columns of K_0^-1 B^T for any S.

    Args:
        model: the machine.
        free: the free parameters.
        q: posture of each load case.
        rows: points, efforts and load case of each row, in all elastic degrees of freedom.
        gravity: as in `compliance_matrix`.

    Returns:
        None where the machine has no loops, or its stiffness is not affine in the free values.
    """
    is_affine = {target.leaf for target in free.targets} <= LINEAR_LEAVES | LOSS_FACTORS
    if not model.following or not is_affine or "timoshenko" in model.beam_theory:
        return None
    lower, upper = np.asarray(free.lower_value), np.asarray(free.upper_value)
    middle = 0.5 * (lower + upper)
    at_middle = free.apply(model, middle)
    upper_models = [free.apply(model, np.where(np.arange(free.size) == i, upper, middle)) for i in range(free.size)]
    steps, own = upper - middle, list[np.ndarray]()
    if not (gravity or model.springs):
        # without the loop constraints, the stiffness is that of coordinates and beams, equal in all postures
        own = [np.asarray(_elastic_stiffness(one, jnp.asarray(q[0]), False)[1]) for one in (at_middle, *upper_models)]
    changes = [(there - own[0]) / by for there, by in zip(own[1:], steps, strict=True)] if own else None
    postures = (_posture(at_middle, upper_models, steps, there, gravity, changes) for there in q)
    columns, stiffness, slopes = zip(*postures, strict=True)
    if not all(np.all(np.linalg.eigvalsh(own) > 0.0) for own in stiffness):
        return None
    at_point, effort = ([part[rows[2] == t] @ own for t, own in enumerate(columns)] for part in rows[:2])
    loaded = [
        np.concatenate([np.unique(loads, axis=0), *map(directions_of_change, changes)])
        for loads, changes in zip(effort, slopes, strict=True)
    ]
    size = max(map(len, loaded))
    bases = [_basis(own, parts, size) for own, parts in zip(stiffness, loaded, strict=True)]
    base, slope = [], []
    for own, changes, basis in zip(stiffness, slopes, bases, strict=True):
        reduced = basis.T @ changes @ basis
        slope.append(np.moveaxis(reduced, 0, -1))
        base.append(basis.T @ own @ basis - np.einsum("drs,d->rs", reduced, middle))
    seen = (np.concatenate([p @ basis for p, basis in zip(part, bases, strict=True)]) for part in (at_point, effort))
    return AffineStiffness(*map(jax.device_put, (np.stack(base), np.stack(slope), *seen)))


def _posture(
    at_middle: Model, upper_models: Sequence[Model], steps: np.ndarray, q: np.ndarray, gravity: bool,
    changes: Sequence[np.ndarray] | None,
) -> tuple[Float[np.ndarray, "e k"], Float[np.ndarray, "k k"], Float[np.ndarray, "d k k"]]:  # fmt: skip
    """Independent elastic coordinates at a posture, their stiffness at the middle of the bounds, and its slopes: from
    the stiffness of the elastic coordinates without loops where its changes are given."""
    columns, stiffness = map(np.asarray, _closed_stiffness(at_middle, jnp.asarray(q), gravity))
    if changes is None:
        there = [np.asarray(_closed_stiffness(model, jnp.asarray(q), gravity)[1]) for model in upper_models]
        slope = [(k - stiffness) / step for k, step in zip(there, steps, strict=True)]
    else:
        acting = [(change, np.flatnonzero(change.any(axis=0))) for change in changes]
        slope = [columns[acts].T @ change[np.ix_(acts, acts)] @ columns[acts] for change, acts in acting]
    return columns, stiffness, np.stack(slope)


def _basis(stiffness: Float[np.ndarray, "k k"], acting: Float[np.ndarray, "a k"], size: int) -> np.ndarray:
    """Displacements under loads, orthonormal in the stiffness [k, size], completed by arbitrary ones where fewer than
    `size`."""
    factor = np.linalg.cholesky(stiffness)
    padded = np.zeros((len(stiffness), min(size, len(stiffness))))
    if len(acting) < len(stiffness):
        scaled = np.linalg.solve(factor, acting.T)
        padded[:, : len(acting)] = scaled / np.linalg.norm(scaled, axis=0)
    return np.linalg.solve(factor.T, np.linalg.qr(padded)[0])


_closed_stiffness, _elastic_stiffness = compiled(closed_stiffness), compiled(elastic_stiffness)


@compiled
def _compliances(base: Array, slope: Array, values: Array) -> Array:
    return jax.vmap(stable_inverse)(base + jnp.einsum("trsd,d->trs", slope, values))


LINEAR_IN = {"stiffness": 1.0, "compliance": 0.0, "young_modulus": 1.0, "shear_modulus": 1.0}
"""Families of parameters in which displacements are linear: 1 in the reciprocal, 0 in the value itself."""


class DeflectionEvaluation(Evaluation["DeflectionTest"]):
    """Evaluation by a reduced stiffness that is affine in the free values, for machines with loops."""

    def affine_view(self, model: Model, free: FreeParameters) -> AffineStiffness | None:
        """The view of a machine with loops in few degrees of freedom; None where that is not possible (see
        `affine_stiffness`), as at the equilibrium."""
        if self.test.at_equilibrium:
            return None
        rows = (np.asarray(self.test.at_point), np.asarray(self.test.effort), np.asarray(self.test.case))
        return affine_stiffness(model, free, np.asarray(self.test.q), rows, self.test.gravity)


class DeflectionEquations(LinearForm["DeflectionTest"]):
    """Displacements as linear equations in compliances; of a machine that sags about another one."""

    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """Displacements are linear in compliances, the reciprocals of stiffnesses and of moduli of beams. None with
        free geometry, springs between frames, loops, guides, compliance at motors (which gears transmit) or gravity
        stiffness, except about a machine at its equilibrium."""
        named = {name for names in free.tied for name in names}
        if not DEVIATIONS.isdisjoint(target.leaf for target in free.targets):
            return None
        springs = elastic_springs(model, named)
        gravity = self.test.gravity and not self.test.at_equilibrium
        if springs or model.loops or has_guides(model) or gravity or _is_compliant_at_motor(model, named):
            return None
        return np.array([LINEAR_IN.get(name.split(".")[0], np.nan) for name in free.names])

    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """Displacements as linear equations in the compliances that are free."""
        terms, of_beams = compliance_terms(model, free), beam_compliances(model, free)
        fixed_compliance = _at_reference(model)
        fixed_compliance -= sum(change / value for change, value in of_beams.values())
        for term in terms:
            for entry in term:
                fixed_compliance[entry] = 0.0
        seen, effort = np.asarray(self.test.at_point), np.asarray(self.test.effort)
        matrix = observation(seen, effort, terms)
        for name, (change, _) in of_beams.items():
            column = next(i for i, names in enumerate(free.tied) if name in names)
            matrix[:, column] += np.sum((seen @ change) * effort, axis=1)
        return Equations(
            matrix=self.test.independent(matrix),
            measured=self.test.independent(
                np.asarray(self.test.displacement) - np.sum((seen @ fixed_compliance) * effort, axis=1)
            ),
            std=np.asarray(self.test.std),
            weight=np.asarray(self.test.weight),
            case=np.asarray(self.test.case),
        )


@compiled
def _at_equilibrium(test: "DeflectionTest", model: Model) -> tuple[Float[Array, "m e"], Float[Array, "m e"]]:
    view = test.view(model)
    weight = jax.grad(lambda x: gravity_energy(model, x))

    def change(q: Array, moved: Array) -> Array:
        unloaded = whole(model, q) + weight_deflection(model, q)
        return weight(unloaded + moved) - weight(unloaded)

    moved = jnp.einsum("mef,mf->me", view.compliance[test.case], view.effort)
    return view.at_point, view.effort - jax.vmap(change)(test.q[test.case], moved)


class LoadErrors(Description["DeflectionTest"]):
    """Errors common to all load cases, as those of `true_case`; see `DeflectionSource` for those of columns."""

    def none(self, model: Model) -> Float[np.ndarray, "k"]:
        """Loads and postures as stated."""
        return np.zeros(7 + self.test.q.shape[1])

    def errors(self, model: Model) -> Iterator[tuple[StatedError, Float[np.ndarray, "k"]]]:
        """Errors of loads, zeros and postures."""
        for error, i in _errors_of_cases(self.test.name, model):
            yield error, np.eye(7 + self.test.q.shape[1])[i]

    def residual(self, model: Model, errors: Float[Array, "k"]) -> Float[Array, "m"]:
        """The residual at the true postures under the true loads, on a machine of other geometry."""
        test = self.test
        stated = jnp.pad(test.q, ((0, 0), (0, len(model.coordinates) - test.q.shape[1])))
        q = jax.vmap(functools.partial(loop_closure, model))(stated.at[:, : errors.size - 7].add(errors[7:]))
        axes = jax.vmap(frame_poses, (None, 0))(model, q)[jnp.arange(len(q)), test.frames[test.loaded], :3, :3]
        force, moment = jnp.split(test.wrench * (1.0 + errors[0]), 2, axis=1)
        there = jax.vmap(functools.partial(turned, jnp, errors[1:4]))(force)
        square = jnp.sum(force**2, axis=1, keepdims=True)
        lever = jnp.cross(force, moment) / jnp.where(square > 0.0, square, 1.0)
        moment = moment + jnp.cross(lever, there - force) + jnp.cross(axes @ errors[4:7], there)
        loads = jnp.concatenate([there, moment], axis=1)
        return test.scaled(test.predict(test.view_at(model, q, loads)))


SAG_STEPS = 3
"""Newton steps to the equilibrium of a closed chain."""


def _pull(model: Model, x: Float[Array, "n"], held: Float[Array, "n"]) -> Float[Array, "n"]:
    """Effort of springs and weight of a machine that its drives hold elsewhere."""
    return elastic_effort(model, x, jnp.zeros_like(x), held) + gravity_effort(model, x)


def has_equilibria(model: Model) -> bool:
    """Whether deflections from the equilibrium under the weight are supported: not in loops of flexible links."""
    return not (model.loops and (model.beams or model.virtual_springs))


class DeflectionTest(Test[ElasticView]):
    """Displacements under loads, row by row: displacement = J_p C J_l^T w, linear in the compliance C.

    Postures are given, so that both Jacobians are numbers unless the geometry deviates from the stated one.
    """

    name: str = eqx.field(static=True)
    q: Float[Array, "t n"]
    """Posture of each load case."""
    case: Int[Array, "m"]
    """Load case of each row."""
    at_point: Float[Array, "m e"]
    """Row of the measured point's elastic Jacobian."""
    effort: Float[Array, "m e"]
    """J_l^T w of the loaded frame."""
    frames: Int[Array, "f"]
    """Loaded and measured frames, by their indices in the machine."""
    point: Int[Array, "m"]
    """Measured frame of each row, by its number in `frames`."""
    axis: Int[Array, "m"]
    """0 to 2 for translations, 3 to 5 for rotations."""
    loaded: Int[Array, "t"]
    """Loaded frame of each case, by its number in `frames`."""
    wrench: Float[Array, "t 6"]
    displacement: Float[Array, "m"]
    """m or rad."""
    std: Float[Array, "m"]
    weight: Float[Array, "m"]
    """Weight of the squared error of each row, in addition to its inverse variance."""
    is_rotation: Bool[Array, "m"]
    """Mask of the rows that are rotations."""
    gravity: bool = eqx.field(static=True, default=False)
    """Whether gravity stiffness is included, as in the other tests of the study; then displacements are not linear in
    compliances."""
    at_equilibrium: bool = eqx.field(static=True, default=False)
    """Whether the machine has deflected under its weight before the load acts; then with gravity stiffness."""
    is_robust: bool = eqx.field(static=True, default=False)
    """Whether outliers are down-weighted."""
    decorrelation: Decorrelation | None = None
    """Decorrelating combinations where the displacements of a load case have common errors; None for independent
    errors."""

    def view(self, model: Model) -> ElasticView:
        """Compliance of all elastic degrees of freedom; one per posture where it depends on posture, by springs between
        frames, loops, guides or gravity."""
        if model.deviates or self.at_equilibrium:
            return self.view_at(model, self.q, self.wrench)
        return ElasticView(self._compliance(model, self.q), self.at_point, self.effort)

    def after_sag(self, model: Model) -> Self | None:
        """The test of a machine that has deflected under its weight before the load acts; None where it is one, and
        where that is not supported: for play, and for loops of flexible links."""
        if self.at_equilibrium or not has_equilibria(model) or any(model.has_play):
            return None
        return dataclasses.replace(self, gravity=True, at_equilibrium=True)

    def about(self, model: Model) -> Self:
        """The test whose linear equations are about the equilibrium of a machine: the directions of the points, and the
        efforts of the loads, which the weight changes as the machine moves; NaN without an equilibrium. Unchanged for
        machines with loops, which have no linear equations."""
        if model.loops:
            return self
        at_point, effort = _at_equilibrium(self, model)
        return dataclasses.replace(self, at_point=at_point, effort=effort)

    def _compliance(self, model: Model, q: Float[Array, "t n"]) -> Float[Array, "*t e e"]:
        each = model.springs or model.loops or has_guides(model) or self.gravity
        return compliances(model, q, self.gravity) if each else compliances(model, q[:1])[0]

    def view_at(self, model: Model, q: Float[Array, "t n"], wrench: Float[Array, "t 6"]) -> ElasticView:
        """The view at other postures and loads, with the geometry of the machine.

        At the equilibrium, the load acts on the machine as it is deflected by weight and load, and points move along
        their directions in the middle between the equilibria without and with the load. With loops, the equations are
        those of the posture there.
        """

        def effort(q: Array, e: Array | None = None) -> Array:
            of_loaded = jax.vmap(elastic_jacobian, (None, 0, 0, None if e is None else 0))
            return jnp.einsum("txe,tx->te", of_loaded(model, q, self.frames[self.loaded], e), wrench)

        unloaded = None
        if self.at_equilibrium and model.loops:
            q, compliance = self._in_the_middle(model, q, effort)
        else:
            compliance = self._compliance(model, q)
            unloaded = jax.vmap(weight_deflection, (None, 0))(model, q) if self.at_equilibrium else None
        load, middle = effort(q, unloaded), None
        if unloaded is not None:
            moved = jnp.einsum("tef,tf->te", compliance, load)
            load, middle = effort(q, unloaded + moved), unloaded + 0.5 * moved
        jacobians = elastic_jacobians(model, q, self.frames, middle)
        return ElasticView(compliance, jacobians[self.case, self.point, self.axis], load[self.case])

    def _in_the_middle(
        self, model: Model, held: Float[Array, "t n"], effort: Callable[[Array], Array]
    ) -> tuple[Float[Array, "t n"], Float[Array, "t e e"]]:
        """Postures of a machine with loops in the middle between the equilibria without and with the load, and the
        compliance there, by Newton steps of the deflections by the weight and by the load."""
        close, pull = (jax.vmap(functools.partial(each, model)) for each in (loop_closure, _pull))

        def step(
            state: tuple[Array, Array, Array, Array], _none: None
        ) -> tuple[tuple[Array, Array, Array, Array], None]:
            by_weight, by_load, _, _ = state
            middle = close(held + by_weight + 0.5 * by_load)
            compliance = self._compliance(model, middle)
            of_pull = jnp.einsum("tef,tf->te", compliance, pull(held + by_weight, held))
            return (by_weight - of_pull, jnp.einsum("tef,tf->te", compliance, effort(middle)), middle, compliance), None

        none = jnp.zeros_like(held)
        start = none, none, none, jnp.zeros((*held.shape, held.shape[1]))
        *_, middle, compliance = jax.lax.scan(step, start, length=SAG_STEPS)[0]
        return middle, compliance

    def predict(self, view: ElasticView) -> Float[Array, "m"]:
        """Displacements of all rows, m and rad, to first order in the loads (see `view_at`)."""
        if view.compliance.ndim == 3:
            deflection = jnp.einsum("mef,mf->me", view.compliance[self.case], view.effort)
        else:
            deflection = view.effort @ view.compliance
        return jnp.sum(view.at_point * deflection, axis=1)

    def residual(self, view: ElasticView) -> Float[Array, "m"]:
        """sqrt(weight) (predicted - measured) / standard deviation, of decorrelated rows where errors are common."""
        return self.scaled(self.predict(view))

    def scaled(self, predicted: Float[Array, "m"]) -> Float[Array, "m"]:
        """`residual` of predicted displacements."""
        return jnp.sqrt(self.weight) * self.independent(predicted - self.displacement) / self.std

    def independent(self, rows: Any) -> Any:
        """Rows [m] or [m, d], decorrelated where the load case has common errors."""
        return rows if self.decorrelation is None else self.decorrelation.of(rows)

    @property
    def rows(self) -> int:
        """Number of measured displacements."""
        return self.displacement.size

    def stated_variances(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Weight of each row."""
        return on_host(self.weight)

    def score(self, view: ElasticView, reference_hz: np.ndarray | None) -> Score:
        """Explained part of the measured translations, or of the rotations where there are no translations."""
        turns = np.asarray(self.is_rotation)
        rows = np.flatnonzero(turns if turns.all() else ~turns)
        measured = np.asarray(self.displacement)[rows]
        residual = measured - np.asarray(self.predict(view))[rows]
        total = float(np.sum(measured**2))
        return Score(explained_percent=100.0 * (1.0 - float(np.sqrt(np.sum(residual**2) / total))) if total else None)

    evaluation = Attached(DeflectionEvaluation)
    """Evaluation of its residual in a fit."""
    linear = Attached(DeflectionEquations)
    """Displacements as linear equations."""
    description = Attached(LoadErrors)
    """Possible errors of its description."""


def deflection_test(
    name: str, model: Model, cases: Sequence[LoadCase], rotation_weight: float = 1.0, robust: bool = False,
    gravity: bool = False, instruments: Instruments | None = None, at_equilibrium: bool = False,
) -> DeflectionTest:  # fmt: skip
    """The deflection test of some load cases.

    Args:
        name: of the test.
        model: the machine whose geometry is used, and with instruments its stiffness.
        cases: loads with the measured displacements.
        rotation_weight: weight of the squared error of a rotation, relative to that of a translation.
        robust: whether outliers are down-weighted.
        gravity: whether gravity stiffness is included.
        instruments: their errors of load and posture are common to the displacements of a case; None for no such
            errors.
        at_equilibrium: whether the machine has deflected under its weight before the load acts; with gravity.
    """
    arrays = _arrays_of(model, cases)
    turns = np.concatenate([np.broadcast_to(np.arange(6) > 2, c.measured.shape)[c.measured] for c in cases])
    return DeflectionTest(
        name=name,
        **arrays,
        weight=jnp.asarray(np.where(turns, rotation_weight, 1.0)),
        is_rotation=jnp.asarray(turns),
        gravity=gravity,
        at_equilibrium=at_equilibrium,
        is_robust=robust,
        decorrelation=decorrelation(common_errors(model, cases, instruments, gravity), np.asarray(arrays["std"]))
        if instruments is not None and (instruments.changes_cases or instruments.repeat_std > 0.0)
        else None,
    )


def _arrays_of(model: Model, cases: Sequence[LoadCase]) -> dict[str, Array]:
    """Postures, rows and displacements of a `DeflectionTest`."""
    displacement, std = measured_displacements(cases)
    places = [np.nonzero(case.measured) for case in cases]
    names = frames_of(cases)
    numbers = [np.array([names.index(name) for name in case.points]) for case in cases]
    arrays = dict(zip(("at_point", "effort", "case"), elastic_rows(model, cases), strict=True)) | {
        "q": np.stack([case.q for case in cases]),
        "frames": np.array([frame_index(model, name) for name in names]),
        "point": np.concatenate([own[point] for own, (point, _) in zip(numbers, places, strict=True)]),
        "axis": np.concatenate([axis for _, axis in places]),
        "loaded": np.array([names.index(case.frame) for case in cases]),
        "wrench": np.stack([case.wrench for case in cases]),
        "displacement": displacement,
        "std": std,
    }
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def _is_compliant_at_motor(model: Model, free: set[str]) -> bool:
    stiffness = np.asarray(model.stiffness)
    return any(
        not model.locked[shaft] and (stiffness[shaft] > 0.0 or f"stiffness.{model.coordinates[shaft]}" in free)
        for _, shaft in model.motors
    )


def compliance_terms(model: Model, free: FreeParameters) -> list[Term]:
    """Entries of the compliance of all elastic degrees of freedom that each free parameter represents; empty where it
    has no effect on deflections."""

    def entries(name: str) -> Term:
        family, item, *axes = name.split(".")
        if family == "compliance":
            return spring_term(model, item, axes[0], axes[1])
        return joint_terms(model, [item])[0] if family == "stiffness" and item in model.coordinates else ()

    return [tuple(entry for name in names for entry in entries(name)) for names in free.tied]


def beam_compliances(model: Model, free: FreeParameters) -> dict[str, tuple[Float[np.ndarray, "e e"], float]]:
    """For each free modulus of a beam, the factor of its reciprocal in the compliance, and its value."""
    moduli = [name for names in free.tied for name in names if name.split(".")[0] in ("young_modulus", "shear_modulus")]
    found = {}
    if moduli:
        known, whole = parameters(model), _at_reference(model)
        for name in moduli:
            change = whole - _at_reference(set_parameters(model, {name: 2.0 * known[name]}))
            found[name] = (2.0 * known[name] * change, known[name])
    return found


def _at_reference(model: Model) -> Float[np.ndarray, "e e"]:
    """Compliance of all elastic degrees of freedom at the reference posture. Compiled, as the check of units evaluates
    it a hundred times."""
    return np.array(compliances(model, model.reference[None])[0])


DeflectionEntry = Entry[DeflectionTest, DeflectionSource]
"""A deflection test of a study."""
