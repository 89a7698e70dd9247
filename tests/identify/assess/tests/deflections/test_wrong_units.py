"""Factors of columns are named where something tells them, and nowhere else."""

import dataclasses
import functools

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.estimate import LinearSystem
from jaxmb.identify.assess.tests.deflections import (
    factor_remarks,
    share_scale,
    unexplained_share,
    unexplained_share_by,
)
from jaxmb.identify.fit.linear import linear_equations, linear_step, unknowns
from jaxmb.identify.stiffness_model.variants import stiffness_models
from tests.identify.kr240 import JOINTS, MODEL, entry_of, loaded, study_of

ALL, LINEAR, ANGULAR = np.ones(6), np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)
START = np.full(6, 1e6)


def made(seed=0, **changes):
    return loaded(seed=seed, noise=1.0, reach=0.4, **changes)


def times(cases, factor, which=ALL, load=False):
    f = np.where(which, factor, 1.0)
    return [
        dataclasses.replace(c, wrench=c.wrench * f) if load else dataclasses.replace(c, displacement=c.displacement * f)
        for c in cases
    ]


def of(*sets, model=MODEL):
    return [entry_of(cases, name, model=model) for name, cases in zip(("set", "other", "third"), sets, strict=False)]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The machine, and what is free of it; its tests are not looked at."""

    def free(names=JOINTS):
        bounds = {name: {"lower": 1e4, "upper": 1e9} for name in names}
        return study_of(tmp_path_factory.mktemp("factors"), made(), free=bounds)

    return free


@pytest.fixture(scope="module")
def joints(study):
    return study()


def told(entries, study):
    found = unknowns(study.free, study.tests[0].linear.reciprocal(study.model, study.free))
    rows = linear_equations(study.model, study.free, study.tests)
    start = START[: study.free.size]
    linear = LinearSystem(found, rows, linear_step(found, rows, start), start)
    return factor_remarks(entries, functools.partial(unexplained_share, study, linear))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda t: times(t, -1.0), "all displacements times -1"),
        (lambda t: times(t, -1.0, LINEAR), "translations times -1"),
        (lambda t: times(t, 180 / np.pi, ANGULAR), "rotations times 1/57.3"),
        (lambda t: times(t, np.pi / 180, ANGULAR), "rotations times 57.3"),
        (lambda t: times(t, 1e3, LINEAR), "translations times 1/1000"),
        # stiffnesses 1000 times as large, or as small, are beyond their bounds, so the rotations are right
        (lambda t: times(t, 1e-3, LINEAR), "translations times 1000"),
        (lambda t: times(t, 1e-3, LINEAR, load=True), "forces times 1000"),
        (lambda t: times(t, -1.0, ANGULAR, load=True), "moments times -1"),
    ],
)
def test_a_wrong_column_is_named(joints, wrong, named):
    (remark,) = told(of(wrong(made())), joints)
    assert f" with {named}: is a column in another unit" in remark


def test_a_wrong_set_is_named(joints):
    sets = of(made(seed=1), times(made(seed=2), 1e3), made(seed=3))
    (remark,) = told(sets, joints)
    assert " with the displacements of 'other' times 1/1000: " in remark


def test_what_is_held_knows_the_size(study):
    (remark,) = told(of(times(made(), 1e-3)), study(JOINTS[:2]))
    assert "all displacements times 1000" in remark


def test_nothing_is_said_of_good_data(joints):
    assert told(of(made()), joints) == []
    # a common factor is one of the compliances
    assert told(of(times(made(), 10.0)), joints) == []


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_said_where_no_factor_helps(joints, seed):
    draw = np.random.default_rng(seed)
    noise = [dataclasses.replace(t, displacement=1e-3 * draw.normal(size=(1, 6))) for t in made()]
    assert told(of(noise), joints) == []
    half = [dataclasses.replace(t, displacement=t.displacement + 1e-3 * draw.normal(size=(1, 6))) for t in made()]
    assert told(of(half, made(seed=9)), joints) == []
    axes = times(made(seed=seed), -1.0, np.array([1.0, 0, 0, 0, 0, 0]))  # one axis alone is no kind
    assert told(of(axes), joints) == []


def test_shares_know_no_units():
    sets = [made(), made(seed=1)]
    scale = share_scale(sets)
    values = np.concatenate([case.displacement.ravel() for cases in sets for case in cases])
    # all of everything is left: the mean of four groups of share 1
    assert np.sum((values / scale) ** 2) == pytest.approx(1.0, rel=1e-12)
    changed = [times(sets[0], 1e3, LINEAR), sets[1]]
    again = np.concatenate([case.displacement.ravel() for cases in changed for case in cases])
    np.testing.assert_allclose(again / share_scale(changed), values / scale, rtol=1e-12)


def test_joints_of_a_complete_model_tell_a_sign():
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr270"))
    cases = made(model=model, size=(2500.0, 900.0))
    joints = stiffness_models(model, cases)[1]["J1"]
    share = functools.partial(unexplained_share_by, joints, model)
    assert factor_remarks(of(cases, model=model), share) == []
    (remark,) = factor_remarks(of(times(cases, -1.0), model=model), share)
    assert "all displacements times -1" in remark
