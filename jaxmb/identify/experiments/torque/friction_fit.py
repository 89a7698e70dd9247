"""Selection and fit of friction terms, jointly with all parameters of a machine."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from jaxmb.identify.experiments.torque.effort_noise import correlation_length, effort_std
from jaxmb.identify.experiments.torque.prepared import RANK, Prepared, Samples, least_squares, stribeck, stribeck_slope
from jaxmb.identify.regression.torque_regressor import load_columns

ROUNDS = 30
"""Iterations of the fit with all selected terms."""
SETTLED = 1e-6
"""Relative change of all coefficients and speeds at convergence."""


class FrictionTerm(NamedTuple):
    """A term of the friction of one coordinate."""

    coordinate: str
    kind: str
    """One of `FRICTION_KINDS`."""
    coefficient: float
    """Nm or N for "stribeck", without a unit for "load", Nm s^3 for "cubic" and Nm s/K for "temperature"."""
    std: float
    speed: float | None
    """Stribeck speed, rad/s or m/s."""
    before: float
    """Root mean square error of the coordinate's effort on held-out motion, Nm or N."""
    after: float
    temperature: float | None = None
    """Mean recorded temperature, the reference of the damping slope."""


class FrictionChoice(NamedTuple):
    """Selected friction terms, and the machine fitted with them."""

    terms: tuple[FrictionTerm, ...]
    """Terms by decreasing improvement."""
    values: dict[str, float]
    """Values of the regressor's parameters fitted with the terms; they determine the load of the gears."""


def fitted_terms(
    rows: Prepared, names: Sequence[str], terms: Sequence[FrictionTerm], std: Float[np.ndarray, "r"]
) -> FrictionChoice:
    """Joint weighted least squares fit of friction terms and all parameters.

    Gauss-Newton steps in the coefficients and Stribeck speeds; the load of the gears is that of the previous step.

    Args:
        rows: equations of the motion, with its samples.
        names: of the regressor's columns.
        terms: with initial coefficients and speeds.
        std: of each row, Nm or N.
    """
    right = (rows.effort - rows.constant) / std
    best, _ = least_squares(rows.regressor / std[:, None], right)
    choice = FrictionChoice(tuple(terms), dict(zip(names, best.tolist(), strict=True)))
    for _ in range(ROUNDS):
        columns, slopes = term_columns(rows, names, choice)
        best, _ = least_squares(np.concatenate([rows.regressor, columns, slopes], axis=1) / std[:, None], right)
        values, sizes, steps = np.split(best, [len(names), len(names) + len(terms)])
        curved = iter(steps.tolist())
        found = [
            term._replace(
                coefficient=float(size), speed=None if term.speed is None else _limited_step(term.speed, next(curved))
            )
            for term, size in zip(choice.terms, sizes, strict=True)
        ]
        before, choice = choice, FrictionChoice(tuple(found), dict(zip(names, values.tolist(), strict=True)))
        if all(_near(a, b) for a, b in zip(before.terms, found, strict=True)):
            break
    return choice


def term_columns(rows: Prepared, names: Sequence[str], choice: FrictionChoice) -> tuple[np.ndarray, np.ndarray]:
    """Regressor columns of the coefficients of terms [r, k], and of Stribeck speeds [r, s]."""
    loads, samples = load_columns(names), rows.all_samples
    values = np.array([choice.values[name] for name in names])
    columns, slopes = [], []
    for term in choice.terms:
        i = rows.measured.index(term.coordinate)
        columns.append(term_column(rows, i, term_effort(term.kind, term.speed, samples, i, loads, values)))
        if term.speed is not None:
            slope = term.coefficient * stribeck_slope(samples.velocity[:, i], term.speed)
            slopes.append(term_column(rows, i, slope))
    empty = np.zeros((len(rows.effort), 0))
    return np.column_stack([empty, *columns]), np.column_stack([empty, *slopes])


def _limited_step(speed: float, step: float) -> float:
    """A Stribeck speed after a step, limited to a factor of 1.5."""
    return float(np.clip(speed + step, speed / 1.5, 1.5 * speed))


def _near(before: FrictionTerm, after: FrictionTerm) -> bool:
    changes = [abs(after.coefficient - before.coefficient) <= SETTLED * abs(after.coefficient)]
    if before.speed is not None and after.speed is not None:
        changes.append(abs(after.speed - before.speed) <= SETTLED * after.speed)
    return all(changes)


def term_column(rows: Prepared, coordinate: int, effort: Float[np.ndarray, "k"]) -> Float[np.ndarray, "r"]:
    """Rows of the equations for an effort at one coordinate."""
    samples = rows.all_samples
    whole = np.zeros(samples.velocity.shape)
    whole[:, coordinate] = effort
    return samples.kept(whole)


