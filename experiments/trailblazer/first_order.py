"""The leave-one-height-out predictions of `run`, to first order about the fit of all heights, in seconds.

    JAXMB_DATA=... python experiments/trailblazer/first_order.py studies/trailblazer results/trailblazer

From residual and Jacobian of the fit of all heights: the machine is refitted without the rows of a height, with the
noise re-estimated and the covariance of the fits without each other height added, and the other points of the height
are predicted from its stationing points as by `prediction.toml`. Also with the machine held and only stations and
ground free, with and without that covariance, and with fewer stationing points.
"""

import dataclasses
import sys
from pathlib import Path
from typing import NamedTuple, cast

import convert
import numpy as np
from run import COLUMNS, READINGS, line

import jaxmb
from jaxmb.fitting import PoseTest, linearized, with_scatter, with_tests

COMPONENTS = 7
"""Of a point: position, and two of the vertical of each sensor."""


class Rows(NamedTuple):
    """Fit of all heights, row by row, in units of the nominal noise."""

    error: np.ndarray
    """[t, 7]."""
    slope: np.ndarray
    """By the parameters of the machine [t, 7, d]."""
    station: np.ndarray
    """By the pose of the total station [t, 7, 6]."""
    guide: np.ndarray
    """Effects of one standard deviation of the scatter [t, 7, 2]."""
    foot: np.ndarray
    """The same of the foot on other ground [t, 7, 2]; m and rad over the nominal noise."""
    prior: tuple[np.ndarray, np.ndarray]
    """Residual and Jacobian of the prior by the parameters of the machine."""
    other: np.ndarray
    """Standard deviations of parameters on other ground, in the scale of the fit; 0: those of the fit [d]."""
    std: np.ndarray
    """Nominal standard deviation of each component, m and rad [7]."""


def linear_rows(folder: Path, result: Path) -> Rows:
    """`Rows` of the study in a folder at the values of its result."""
    study, found = jaxmb.load_study(folder / "trailblazer.toml"), jaxmb.load_result(result)
    values = np.array([found.parameters[name].value for name in study.free.names])
    u, test = study.free.encode(values), cast(PoseTest, study.tests[0])
    model = study.free.apply(study.model, values)
    plain = dataclasses.replace(test, scatter=None)
    residual, jacobian, _ = (np.asarray(x) for x in linearized(with_tests(study.problem, [plain]), u))
    rows, machine = test.rows, np.array([not name.startswith("station.") for name in study.free.names])
    feet = with_scatter(plain, model, {"foot.rx": 1e-3 * convert.GROUND_MRAD, "foot.ry": 1e-3 * convert.GROUND_MRAD})
    effects = (np.asarray(each.scatter).reshape(-1, 2)[np.asarray(test.component)] for each in (test, feet))
    guide, foot = (
        each.reshape(-1, COMPONENTS, 2) / np.asarray(test.std).reshape(-1, COMPONENTS, 1) for each in effects
    )
    by_row = jacobian[:rows].reshape(-1, COMPONENTS, machine.size)
    stations = by_row[..., ~machine].reshape(*by_row.shape[:2], -1, 6)
    own = np.take_along_axis(stations, np.asarray(test.station)[:, None, None, None], axis=2)[:, :, 0]
    names, width = np.array(study.free.names)[machine], np.asarray(study.free.width)[machine]
    other = np.select([[n.startswith("compliance.foot") for n in names], [n.startswith("frame.tilt") for n in names]],
                      [1e-5 / width, 2e-3 / width], 0.0)  # fmt: skip
    prior = residual[rows:], jacobian[rows:][:, machine]
    error = residual[:rows].reshape(-1, COMPONENTS)
    return Rows(error, by_row[..., machine], own, guide, foot, prior, other, np.asarray(test.std)[:COMPONENTS])


