"""Modes whose poles move from response to response: a mode has one pole, and a small move of it in every response.

A roving hammer takes a structure at another moment, amplitude and place of its sensors for every response. Its modes
then ring at slightly different frequencies in each, and poles that all responses share describe that by several poles
a mode. Here the pole lambda of a mode is, in response o,

    lambda_o = j Im(lambda) (1 + a_o) + Re(lambda) (1 + b_o)

with small real numbers a_o and b_o that scatter about zero with standard deviations of their own.
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
    """a and b [output, r, 2]."""
    std: np.ndarray
    """Standard deviations of a and b [r, 2]."""
    shape: np.ndarray
    """[output, r]"""

    @property
    def poles(self) -> np.ndarray:
        """Of every response [output, r]."""
        return moved(self.eigenvalue, self.move)

    def part(self, keep: np.ndarray) -> "MovingModes":
        """Some of them."""
        return MovingModes(
            self.eigenvalue[keep], self.participation[keep], self.move[:, keep], self.std[keep], self.shape[:, keep]
        )

    def and_also(self, other: "MovingModes") -> "MovingModes":
        """These and others."""
        return MovingModes(
            np.concatenate([self.eigenvalue, other.eigenvalue]),
            np.concatenate([self.participation, other.participation]),
            np.concatenate([self.move, other.move], axis=1),
            np.concatenate([self.std, other.std]),
            np.concatenate([self.shape, other.shape], axis=1),
        )

    def with_shift(self, shift: np.ndarray) -> "MovingModes":
        """With the frequencies of all moved alike [output]."""
        move = np.zeros_like(self.move)
        move[..., 0] = shift[:, None]
        return dataclasses.replace(self, move=move)

    def responses(self, s: np.ndarray, power: int, still: bool = False) -> np.ndarray:
        """What they add to the responses [f, output, input]; where `still`, what they would add if no pole moved."""
        poles = np.broadcast_to(self.eigenvalue, self.shape.shape) if still else self.poles
        residue = (self.shape[:, None, :] * self.participation.T).transpose(0, 2, 1)
        weight, at = s[:, None] ** power, s[:, None]
        both = weight / (at - poles[:, None, :]) @ residue
        both = both + weight / (at - poles.conj()[:, None, :]) @ residue.conj()
        return both.transpose(1, 0, 2)


def one_mode(eigenvalue: complex, participation: np.ndarray, std: np.ndarray, outputs: int) -> MovingModes:
    """A mode to begin with, that does not move.

    Args:
        eigenvalue: lambda, rad/s.
        participation: [input]
        std: of a and b [2].
        outputs: number of responses.
    """
    return MovingModes(
        np.array([eigenvalue]),
        participation[None],
        np.zeros((outputs, 1, 2)),
        np.asarray(std)[None],
        np.zeros((outputs, 1), complex),
    )


def one_less(group: MovingModes, pole: complex, shift: np.ndarray) -> list[MovingModes]:
    """The others of a group: as they are, and with the nearest one in the middle between it and the one left out.

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
    move[:, near] = 0.0
    move[:, near, 0] = shift
    return [others, dataclasses.replace(others, eigenvalue=eigenvalue, move=move)]


def moved(eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Poles of every response [output, r], with their moves [output, r, 2]."""
    return eigenvalue + 1j * np.imag(eigenvalue) * move[..., 0] + np.real(eigenvalue) * move[..., 1]
