"""Selection of the next motion in addition to the tests of a study."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import Identifiability, identifiability
from jaxmb.identify.experiments.torque.torque_test import TorqueEntry
from jaxmb.identify.parameters.free_parameters import affine_numbers
from jaxmb.identify.plan.candidates import OperatingPoint, Planned, PlannedInformation, proposal_toml
from jaxmb.identify.plan.exciting_motion import ExcitingMotion, MotionProblem, found_motion
from jaxmb.identify.plan.motion_information import Limits, limits_of
from jaxmb.identify.study.format.next_format import NextMotionPart
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import Table
from jaxmb.machine.build import Model
from jaxmb.mechanics.loops import independent_coordinates

PROPOSED = "one motion is proposed: periodic, from rest to rest, within the limits of the drives"


@dataclasses.dataclass(frozen=True, eq=False)
class NextMotion:
    """A proposed next motion, and the predicted identifiability after it."""

    part: NextMotionPart
    like: str
    """Test with the same sampling and noise."""
    motion: ExcitingMotion
    """Its standard deviations are those after the planned tests and this one."""
    limits: Limits
    """Limits of its coordinates."""
    revolute: tuple[bool, ...]
    """Whether each coordinate is revolute (rad) or prismatic (m)."""
    known: Identifiability
    """Identifiability after the planned tests and this one."""

    def as_json(self, model: Model) -> Table:
        """The motion in the layout of `inspect.json`."""
        test = self.motion.as_test()
        return {
            "kind": "torque",
            "like": self.like,
            "seed": self.part.seed,
            "without": self.part.without,
            "posture": test["posture"],
            **test["simulate"],
            "condition_number": self.motion.condition_number,
            "std": self.motion.std,
            "base": {row.name: row.std for row in self.motion.base},
        }

    def as_toml(self, study: Study) -> str:
        """The motion as TOML that can be appended to the study file."""
        return proposal_toml(study, self.like, [self.motion.as_test()])


def plan_motion(study: Study, operating_point: OperatingPoint, before: PlannedInformation) -> Planned:
    """The next motion requested by a study, optimal in addition to its planned tests; its torque tests define sampling
    and noise.

    Raises:
        ValueError: the study has no torque test, or see `exciting_motion`.
    """
    part: Any = study.next
    if before.combinations is None:
        raise ValueError("[next]: found no torque test in the study, expected one as a template of the motion")
    like = next(e for e in study.fitted if e.kind == part.kind and part.like in (None, e.name))
    weight, rate_hz = measured_as(like, study.model)
    size = study.free.slope(before.values)
    columns = affine_numbers(study.model, study.free, before.combinations.parameters)[0] * size
    sought = MotionProblem(study.free.names, size, columns, weight, rate_hz, before.made, before.combinations)
    found = found_motion(study.machine, study.model, part, sought)
    rows = np.concatenate([before.made, found.rows])
    names = tuple(found.motion)
    limits = limits_of(study.machine, names, part.limits)
    revolute = tuple(study.model.revolute[study.model.coordinates.index(name)] for name in names)
    known = identifiability(rows, np.ones(len(rows)), before.prior_std)
    return Planned(NextMotion(part, like.name, found, limits, revolute, known), PROPOSED)


def measured_as(entry: TorqueEntry, model: Model) -> tuple[Float[np.ndarray, "i"], float]:
    """1 / standard deviation of the torque or force at each independent coordinate, 0 if it was not measured, and the
    samples per second."""
    test = entry.test
    number, std = np.asarray(test.coordinate), np.asarray(test.std)
    names = independent_coordinates(model)
    weight = np.zeros(len(names))
    for i, name in enumerate(entry.source.coordinates):
        weight[names.index(name)] = 1.0 / np.median(std[number == i])
    return weight, 1.0 / float(np.median(np.diff(np.unique(np.asarray(entry.source.time_s, dtype=float)))))
