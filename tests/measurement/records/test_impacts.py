"""Hits of a hammer: where they are, which are refused and why, and what the windows make of them."""

import numpy as np
import pytest

from jaxmb.measurement.records.impacts import (
    Pulse,
    _remarks,
    cut_hits,
    double_hit,
    estimate_frf_from_hits,
    find_hits,
    is_overloaded,
    pulse_of,
)

RATE = 1000.0
N = 1000
POLE = -8.0 + 2j * np.pi * 40.0


def hit(at=100, size=50.0, length=12, n=N):
    """A half sine from a sample on."""
    force = np.zeros(n)
    force[at : at + length] = size * np.sin(np.pi * np.arange(1, length + 1) / (length + 1))
    return force


def answer(force, poles=(POLE,)):
    """What discrete filters with known poles make of a force [n, output]: their H(z) is exact on the sampled axis."""
    columns = []
    for pole in poles:
        impulse = np.imag(np.exp(pole * np.arange(force.size) / RATE))
        columns.append(np.convolve(force, impulse)[: force.size])
    return np.column_stack(columns)


def true_response(frequency_hz, decay_1_s, pole=POLE):
    z = np.exp((2j * np.pi * frequency_hz + decay_1_s) / RATE)
    a = np.exp(pole / RATE)
    return a.imag * z / (z**2 - 2 * a.real * z + abs(a) ** 2)


@pytest.mark.parametrize("decay", [0.0, 10.0])
@pytest.mark.parametrize("estimator", ["H1", "H2", "Hv"])
def test_hits_without_noise_are_exact(decay, estimator):
    forces = [hit(100), hit(130, -80.0), hit(90, 20.0, 7)]
    records = [(f + 3.0, answer(f) - [[5.0]]) for f in forces]
    test = estimate_frf_from_hits(records, RATE, decay_1_s=decay, estimator=estimator, kind="mobility", inputs=("3 z",))
    made = test.frf_set
    assert (test.accepted, dict(test.rejected), made.averages) == ((1, 2, 3), {}, 3)
    assert (made.decay_1_s, made.kind, made.inputs) == (decay, "mobility", ("3 z",))
    # The record ends 0.87 s behind the hit, where exp(-8 t) is 1e-3 without a window and 1e-7 with it.
    truth = true_response(made.frequency_hz, decay)
    tolerance = {0.0: 3e-3, 10.0: 3e-6}[decay]
    # Up to the first zero of the longest pulse's spectrum
    low = made.frequency_hz < 100.0
    np.testing.assert_allclose(made.frf[low, 0, 0], truth[low], atol=tolerance * np.abs(truth).max())
    assert np.all(made.coherence[low] > 1 - 1e-4)
    # each hit alone is what it is without the others
    alone = [
        estimate_frf_from_hits([record], RATE, decay_1_s=decay, kind="mobility", inputs=("3 z",)) for record in records
    ]
    for single, other in zip(test.hits, alone, strict=True):
        np.testing.assert_allclose(single.frf, other.frf_set.frf, rtol=1e-12)
        assert (single.decay_1_s, single.inputs, single.averages, other.hits) == (decay, ("3 z",), 1, ())


def test_the_force_window_keeps_noise_out():
    rng = np.random.default_rng(0)
    f = hit()
    y = answer(f)
    noise = 0.5 * rng.normal(size=(10, N))
    records = [(f + e, y) for e in noise]
    errors = []
    for keep_s in (None, 0.9):
        made = estimate_frf_from_hits(records, RATE, decay_1_s=10.0, force_window_s=keep_s).frf_set
        band = (made.frequency_hz > 20.0) & (made.frequency_hz < 60.0)
        errors.append(np.std(np.abs(made.frf[band, 0, 0] / true_response(made.frequency_hz[band], 10.0))))
    # Some 60 samples of noise instead of those of a decay of 100 ms, 50 in effect; what counts is that both are small
    # and that a window as long as the record is none.
    assert errors[0] < 0.02
    with pytest.raises(ValueError, match=r"force_window_s is 0\.001 s, expected to extend past the peak"):
        estimate_frf_from_hits(records, RATE, force_window_s=0.001)


def test_what_is_before_a_hit_is_left_out():
    f = hit(400)
    before = np.zeros((N, 1))
    before[:380, 0] = 0.3 * answer(f).max() * np.sin(2.0 * np.pi * 30.0 * np.arange(380) / RATE)
    before[:380] -= before[:380].mean()  # the mean is taken for an offset
    made, clean = (estimate_frf_from_hits([(f, answer(f) + e)], RATE, decay_1_s=10.0) for e in (before, 0.0 * before))
    np.testing.assert_allclose(made.frf_set.frf, clean.frf_set.frf, rtol=1e-6)
    assert "response 1 moves by" in made.remarks[0]
    assert clean.remarks == ()


