"""A torque test: efforts of drives along a motion, linear in inertial and friction parameters, and its source."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import (
    Attached,
    Equations,
    LinearForm,
    Noise,
    OwnParameters,
)
from jaxmb.identify.experiments.machine_errors import loaded, payload_errors, total_error
from jaxmb.identify.experiments.test import Entry, Score, Source, Test
from jaxmb.identify.experiments.tolerances import (
    MOST_GAIN,
    StatedError,
    error_with_text,
    factor_text,
    scale_error,
    zero_error,
)
from jaxmb.identify.experiments.torque.effort_rows import EffortRows, stribeck
from jaxmb.identify.experiments.torque.gross_errors import DELAYS, unexplained_efforts
from jaxmb.identify.experiments.torque.preliminary_fits import DELAY_FAMILY, GAIN_FAMILY, DriveRecording
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_map
from jaxmb.identify.parameters.model_parameters import ParameterSpec
from jaxmb.identify.regression.base_parameters import BaseParameters, base_parameters, relevant_names
from jaxmb.io.validation import display_name, listed
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import Cutoff
from jaxmb.mechanics.loops import independent_joints


@compiled
def _entries(targets: tuple[ParameterSpec, ...], model: Model) -> Float[Array, "p"]:
    return jnp.stack([getattr(model, spec.leaf)[spec.entries[0]] for spec in targets])


class TorqueNoise(Noise["TorqueTest"]):
    """Noise of efforts, which is autocorrelated."""

    @property
    def correlation_lengths(self) -> Float[np.ndarray, "r"]:
        """Correlation length of each row, by which its variance is inflated."""
        return np.asarray(self.test.correlation_length)


class TorqueEquations(LinearForm["TorqueTest"]):
    """Efforts as linear equations in inertial and friction parameters, gains and a delay."""

    accepts_prior = True

    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """Zeros: efforts are linear in each value; NaN for values without effect on them.

        Raises:
            NotImplementedError: the free length of a spring is to be identified; its product with the stiffness is not
                linear.
        """
        lengths = [name for names in free.tied for name in names if name.startswith("free_length.")]
        if lengths:
            raise NotImplementedError(
                f"{display_name(self.test.name)}: efforts are not linear in '{lengths[0]}', it cannot be free"
            )
        mine = {*self.test.parameters, *self.test.own_names}
        acts = [any(name in mine for name in names) for names in free.tied]
        return np.where(acts, 0.0, np.nan)

    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """Efforts as linear equations in the free values."""
        regressor = np.asarray(self.test.regressor)
        share, constant = affine_map(model, free, self.test.parameters)
        matrix, rest = regressor @ share, regressor @ constant + np.asarray(self.test.constant)
        columns, own = np.asarray(self.test.own_columns), np.array(self.test.own_values)
        entries = free.entries_of(self.test.own_names)
        for k, entry in enumerate([] if entries is None else entries.tolist()):
            if entry >= 0:
                matrix[:, entry] += columns[:, k]
                own[k] = 0.0
        rest = rest + columns @ own
        return Equations(
            matrix=matrix,
            measured=np.asarray(self.test.effort) - rest,
            std=np.asarray(self.test.std),
            weight=np.ones(self.test.rows),
            case=np.arange(self.test.rows),
        )

    def combinations(self, model: Model, free: FreeParameters) -> BaseParameters:
        """Base parameters."""
        return base_parameters(model, relevant_names(model, {name for names in free.tied for name in names}))


class TorqueGains(OwnParameters["TorqueTest"]):
    """Gains of drives and a delay."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gains of its drives, and of its delay."""
        return self.test.own_names

    @property
    def values(self) -> Float[Array, "g"] | Float[np.ndarray, "g"]:
        """Their values, in the order of `names`."""
        return self.test.own_values

    def with_values(self, values: Float[Array, "g"] | Float[np.ndarray, "g"]) -> "TorqueTest":
        """The test with other values of its own parameters."""
        return dataclasses.replace(self.test, own_values=values)