def term_effort(
    kind: str, speed: float | None, samples: Samples, i: int, loads: np.ndarray, values: np.ndarray
) -> Float[np.ndarray, "k"]:
    """Effort of a kind of term with a coefficient of 1, at all samples of one coordinate.

    Args:
        kind: one of `FRICTION_KINDS`.
        speed: Stribeck speed, rad/s or m/s.
        samples: of the motion.
        i: index of the coordinate among those measured.
        loads: indices of the columns that load the gear.
        values: of the regressor's parameters.
    """
    v = samples.velocity[:, i]
    if kind == "stribeck" and speed is not None:
        return stribeck(v, speed)
    if kind == "cubic":
        return v**3
    if kind == "load":
        return np.abs(samples.regressor[:, i, loads] @ values[loads]) * np.sign(v)
    temperature = samples.temperature
    return np.zeros(v.shape) if temperature is None else (temperature - temperature.mean()) * v


FOLDS = 5
"""Consecutive parts of the record, each held out once."""
LEVEL = 0.01
"""Significance level of a term, corrected for the number of candidates."""
MOST_ROWS = 10_000
"""Largest number of rows used, evenly spaced over the record."""
MOST = 6
"""Largest number of selected terms."""
SPEEDS = np.geomspace(0.02, 0.5, 9)
"""Candidate Stribeck speeds over the largest speed."""


class _Candidate(NamedTuple):
    coordinate: int
    kind: str
    speed: float | None
    column: np.ndarray


def friction_terms(
    rows: Prepared,
    names: Sequence[str],
    kinds: Sequence[str],
    there: Collection[tuple[str, str]] = (),
) -> FrictionChoice:
    """Friction terms that improve the prediction of held-out motion, by decreasing improvement.

    Beside viscous and Coulomb friction and an offset, effort at a coordinate of speed v may have c exp(-(v / v_s)^2)
    sign v ("stribeck"), c |tau| sign v with tau the effort that the gear carries without friction ("load"), c v^3
    ("cubic") and c (T - mean T) v ("temperature"). All are linear in c, and fitted jointly with all parameters of the
    machine, free or not, so that no term absorbs effects of masses or inertias; v_s is selected from a grid. Terms are
    selected one at a time: cross-validation errors must decrease by more than the standard error of the mean of their
    logarithms, and the coefficient must be significant for that many candidates. After each selection all terms are
    refitted, with Stribeck speeds and the load tau of the fitted parameters: the residual of a grid of speeds would
    resemble a further term.

    Args:
        rows: equations of the motion, with its samples.
        names: of the regressor's columns.
        kinds: candidates among `FRICTION_KINDS`.
        there: coordinates and kinds of the terms that the machine already has.

    Source: Armstrong-Helouvry, Dupont and Canudas de Wit 1994, "A survey of models, analysis tools and compensation
    methods for the control of machines with friction"; Bittencourt and Axelsson 2014, "Modeling and experiment design
    for identification of wear in a robot joint under load and temperature uncertainties".
    """
    rows = _fewer(rows)
    std = effort_std(rows)[rows.coordinate]
    matrix, right = rows.regressor / std[:, None], (rows.effort - rows.constant) / std
    candidates = [
        one for one in _candidates(rows, names, kinds) if (rows.measured[one.coordinate], one.kind) not in there
    ]
    if not candidates:
        return FrictionChoice((), {})
    columns = np.stack([one.column for one in candidates], axis=1) / std[:, None]
    fold = FOLDS * np.argsort(np.argsort(rows.time_s, kind="stable"), kind="stable") // len(right)
    choice = FrictionChoice((), {})
    remaining = list(range(len(candidates)))
    while remaining and len(choice.terms) < MOST:
        whole = _Split(matrix, right, np.arange(0), columns[:, remaining])
        splits = [_Split(matrix, right, np.flatnonzero(fold == k), columns[:, remaining]) for k in range(FOLDS)]
        best, best_gain = None, 0.0
        for own in dict.fromkeys(candidates[i][:2] for i in remaining):
            mine = [n for n, i in enumerate(remaining) if candidates[i][:2] == own]
            errors = np.array([split.errors(mine, rows.coordinate == own[0]) for split in splits])
            gains = np.log(errors[:, 0] / errors[:, 1])
            gain, strongest = float(gains.mean()), mine[int(np.argmax(whole.drop[mine]))]
            is_predictive = gain > gains.std(ddof=1) / np.sqrt(FOLDS)
            coefficient_std = whole.spread(strongest, rows.coordinate == own[0])
            chance = 2.0 * len(candidates) * ndtr(-abs(whole.coefficient[strongest]) / coefficient_std)
            if is_predictive and gain > best_gain and chance < LEVEL:
                best, best_gain = (strongest, errors, coefficient_std), gain
        if best is None:
            break
        n, errors, coefficient_std = best
        one, size = candidates[remaining[n]], float(whole.coefficient[n])
        unit = float(np.mean(std[rows.coordinate == one.coordinate]))
        before, after = (unit * float(np.sqrt(np.mean(part**2))) for part in errors.T)
        normal = float(np.asarray(rows.all_samples.temperature).mean()) if one.kind == "temperature" else None
        name = rows.measured[one.coordinate]
        term = FrictionTerm(name, one.kind, size, coefficient_std, one.speed, before, after, normal)
        choice = fitted_terms(rows, names, [*choice.terms, term], std)
        matrix = np.concatenate([rows.regressor, *term_columns(rows, names, choice)], axis=1) / std[:, None]
        remaining = [i for i in remaining if candidates[i][:2] != one[:2]]
    return choice