def test_find_and_cut():
    force = np.concatenate([hit(300), hit(100), hit(500)]) + 2.0
    starts, left_out = find_hits(force[:, None], RATE, block=800, pre_trigger_s=0.05)
    # The first sample above a tenth of 50 N is the first of the pulse (12 N); the third hit is followed by 500 samples.
    assert starts == (250, 1050)
    assert left_out == ("the hit at 2.5 s has less than a block after it",)
    records = cut_hits(force, np.arange(3000.0), starts, 800)
    np.testing.assert_array_equal(records[1][0][:, 0], force[1050:1850])
    assert records[1][1][0, 0] == 1050.0
    for start in (-900, len(force) - 700):
        with pytest.raises(
            ValueError, match=rf"starts holds {start}, expected 0 to {len(force) - 800}: a block of 800"
        ):
            cut_hits(force, np.arange(3000.0), [start], 800)
    early, left_out = find_hits(np.concatenate([hit(20), hit(100)]), RATE, block=500, pre_trigger_s=0.05)
    assert early == (1050,)
    assert left_out == ("the hit at 0.02 s has less than 0.05 s before it",)
    weak = np.concatenate([hit(300), hit(300, 4.0)])
    assert find_hits(weak, RATE, block=500)[0] == (250,)
    assert find_hits(weak, RATE, block=500, trigger=0.5)[0] == (250, 1250)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block": 8}, "block is 8, expected a whole number of at least 16"),
        ({"block": 40, "pre_trigger_s": 0.05}, r"pre_trigger_s is 0\.05 s, expected less than the 0\.04 s of a block"),
        ({"block": 500, "pre_trigger_s": -1.0}, r"pre_trigger_s is -1\.0, expected a number of at least 0"),
        ({"block": 500, "trigger": 60.0}, "trigger is 60, expected above 0 and below the force's largest, 4"),
        ({"block": 500, "trigger": 0.0}, "trigger is 0, expected above 0"),
        ({"block": 960}, "no hit has a complete block of 960 samples: the hit at 0.1 s has less than a block after it"),
    ],
)
def test_what_cannot_be_cut(settings, message):
    with pytest.raises(ValueError, match=message):
        find_hits(hit(), RATE, **settings)


def test_double_hits():
    assert double_hit(hit(), 0.1) is None
    assert double_hit(-hit() - 5.0, 0.1) is None
    assert double_hit(hit() + hit(300, 10.0), 0.1) == 302
    assert double_hit(hit() + hit(300, 10.0), 0.25) is None
    # The small one first
    assert double_hit(hit(60, 10.0) + hit(), 0.1) == 100
    # Ringing of a converter's filter turns the other way, or stands close by
    assert double_hit(hit() - hit(114, 12.0), 0.1) is None
    ringing = hit()
    ringing[114] = 8.0
    assert double_hit(ringing, 0.1) is None


def test_overload():
    f = hit(length=40)
    assert not is_overloaded(f)
    assert is_overloaded(np.minimum(f, 40.0))
    assert is_overloaded(np.maximum(-f, -40.0))
    assert is_overloaded(f, 50.0 * (1 - 1e-3))
    assert not is_overloaded(f, 50.1)
    # A clean top behind a coarse converter is flat too, but not cut off.
    counts = np.round(hit(length=200, size=1000.0))
    assert np.sum(counts == counts.max()) >= 3
    assert not is_overloaded(counts)
    assert is_overloaded(np.minimum(counts, 800.0))
    # One sample, or a constant, is no flat top.
    assert not is_overloaded(np.append(np.zeros(50), [1.0, 2.0]))
    # a smooth extreme with noise of 1.3 steps of the converter, three samples of which are equal
    rng, t = np.random.default_rng(0), np.arange(4096)
    smooth = 300.0 * np.exp(-t / 800.0) * np.sin(t / 10.0 + 1.0)
    noisy = np.round(smooth + 1.3 * rng.normal(size=t.size))
    top = int(np.argmax(noisy))
    noisy[top - 1 : top + 2], noisy[[top - 3, top + 3]] = noisy[top], noisy[top] - 28.0
    assert not is_overloaded(noisy)
    assert is_overloaded(np.minimum(noisy, 200.0))
    assert not is_overloaded(np.ones(5))


def test_a_pulse_needs_quiet_before_it():
    assert pulse_of(hit(100)).start < 100
    assert "begins 10 samples into the record" in pulse_of(hit(10))
    assert "has not ended" in pulse_of(hit(220)[:226])


