"""What a study makes of measured FRFs: noise by line, order and sign of points, symmetry, modal analysis, hits."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import tomli_w

import jaxmb
from jaxmb.identify.assess.remarks import data_remarks
from jaxmb.identify.experiments.frf.frf_test import predict_frf
from jaxmb.identify.experiments.frf.noise import leak_std
from jaxmb.identify.experiments.vibration_view import vibration_view
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from tests.identify.arm import estimate_at

MACHINE = "manipulator-3r"
MODEL = jaxmb.build_model(jaxmb.load_machine(MACHINE))
EXACT = {"machine": MACHINE, "least_rounds": 1, "tolerances": "exact"}
POSTURE = {"z2": 1.2217304763960306, "z3": -1.7453292519943295}
Q = jaxmb.posture(MODEL, POSTURE)
NAMES = ("tool x", "tool y", "tool z")
FREE = {
    "stiffness.*": {"lower": 2e5, "upper": 2e7, "initial": 1.5e6},
    "damping.*": {"lower": 1e2, "upper": 1e4, "initial": 8e2},
}
FREQUENCY = np.linspace(1.0, 30.0, 105)
"""As many lines as the hits below leave in their band: all fits are one program."""


def exact(frequency_hz=FREQUENCY, decay=0.0):
    tangent = jaxmb.linearize(MODEL, Q)
    rows = jaxmb.frame_jacobian(MODEL, Q, "tool")[:3]
    rotation = np.asarray(jaxmb.frame_pose(MODEL, Q, "tool"))[:3, :3]
    rows = rotation.T @ np.asarray(rows)
    mass, damping, stiffness = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    s = 2j * np.pi * frequency_hz[:, None, None] + decay
    h = s**2 * (rows @ np.linalg.inv(s**2 * mass + s * damping + stiffness) @ rows.T)
    return FrfSet(frequency_hz, h, "accelerance", NAMES, NAMES, decay_1_s=decay)


def study(tmp_path, frf_set, free=FREE, name="set.npz", **keys):
    write_frf(tmp_path / name, frf_set)
    test = {"kind": "frf", "noise_log_std": 0.01, "file": name, "posture": POSTURE} | keys
    return jaxmb.make_study(
        StudyFile.model_validate(
            {"machine": MACHINE, "test": [test], "free": free, "least_rounds": 1, "tolerances": "exact"}
        ),
        "s",
        tmp_path,
    )


def errors(result):
    truth = jaxmb.parameters(MODEL)
    return np.array([result.parameters[name].value / truth[name] - 1.0 for name in result.parameters])


def test_an_exponential_window_does_not_bias(tmp_path):
    result = jaxmb.identify(study(tmp_path, exact(decay=4.0)))
    assert np.abs(errors(result)).max() < 1e-9
    blind = jaxmb.identify(study(tmp_path, dataclasses.replace(exact(decay=4.0), decay_1_s=0.0)))
    assert np.abs(errors(blind)[3:]).min() > 0.1  # all dampings


def test_a_line_at_0_hz_is_left_out(tmp_path):
    """Sensors have an offset there, where the machine has no acceleration; and receptances no finite residual term."""
    frf_set = exact(np.linspace(0.0, 30.0, 121))
    h = np.concatenate([np.full((1, 3, 3), 1e-3), frf_set.frf[1:]])
    made = study(tmp_path, dataclasses.replace(frf_set, frf=h))
    assert not made.tests[0].weight[0].any()
    assert (made.tests[0].weight[1:] > 0.0).all()
    assert "the line at 0 Hz is left out: the predicted FRF is 0 or undefined there" in " ".join(data_remarks(made))
    displaced = h[1:] / (2j * np.pi * frf_set.frequency_hz[1:, None, None]) ** 2
    receptance = FrfSet(frf_set.frequency_hz, np.concatenate([displaced[:1], displaced]), "receptance", NAMES, NAMES)
    made = study(tmp_path, receptance, fit="synthesized", modal={"band_hz": [1.0, 30.0]}, band_hz=[1.0, 30.0])
    assert made.tests[0].omega[0] == pytest.approx(2.0 * np.pi)


def with_floor(seed, floor=1e-4, averages=10):
    """FRFs and coherence of hits of force 1, the mean of which has the floor."""
    truth, rng = exact(), np.random.default_rng(seed)
    shape = (averages, *truth.frf.shape)
    each = truth.frf + (rng.normal(size=shape) + 1j * rng.normal(size=shape)) * floor * np.sqrt(averages / 2.0)
    h = each.mean(axis=0)
    coherence = np.abs(h) ** 2 / np.mean(np.abs(each) ** 2, axis=0)
    return dataclasses.replace(truth, frf=h, coherence=coherence, averages=averages)


def test_coherence_keeps_lines_without_signal_from_biasing_stiffness(tmp_path):
    blind, seeing = (
        np.array([errors(jaxmb.identify(study(tmp_path, with_floor(s), coherence=c)))[:3] for s in range(4)])
        for c in (False, True)
    )
    # the first is too low in every draw, by 4.6 % over 20 draws; the second scatters without a bias to be seen
    assert np.mean(blind[:, 0]) == pytest.approx(-0.044, abs=1e-3)
    assert np.all(blind[:, 0] < -0.02)
    # draws of 1e-4 beside responses of 1e-2 to 1
    assert np.abs(seeing).max() < 1e-4


def test_lines_count_by_what_is_said_of_their_noise(tmp_path):
    noisy = dataclasses.replace(exact(), coherence=np.full((FREQUENCY.size, 3), 0.8))
    test = study(tmp_path, noisy, noise_log_std=0.02, cross_axis=0.04).tests[0]
    size = np.abs(noisy.frf)
    largest = size.max(axis=(1, 2), keepdims=True)
    power = (size**2).sum(axis=2, keepdims=True) / size**2
    # of averages that nobody counted one is taken; nothing is smaller than a thousandth of its noise
    random = np.minimum(0.2 / (2 * 0.8) * power, 1e6)
    expected = np.sqrt(0.02**2 + random + (0.04 * largest / size) ** 2 / 2.0)
    np.testing.assert_allclose(test.noise_std, expected, rtol=1e-9)
    assert float(test.nominal_std) == 0.02
    plain = study(tmp_path, noisy, noise_log_std=0.02, coherence=False).tests[0]
    assert np.all(np.asarray(plain.noise_std) == 0.02)


def test_a_coherence_without_numbers_is_told(tmp_path):
    coherence = np.full(exact().frf.shape, 0.8)
    coherence[:, 1] = np.nan
    set_ = dataclasses.replace(exact(), coherence=coherence, averages=5)
    told = "the coherence of tool y holds no number: its lines are not weighted by coherence"
    assert told in study(tmp_path, set_).entries[0].remarks
    assert told not in study(tmp_path, set_, coherence=False).entries[0].remarks
    coherence[0, 1] = 0.8
    assert told not in study(tmp_path, dataclasses.replace(set_, coherence=coherence)).entries[0].remarks


def test_noise_is_estimated_from_what_the_fit_leaves(tmp_path):
    rng = np.random.default_rng(3)
    h = exact().frf * np.exp(0.03 * (rng.normal(size=exact().frf.shape) + 1j * rng.normal(size=exact().frf.shape)))
    noisy = dataclasses.replace(exact(), frf=h)
    estimated = jaxmb.identify(study(tmp_path, noisy, noise_log_std="estimate"))
    # 1890 residuals tell a standard deviation to 1.6 %: four of these
    assert estimated.metrics["noise_log_std"]["set"] == pytest.approx(0.03, rel=0.06)
    given = jaxmb.identify(study(tmp_path, noisy, noise_log_std=0.03))
    for name, parameter in given.parameters.items():
        assert estimated.parameters[name].std_log == pytest.approx(parameter.std_log, rel=0.06)
    assert not any("cost is" in remark for remark in estimated.remarks)


def test_points_are_taken_by_name_and_turned_by_sign(tmp_path):
    whole = exact()
    turned = dataclasses.replace(
        whole,
        frf=whole.frf[:, [2, 0, 1]][:, :, [1, 0, 2]] * np.array([1.0, -1.0, 1.0])[:, None],
        outputs=("tool z", "tool -x", "tool y"),
        inputs=("tool y", "tool x", "tool z"),
    )
    for keys in ({}, {"outputs": [("tool", "z"), ("tool", "x")], "inputs": [("tool", "x")]}):
        one, other = (study(tmp_path, s, **keys).tests[0] for s in (whole, turned))
        np.testing.assert_allclose(one.measured, other.measured, rtol=1e-12)


PICKED = ["tool x / tool y", "tool z / tool y"]


@pytest.mark.parametrize("keep", ["upper", "lower", "mean", PICKED])
def test_symmetrized_responses_count_once(tmp_path, keep):
    """Six responses stand for nine at the same cost; the mean of two measurements has half the variance of each."""
    skew = dataclasses.replace(exact(), frf=exact().frf * np.linspace(1.0, 1.3, 9).reshape(3, 3))
    test = study(tmp_path, skew, symmetrize=keep, weights={"peaks": 50, "half_width_lines": 2, "elsewhere": 0.5}).tests[
        0
    ]
    used = np.asarray(test.weight) > 0.0
    assert used.all(axis=0).sum() == used.any(axis=0).sum() == 6
    other = np.swapaxes(skew.frf, 1, 2)
    above = np.triu(np.ones((3, 3), bool))
    mean = 0.5 * (skew.frf + other)
    whole = {"upper": np.where(above, skew.frf, other), "lower": np.where(above, other, skew.frf),
             "mean": mean}.get(str(keep), mean.copy())  # fmt: skip
    if keep == PICKED:
        whole[:, 0, 1] = whole[:, 1, 0] = skew.frf[:, 0, 1]
        whole[:, 1, 2] = whole[:, 2, 1] = skew.frf[:, 2, 1]
    np.testing.assert_allclose(np.asarray(test.measured)[used], whole[used], rtol=1e-12)
    plain = study(tmp_path, dataclasses.replace(skew, frf=whole), name="whole.npz",
                  weights={"peaks": 50, "half_width_lines": 2, "elsewhere": 0.5}).tests[0]  # fmt: skip
    view = test.view(MODEL)
    cost, nine = (float(np.sum(np.asarray(each.residual(view)) ** 2)) for each in (test, plain))
    assert cost == pytest.approx(nine, rel=1e-12)


@pytest.mark.parametrize("keep", ["upper", "lower", "mean"])
def test_a_pair_weighted_in_one_direction_keeps_its_response(tmp_path, keep):
    band = {"band_hz": [0.0, 1e4], "weight": 1.0, "outputs": [["tool", "y"]], "inputs": [["tool", "x"]]}
    test = study(tmp_path, exact(), symmetrize=keep, weights={"bands": [band], "elsewhere": 0.0}).tests[0]
    np.testing.assert_allclose(test.residual(test.view(MODEL)), 0.0, atol=1e-6)


@pytest.mark.parametrize("keep", ["upper", "lower", "mean"])
def test_symmetrized_responses_tell_no_more_than_they_know(tmp_path, keep):
    """What is claimed is the scatter of sum W |log error|^2's minimum, errors of 1 % in each part of each response.

    A pair counts twice. Where one of the two is left out its error has the variance of one, in the mean half of that.
    """
    symmetrized = study(tmp_path, exact(), symmetrize=keep)
    names = symmetrized.free.names
    truth = np.array([jaxmb.parameters(MODEL)[n] for n in names])
    claimed = estimate_at(symmetrized, np.asarray(symmetrized.free.encode(truth))).identifiability.covariance
    tangent = jaxmb.linearize(MODEL, Q)
    rows = (
        np.asarray(jaxmb.frame_pose(MODEL, Q, "tool"))[:3, :3].T
        @ np.asarray(jaxmb.frame_jacobian(MODEL, Q, "tool"))[:3]
    )
    s = 2j * np.pi * FREQUENCY[:, None, None]
    mass, damping, stiffness = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    inverse = np.linalg.inv(s**2 * mass + s * damping + stiffness)
    to, whole = rows @ inverse, rows @ inverse @ rows.T
    columns, weight, variance = [], [], []
    a, b = np.triu_indices(3)
    for name, value in zip(names, truth, strict=True):
        family, coordinate = name.split(".")
        i = MODEL.coordinates.index(coordinate)
        change = -to[:, :, i, None] * to[:, None, :, i] * (s if family == "damping" else 1.0) * value / whole
        columns.append(np.concatenate([change.real[:, a, b].ravel(), change.imag[:, a, b].ravel()]))
    jacobian = np.array(columns).T
    weight = np.tile(np.where(a == b, 1.0, 2.0), 2 * FREQUENCY.size)
    variance = np.where((weight == 2.0) & (keep == "mean"), 0.5, 1.0) * 0.01**2
    gain = np.linalg.solve(jacobian.T @ (weight[:, None] * jacobian), jacobian.T * weight)
    np.testing.assert_allclose(claimed, gain * variance @ gain.T, rtol=1e-6, atol=1e-9 * claimed.max())


def test_a_reversed_sensor_is_reported_before_its_responses_are_averaged(tmp_path):
    turned = exact().frf * np.array([1.0, -1.0, 1.0])[:, None]
    for keep in ("mean", "upper"):
        remark = data_remarks(study(tmp_path, dataclasses.replace(exact(), frf=turned), symmetrize=keep))[-1]
        assert remark.startswith("test 'set': tool x / tool y (1.00), tool y / tool z (1.00): opposite to the response")
        assert 'Name it "-x"' in remark
    # Responses that have nothing to do with each other are unsymmetric too, but not opposite.
    rng = np.random.default_rng(0)
    noise = rng.normal(size=turned.shape) + 1j * rng.normal(size=turned.shape)
    for h in (exact().frf, noise):
        assert data_remarks(study(tmp_path, dataclasses.replace(exact(), frf=h), symmetrize="mean")) == []


def test_units_are_converted_and_have_to_be_known(tmp_path):
    whole = exact()
    in_g = dataclasses.replace(whole, frf=whole.frf / 9.80665, unit="g/N")
    np.testing.assert_allclose(study(tmp_path, in_g).tests[0].measured, whole.frf, rtol=1e-12)
    unknown = dataclasses.replace(in_g, unit="unknown")
    with pytest.raises(jaxmb.InputError, match=r"the unit of .* is not known, expected unit = \"...\" in the test"):
        study(tmp_path, unknown)
    np.testing.assert_allclose(study(tmp_path, unknown, unit="g/N").tests[0].measured, whole.frf, rtol=1e-12)
    with pytest.raises(jaxmb.InputError, match=r"s\^2"):
        study(tmp_path, unknown, unit="mm/N")


def test_a_noise_in_percent_is_noted(tmp_path):
    assert not any("noise_log_std is" in note for note in data_remarks(study(tmp_path, exact(), noise_log_std=0.5)))
    notes = data_remarks(study(tmp_path, exact(), noise_log_std=2.0))
    assert any(note.endswith("noise_log_std is 2, 200 % of the response; 1 % is 0.01") for note in notes)


def test_a_unit_that_the_file_states_is_not_overruled(tmp_path):
    whole = exact()
    with pytest.raises(jaxmb.InputError, match=r"unit is 'mm/s\^2/N', but .* states g/N"):
        study(tmp_path, dataclasses.replace(whole, unit="g/N"), unit="mm/s^2/N")
    same = study(tmp_path, dataclasses.replace(whole, unit="g/N"), unit="g / N")
    np.testing.assert_allclose(same.tests[0].measured, 9.80665 * whole.frf, rtol=1e-12)
    # an NPZ file in SI may just not have said so
    told = study(tmp_path, whole, unit="g/N")
    assert any("is taken to be in g/N as the study states, not in m/s^2/N" in note for note in data_remarks(told))
    with pytest.raises(jaxmb.InputError, match=r"unit is 'g/N', but .* states m/s\^2/N"):
        study(tmp_path, dataclasses.replace(whole, outputs=AT_1, inputs=AT_1), name="set.uff", unit="g/N")


AT_1 = ("1 x", "1 y", "1 z")


def as_mounted(names=("1 z", "1 -x", "1 y")):
    """The exact responses as a file has them whose sensors and hits stand along other axes and against them."""
    mounted = jaxmb.select_channels(exact(), ("tool z", "tool -x", "tool y"), ("tool z", "tool -x", "tool y"))
    return dataclasses.replace(mounted, outputs=names, inputs=names)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("1 z", "1 -x", "1 y"), {}),
        (("1 z", "1 -x", "1 y"), {"nodes": {"1": "tool"}}),
        (("tool z", "tool -x", "tool y"), {}),
        (("tool +z", "tool -x", "tool +y"), {}),
        (("1 z", "2 -x", "3 y"), {"nodes": {"1": "tool", "2": "tool", "3": "tool"}}),
    ],
)
def test_a_file_is_read_by_direction_and_sign(tmp_path, names, keys):
    np.testing.assert_allclose(study(tmp_path, as_mounted(names), **keys).tests[0].measured, exact().frf, rtol=1e-12)


def test_some_points_of_a_file_are_enough(tmp_path):
    found = study(tmp_path, as_mounted(), outputs=[("tool", "-y")], inputs=[("tool", "x")]).tests[0].measured
    np.testing.assert_allclose(found, -exact().frf[:, 1:2, 0:1], rtol=1e-12)


def test_names_without_direction_are_taken_one_by_one(tmp_path):
    plain = dataclasses.replace(exact(), outputs=("a", "b", "c"), inputs=("a", "b", "c"))
    np.testing.assert_allclose(study(tmp_path, plain).tests[0].measured, exact().frf, rtol=1e-12)


@pytest.mark.parametrize("level", [np.abs, lambda h: 20.0 * np.log10(np.abs(h) / 10.0)])
def test_magnitudes_are_no_responses(tmp_path, level):
    magnitude = np.where(FREQUENCY[:, None, None] < 3.0, np.nan, level(exact().frf)).astype(complex)
    with pytest.raises(jaxmb.InputError, match=r"test 'set': all FRFs are real and of one sign, as magnitudes or dB"):
        study(tmp_path, dataclasses.replace(exact(), frf=magnitude))


@pytest.mark.parametrize(
    ("names", "keys", "message"),
    [
        (("1 z", "2 -x", "1 y"), {}, r"has the nodes 1, 2, no frame of the machine.*nodes = \{"),
        (
            ("1 z", "1 -x", "1 rx"),
            {},
            r"npz': output 'tool y' is not in the set, did you mean .* of tool z, tool -x, tool rx",
        ),
        (("1 z", "1 -x", "1 y"), {"nodes": {"2": "tool"}}, "node '2' does not exist; expected one of: 1$"),
        (("1 z", "1 -x", "1 y"), {"nodes": {"1": "tol"}}, r"nodes: 1: frame 'tol' does not exist, did you mean 'tool'"),
        (
            ("1 z", "2 z", "1 y"),
            {"nodes": {"1": "tool", "2": "tool"}, "frame": "tool", "outputs": [("tool", "y")]},
            r"'tool z' more than once",
        ),
        (("1 z", "1 -x", "1 y"), {"outputs": [("tool", "x"), ("link3", "x")]}, r"the test the frames link3, tool"),
        (("tool z", "tool x", "tool w"), {}, r"has the point 'tool w' beside tool z, tool x: expected a node"),
        (("a", "b"), {}, r"has 2 outputs and 2 inputs, expected 3 and 3 for tool x, tool y, tool z"),
    ],
)
def test_points_that_cannot_be_told_are_refused(tmp_path, names, keys, message):
    mounted = as_mounted()
    few = dataclasses.replace(mounted, frf=mounted.frf[:, : len(names), : len(names)], outputs=names, inputs=names)
    with pytest.raises(jaxmb.InputError, match=message):
        study(tmp_path, few, **keys)


def test_a_posture_in_the_file_must_be_that_of_the_test(tmp_path):
    placed = dataclasses.replace(exact(), posture=POSTURE)
    study(tmp_path, placed)
    with pytest.raises(jaxmb.InputError, match=r"was measured at z2 = 1\.22173, posture has 1"):
        study(tmp_path, placed, posture={"z2": 1.0, "z3": POSTURE["z3"]})


def test_a_modal_analysis_in_a_study_is_of_the_single_hits(tmp_path):
    """Frequency and damping of hits whose frequency differs, in g, along -z, at a node; the shifts come back too."""
    rng, blocks, shift = np.random.default_rng(2), [], 0.004 * np.array([-1.3, 0.2, 0.9, -0.4, 1.1, -0.2])
    for s in shift:
        force = np.zeros(1500)
        force[50:59] = 100.0 * np.sin(np.pi * np.arange(1, 10) / 10)
        pole = 2 * np.pi * 20.0 * (1.0 + s) * (-0.01 + 1j) / 500.0
        response = np.outer(np.convolve(force, np.imag(np.exp(pole * np.arange(1500))))[:1500], [1.0, 2.0, -1.0])
        blocks.append(np.column_stack([force, response + 0.1 * rng.normal(size=response.shape)]))
    np.savez(tmp_path / "hits.npz", data=np.vstack(blocks))
    (tmp_path / "hits.toml").write_text(
        'sample_rate_hz = 500.0\nrecord = [{ file = "hits.npz" }]\nforces = { columns = [1], dofs = ["1 -z"] }\n'
        'responses = { columns = [2, 3, 4], dofs = ["1 x", "1 y", "1 z"], unit = "g" }\n'
        'method = { kind = "hits", block = 1400, pre_trigger_s = 0.05, end_level = 0.01 }\n'
    )
    test = {"kind": "frf", "posture": POSTURE, "file": "hits.toml", "inputs": [("tool", "z")], "band_hz": (5.0, 50.0)}
    test |= {"modal": {"band_hz": (5.0, 50.0)}, "noise_log_std": 0.01}
    file = {"machine": MACHINE, "test": [test], "free": FREE}
    found = jaxmb.make_study(StudyFile.model_validate(file), "s", tmp_path).entries[0].source.modal
    assert any("natural frequencies differ between hits" in remark for remark in found.remarks)
    assert found.frequency_hz == pytest.approx([20.0 * (1.0 + shift.mean())], rel=1e-4)
    assert found.damping_ratio == pytest.approx([0.01], rel=0.01)
    np.testing.assert_allclose(found.scatter.shift[:, 0], shift - shift.mean(), atol=1e-4)


def hits(**how):
    return {"simulate": {"hits": {"hits": 2, "record_s": 4.0, **how}}, "file": None}


def from_hits(tmp_path, **keys):
    test = {"kind": "frf", "posture": POSTURE} | keys
    test.pop("file", None)
    return jaxmb.make_study(
        StudyFile.model_validate(
            {"machine": MACHINE, "test": [test], "free": FREE, "least_rounds": 1, "tolerances": "exact"}
        ),
        "s",
        tmp_path,
    )


def test_hits_on_a_linear_machine_give_its_parameters_back(tmp_path):
    found = jaxmb.identify(from_hits(tmp_path, **hits(decay_1_s=3.0), band_hz=(4.0, 30.0), noise_log_std="estimate"))
    # what is left is leakage (the response is at e^-10 of its peak at the end) and what folds at 512 Hz
    assert np.abs(errors(found)[:3]).max() < 2e-3
    assert np.abs(errors(found)[3:]).max() < 2e-2


def test_hits_that_miss_make_cross_responses_unsymmetric(tmp_path):
    straight, askew = (
        from_hits(tmp_path, **hits(tilt_deg=t, offset_m=o)).fitted[0].source.fitted
        for t, o in ((0.0, 0.0), (3.0, 0.02))
    )

    def unsymmetry(s):
        swapped = np.swapaxes(s.frf, 1, 2)
        return np.linalg.norm(s.frf - swapped) / np.linalg.norm(s.frf + swapped)

    assert unsymmetry(straight) < 1e-6
    assert unsymmetry(askew) > 0.02


def test_measured_modes_stand_beside_the_fitted_ones(tmp_path):
    keys = {"modal": {"band_hz": (4.0, 30.0), "max_order": 20}, "noise_log_std": "estimate"}
    found = jaxmb.identify(from_hits(tmp_path, **hits(decay_1_s=3.0), **keys, fit="synthesized"))
    lines = found.metrics["measured_modes"]
    assert len(lines) == 3
    true = jaxmb.modes(jaxmb.linearize(MODEL, Q))
    for line, frequency in zip(lines, np.asarray(true.damped_frequency_hz), strict=True):
        assert line["measured_frequency_hz"] == pytest.approx(frequency, rel=1e-3)
        assert line["frequency_hz"] == pytest.approx(frequency, rel=1e-3)
        assert line["mac"] > 0.999


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fit": "synthesized"}, "expected a modal analysis to synthesize from"),
        ({"unit": "g/N", "simulate": {"lines": {"first_hz": 1, "last_hz": 2, "step_hz": 0.5}}}, "unit is for a file"),
        ({"simulate": {}}, "expected either lines or hits"),
        ({"simulate": {"hits": {}, "noise_log_std": 0.1}}, "hits give accelerances with their own noise"),
        ({"shape_frames": ["nowhere"]}, "nowhere"),
        ({"noise_log_std": "guess"}, "noise_log_std"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, keys, message):
    keys = {"simulate": {"lines": {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 0.5}}} | keys
    data = {
        "machine": MACHINE,
        "test": [{"kind": "frf", "posture": POSTURE} | keys],
        "free": FREE,
        "tolerances": "exact",
    }
    path = tmp_path / "wrong.toml"
    path.write_text(tomli_w.dumps(data))
    with pytest.raises(jaxmb.InputError, match=message):
        jaxmb.load_study(path)


def test_frf_shift_is_that_of_the_plain_equation():
    seen = exact(decay=2.5)
    points = tuple(("tool", axis) for axis in "xyz")
    view = vibration_view(MODEL, Q, "posture", points, points)
    predicted = predict_frf(view, jnp.asarray(2 * np.pi * FREQUENCY), 2, 2.5)
    np.testing.assert_allclose(predicted, seen.frf, rtol=1e-9, atol=1e-15)


def test_leakage_of_a_mean_of_two_is_that_of_one_over_the_root_of_two(tmp_path):
    """The noise of each line, without coherence, is that of the leakage, whose correlation between lines it shares."""
    mean, plain = (study(tmp_path, exact(), cross_axis=0.05, **keys).tests[0] for keys in ({"symmetrize": "mean"}, {}))
    used, off = np.asarray(mean.weight) > 0.0, ~np.eye(3, dtype=bool)
    known = leak_std(np.asarray(mean.leak), np.asarray(mean.measured))
    np.testing.assert_allclose(known[used], np.asarray(mean.known_std)[used], rtol=1e-12)
    ratio = np.abs(np.asarray(mean.leak)[:, off] / np.asarray(plain.leak)[:, off])[used[:, off]]
    np.testing.assert_allclose(ratio, np.sqrt(0.5), rtol=1e-9)
