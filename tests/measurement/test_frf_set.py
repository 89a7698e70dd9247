"""FRF sets: what they refuse, and that they stay as they are."""

import dataclasses

import numpy as np
import pytest

from jaxmb.measurement.frf_set import FrfSet, in_band, select_channels, to_si, unit_scale

FREQUENCY = np.array([1.0, 2.0, 3.5, 4.0])
H = np.arange(24).reshape(4, 2, 3) * (0.1 - 0.2j) + 1.0


def frf_set(**changes):
    fields = {"frequency_hz": FREQUENCY, "frf": H, "kind": "mobility"} | changes
    return FrfSet(**fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frequency_hz": FREQUENCY[:, None]}, r"frequency_hz has shape \(4, 1\), expected one axis"),
        ({"frequency_hz": np.zeros(0), "frf": np.zeros((0, 1, 1))}, r"frequency_hz has shape \(0,\)"),
        ({"frequency_hz": ["a", "b", "c", "d"]}, "frequency_hz does not hold real numbers"),
        ({"frequency_hz": FREQUENCY + 0j}, "frequency_hz does not hold real numbers: found complex128"),
        ({"frequency_hz": [1.0, np.nan, 3.0, 4.0]}, "frequency_hz holds nan, expected finite numbers"),
        ({"frequency_hz": [1.0, 2.0, 3.0, np.inf]}, "frequency_hz holds inf, expected finite numbers"),
        ({"frequency_hz": [-1.0, 2.0, 3.0, 4.0]}, "frequency_hz starts at -1 Hz, expected 0 or more"),
        ({"frequency_hz": [1.0, 2.0, 2.0, 4.0]}, "not increasing: line 3 is 2 Hz after 2 Hz"),
        ({"frequency_hz": [1.0, 3.0, 2.0, 4.0]}, "not increasing: line 3 is 2 Hz after 3 Hz"),
        ({"frf": H[:3]}, r"frf has shape \(3, 2, 3\), expected \(4, outputs, inputs\) for 4 frequencies"),
        ({"frf": H[:, :, 0]}, r"frf has shape \(4, 2\)"),
        ({"frf": H[:, :0]}, r"frf has shape \(4, 0, 3\)"),
        ({"frf": [["x"]]}, "frf does not hold real or complex numbers"),
        ({"frf": [[1.0], [1.0, 2.0]]}, "frf does not hold real or complex numbers"),
        ({"kind": "velocity"}, "kind is 'velocity', expected one of receptance, mobility, accelerance"),
        ({"outputs": ("a",)}, "2 outputs and 3 inputs, but 1 and 3 names"),
        ({"inputs": ("a", "b")}, "2 outputs and 3 inputs, but 2 and 2 names"),
        ({"outputs": ("a x", ("a", "x"))}, "outputs hold 'a x' more than once, expected different degrees of freedom"),
        ({"outputs": "a x"}, r"degrees of freedom are 'a x', expected a list of names, such as \['tool z'\]"),
        ({"outputs": 2}, "degrees of freedom are 2, expected a list of names"),
        ({"outputs": [1, 2]}, r"degrees of freedom are \[1, 2\], expected a list of names"),
        ({"inputs": ("b", "a", "b")}, "inputs hold 'b' more than once"),
        ({"coherence": np.ones((4, 3))}, r"coherence has shape \(4, 3\), expected \(4, 2\) or \(4, 2, 3\)"),
    ],
)
def test_what_cannot_be_a_set(changes, message):
    with pytest.raises(ValueError, match=message):
        frf_set(**changes)


def test_a_set_does_not_change():
    frequency_hz, h = FREQUENCY.copy(), H.copy()
    made = frf_set(frequency_hz=frequency_hz, frf=h, coherence=np.ones((4, 2)))
    frequency_hz[0], h[0] = 0.5, 7.0
    np.testing.assert_array_equal(made.frequency_hz, FREQUENCY)
    np.testing.assert_array_equal(made.frf, H)
    for array in (made.frequency_hz, made.frf, made.coherence):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    # What is frozen and nobody else's is taken as it is: a set may fill half of the memory.
    assert frf_set(frf=made.frf).frf is made.frf
    frozen_view = frequency_hz[:]
    frozen_view.setflags(write=False)
    assert not np.shares_memory(frf_set(frequency_hz=frozen_view).frequency_hz, frequency_hz)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.kind = "receptance"


