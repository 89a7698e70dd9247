"""Reciprocity: how far from it, and how to get there, by the names of degrees of freedom."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxmb.measurement.frf_set import FrfSet, select_channels
from jaxmb.measurement.reciprocity import reciprocal_pairs, stack_inputs, symmetrize, total_unsymmetry, unsymmetry

FREQUENCY = np.linspace(1.0, 20.0, 12)
DOFS = ("a x", "b x", "b y", "c z")


def reciprocal(seed=0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(12, 4, 4)) + 1j * rng.normal(size=(12, 4, 4))
    return FrfSet(FREQUENCY, h + np.swapaxes(h, 1, 2), "accelerance", DOFS, DOFS)


@settings(max_examples=30, deadline=None)
@given(
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_names_decide_and_not_positions(rows, columns, turned):
    # Outputs and inputs in any order, sensors and hammers turned round: it is still the same reciprocal machine.
    def names(order, signs):
        return tuple(DOFS[i].replace(" ", " -") if turn else DOFS[i] for i, turn in zip(order, signs, strict=True))

    moved = select_channels(reciprocal(), names(rows, turned[:4]), names(columns, turned[4:]))
    assert len(reciprocal_pairs(moved)) == 6
    assert total_unsymmetry(moved) == pytest.approx(0.0, abs=1e-15)
    for keep in ("mean", "upper", "lower"):
        np.testing.assert_allclose(symmetrize(moved, keep).frf, moved.frf, rtol=1e-14)


def test_measure():
    set_ = reciprocal()
    h = set_.frf.copy()
    h[:, 0, 1] *= 1.02
    h[:, 2, 3] *= -1.0
    measured = unsymmetry(dataclasses.replace(set_, frf=h))
    assert list(measured) == ["a x / b x", "a x / b y", "a x / c z", "b x / b y", "b x / c z", "b y / c z"]
    # |0.02| / sqrt(2 (1 + 1.02^2))
    assert measured["a x / b x"] == pytest.approx(0.02 / np.sqrt(2 * (1 + 1.02**2)), rel=1e-12)
    assert measured["b y / c z"] == pytest.approx(1.0, rel=1e-12)
    assert measured["a x / c z"] == 0.0
    # Unrelated responses of equal size: 1 / sqrt(2), within the scatter of 12 lines and 6 pairs.
    rng = np.random.default_rng(1)
    noise = dataclasses.replace(set_, frf=rng.normal(size=(12, 4, 4)) + 1j * rng.normal(size=(12, 4, 4)))
    assert total_unsymmetry(noise) == pytest.approx(np.sqrt(0.5), abs=0.1)
    # The whole is the skew part's share of the cross responses.
    skew = noise.frf - np.swapaxes(noise.frf, 1, 2)
    cross = noise.frf * (1 - np.eye(4))
    assert total_unsymmetry(noise) == pytest.approx(np.linalg.norm(skew) / (2 * np.linalg.norm(cross)), rel=1e-12)


def test_lines_that_are_not_finite_do_not_count():
    set_ = reciprocal()
    h = set_.frf.copy()
    h[3, 0, 1] = np.nan
    h[5, 1, 0] = np.inf
    assert total_unsymmetry(dataclasses.replace(set_, frf=h)) == 0.0
    empty = dataclasses.replace(set_, frf=np.zeros_like(h))
    assert total_unsymmetry(empty) == 0.0


@pytest.mark.parametrize("keep", ["mean", "upper", "lower", ["b x/a x"], []])
def test_pairs_are_made_equal_and_the_rest_is_left(keep):
    rng = np.random.default_rng(2)
    h = rng.normal(size=(12, 3, 3)) + 1j * rng.normal(size=(12, 3, 3))
    coherence = rng.uniform(size=(12, 3, 3))
    # "b x" was hit from the other side; "d z" was never hit, "e x" carried no sensor.
    set_ = FrfSet(FREQUENCY, h, "mobility", ("a x", "b x", "d z"), ("b -x", "a x", "e x"), coherence=coherence)
    made = symmetrize(set_, keep)
    keep = keep if isinstance(keep, str) else "lower" if keep else "mean"
    upper, lower = h[:, 0, 0], -h[:, 1, 1]
    kept = {"mean": (upper + lower) / 2, "upper": upper, "lower": lower}[keep]
    np.testing.assert_allclose(made.frf[:, 0, 0], kept, rtol=1e-15)
    np.testing.assert_allclose(made.frf[:, 1, 1], -kept, rtol=1e-15)
    changed = np.zeros((3, 3), bool)
    changed[0, 0] = changed[1, 1] = True
    np.testing.assert_array_equal(made.frf[:, ~changed], h[:, ~changed])
    assert unsymmetry(made) == {"a x / b x": 0.0}
    a, b = coherence[:, 0, 0], coherence[:, 1, 1]
    expected = {"mean": np.minimum(a, b), "upper": a, "lower": b}[keep]
    for place in ((0, 0), (1, 1)):
        np.testing.assert_array_equal(made.coherence[:, place[0], place[1]], expected)
    np.testing.assert_array_equal(made.coherence[:, ~changed], coherence[:, ~changed])


def test_what_has_no_pair():
    set_ = FrfSet(FREQUENCY, np.ones((12, 2, 2)), "mobility")
    for verb in (unsymmetry, total_unsymmetry, symmetrize):
        with pytest.raises(ValueError, match="no response was measured both ways: outputs are 1, 2, inputs 1, 2"):
            verb(set_)
    with pytest.raises(ValueError, match="keep is 'average', expected one of mean, upper, lower"):
        symmetrize(reciprocal(), "average")
    for names, text in ((["a x / c x"], "'a x / c x' was not measured both ways, expected one of "),
                        (["a x / b x", "b x / a x"], "the pair a x / b x is named twice")):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            symmetrize(reciprocal(), names)
    twice = FrfSet(FREQUENCY, np.ones((12, 2, 2)), "mobility", ("a x", "a -x"), ("a x", "b x"))
    with pytest.raises(ValueError, match="output 'a x' occurs twice in the set"):
        unsymmetry(twice)


def test_sets_of_one_input_each_are_joined():
    whole = dataclasses.replace(
        reciprocal(), coherence=np.random.default_rng(3).uniform(size=(12, 4, 4)), averages=5, decay_1_s=1.5
    )
    columns = [select_channels(whole, inputs=[name]) for name in DOFS]
    columns[2] = dataclasses.replace(columns[2], averages=3)
    made = stack_inputs(columns)
    np.testing.assert_array_equal(made.frf, whole.frf)
    np.testing.assert_array_equal(made.coherence, whole.coherence)
    assert (made.inputs, made.averages, made.decay_1_s) == (DOFS, 3, 1.5)
    assert stack_inputs(columns[:1]).inputs == ("a x",)
    assert stack_inputs([columns[0], dataclasses.replace(columns[1], coherence=None)]).coherence is None
    for changes, message in (
        ({"kind": "mobility", "unit": "m/s/N"}, "kind of set 2 is 'mobility', expected 'accelerance' as in set 1"),
        ({"decay_1_s": 0.0}, r"decay_1_s of set 2 is 0\.0, expected 1\.5 as in set 1"),
        ({"frequency_hz": FREQUENCY + 0.1}, "set 2 has other lines than set 1"),
        ({"inputs": ("a x",)}, "input 'a x' occurs in more than one set"),
    ):
        with pytest.raises(ValueError, match=message):
            stack_inputs([columns[0], dataclasses.replace(columns[1], **changes)])
    with pytest.raises(ValueError, match="there are no sets to join"):
        stack_inputs([])