def refitted(rows: Rows, height: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Change of the parameters, their covariance without and with that of fits without each height, and the noise over
    the nominal one, of a fit of some rows with a station for each height."""
    each = np.unique(height[kept])
    stations = [rows.station * (height == h)[:, None, None] for h in each]
    whole = np.concatenate([rows.slope, *stations], axis=2)[kept]
    lower = np.linalg.cholesky(np.eye(COMPONENTS) + rows.guide[kept] @ np.swapaxes(rows.guide[kept], 1, 2))
    x, y = np.linalg.solve(lower, whole), np.linalg.solve(lower, rows.error[kept][..., None])[..., 0]
    by, first = x.reshape(-1, x.shape[2]), y.ravel()
    size, level = rows.slope.shape[2], 1.0
    prior = np.pad(rows.prior[1], ((0, 0), (0, x.shape[2] - size)))
    for _ in range(20):
        normal = by.T @ by / level**2 + prior.T @ prior
        covariance = inverse(normal)
        step = -covariance @ (by.T @ first / level**2 + prior.T @ rows.prior[0])
        left = first + by @ step
        level = np.sqrt(left @ left / (left.size - np.sum(covariance * (by.T @ by)) / level**2))
    change = []
    for h in each:
        own = np.repeat(height[kept] == h, COMPONENTS)
        rest = inverse(normal - by[own].T @ by[own] / level**2)
        change.append((rest @ (by[own].T @ left[own]) / level**2)[:size])
    jackknife = (len(each) - 1.0) / len(each) * np.array(change).T @ np.array(change)
    return step[:size], covariance[:size, :size], covariance[:size, :size] + jackknife, float(level)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive semidefinite matrix, 0 in directions without information."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), 1e-12))
    return np.linalg.pinv(matrix * scale[:, None] * scale, rcond=1e-11, hermitian=True) * scale[:, None] * scale


def predicted(
    rows: Rows, new: np.ndarray, stationing: np.ndarray, readings: str, fit: tuple[np.ndarray, np.ndarray, float],
    held: bool = False,
) -> np.ndarray:  # fmt: skip
    """Errors of predicted positions and their standard deviations [k, 2, 3], m, as `run.held_out`.

    Args:
        rows: of the fit.
        new: indices of the rows of the new set.
        stationing: of these, whether the position is fitted.
        readings: as for `convert.write_prediction`.
        fit: change of the parameters, covariance, and noise, from `refitted`.
        held: whether the parameters of the machine are held, their covariance in the intervals alone.
    """
    change, covariance, level = fit
    free = rows.other > 0.0
    covariance = np.where(free[:, None] | free, np.diag(rows.other**2), covariance)
    size, slope = len(new) * COMPONENTS, rows.slope[new].reshape(-1, rows.slope.shape[2])
    error, station = (rows.error[new] + rows.slope[new] @ change).ravel(), rows.station[new].reshape(-1, 6)
    noise = np.zeros((size, size))
    for k, t in enumerate(new):
        own, common = slice(k * COMPONENTS, (k + 1) * COMPONENTS), np.hstack([level * rows.guide[t], rows.foot[t]])
        noise[own, own] = level**2 * np.eye(COMPONENTS) + common @ common.T
    whole = noise + slope @ covariance @ slope.T
    used = noise + slope @ np.where(free[:, None] & free, covariance, 0.0) @ slope.T if held else whole
    inclined = {"all": np.ones(len(new), bool), "stationing": stationing, "none": np.zeros(len(new), bool)}[readings]
    fitted = np.concatenate([np.tile(stationing[:, None], 3), np.tile(inclined[:, None], 4)], axis=1).ravel()
    checked = np.tile(np.arange(COMPONENTS) < 3, len(new)) & ~np.repeat(stationing, COMPONENTS)
    weight, across = np.linalg.inv(used[np.ix_(fitted, fitted)]), used[np.ix_(checked, fitted)]
    pose = -inverse(station[fitted].T @ weight @ station[fitted]) @ station[fitted].T @ weight
    gain = station[checked] @ pose - across @ weight @ (np.eye(fitted.sum()) + station[fitted] @ pose)
    both = np.hstack([np.eye(checked.sum()), gain])
    order = np.concatenate([np.flatnonzero(checked), np.flatnonzero(fitted)])
    variance = np.einsum("ij,jk,ik->i", both, whole[np.ix_(order, order)], both)
    found = np.stack([error[checked] + gain @ error[fitted], np.sqrt(variance)])
    return np.swapaxes(found.reshape(2, -1, 3) * rows.std[:3], 0, 1)


def main() -> None:
    """Table by height, readings and method."""
    points = convert.points(convert.folder() / "flat.yaml")
    height, stationing = (np.array([getattr(point, name) for point in points]) for name in ("height", "stationing"))
    rows = linear_rows(Path(sys.argv[1]), Path(sys.argv[2]))
    fits = {h: refitted(rows, height, height != h) for h in np.unique(height)}
    print(f"height m  {COLUMNS}")
    for label, with_others, held in (("as in prediction.toml", 2, False), ("covariance of noise alone", 1, False),
                                     ("machine held", 2, True)):  # fmt: skip
        for readings in READINGS:
            print(label)
            found = []
            for h, (change, *covariances, level) in fits.items():
                new = np.flatnonzero(height == h)
                fit = change, covariances[with_others - 1], level
                found.append(predicted(rows, new, stationing[new], readings, fit, held))
                print(f"{h:8.2f}  {line(readings, found[-1])}")
            print(f"{'all':>8s}  {line(readings, np.concatenate(found))}")


if __name__ == "__main__":
    main()