def test_points_are_numbered_where_they_have_no_name():
    made = frf_set()
    assert (made.outputs, made.inputs) == (("1", "2"), ("1", "2", "3"))


def test_lines_that_are_not_finite_are_kept():
    h = H.copy()
    h[1, 0, 0] = np.nan
    np.testing.assert_array_equal(frf_set(frf=h).frf, h)


def test_band():
    made = in_band(frf_set(coherence=np.arange(8.0).reshape(4, 2) / 8), [2.0, 3.5])
    np.testing.assert_array_equal(made.frequency_hz, [2.0, 3.5])
    np.testing.assert_array_equal(made.frf, H[1:3])
    np.testing.assert_array_equal(made.coherence, np.arange(8.0).reshape(4, 2)[1:3] / 8)
    # Lines that are multiples of a step miss a band's end by rounding only.
    lines = 0.2 * np.arange(1, 5)
    np.testing.assert_array_equal(in_band(frf_set(frequency_hz=lines), [0.2, 0.6]).frequency_hz, lines[:3])
    with pytest.raises(ValueError, match=r"band_hz is 3 to 2 Hz, expected the lower end first"):
        in_band(made, [3.0, 2.0])
    with pytest.raises(ValueError, match=r"no line of the FRF lies in 5 to 6 Hz: its lines are 2 to 3\.5 Hz"):
        in_band(made, [5.0, 6.0])


def test_units():
    assert unit_scale("g/N", "accelerance") == pytest.approx(9.80665, rel=1e-15)
    np.testing.assert_allclose(to_si(frf_set(unit="mm/s/N")).frf, H / 1000.0, rtol=1e-15)
    for unit, scale in (
        ("m/s2/N", 1.0),
        ("ms-2/N", 1.0),
        ("ms^-2/kN", 1e-3),
        ("m s-2 N-1", 1.0),
        ("1/kg", 1.0),
        ("mg/N", 9.80665e-3),
        ("m/s^2/kgf", 1 / 9.80665),
        ("cm/s^2/dyne", 1e3),
    ):
        assert unit_scale(unit, "accelerance") == pytest.approx(scale, rel=1e-12)
    for unit, words in (
        ("kg/N", "unit 'kg/N' is not one of accelerance such as"),
        ("m//s^2/N", "two slashes follow each other"),
        ("m/s^2/ /N", "two slashes"),
        ("G/N", "'G' is a unit of magnetism, did you mean 'g'"),
        ("m/s^2/N\x07", r"unit 'm/s\^2/N\\x07' .* holds a character that cannot be printed"),
        ("m/s2^9/N", "a number has a power"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            unit_scale(unit, "accelerance")
        assert "\n" not in str(caught.value)
    for unit in (
        "g/N",
        "kg",
        "m/s",
        "apples/N",
        "m/s/N)",
        "m**9**9**9/N",
        "(9)^9^9^9 m/s/N",
        "(" * 70,
        "m/s/N " * 40,
        "1/0",
        "\n",
    ):
        with pytest.raises(ValueError, match="unit "):
            unit_scale(unit, "mobility")
    with pytest.raises(ValueError, match=r"the unit of 'bench\.uff' is not known, expected one such as 'm/s/N'"):
        to_si(frf_set(unit="unknown", source="bench.uff"))


def test_a_plus_sign_of_a_degree_of_freedom_may_be_omitted():
    signed = FrfSet([1.0], np.ones((1, 1, 1)), "receptance", ("tool +x",), ("tool x",))
    for output, factor in (("tool x", 1.0), ("tool +x", 1.0), ("tool -x", -1.0)):
        assert select_channels(signed, [output], ["tool +x"]).frf == factor
    assert select_channels(signed, [("tool", "-x")]).outputs == ("tool -x",)


def test_a_point_hit_from_both_sides_has_two_inputs():
    both = FrfSet([1.0], [[[2.0, -3.0]]], "receptance", ("tool x",), ("tool x", "tool -x"))
    assert select_channels(both, inputs=["tool -x"]).frf == -3.0
    assert select_channels(both, inputs=["tool +x"]).frf == 2.0
    with pytest.raises(ValueError, match="inputs hold 'tool x' more than once"):
        dataclasses.replace(both, inputs=("tool x", "tool +x"))
