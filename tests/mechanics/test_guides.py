"""Virtual springs of sliding stages: compliance over overlap and play, against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.deflections.load_cases import LoadCase
from jaxmb.identify.experiments.deflections.table import deflections_csv
from jaxmb.identify.stiffness_model.complete_model import complete_model
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.machine.changed import machine_of
from jaxmb.machine.schema import Machine
from jaxmb.response.static import deflection, frame_poses_under_weight

OVERLAP, RATE, COMPLIANCE, PLAY, LOAD = 1.2, -0.5, 2e-6, 4e-4, 150.0
MASS, ARM = 40.0, 0.8
GUIDE = {"coordinate": "lift", "overlap_m": OVERLAP, "rate": RATE}


def mast(guide=GUIDE, play=True, mass=MASS):
    """A stage that carries a mass on an arm, its guide at the foot of the stage."""
    spring = {"name": "slide", "body": "stage", "at": "joint", "diagonal": [0, 0, 0, 0, COMPLIANCE, 0]}
    spring |= {} if guide is None else {"guide": guide}
    spring |= {"play": [0, 0, 0, 0, PLAY, 0], "play_load": [1, 1, 1, 1, LOAD, 1]} if play else {}
    body = {"name": "stage", "joint": [{"name": "lift", "type": "prismatic"}], "mass": mass,
            "center_of_mass": [ARM, 0.0, 0.0]}  # fmt: skip
    data = {"name": "mast", "body": [body], "virtual_spring": [spring], "frame": [{"name": "tool", "body": "stage"}]}
    return Machine.model_validate(data)


def tilt(lift, load, exponent=2.0):
    ratio = OVERLAP / (OVERLAP + RATE * lift)
    return COMPLIANCE * ratio**exponent * load + PLAY * ratio ** (exponent / 2) * math.tanh(load / LOAD)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tilt_under_weight(sign):
    model = jaxmb.build_model(mast())
    model = jaxmb.set_parameters(model, {"guide_exponent.slide": 1.6, "first_moment.stage.x": sign * MASS * ARM})
    poses = jax.jit(lambda q: frame_poses_under_weight(model, q, ("tool",)))
    for lift in (0.0, 0.9, 1.8):
        turned = poses(jnp.array([lift]))[0, :3, :3]
        load = sign * 9.81 * MASS * ARM * math.cos(tilt(lift, 9.81 * MASS * ARM, 1.6))
        assert math.atan2(turned[0, 2], turned[0, 0]) == pytest.approx(tilt(lift, load, 1.6), rel=1e-6)


def test_derivatives_by_exponent_and_play():
    model, q = jaxmb.build_model(mast()), jnp.array([1.1])
    names = ["guide_exponent.slide", "play.slide.ry", "play_load.slide.ry"]
    values = np.array([1.8, 3e-4, 120.0])

    @jax.jit
    def height(v):
        changed = jaxmb.set_parameters(model, dict(zip(names, v, strict=True)))
        return frame_poses_under_weight(changed, q, ("tool",))[0, 2, 0]

    slope = np.asarray(jax.jit(jax.jacfwd(height))(values))
    np.testing.assert_allclose(jax.jit(jax.jacrev(height))(values), slope, rtol=1e-12)
    for i, step in enumerate(1e-5 * values):
        by = np.eye(3)[i] * step
        difference = float(height(values + by) - height(values - by)) / (2 * step)
        assert slope[i] == pytest.approx(difference, rel=1e-6)


def test_deflections_at_several_extensions_identify_the_exponent(tmp_path):
    machine = mast(play=False)
    model, wrench = jaxmb.build_model(machine), np.array([0.0, 0, 0, 0, 100.0, 0])
    cases = []
    for lift in (0.0, 0.8, 1.6):
        q = np.array([lift])
        found = np.asarray(deflection(model, q, "tool", wrench))
        assert found[0, 4] == pytest.approx(COMPLIANCE * (OVERLAP / (OVERLAP + RATE * lift)) ** 2 * 100.0, rel=1e-12)
        cases.append(LoadCase(f"at {lift}", q, "tool", wrench, ("tool",), found, np.full((1, 6), 1e-7)))
    (tmp_path / "loads.csv").write_text(deflections_csv(model, cases))
    wrong = {"compliance.slide.ry.ry": 1e-6, "guide_exponent.slide": 1.0}
    jaxmb.write_machine(machine_of(machine, jaxmb.set_parameters(model, wrong)), tmp_path / "mast.toml")
    free = {"compliance.slide.ry.ry": {"lower": 1e-8, "upper": 1e-4, "scale": "logarithmic"},
            "guide_exponent.slide": {"lower": 0.0, "upper": 4.0}}  # fmt: skip
    test = {"kind": "deflection", "file": "loads.csv"}
    study = {"machine": "mast.toml", "tolerances": "exact", "test": [test], "free": free}
    study["prior"] = {"guide_exponent.slide": 10.0}  # its pull on the value is 1e-8
    result = jaxmb.identify(make_study(StudyFile.model_validate(study), "mast", tmp_path))
    assert result.parameters["compliance.slide.ry.ry"].value == pytest.approx(COMPLIANCE, rel=1e-6)
    assert result.parameters["guide_exponent.slide"].value == pytest.approx(2.0, abs=1e-6)


def test_refusals():
    model = jaxmb.build_model(mast())
    with pytest.raises(NotImplementedError, match="virtual spring 'slide' has play"):
        deflection(model, jnp.array([0.0]), "tool", jnp.ones(6))
    with pytest.raises(NotImplementedError, match="guide or play"):
        complete_model(model)
    spring = {"name": "prop", "frame_a": "ground", "frame_b": "tool", "type": "translation", "direction": [1, 0, 0]}
    propped = Machine.model_validate(mast().model_dump() | {"spring": [spring]})
    with pytest.raises(NotImplementedError, match="'slide' has play, and a spring between frames acts across it"):
        frame_poses_under_weight(jaxmb.build_model(propped), jnp.array([0.0]), ("tool",))
    parted = frame_poses_under_weight(jaxmb.build_model(mast()), jnp.array([2.4]), ("tool",))
    assert not np.isfinite(parted).all()
    with pytest.raises(ValueError, match="guide: prismatic coordinate"):
        mast(GUIDE | {"coordinate": "lif"})
    data = mast().model_dump(mode="json", exclude_none=True)
    del data["virtual_spring"][0]["play_load"]
    with pytest.raises(ValueError, match="one of play and play_load"):
        Machine.model_validate(data)
