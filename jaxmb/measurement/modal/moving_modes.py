"""Modes whose poles vary: from response to response, and between the hits that are averaged in each.

A roving hammer takes a structure at another moment, amplitude and place of its sensors for every response, and an
analyser averages some hits at each place. Natural frequencies differ slightly from hit to hit, so that the pole lambda
of a mode has in response o

    lambda_o = j Im(lambda) (1 + a_o) + Re(lambda) (1 + b_o)

with small real numbers a_o and b_o that scatter about zero, and the mean of the hits' resonances is broader than one:
with z = s - lambda_o, the variance v_o of the relative frequencies among the hits of response o and their third moment
over v_o, k_o,

    mean of 1 / (z - j Im(lambda) x)  =  (z - j w k_o) / (z^2 - j w k_o z + w^2 v_o),    w = Im(lambda)

to the third order in x, and exact for two hits (the two-point Gaussian quadrature of the distribution of x). It is
1 / z where v_o = 0.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class MovingModes:
    """Modes whose poles move."""

    eigenvalue: np.ndarray
    """lambda [r], rad/s."""
    participation: np.ndarray
    """[r, input], the largest component 1."""
    move: np.ndarray
    """a, b, v and k [output, r, 4]."""
    std: np.ndarray
    """Root mean squares of a, b, v and k over the outputs [r, 4]."""
    shape: np.ndarray
    """[output, r]"""
    covariance: np.ndarray
    """Of Re and Im of lambda [r, 2, 2], (rad/s)^2: of the mean, from noise and from the moves."""

    def part(self, keep: np.ndarray) -> "MovingModes":
        """Some of them."""
        return MovingModes(
            self.eigenvalue[keep],
            self.participation[keep],
            self.move[:, keep],
            self.std[keep],
            self.shape[:, keep],
            self.covariance[keep],
        )

    def of_responses(self, some: np.ndarray) -> "MovingModes":
        """In some of the outputs."""
        return dataclasses.replace(self, move=self.move[some], shape=self.shape[some])

    def and_also(self, other: "MovingModes") -> "MovingModes":
        """These and others."""
        return MovingModes(
            np.concatenate([self.eigenvalue, other.eigenvalue]),
            np.concatenate([self.participation, other.participation]),
            np.concatenate([self.move, other.move], axis=1),
            np.concatenate([self.std, other.std]),
            np.concatenate([self.shape, other.shape], axis=1),
            np.concatenate([self.covariance, other.covariance]),
        )

    def responses(self, s: np.ndarray, power: int, still: bool = False) -> np.ndarray:
        """What they add to the responses [f, output, input]; where `still`, what they would add if no pole moved."""
        move = 0.0 * self.move if still else self.move
        residue = self.participation.T * self.shape[:, None, :]
        both = residue @ resonances(s, self.eigenvalue, move)
        both = both + residue.conj() @ resonances(s.conj(), self.eigenvalue, move).conj()
        return (both * s**power).transpose(2, 0, 1)


def one_mode(eigenvalue: complex, participation: np.ndarray, std: np.ndarray, outputs: int) -> MovingModes:
    """A mode to begin with, that does not move.

    Args:
        eigenvalue: lambda, rad/s.
        participation: [input]
        std: of a, b, v and k [4].
        outputs: number of responses.
    """
    return MovingModes(
        np.array([eigenvalue]),
        participation[None],
        np.broadcast_to([0.0, 0.0, std[2], 0.0], (outputs, 1, 4)),
        np.asarray(std)[None],
        np.zeros((outputs, 1), complex),
        np.zeros((1, 2, 2)),
    )


def one_less(group: MovingModes, pole: complex, shift: np.ndarray) -> MovingModes:
    """The others of a group, the nearest one in the middle between it and the one left out.

    Args:
        group: modes, this pole among them.
        pole: to leave out.
        shift: first shifts of the one in the middle [output].
    """
    gone = group.eigenvalue == pole
    others = group.part(~gone)
    near = int(np.argmin(np.abs(others.eigenvalue - pole)))
    size = np.linalg.norm(group.shape, axis=0) * np.linalg.norm(group.participation, axis=1)
    weight = np.array([size[~gone][near], size[gone][0]]) ** 2
    eigenvalue = others.eigenvalue.copy()
    eigenvalue[near] = (weight @ [eigenvalue[near], pole]) / weight.sum()
    move = others.move.copy()
    move[:, near] = [0.0, 0.0, others.std[near, 2], 0.0]
    move[:, near, 0] = shift
    return dataclasses.replace(others, eigenvalue=eigenvalue, move=move)


def moved_poles(eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Poles of every response [output, r], with their moves [output, r, 4]."""
    return eigenvalue + 1j * np.imag(eigenvalue) * move[..., 0] + np.real(eigenvalue) * move[..., 1]


def resonances(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Mean resonances of the hits [output, r, f] at s [f], for moves [output, r, 4]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    return top / (z * top + w**2 * v)


def slopes(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Derivatives of `resonances` with respect to the pole, v and k, and these themselves [output, 4, r, f]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    inverse = 1.0 / (z * top + w**2 * v)
    below = inverse * inverse
    of_v = -(w**2) * top * below
    return np.stack([top * top * below - w**2 * v * below, of_v, -1j * w**3 * v * below, top * inverse], axis=1)


def _terms(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, ...]:
    """z = s - lambda_o [output, r, f], w [r, 1], and v and k [output, r, 1]."""
    return s - moved_poles(eigenvalue, move)[:, :, None], np.imag(eigenvalue)[:, None], move[..., 2:3], move[..., 3:]