class TorqueTest(Test[Float[Array, "p"]]):
    """Efforts at coordinates along a motion: effort = Y p + c, p the inertial and friction parameters of the machine.

    The motion is given and geometry is fixed, so that Y is constant.
    """

    name: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)
    """Names of p (`regressor_names`, and Stribeck speeds)."""
    targets: tuple[ParameterSpec, ...] = eqx.field(static=True)
    """Entry of each in the model."""
    regressor: Float[Array, "r p"]
    """Y, filtered as the efforts are."""
    effort: Float[Array, "r"]
    """Measured efforts, Nm or N."""
    std: Float[Array, "r"]
    """Noise of each, increased by the root of the correlation length where it was estimated."""
    coordinate: Int[Array, "r"]
    """Index of the coordinate of each row among those measured."""
    own_values: Float[Array, "g"]
    """Values of the parameters `own_names`."""
    own_columns: Float[Array, "r g"]
    """Their columns."""
    correlation_length: Float[Array, "r"]
    """Correlation length of each row in samples, by which the variance `std`^2 is inflated so that correlated samples
    enter as if independent."""
    constant: Float[Array, "r"]
    """Constant term c, from linearized columns."""
    is_robust: bool = eqx.field(static=True, default=False)
    """Whether outliers are down-weighted."""
    own_names: tuple[str, ...] = eqx.field(static=True, default=())
    """Names of the test's own parameters: gains of drives, and the delay of the torques."""

    def view(self, model: Model) -> Float[Array, "p"]:
        """The inertial and friction parameters of a machine."""
        return _entries(self.targets, model)

    def predict(self, view: Float[Array, "p"]) -> Float[Array, "r"]:
        """Efforts of all rows, Nm or N."""
        return self.regressor @ view + self.constant + self.own_columns @ self.own_values

    def residual(self, view: Float[Array, "p"]) -> Float[Array, "r"]:
        """(predicted - measured) / standard deviation."""
        return (self.predict(view) - self.effort) / self.std

    @property
    def rows(self) -> int:
        """Number of efforts."""
        return self.effort.size

    def score(self, view: Any, reference_hz: np.ndarray | None) -> Score:
        """Explained part of the measured efforts, each coordinate relative to its own size."""
        measured, missed = self.sizes(view)
        loaded = measured > 0.0
        if not loaded.any():
            return Score()
        errors = missed[loaded] / measured[loaded]
        return Score(explained_percent=100.0 * (1.0 - float(np.sqrt(np.mean(errors**2)))))

    def sizes(self, view: Any) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
        """Root mean square of the effort and of the residual at each measured coordinate, Nm or N."""
        number, measured = np.asarray(self.coordinate), np.asarray(self.effort)
        squares = np.stack([measured, measured - np.asarray(self.predict(view))]) ** 2
        sums = [np.bincount(number, weights=part) / np.bincount(number) for part in squares]
        return np.sqrt(sums[0]), np.sqrt(sums[1])

    def with_own(
        self, names: Sequence[str], values: Float[np.ndarray, "k"], columns: Float[np.ndarray, "r k"]
    ) -> "TorqueTest":
        """The test with further own parameters.

        Args:
            names: of these.
            values: of linearization, at which the prediction is unchanged.
            columns: derivatives of the prediction.
        """
        return dataclasses.replace(
            self,
            constant=jax.device_put(np.asarray(self.constant) - columns @ values),
            own_names=(*self.own_names, *names),
            own_values=jax.device_put(np.concatenate([self.own_values, values])),
            own_columns=jax.device_put(np.concatenate([self.own_columns, columns], axis=1)),
        )

    noise = Attached(TorqueNoise)
    """Noise of efforts."""
    linear = Attached(TorqueEquations)
    """Efforts as linear equations."""

    own = Attached(lambda test: TorqueGains(test) if test.own_names else None)
    """Gains of its drives and its delay, as parameters of the test; None where none are free."""


