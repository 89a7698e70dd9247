"""Which tests to make next: chosen out of candidates for what they add to the planned ones, then improved."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.design import choose_tests
from jaxmb.identify.estimation.identifiability import Knowledge, knowledge, scaled_svd
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.plan.candidates import Candidate, Place, candidates_of, information_of, ranges_of
from jaxmb.identify.plan.improve_posture import improved
from jaxmb.identify.plan.planned import Known, Planned
from jaxmb.identify.plan.proposal import posture_keys, proposal_toml
from jaxmb.identify.plan.why import posture_text
from jaxmb.identify.study.format.next_format import NextPart
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model


@dataclasses.dataclass(frozen=True, eq=False)
class NextTests:
    """Tests chosen out of candidates, and what will be known after them."""

    part: NextPart
    like: str
    """Test whose noise and kind they have."""
    candidates: int
    """How many there were to choose from."""
    left_out: int
    """Candidates that the machine cannot take up."""
    tests: tuple[Candidate, ...]
    drawn: tuple[Candidate, ...]
    """The same tests at the postures that were chosen, before these were improved."""
    before: float
    """Criterion after the planned tests alone: the sum of the variances of u ("A"), or the logarithm of the determinant
    of its covariance ("D"); inf where they leave a parameter unknown."""
    chosen: float
    """After the planned tests and the chosen ones."""
    improved: float
    """After the planned tests and those at improved postures; as `chosen` where postures are listed."""
    directions: int
    """Over how many directions of the parameters the criterion is taken: those that can be known at all."""
    known: Knowledge
    """After all of them."""

    def as_json(self, model: Model) -> dict[str, Any]:
        """For `inspect.json`."""
        named = model.coordinates
        return {
            "count": len(self.tests),
            "like": self.like,
            "candidates": self.candidates,
            "left_out": self.left_out,
            "seed": self.part.seed,
            "directions": self.directions,
            "criterion_before": self.before,
            "criterion_chosen": self.chosen,
            "criterion_improved": self.improved,
            "tests": [
                {
                    "posture": {n: float(x) for n, x in zip(named, test.q, strict=True) if x != 0.0},
                    "posture_text": posture_text(model, test.q),
                    "drawn": {n: float(x) for n, x in zip(named, drawn.q, strict=True) if x != 0.0},
                    "outputs": test.probe.ends[0],
                    "inputs": test.probe.ends[1],
                    "band_hz": test.probe.band_hz,
                    "lines": test.probe.omega.size,
                }
                for test, drawn in zip(self.tests, self.drawn, strict=True)
            ],
        }

    def as_toml(self, study: Study) -> str:
        """The tests as TOML that can be appended to the study file."""
        return proposal_toml(study, self.like, [self._keys(study.model, test) for test in self.tests])

    def _keys(self, model: Model, test: Candidate) -> dict[str, Any]:
        keys: dict[str, Any] = {"posture": posture_keys(model, test.q)}
        if self.part.points:
            outputs, inputs = test.probe.ends
            keys |= {"frame": None, "outputs": outputs, "inputs": None if inputs == outputs else inputs}
        if self.part.bands_hz:
            lines_hz = [float(f"{line:.9g}") for line in np.asarray(test.probe.omega) / (2 * np.pi)]
            first, last = keys["band_hz"] = lines_hz[0], lines_hz[-1]
            step_hz = float(f"{(last - first) / max(len(lines_hz) - 1, 1) or first:.9g}")
            keys["simulate"] = {"lines": {"first_hz": first, "last_hz": last, "step_hz": step_hz}}
        return keys


def plan_tests(study: Study, place: Place, before: Known) -> Planned:
    """The next FRF tests that a study asks for; a sentence on why there are none where none could be chosen."""
    part: Any = study.next
    tests = [test for test in study.tests if test.probe() is not None]
    like, pool, information, left_out = pool_of(part, tests, study.model.coordinates, place)
    try:
        chosen = choose_next(part, like, pool, information, left_out, before.made, place, before.prior_std)
    except ValueError as error:
        return Planned(None, f"no next test could be chosen: {error}", tuple(pool), information)
    out = f" ({left_out} more are not possible)" if left_out else ""
    count = len(chosen.tests)
    remark = f"{count} test{'s' if count > 1 else ''} chosen out of {len(pool)} candidates{out}"
    if chosen.directions < study.free.size:
        remark += f" for the {chosen.directions} of {study.free.size} directions of the parameters that they can tell"
    return Planned(chosen, remark, tuple(pool), information)


def pool_of(
    part: NextPart, tests: Sequence[Test], names: Sequence[str], place: Place
) -> tuple[str, list[Candidate], np.ndarray, int]:
    """The test that candidates are like, those that the machine can take up, what each tells, and how many it cannot.

    Raises:
        ValueError: it can take up none.
    """
    like = next(test for test in tests if part.like in (None, test.name))
    everything = candidates_of(part, like, names)
    information = information_of(place, everything)
    kept = [i for i, rows in enumerate(information) if np.isfinite(rows).all()]
    if not kept:
        raise ValueError(f"[next]: none of {len(everything)} candidates has finite frequency responses")
    return like.name, [everything[i] for i in kept], information[kept], len(everything) - len(kept)


def choose_next(
    part: NextPart,
    like: str,
    pool: Sequence[Candidate],
    information: Float[np.ndarray, "c d d"],
    left_out: int,
    made: Float[np.ndarray, "m d"],
    place: Place,
    prior_std: Float[np.ndarray, "d"] | None = None,
) -> NextTests:
    """The tests of a pool to make next.

    What no candidate and no planned test tells is left out of the criterion: it is then taken over the directions that
    can be known.

    Args:
        part: how many, and by what they are judged.
        like: test that they are like.
        pool: candidates.
        information: `compressed` rows of each.
        left_out: candidates that are not in the pool.
        made: rows of what is planned and known before.
        place: machine, free parameters, values.
        prior_std: the prior's standard deviations, where there is one; its rows are in `made`.

    Raises:
        ValueError: so few tests leave a parameter unknown that more could tell.
    """
    basis = known_directions(np.concatenate([made, *information]))
    design = choose_tests(information @ basis, part.count, part.criterion, made=made @ basis)
    drawn = tuple(pool[i] for i in design.chosen)
    rows = [information[i] for i in design.chosen]
    where, *ends = ranges_of(part, place.model.coordinates)
    tests = drawn
    if where.size:
        tests = improved(place, drawn, made, basis, part.criterion, where, (ends[0], ends[1]))
    after = rows if tests is drawn else information_of(place, tests)
    return NextTests(
        part=part,
        like=like,
        candidates=len(pool),
        left_out=left_out,
        tests=tests,
        drawn=drawn,
        before=criterion_of(part.criterion, made @ basis),
        chosen=criterion_of(part.criterion, np.concatenate([made, *rows]) @ basis),
        improved=criterion_of(part.criterion, np.concatenate([made, *after]) @ basis),
        directions=basis.shape[1],
        known=knowledge(np.concatenate([made, *after]), np.ones(len(made) + sum(map(len, after))), prior_std),
    )


def known_directions(rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "d r"]:
    """An orthonormal basis of what acts on some of the rows; the identity where all does."""
    svd = scaled_svd(rows)
    if svd.rank == svd.scale.size:
        return np.eye(svd.rank)
    return np.linalg.qr((svd.right[: svd.rank] * svd.scale).T)[0]


def criterion_of(criterion: str, rows: Float[np.ndarray, "m d"]) -> float:
    """trace M^-1 ("A") or -log det M ("D") with M = R^T R; inf where M has not full rank."""
    svd = scaled_svd(rows)
    if svd.rank < svd.scale.size:
        return float("inf")
    if criterion == "D":
        return -2.0 * float(np.sum(np.log(svd.values)) + np.sum(np.log(svd.scale)))
    return float(np.sum((svd.right.T / svd.values / svd.scale[:, None]) ** 2))
