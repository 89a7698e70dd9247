"""Standard deviations of modes follow from differences of the modes, and are infinite where nothing is known."""

import re

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.cli import main
from jaxmb.identify.assess.uncertainty.nonlinear import mode_std
from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.maps.modal import identified, load_identified, modal_maps
from jaxmb.response.modal import modes
from tests.identify.arm import MACHINE, TRUTH, frf, measured_frf, study_of


def fractional(folder):
    free = {
        "fractional.order": {"lower": 0.1, "upper": 1.0}, "fractional.time": {"lower": 1e-8, "upper": 1e-2},
        "stiffness.*": {"lower": 1e3, "upper": 1e6},
    }  # fmt: skip
    law = {"fractional": {"order": 0.4, "time": 2e-5}}
    machine = jaxmb.Machine.model_validate(MACHINE.model_dump(mode="json", exclude_unset=True) | law)
    return study_of(folder, frf(), free=free, machine=machine)


@pytest.mark.parametrize("name", ["validation-3r", "flexible-arm", "fractional"])
def test_modes_by_differences(name, tmp_path):
    """With structural damping (the flexible arm) and fractional damping too.

    A step of 1e-4 leaves 1e-8 of the curvature, and 1e-6 of rounding.
    """
    study = fractional(tmp_path) if name == "fractional" else jaxmb.load_study(name)
    test, free = study.tests[0], study.free
    u = free.encode(np.sqrt(np.asarray(free.lower_value) * np.asarray(free.upper_value)))

    def numbers(u):
        tangent = test.view(free.apply(study.model, free.values(u))).tangent
        found = jax.tree.map(np.asarray, modes(tangent))
        return tangent, found, np.stack([found.frequency_hz, found.damping_ratio], axis=1)

    tangent, found, values = numbers(u)
    std = np.random.default_rng(0).uniform(0.01, 0.1, free.size)
    variance = np.zeros_like(values)
    for i in range(free.size):
        step = 1e-4 * np.eye(free.size)[i]
        variance += ((numbers(u + step)[2] - numbers(u - step)[2]) / 2e-4 * std[i]) ** 2
    shown = mode_std(test, study.model, free, u, tangent, found, np.diag(1.0 / std))
    np.testing.assert_allclose(shown, np.sqrt(variance), rtol=1e-5)
    affine = study.problem.views[0]
    assert (affine is None) == (name == "fractional")
    # the affine view without a derivative; differences of its matrices round to about 1e-12 of a slope
    again = mode_std(test, study.model, free, u, tangent, found, np.diag(1.0 / std), affine)
    np.testing.assert_allclose(again, shown, rtol=1e-10)

    rows = np.diag(1.0 / std)
    first = next(i for i, name in enumerate(free.names) if name.startswith("stiffness"))
    rows[first, first] = 0.0  # a stiffness that the data do not determine
    assert np.isinf(mode_std(test, study.model, free, u, tangent, found, rows)[:, 0]).any()


def test_modes_with_a_wrong_mass(tmp_path, capsys):
    """A mass 4 % off displaces the stiffnesses, hardly the modes at the posture of the test, and those of other
    postures within their intervals; also from the saved files."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    data["body"][1]["mass"] *= 1.04
    data["body"][1]["inertia_products"] = {k: 1.04 * v for k, v in data["body"][1]["inertia_products"].items()}
    test, true = measured_frf(tmp_path, data)
    exact = dict.fromkeys(Tolerances.model_fields, 0.0)
    result = jaxmb.identify(study_of(tmp_path, test, tolerances=exact | {"mass_percent": 3.0}))
    (tmp_path / "result.json").write_text(result.json_text())
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    fresh, saved = (modal_maps(known, {"b": [-1.2, 0.5]}, held={"a": 0.2}) for known in (
        identified(result), load_identified(tmp_path)))  # fmt: skip
    assert main(["predict", str(tmp_path), "--posture", "a=0.2 rad, b=0.5 rad"]) == 0
    assert re.findall(r"\n +1 +(\S+) +(\S+)", capsys.readouterr().out) == [
        (f"{result.modes[0].frequency_hz:.3f}", f"{result.modes[0].frequency_std_hz:.2g}")
    ]
    known = modal_maps(true, {"b": [-1.2, 0.5]}, held={"a": 0.2}).maps
    for name, std in (("frequency", "frequency_std_hz"), ("damping", "damping_ratio_std")):
        np.testing.assert_allclose(saved.maps[name].std, fresh.maps[name].std, rtol=1e-6)
        of_modes = np.array([getattr(mode, std) for mode in result.modes])
        np.testing.assert_allclose(fresh.maps[name].std[1], of_modes, rtol=1e-3)
        assert np.abs((fresh.maps[name].values - known[name].values) / fresh.maps[name].std).max() < 3.0
    relative = fresh.maps["frequency"].std / fresh.maps["frequency"].values
    assert relative.max() < 0.2 * result.parameters["stiffness.b"].std_log


def test_parameters_contain_the_distance_from_the_joint_fit(tmp_path):
    """The effect of a tool point 3 mm off (tolerance 2 mm) is not linear: the fit without errors would be up to 2.3
    standard deviations off."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    data["frame"][0]["origin"]["xyz"][2] += 0.003
    test, _ = measured_frf(tmp_path, data, b=1.6)
    exact = dict.fromkeys(Tolerances.model_fields, 0.0)
    result = jaxmb.identify(study_of(tmp_path, test, tolerances=exact | {"frame_mm": 2.0}))
    errors = [(p.value / TRUTH[name] - 1.0) / p.std_log for name, p in result.parameters.items()]
    assert 0.8 < np.abs(errors).max() < 1.7
