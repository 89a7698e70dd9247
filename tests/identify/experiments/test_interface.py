"""The interface of tests: a new kind says what it sees, predicts and counts, and all else follows."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.kinds import KINDS, Kind
from jaxmb.identify.assess.laws.one_model import one_model
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.uncertainty.nonlinear import with_bound_limits
from jaxmb.identify.experiments.components import Equations, LinearForm, Noise
from jaxmb.identify.experiments.test import Entry, Score, Test
from jaxmb.identify.fit.loop import coarsened
from jaxmb.identify.fit.noise import noise_objective, reduced_chi_squares, row_variances
from jaxmb.identify.fit.problem import final_state, make_problem
from jaxmb.identify.plan.candidates import planned
from jaxmb.identify.study.study import linear_in
from tests.identify.arm import TRUTH, estimate_at, frf, study_of

NAMES = ("stiffness.a", "stiffness.b", "damping.a", "damping.b")


class Balance(Test):
    """Products of stiffness and damping of each joint, as no instrument measures them."""

    name: str = eqx.field(static=True)
    product: jax.Array
    std: jax.Array

    def view(self, model):
        return jnp.stack([model.stiffness, model.damping])

    def predict(self, view):
        return view[0] * view[1]

    def residual(self, view):
        return (self.predict(view) - self.product) / self.std

    def stated_variances(self):
        return jnp.ones(self.rows)

    @property
    def rows(self):
        return self.product.size

    def score(self, view, reference_hz):
        return Score()


class Scale(Balance):
    """Both stiffnesses, and their difference: linear."""

    def predict(self, view):
        return jnp.array([view[0][0], view[0][1], view[0][0] - view[0][1]])

    @property
    def linear(self):
        return ScaleEquations(self)


class ScaleEquations(LinearForm[Scale]):
    """In the values themselves, or in what `by_reciprocal` says."""

    by_reciprocal = 0.0

    def reciprocal(self, model, free):
        return np.full(free.size, self.by_reciprocal)

    def equations(self, model, free):
        rows = np.zeros((3, free.size))
        rows[:, :2] = [[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]
        product, std = np.asarray(self.test.product), np.asarray(self.test.std)
        return Equations(rows, product, std, np.ones(3), np.arange(3))


BALANCE = Balance("balance", jnp.array([5e4 * 25.0, 9e3 * 4.0]), jnp.array([1e4, 400.0]))
SCALE = Scale("scale", jnp.array([5e4, 9e3, 41e3]), jnp.array([100.0, 50.0, 100.0]))


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    return study_of(tmp_path_factory.mktemp("arm"), frf(noise_log_std=0.01))


def with_toy(study, toy=BALANCE):
    """The study with a test of the new kind behind its own."""
    problem = make_problem(study.model, study.free, [*study.tests, toy])
    return dataclasses.replace(study, problem=problem, entries=(*study.entries, Entry("balance", toy)))


def test_what_a_kind_need_not_say(arm):
    """Its noise is as stated and independent; what else it might tell is absent."""
    noise, residual = BALANCE.noise, np.ones(2)
    assert (BALANCE.lines, BALANCE.linear, BALANCE.description, BALANCE.own, BALANCE.vibration) == (None,) * 5
    assert BALANCE.evaluation.affine_view(arm.model, arm.free) is None
    assert BALANCE.evaluation.stripped() is BALANCE
    assert (noise.is_known, noise.follows_fit, noise.nominal, noise.nuisance_rows) == (True, False, None, 0)
    assert noise.at_fit(BALANCE.view(arm.model)) is BALANCE
    assert noise.exact_cost == 1e-12 * 2
    assert noise.correlation_length(residual, residual) == 1.0
    np.testing.assert_array_equal(noise.correlation_lengths, np.ones(2))
    with pytest.raises(NotImplementedError, match="test 'balance'"):
        noise.with_level(2.0)
    with pytest.raises(ValueError, match="test 'balance' is of a kind that cannot be planned"):
        planned(BALANCE)


def test_autocorrelated_rows_are_resampled_as_independent_ones():
    """Of rows whose stated standard deviation includes a correlation length of 4 the residual has half of it."""

    class Rows(Noise):
        correlation_lengths: Any = np.full(100, 4.0)

    drawn = Rows(None).resample(np.tile([0.5, -0.5], 50), np.ones(100), np.random.default_rng(0))
    np.testing.assert_array_equal(np.abs(drawn), 1.0)


def test_a_kind_that_lacks_a_part_is_no_test():
    class Half(Test):
        name: str = eqx.field(static=True)

    with pytest.raises(TypeError, match="abstract"):
        Half("half")  # pyright: ignore[reportAbstractUsage]


def test_it_counts_beside_others(arm):
    """Its rows follow those of the FRFs, in units of its own noise, and are neither thinned nor thought correlated."""
    study = with_toy(arm)
    problem, u = study.problem, np.log([TRUTH[name] for name in NAMES]) + 0.05
    residual, jacobian, weights = (np.asarray(x) for x in final_state(problem, jnp.asarray(u)))
    expected = np.array([5e4 * 25.0, 9e3 * 4.0]) * (np.exp(0.1) - 1.0) / [1e4, 400.0]
    np.testing.assert_allclose(residual[problem.row_slices[1]], expected, rtol=1e-9)
    # d (k d) / d log = k d, for the stiffness and the damping of a joint each
    slope = np.array([[5e4 * 25.0, 0.0], [0.0, 9e3 * 4.0]]) * np.exp(0.1) / [[1e4], [400.0]]
    np.testing.assert_allclose(jacobian[problem.row_slices[1]], np.tile(slope, 2), rtol=1e-9)
    assert coarsened(problem, 8).tests[1].rows == 2
    assert noise_objective(problem) == pytest.approx(float(problem.noise_unit) ** 2 * problem.data_rows)
    # far from what the noise explains: widened by what is left, line by line for a kind that says nothing else
    (own,) = reduced_chi_squares(residual, jacobian, weights, [problem.row_slices[1]])
    variances = row_variances(problem, residual, jacobian, weights)
    np.testing.assert_allclose(variances[problem.row_slices[1]], own.square, rtol=1e-12)
    assert own.square > 100.0
    estimate = estimate_at(study, u)
    assert estimate.agreements == {}
    assert with_bound_limits(estimate)[1] == []
    assert one_model(estimate).degrees == problem.data_rows - 4


@dataclasses.dataclass(frozen=True, eq=False)
class Told(KindMetrics):
    """Metrics of the new kind."""

    balanced: tuple[str, ...]
    rows: tuple[int, ...]

    @classmethod
    def of_fit(cls, estimate, entries):
        """Of a fit."""
        return cls(
            tuple(entry.name for entry in entries), tuple(rows.start for *_, rows in estimate.fitted_of(entries))
        )


def said(estimate, entries, metrics):
    """Remarks of the new kind."""
    return [], [f"{len(entries)} balance, {len(metrics.balanced)} told of"]


def test_a_row_of_the_registry_is_all_that_a_result_needs(arm, monkeypatch):
    """FRFs alone know all four numbers; a balance that is another machine's moves them, and the result tells it."""
    monkeypatch.setitem(KINDS, "balance", Kind(Told, said))
    exact = identify(with_toy(arm))
    assert exact.converged
    for name, true in TRUTH.items():
        assert exact.parameters[name].value == pytest.approx(true, rel=1e-6)
    assert exact.metrics["fit"]["tests"]["balance"] == {
        "frac": None, "log_error": None, "frequency_error_hz": None, "explained_percent": None, "modes": 0
    }  # fmt: skip
    assert (exact.metrics["balanced"], exact.metrics["rows"]) == (["balance"], [exact.study.tests[0].rows])
    assert exact.remarks[0] == "1 balance, 1 told of"
    monkeypatch.setitem(KINDS, "balance", Kind())
    heavy = dataclasses.replace(BALANCE, product=BALANCE.product * 1.5, std=BALANCE.std * 1e-3)
    moved = identify(with_toy(arm, heavy))
    a, b = (moved.parameters[f"stiffness.{x}"].value * moved.parameters[f"damping.{x}"].value for x in "ab")
    assert [a, b] == pytest.approx([1.5 * 5e4 * 25.0, 1.5 * 9e3 * 4.0], rel=1e-3)
    assert not moved.metrics["one_model"]["does"]
    assert not any("balance" in remark for remark in moved.remarks)


def test_what_is_linear_in(arm):
    """All predictions in the same numbers, or none: a kind that is not linear makes the whole problem nonlinear."""
    np.testing.assert_array_equal(linear_in(make_problem(arm.model, arm.free, [SCALE, SCALE])), np.zeros(4, bool))
    assert linear_in(make_problem(arm.model, arm.free, [SCALE, BALANCE])) is None
    assert linear_in(make_problem(arm.model, arm.free, [BALANCE, SCALE])) is None
    inverse = type("Inverse", (ScaleEquations,), {"by_reciprocal": 1.0})
    other = type("Other", (Scale,), {"linear": property(inverse)})
    assert linear_in(make_problem(arm.model, arm.free, [SCALE, other("o", SCALE.product, SCALE.std)])) is None