def _fewer(rows: Prepared) -> Prepared:
    """At most `MOST_ROWS` of the rows, evenly decimated; of each sample all coordinates."""
    step = -(-len(rows.effort) // MOST_ROWS)
    if step <= 1:
        return rows
    some, samples = np.isin(rows.time_s, np.unique(rows.time_s)[::step]), rows.all_samples
    return rows._replace(
        regressor=rows.regressor[some],
        effort=rows.effort[some],
        coordinate=rows.coordinate[some],
        time_s=rows.time_s[some],
        velocity=rows.velocity[some],
        temperature=None if rows.temperature is None else rows.temperature[some],
        constant=np.broadcast_to(rows.constant, rows.effort.shape)[some],
        samples=samples._replace(kept=lambda part: samples.kept(part)[some]),
    )


class _Split:
    """Fits to some rows, without and with each candidate; the other rows are held out."""

    def __init__(self, matrix: np.ndarray, right: np.ndarray, out: Int[np.ndarray, "o"], columns: np.ndarray) -> None:
        seen = np.setdiff1d(np.arange(len(right)), out)
        self.out = out
        scale = np.linalg.norm(matrix[seen], axis=0)
        scale = np.where(scale > 0.0, scale, 1.0)
        left, singular, vectors = np.linalg.svd(matrix[seen] / scale, full_matrices=False)
        self.rank = rank = int(np.sum(singular > RANK * singular[0]))
        basis, back = left[:, :rank], (vectors[:rank] / singular[:rank, None]).T / scale[:, None]
        self.left = missed = right[seen] - basis @ (basis.T @ right[seen])
        self.beside = beside = columns[seen] - basis @ (basis.T @ columns[seen])
        length = np.sum(beside**2, axis=0)
        acts = length > RANK * np.sum(columns[seen] ** 2, axis=0)
        self.coefficient = np.where(acts, beside.T @ missed / np.where(acts, length, 1.0), 0.0)
        self.drop = self.coefficient**2 * length
        self.std = np.where(acts, 1.0 / np.sqrt(np.where(acts, length, 1.0)), np.inf)
        predict = matrix[out] @ back
        self.missed = right[out] - predict @ (basis.T @ right[seen])
        self.change = columns[out] - predict @ (basis.T @ columns[seen])

    def spread(self, n: int, of_coordinate: np.ndarray) -> float:
        """Standard deviation of a coefficient, from the residual of the coordinate, without held-out rows."""
        left = (self.left - self.coefficient[n] * self.beside[:, n])[of_coordinate]
        taken = (self.rank + 1) * left.size / len(self.left)
        variance = np.sum(left**2) / max(1.0, left.size - taken) * correlation_length(left, taken)
        return float(self.std[n] * np.sqrt(variance))

    def errors(self, mine: list[int], of_coordinate: np.ndarray) -> tuple[float, float]:
        """Root mean square error of the held-out rows of a coordinate, without and with the best of some candidates."""
        n = mine[int(np.argmax(self.drop[mine]))]
        own = of_coordinate[self.out]
        if not own.any():
            return 1.0, 1.0
        with_it = self.missed - self.coefficient[n] * self.change[:, n]
        return float(np.sqrt(np.mean(self.missed[own] ** 2))), float(np.sqrt(np.mean(with_it[own] ** 2)))


def _candidates(rows: Prepared, names: Sequence[str], kinds: Sequence[str]) -> list[_Candidate]:
    samples, loads = rows.all_samples, load_columns(names)
    values, _ = least_squares(rows.regressor, rows.effort - rows.constant)
    found = []
    for i in range(len(rows.measured)):
        fastest = float(np.abs(samples.velocity[:, i]).max())
        for kind in kinds:
            for speed in SPEEDS * fastest if kind == "stribeck" else (None,):
                column = term_column(rows, i, term_effort(kind, speed, samples, i, loads, values))
                found.append(_Candidate(i, kind, speed, column))
    return found