Rebuild = Callable[..., TorqueTest]
"""Returns a test for the gravity and axes of another model and corrected readings, with the same rows. Arguments: the
model; `zeros`, true minus stated zero of coordinates, rad or m; `factors` on the angle and on the rates of coordinates;
two coordinates whose columns are `exchanged`; `sampling`, true over stated sampling rate."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TorqueSource(Source):
    """Samples and metadata of the record of a torque test."""

    follows_geometry: ClassVar[bool] = False
    time_s: Float[np.ndarray, "r"]
    """Time of each row."""
    velocity: Float[np.ndarray, "r"]
    """Velocity of the coordinate of each row, rad/s or m/s."""
    coordinates: tuple[str, ...]
    """Coordinates with measured effort, in the order of the test's indices."""
    revolute: tuple[bool, ...]
    """Whether each of them is an angle."""
    noise_bound: Float[np.ndarray, "c"]
    """Upper bound of the noise of each effort, Nm or N, from the recorded spectrum above the band of the motion."""
    rebuild: Rebuild
    gravity: Float[np.ndarray, "3"]
    """Gravity that its equations were made with."""
    origin: Float[np.ndarray, "n 4 4"]
    """Origins of the coordinates that they were made with."""
    cutoff_hz: Cutoff | None = None
    """Cut-off of the filter of its angles, stated or searched; None for another estimate of the motion."""
    doubts: tuple[str, ...] = ()
    """Sentences on possible errors of the motion."""
    impossible_motion: str = ""
    """A sentence on a motion that is impossible for the machine; empty where there is none."""
    selection_rows: EffortRows | None = None
    """Its equations, for the selection of friction terms; None where none are requested."""
    friction_kinds: tuple[str, ...] = ()
    """Candidate kinds of friction terms."""
    drives: tuple[str, ...] = ()
    """Names of the recorded drives."""
    effort_by_drive: Float[np.ndarray, "r d"] | None = None
    """Part of each effort that is due to each of them; None unless one acts on several coordinates."""
    noise_estimated: bool = False
    """Whether the noise is estimated from the residual of a fit, so that chi-square is uninformative."""
    joints_at_rest: tuple[str, ...] = ()
    """Joints without a column, assumed at rest at the posture."""
    std_unknown: bool = False
    """Whether torques saturate, or errors of a motion from a Kalman smoother are a large part of the noise, so that
    standard deviations are unknown."""
    reversed_gears: Mapping[tuple[str, ...], Callable[[], TorqueTest]] = dataclasses.field(default_factory=dict)
    """Builders of the test with gear ratios of the opposite sign, by joints recorded at their shafts."""
    payloads: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    """Columns of the regressor of each mounted payload."""
    drive_recording: DriveRecording | None = None
    """Its equations with the recorded drive signals, for a first fit of drive gains; None where gains are fixed."""

    def errors(self, test: Any, model: Model) -> Iterator[StatedError]:
        """Errors of torque constants (of the drives where one acts on several coordinates, else of the torques of
        coordinates) where no gain of a drive is free, of the delays of the torques, of the sampling rate, of the zeros
        and gear ratios of coordinates, payloads, missing friction and offsets; of this test or of all."""
        if not any(name.startswith(f"{GAIN_FAMILY}.") for name in test.own_names):
            yield _factor(test.name)
            yield from (_torque_constant(name) for name in self._constants)
            yield from (_torque_constant(name, test.name) for name in self._constants)
        step = float(np.median(np.diff(np.unique(self.time_s))))
        starts = tuple(sign * count * step for count in DELAYS for sign in (1.0, -1.0))
        delays = DELAY, *(_delay(*of) for of in self._delayed_torques(test))
        yield from (error._replace(starts=starts, step=step) for error in delays)
        yield from (SAMPLING, _sampling_of(test.name))
        yield from _zeros(model).values()
        yield from map(scale_error, _zeros(model))
        yield from _zeros(model, test.name).values()
        yield from (error for error, _ in payload_errors(model, test.name))
        yield from (error for error, _ in (*_losses(test, model), *self._friction(test)))

    def _delayed_torques(self, test: TorqueTest) -> Iterator[tuple[str, str]]:
        """Coordinates and tests with an error of their delay, empty for all."""
        yield from ((name, "") for name in self.coordinates)
        yield from ((name, test.name) for name in ("", *self.coordinates))

    @property
    def _constants(self) -> tuple[str, ...]:
        """Names of the torques with an error of their constant."""
        return self.coordinates if self.effort_by_drive is None else self.drives

    def _friction(self, test: TorqueTest) -> Iterator[tuple[StatedError, Float[np.ndarray, "r"]]]:
        """Friction and offsets that the machine may lack, by coefficients that tests of other speeds share, in this
        test or in all, and the effort of each for a size of 1."""
        number, effort = np.asarray(test.coordinate), np.asarray(test.effort)
        where = f" in {display_name(test.name)}"
        for i, name in enumerate(self.coordinates):
            own = number == i
            speed, level = np.where(own, self.velocity, 0.0), float(np.sqrt(np.mean(effort[own] ** 2)))
            most = float(np.abs(speed).max(initial=0.0))
            if not most > 0.0 or not level > 0.0:
                continue
            unit, length = ("N m", "rad") if self.revolute[i] else ("N", "m")
            speeds = 2.0 ** (math.ceil(math.log2(SLOWEST * most)) + np.arange(STRIBECK))
            for kind, of, shape in (
                ("Coulomb friction", unit, np.sign(speed)),
                ("offset of the torque", unit, np.where(own, 1.0, 0.0)),
                ("viscous friction", f"{unit} s/{length}", speed),
                ("cubic friction", f"{unit} s^3/{length}^3", speed**3),
                *((f"Stribeck friction below {v:.3g} {length}/s", unit, stribeck(speed, v)) for v in speeds),
            ):
                key, size = f"friction of {name}: {kind}", 0.1 * level / float(np.abs(shape).max())
                yield error_with_text(key, _friction_text, kind, name, of, size=size), shape
                if kind in OF_TESTS:
                    key = f"{key} in {test.name}"
                    yield error_with_text(key, _friction_text, kind, f"{name}{where}", of, size=size), shape

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with its description corrected; see `Source`. Torques depend on the centres of mass far more than on
        the axes, whose errors would take most of the time of a budget and are left out."""
        zeros = dict[str, float]()
        for name, error in (*_zeros(model).items(), *_zeros(model, test.name).items()):
            if errors.get(error.key):
                zeros[name] = zeros.get(name, 0.0) + errors[error.key]
        scales = {name: 1.0 + errors[key] for name in _zeros(model) if errors.get(key := scale_error(name).key)}
        model = dataclasses.replace(model, origin=jax.device_put(self.origin))
        sampling = math.exp(sum(errors.get(error.key, 0.0) for error in (SAMPLING, _sampling_of(test.name))))
        is_tilted = not np.array_equal(self.gravity, np.asarray(model.gravity))
        moved = bool(zeros or scales or is_tilted or sampling != 1.0)
        rates = {name: (scale, scale) for name, scale in scales.items()}
        there = self.rebuild(model, zeros=zeros, factors=rates, sampling=sampling) if moved else test
        payload = total_error(payload_errors(model, test.name), errors)
        if payload is not None:
            added = np.asarray(there.view(loaded(model, payload)) - there.view(model))
            there = dataclasses.replace(there, constant=there.constant + np.asarray(there.regressor) @ added)
        losses = total_error(_losses(test, model), errors)
        if losses is not None:
            there = dataclasses.replace(there, regressor=there.regressor * (1.0 + losses))
        gains = np.array(
            [sum(errors.get(_torque_constant(name, of).key, 0.0) for of in ("", test.name)) for name in self._constants]
        )
        gains += errors.get(_factor(test.name).key, 0.0)
        late = np.full(len(self.coordinates), errors.get(DELAY.key, 0.0))
        for name, of in self._delayed_torques(test):
            late[[not name or name == each for each in self.coordinates]] += errors.get(_delay(name, of).key, 0.0)
        has_friction = any(key.startswith("friction of ") for key in errors)
        if there is test and not (gains.any() or late.any() or has_friction):
            return test
        effort, std, number = np.asarray(there.effort), np.asarray(there.std), np.asarray(test.coordinate)
        if has_friction:
            effort = effort - sum(errors.get(error.key, 0.0) * shape for error, shape in self._friction(test))
        factor = np.exp(-gains)  # of the measured torques with their noise
        if self.effort_by_drive is None:
            effort, std = effort * factor[number], std * factor[number]
        else:
            square = np.stack(
                [np.sum(self.effort_by_drive[number == i] ** 2, axis=0) for i in range(len(self.coordinates))]
            )
            square = np.maximum(square, 1e-300)  # noise in proportion to the part of each drive
            effort = effort + self.effort_by_drive @ (factor - 1.0)
            std = std * np.sqrt(square @ factor**2 / square.sum(axis=1))[number]
        there = dataclasses.replace(there, effort=jax.device_put(effort), std=jax.device_put(std))
        return self._delayed(there, late) if late.any() else there

    def _delayed(self, test: TorqueTest, late: Float[np.ndarray, "c"]) -> TorqueTest:
        """The test with the predicted efforts of each coordinate so many seconds later, between neighbouring rows.

        Rows that are then more than a step from any other, as in the gap of a slow motion, where friction reverses,
        have no prediction and an infinite standard deviation.
        """
        std, number = np.array(test.std), np.asarray(test.coordinate)
        both = np.column_stack([test.regressor, np.asarray(test.constant)])
        for i in np.flatnonzero(late).tolist():
            own = np.flatnonzero(number == i)
            k, share, is_near = samples_at(self.time_s[own], self.time_s[own] - late[i])
            std[own[~is_near]] = np.inf
            old, weight = both[own], share[:, None]
            both[own] = (1.0 - weight) * old[k] + weight * old[k + 1]
        fields = {"regressor": both[:, :-1], "constant": both[:, -1], "std": std}
        return dataclasses.replace(test, **{name: jax.device_put(value) for name, value in fields.items()})

    def alternatives(self, test: Any, model: Model) -> Iterator[tuple[str, str, Any]]:
        """Reversed, exchanged, missing and saturated torques, reversed and exchanged coordinates, other units, reversed
        gears, payloads that were not mounted."""
        return ((text, text, there) for text, there in self._alternatives(test, model))

    def _alternatives(self, test: TorqueTest, model: Model) -> Iterator[tuple[str, TorqueTest]]:
        number, effort, std = (np.asarray(x) for x in (test.coordinate, test.effort, test.std))
        rows = [np.flatnonzero(number == i) for i in range(len(self.coordinates))]

        def measuring(effort: np.ndarray, std: np.ndarray, there: TorqueTest = test) -> TorqueTest:
            return dataclasses.replace(there, effort=jax.device_put(effort), std=jax.device_put(std))

        for text, factor in self._factors_on_several(test, model):
            yield text, measuring(factor[number] * effort, np.abs(factor)[number] * std)
        for name, columns in self.payloads.items():
            regressor = np.array(test.regressor)
            regressor[:, columns] = 0.0
            text = f"payload {name}, which was not mounted,"
            yield text, dataclasses.replace(test, regressor=jax.device_put(regressor))
        for i, name in enumerate(self.coordinates):
            sign = np.where(number == i, -1.0, 1.0)
            yield f"the sign of the torque of {name}", measuring(sign * effort, std)
            if not model.loops:
                # about the opposite axis by the opposite angle
                k = model.coordinates.index(name)
                axis = np.array(model.axis)
                axis[k] *= -1.0
                there = self.rebuild(dataclasses.replace(model, axis=jax.device_put(axis)))
                yield f"the sign of angle {name}", measuring(sign * effort, std, there)
                yield f"the sign of angle {name} and of its torque", measuring(effort, std, there)
                yield from self._in_unit(model, name, [name])
            most = np.abs(effort[rows[i]]).max(initial=0.0)
            if not most > 0.0:
                yield f"missing torque of {name}, 0 throughout,", measuring(effort, np.where(number == i, np.inf, std))
                continue
            size, noise = np.abs(effort[rows[i]]), float(np.median(std[rows[i]]))
            width = np.clip(SCATTERED * noise, FLAT * most, MOST_FLAT * most)
            flat, near = np.sum(size > most - width), np.sum(size > most - 2.0 * width)
            if flat > max(LEAST_FLAT * size.size, PILED * (near - flat)):
                text = f"the torque of {name}, which saturates at {most:.3g} {'N m' if self.revolute[i] else 'N'},"
                excluded = (number == i) & (np.abs(effort) > most - 1.5 * width)
                yield text, measuring(effort, np.where(excluded, 1e6 * most, std))
        for revolute, every in () if model.loops else ((True, "all angles"), (False, "all travels")):
            own = [name for name, turns in zip(self.coordinates, self.revolute, strict=True) if turns == revolute]
            if len(own) > 1:
                yield from self._in_unit(model, every, own)
            for pair in itertools.combinations(own, 2):
                text = f"exchanged {'angles' if revolute else 'travels'} of {' and '.join(pair)}"
                yield text, self.rebuild(model, exchanged=pair)
        # the noise of a torque, bounded by `variance_bound`, belongs to its column
        scatter = std * np.sqrt(np.minimum(self.variance_bound(test), test.noise.correlation_lengths))
        for i, k in itertools.combinations(range(len(rows)), 2):
            # samples that are excluded of one joint have no counterpart
            _, of_i, of_k = np.intersect1d(self.time_s[rows[i]], self.time_s[rows[k]], return_indices=True)
            if 2 * of_i.size < max(rows[i].size, rows[k].size):
                continue  # without most samples any data are explained
            order, alone = np.arange(effort.size), np.concatenate([np.delete(rows[i], of_i), np.delete(rows[k], of_k)])
            order[rows[i][of_i]], order[rows[k][of_k]] = rows[k][of_k], rows[i][of_i]
            own = std * scatter[order] / scatter
            own[alone] = 1e6 * np.abs(effort).max()
            yield f"exchanged torques of {self.coordinates[i]} and {self.coordinates[k]}", measuring(effort[order], own)
        for joints, read in self.reversed_gears.items():
            there = read()
            if np.asarray(there.effort).size == effort.size:
                yield f"the opposite sign of the gear ratio of {listed(joints)}", there

    def _factors_on_several(self, test: TorqueTest, model: Model) -> Iterator[tuple[str, Float[np.ndarray, "c"]]]:
        """Factors on the torques of several joints: -1 for all, and -1 or 9.81 for those where the ratio of measured to
        predicted torque, beside friction, suggests it."""
        number, both = np.asarray(test.coordinate), np.stack([test.predict(test.view(model)), test.effort], axis=1)
        ratio = np.ones(len(self.coordinates))
        for i in range(ratio.size):
            own, speed = both[number == i], self.velocity[number == i]
            friction = np.linalg.qr(np.stack([np.ones_like(speed), speed, np.sign(speed)], axis=1))[0]
            predicted, measured = (own - friction @ (friction.T @ own)).T
            ratio[i] = predicted @ measured / max(float(predicted @ predicted), 1e-300)
        near = np.log(np.maximum(ratio, 1e-9)) / np.log(GRAVITY)
        if ratio.size > 1:
            yield "the sign of all torques", np.full(ratio.size, -1.0)
        for what, factor, joints in (
            ("the sign of", -1.0, ratio < 0.0),
            ("a factor of 9.81 (kilograms and newtons) on", GRAVITY, np.abs(near + 1.0) < 0.5),
            ("a factor of 1 / 9.81 (kilograms and newtons) on", 1.0 / GRAVITY, np.abs(near - 1.0) < 0.5),
        ):
            if 1 < np.sum(joints) < ratio.size:  # a single one and all of them are tried in any case
                names = [name for name, chosen in zip(self.coordinates, joints, strict=True) if chosen]
                yield f"{what} the torques of {' and '.join(names)}", np.where(joints, factor, 1.0)

    def _in_unit(self, model: Model, what: str, names: Sequence[str]) -> Iterator[tuple[str, TorqueTest]]:
        """The test where some angles are in degrees, or travels in mm, without and with their rates."""
        revolute = self.revolute[self.coordinates.index(names[0])]
        factor, text = (np.pi / 180.0, f"{what} in deg") if revolute else (1e-3, f"{what} in mm")
        if len(names) == 1:
            text = f"{'angle' if revolute else 'travel'} {text}"
        for own, rate in ((text, 1.0), (f"{text}, with {'its' if len(names) == 1 else 'their'} rates", factor)):
            yield own, self.rebuild(model, factors=dict.fromkeys(names, (factor, rate)))

    def variance_bound(self, test: TorqueTest) -> Float[np.ndarray, "r"]:
        """Upper bound of the variance of each row by `noise_bound`, where the noise is estimated."""
        if not self.noise_estimated:
            return np.full(test.rows, np.inf)
        return (self.noise_bound[np.asarray(test.coordinate)] / np.asarray(test.std)) ** 2

    def gross_errors(self, test: Any, model: Model, jacobian: np.ndarray | None = None) -> str:
        """A sentence on joints whose torque is not reproduced; see `Source.gross_errors`."""
        if self.impossible_motion:
            return self.impossible_motion
        predicted = np.asarray(test.predict(test.view(model)))
        joints, cause = unexplained_efforts(test, predicted, self.time_s, self.noise_bound, self.coordinates, jacobian)
        if not joints:
            return ""
        rest_text = (
            f"a motion of {listed(self.joints_at_rest)}, of which there is no record, " if self.joints_at_rest else ""
        )
        geared = {model.coordinates[i] for pair in model.motors for i in pair}
        stiff = {name for name, k in zip(model.coordinates, model.stiffness, strict=True) if k > 0.0}
        springs = [name for name in self.coordinates if name in stiff - geared]
        spring_text = (
            f"the stiffness of {listed(springs)}, which acts parallel to the drive (that of a gear needs"
            " motor = { inertia, ratio }, or 0 in [hold]), "
        )
        cause = cause or (
            f"usual causes: {rest_text}{spring_text if springs else ''}order, sign or unit of columns, sign or zero of"
            " an angle, torque and angle at different times, the direction of gravity, a payload, missing"
            " friction"
        )
        return f"the fit does not reproduce the torque of {listed(joints)}; {cause}"


def samples_at(
    time_s: Float[np.ndarray, "r"], at_s: Float[np.ndarray, "r"]
) -> tuple[Int[np.ndarray, "r"], Float[np.ndarray, "r"], np.ndarray]:
    """Interpolation between samples at other times: index k and weight of the sample k + 1, that of k being its
    complement, and whether a sample is near: within 1.5 steps. Nothing is interpolated across a gap."""
    step = float(np.median(np.diff(time_s)))
    k = np.clip(np.searchsorted(time_s, at_s, side="right") - 1, 0, time_s.size - 2)
    width = time_s[k + 1] - time_s[k]
    share = np.clip((at_s - time_s[k]) / np.maximum(width, 1e-12), 0.0, 1.0)
    distance = np.minimum(np.abs(at_s - time_s[k]), np.abs(time_s[k + 1] - at_s))
    return k, np.where(width > 1.5 * step, np.round(share), share), distance <= 1.5 * step


SLOWEST, STRIBECK = 0.02, 5
"""Smallest candidate Stribeck speed over the largest speed, and number of candidates, powers of 2."""
GRAVITY = 9.80665
FACTORS = tuple(sign * float(np.log(size)) for size in (GRAVITY, 1000.0) for sign in (1.0, -1.0))
"""Starting values of the logarithm of a factor."""
FLAT, SCATTERED, MOST_FLAT = 0.03, 6.0, 0.2
"""Distance from the largest torque within which saturated samples pile up: over this torque, over the noise, and the
largest; they are excluded up to 1.5 times as far."""
LEAST_FLAT, PILED = 0.03, 3.0
"""Share of such samples, and their number over that in the next range of equal width: 2.4 for a sine, more where they
pile up."""


def delay_text(what: str, value: float) -> str:
    """Text on torques that are so many seconds late."""
    return f"{what} {1e3 * abs(value):.2g} ms {'late' if value > 0.0 else 'early'} against the angles"


def _friction_text(kind: str, name: str, unit: str, value: float) -> str:
    return f"missing {kind} of {name} ({value:.2g} {unit})"


MOST_SAMPLING = 3.0
"""Logarithm of the largest plausible factor on a sampling rate."""
SAMPLING = StatedError(
    "sampling rate", text=lambda x: f"a sampling rate {math.exp(x):.4g} times the stated one", size=1e-4,
    most=MOST_SAMPLING, starts=(0.2, -0.2, 0.7, -0.7),
)  # fmt: skip
"""Logarithm of the true over the stated sampling rate."""
FRICTION = "friction", "damping"
"""Families of Coulomb and viscous friction."""
OF_TESTS = "Coulomb friction", "offset of the torque", "viscous friction"
"""Kinds of friction that may differ between tests."""
MOST_LOSSES = 9.0
"""Largest change of the friction of a test over that of all."""


def _sampling_of(test: str) -> StatedError:
    def text(value: float) -> str:
        return f"{SAMPLING.described(value)} in {display_name(test)}"

    return SAMPLING._replace(key=f"{SAMPLING.key} of {test}", text=text)


DELAY = error_with_text("delay of the torques", delay_text, "torques that are", tolerance="torque_delay_ms", unit=1e-3)


def _delay(name: str, test: str) -> StatedError:
    """Delay of the torque of a coordinate, or of all, in a test or in all."""
    what, of = (f"torque of {name}", "that is") if name else ("torques", "that are")
    key, where = (f"{what} in {test}", f"{what} in {display_name(test)}") if test else (what, what)
    remedy = f' ("{DELAY_FAMILY}.{test}" in [free])' if test and not name else ""
    return error_with_text(
        f"delay of the {key}", lambda text, x: delay_text(text, x) + remedy, f"{where} {of}", size=1e-3
    )


def _torque_constant(name: str, test: str = "") -> StatedError:
    """Logarithm of measured over true torque of a coordinate or drive, common to all tests or in one."""
    key, what = f"torque constant of {name}", f"the torque of {name}"
    if test:
        what = f"{what} in {display_name(test)}"
        return error_with_text(f"{key} in {test}", factor_text, what, size=0.1, most=MOST_GAIN, starts=FACTORS)
    return error_with_text(
        key, factor_text, what, tolerance="torque_percent", unit=0.01, most=MOST_GAIN, starts=FACTORS
    )


def _factor(test: str) -> StatedError:
    """Logarithm of measured over true torques of a test."""
    what = f"the torques of {display_name(test)}"
    return error_with_text(f"torques of {test}", factor_text, what, size=0.1, most=MOST_GAIN, starts=FACTORS)


def _losses(test: TorqueTest, model: Model) -> Iterator[tuple[StatedError, Float[np.ndarray, "p"]]]:
    """Changes of the friction in a test that is colder or warmer than others, with a mask of its parameters: without
    the damping of springs, as of elastic gears."""
    families = np.array([name.split(".")[0] for name in test.parameters])
    stiffness = zip(model.coordinates, np.asarray(model.stiffness).tolist(), strict=True)
    of_springs = {f"damping.{name}" for name, value in stiffness if value > 0.0}
    effects = np.asarray(test.regressor).any(axis=0) & ~np.isin(test.parameters, list(of_springs))
    for what, some in (("friction", FRICTION), ("Coulomb friction", FRICTION[:1]), ("viscous friction", FRICTION[1:])):
        acts = np.isin(families, some) & effects
        if acts.any():
            yield error_with_text(
                f"{what} in {test.name}", _losses_text, what, display_name(test.name), size=0.1, least=-1.0,
                most=MOST_LOSSES,
            ), acts.astype(float)  # fmt: skip


def _losses_text(what: str, test: str, value: float) -> str:
    return f"{what} {1.0 + value:.3g} times as large in {test}"


def _zeros(model: Model, test: str = "") -> dict[str, StatedError]:
    """Errors of the zeros of independent joint coordinates, common to all tests or in one, by coordinate."""
    found = {name: zero_error(name, revolute) for _, name, revolute in independent_joints(model)}
    if not test:
        return found
    return {
        name: error_with_text(
            f"{error.key} in {test}", lambda error, x: f"{error.described(x)} in {display_name(test)}", error,
            size=error.typical, most=error.bounds[1],
        )
        for name, error in found.items()
    }  # fmt: skip


TorqueEntry = Entry[TorqueTest, TorqueSource]
"""A torque test of a study."""


def torque_entries(entries: Iterable[Entry]) -> list[TorqueEntry]:
    """The torque tests among the tests of a study."""
    return [entry for entry in entries if isinstance(entry.source, TorqueSource)]
