"""Factors of columns are named where something tells them, and nowhere else."""

import dataclasses

import numpy as np
import pytest
from jaxmb.identify.assess.deflections.solve import unknowns

import jaxmb
from jaxmb.identify.assess.deflections.wrong_units import (
    bound_remarks,
    factor_remarks,
    share_scale,
    unexplained,
    unexplained_by,
)
from jaxmb.identify.experiments.load_cases import LoadCase, predicted
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.stiffness_model.variants import stiffness_models
from jaxmb.identify.study.reading.deflections import DeflectionSet

MODEL = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
JOINTS = tuple(f"stiffness.q{i}" for i in range(1, 7))
TRUTH = np.array([3.8e6, 6.6e6, 3.9e6, 5.6e5, 6.6e5, 4.7e5])
START = np.full(6, 1e6)
STD = np.repeat([3e-5, 6e-5], 3)
ALL, LINEAR, ANGULAR = np.ones(6), np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)


def made(model=MODEL, count=10, seed=0, noise=1.0, load=(2000.0, 500.0)):
    draw = np.random.default_rng(seed)
    tests = [
        LoadCase(f"t{i}", np.asarray(model.reference) + draw.uniform(-0.4, 0.4, 6), "tool",
                       draw.uniform(-1.0, 1.0, 6) * np.repeat(load, 3), ("tool",), np.zeros((1, 6)), STD[None])
        for i in range(count)
    ]  # fmt: skip
    moved = zip(tests, predicted(model, tests), strict=True)
    return [dataclasses.replace(t, displacement=d + noise * STD * draw.normal(size=d.shape)) for t, d in moved]


def times(tests, factor, which=ALL, load=False):
    f = np.where(which, factor, 1.0)
    return [
        dataclasses.replace(t, wrench=t.wrench * f) if load else dataclasses.replace(t, displacement=t.displacement * f)
        for t in tests
    ]


def of(*tests, names=("set", "other", "third")):
    return [DeflectionSet(name, tuple(some)) for name, some in zip(names, tests, strict=False)]


def free_of(lower=1e4, upper=1e9, names=JOINTS):
    return unknowns(MODEL, free_parameters(MODEL, [Bound((n,), lower, upper) for n in names]))


def told(sets, found=None):
    found = free_of() if found is None else found
    return factor_remarks(sets, unexplained(MODEL, found, START[: len(found.terms)]))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda t: times(t, -1.0), "all displacements times -1"),
        (lambda t: times(t, -1.0, LINEAR), "translations times -1"),
        (lambda t: times(t, 180 / np.pi, ANGULAR), "rotations times 1/57.3"),
        (lambda t: times(t, np.pi / 180, ANGULAR), "rotations times 57.3"),
        (lambda t: times(t, 1e3, LINEAR), "translations times 1/1000 or rotations times 1000"),
        # stiffnesses 1000 times as large are beyond the upper bound, so the rotations are right
        (lambda t: times(t, 1e-3, LINEAR), "translations times 1000"),
        (lambda t: times(t, 1e-3, LINEAR, load=True), "forces times 1000 or moments times 1/1000"),
        (lambda t: times(t, -1.0, ANGULAR, load=True), "moments times -1"),
    ],
)
def test_a_wrong_column_is_named(wrong, named):
    (remark,) = told(of(wrong(made())))
    assert f" with {named}: is a column in another unit" in remark


def test_a_wrong_set_is_named():
    sets = of(made(seed=1), times(made(seed=2), 1e3), made(seed=3))
    (remark,) = told(sets)
    assert " with the displacements of 'other' times 1/1000: " in remark


def test_what_is_held_knows_the_size():
    found = free_of(names=JOINTS[:2])
    (remark,) = told(of(times(made(), 1e-3)), found)
    assert "all displacements times 1000" in remark


def test_nothing_is_said_of_good_data():
    assert told(of(made())) == []
    # a common factor is one of the compliances
    assert told(of(times(made(), 10.0))) == []


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_said_where_no_factor_helps(seed):
    draw = np.random.default_rng(seed)
    noise = [dataclasses.replace(t, displacement=1e-3 * draw.normal(size=(1, 6))) for t in made()]
    assert told(of(noise)) == []
    half = [dataclasses.replace(t, displacement=t.displacement + 1e-3 * draw.normal(size=(1, 6))) for t in made()]
    assert told(of(half, made(seed=9))) == []
    axes = times(made(seed=seed), -1.0, np.array([1.0, 0, 0, 0, 0, 0]))  # one axis alone is no kind
    assert told(of(axes)) == []


def test_shares_know_no_units():
    sets = of(made(), made(seed=1))
    scale = share_scale(sets)
    values = np.concatenate([t.displacement.ravel() for group in sets for t in group.tests])
    # all of everything is left: the mean of four groups of share 1
    assert np.sum((values / scale) ** 2) == pytest.approx(1.0, rel=1e-12)
    changed = [dataclasses.replace(sets[0], tests=tuple(times(sets[0].tests, 1e3, LINEAR))), sets[1]]
    again = np.concatenate([t.displacement.ravel() for group in changed for t in group.tests])
    np.testing.assert_allclose(again / share_scale(changed), values / scale, rtol=1e-12)


def test_bounds_know_the_size():
    found = free_of(1e5, 1e7)
    known = np.ones(6, bool)
    assert bound_remarks(found, TRUTH, known) == []
    (remark,) = bound_remarks(found, TRUTH / 1000.0, known)
    assert "inside with all displacements times 1/1000:" in remark
    assert bound_remarks(found, TRUTH / 1e8, known) == []
    # one inside says that the unit is right
    assert bound_remarks(found, np.where(np.arange(6) == 2, TRUTH, TRUTH / 1000.0), known) == []
    assert bound_remarks(found, TRUTH / 1000.0, np.zeros(6, bool)) == []


def test_joints_of_a_complete_model_tell_a_sign():
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr270"))
    tests = made(model, 12, load=(2500.0, 900.0))
    joints = stiffness_models(model, tests)[1]["J1"]
    assert factor_remarks(of(tests), unexplained_by(joints, model)) == []
    (remark,) = factor_remarks(of(times(tests, -1.0)), unexplained_by(joints, model))
    assert "all displacements times -1" in remark