def test_reasons():
    good, double, early = hit(), hit() + hit(400, 20.0), hit(8)
    loud = np.minimum(hit(length=40), 40.0)
    records = [(f, answer(f)) for f in (good, double, early, loud)]
    test = estimate_frf_from_hits(records, RATE, decay_1_s=5.0)
    assert test.accepted == (1,)
    assert dict(test.rejected) == {
        2: "a double hit: the force rises again above 10% of its peak at sample 402",
        3: "it begins 8 samples into the record, expected at least 17",
        4: "the force was overloaded",
    }
    assert (test.frf_set.averages, test.frf_set.coherence) == (1, None)
    assert len(estimate_frf_from_hits(records, RATE, decay_1_s=5.0, double_hit_level=0.5).accepted) == 2
    assert test.peak_force == pytest.approx((good.max(),))
    with pytest.raises(ValueError, match=r"none of the 2 hits can be used: hit 1: a double hit: .* sample 402$"):
        estimate_frf_from_hits(records[1:3], RATE)
    with pytest.raises(
        ValueError, match=r"none of the 2 hits .*: a double hit: .*: is the force in another channel\?$"
    ):
        estimate_frf_from_hits([records[1], records[1]], RATE)
    with pytest.raises(ValueError, match=r"the only hit cannot be used: hit 1: it begins 8 samples"):
        estimate_frf_from_hits(records[2:3], RATE)
    scale = np.abs(records[0][1]).max()
    with pytest.raises(ValueError, match="hit 1: response 1 was overloaded"):
        estimate_frf_from_hits(records[:1], RATE, response_full_scale=0.9 * scale)
    assert estimate_frf_from_hits(records[:1], RATE, response_full_scale=1.1 * scale).accepted == (1,)
    with pytest.raises(ValueError, match="hit 1: the force was overloaded"):
        estimate_frf_from_hits(records[:1], RATE, force_full_scale=45.0)


def test_remarks():
    f = hit()
    slow = answer(f, (-1.0 + 200j,))
    test = estimate_frf_from_hits([(f, slow)], RATE)
    assert len(test.remarks) == 1
    assert test.remarks[0].startswith("hit 1: response 1 is still at")
    assert "expected a longer record or a faster exponential window" in test.remarks[0]
    assert estimate_frf_from_hits([(f, slow)], RATE, decay_1_s=6.0).remarks == ()
    ringing = (
        answer(f) + 0.2 * np.abs(answer(f)).max() * np.sin(np.arange(N) / 3.0)[:, None] * (np.arange(N) < 80)[:, None]
    )
    assert "moves by" in estimate_frf_from_hits([(f, ringing)], RATE, decay_1_s=6.0).remarks[0]


GOOD = (hit(), answer(hit()))


@pytest.mark.parametrize(
    ("records", "settings", "message"),
    [
        ([], {}, "there are no records, expected one per hit"),
        ([GOOD[0]], {}, r"hit 1 is no pair, expected \(force, response\)"),
        ([5], {}, "hit 1 is no pair"),
        ([GOOD, (hit(), answer(hit())[:-1])], {}, "hit 2: force has 1000 samples and response 999"),
        (
            [GOOD, (hit(n=900), answer(hit(n=900)))],
            {},
            "hit 2 has 900 samples of 1 responses, expected 1000 of 1 as hit 1",
        ),
        ([GOOD, (hit(), np.full(N, np.nan))], {}, "hit 2: response 1 is nan at sample 1"),
        ([(np.zeros(N), GOOD[1])], {}, "hit 1: force 1 is 0 throughout"),
        (
            [(np.column_stack([hit(), hit(300)]), GOOD[1])],
            {},
            "hit 1: force has 2 channels, expected the one of a hammer",
        ),
        ([(np.arange(10.0), np.arange(10.0))], {}, "the records have 10 samples, expected at least 16"),
        ([GOOD], {"decay_1_s": -1.0}, r"decay_1_s is -1\.0, expected a number of at least 0"),
        ([GOOD], {"decay_1_s": np.inf}, "decay_1_s is inf, expected a finite number"),
        ([GOOD], {"double_hit_level": 1.0}, r"double_hit_level is 1\.0, expected a number of at least 0 and below 1"),
        ([GOOD], {"force_full_scale": 0.0}, r"force_full_scale is 0\.0, expected a number above 0"),
        ([GOOD], {"response_full_scale": "5 V"}, 'response_full_scale is "5 V", expected a number'),
        ([GOOD], {"force_window_s": -1.0}, r"force_window_s is -1\.0, expected a number above 0"),
        ([GOOD], {"estimator": "h1"}, r"estimator is 'h1', did you mean 'H1'\? expected one of H1, H2, Hv"),
        ([GOOD], {"outputs": ("a x", "b x")}, "1 outputs and 1 inputs, but 2 and 1 names"),
    ],
)
def test_what_is_refused(records, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimate_frf_from_hits(records, RATE, **settings)
    assert "\n" not in str(caught.value)


def test_noise_of_a_channel_that_does_not_respond_is_no_motion():
    """A vibration before the hit and at the end is reported, noise of the same size is not."""
    rng, t = np.random.default_rng(0), np.arange(2000) / 1000.0
    pulse = Pulse(start=100, peak=102, stop=105)
    response = 0.1 * np.column_stack([rng.normal(size=2000), np.sin(2.0 * np.pi * 20.0 * t)])
    found = _remarks(response, response, pulse)
    assert [text[:16] for text in found] == ["response 2 moves", "response 2 is st"]
