"""
From loads and deflections to compensated tool positions
========================================================

A mass loads a robot, and a laser tracker measures the deflection of its tool. The results are the stiffness of its
joints, which of them are not identifiable from the loads, a model of joints and links, and joint targets with which
the loaded tool does not sag.
"""

import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmb
from jaxmb.deflections import (
    LoadCase,
    candidate_postures,
    choose_load_cases,
    corrected_target,
    joint_terms,
    loaded_pose,
    measured_displacements,
    observation_matrix,
)
from jaxmb.estimation import linear_fit

robot = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
tracker = np.repeat([3e-5, 6e-5], 3)  # m, rad
rng = np.random.default_rng(1)

# %%
# Which tests?
# ------------
#
# Any posture within the limits could be measured, with a mass of 150 kg below the tool, on a bracket. Of 300 such
# postures, ten are chosen after which the stiffnesses are known best.

limits = {
    "q1": (-1.0, 1.0),
    "q2": (0.3, 2.2),
    "q3": (-4.2, -3.0),
    "q4": (-2.0, 2.0),
    "q5": (0.3, 1.8),
    "q6": (-2.0, 2.0),
}
postures = candidate_postures(robot, limits, 300, seed=0, floor=0.2)


def hanging(name: str, q: np.ndarray, force: tuple[float, float, float]) -> LoadCase:
    """A force 0.3 m beside the tool: its moment is taken along."""
    arm = np.asarray(jaxmb.frame_pose(robot, jnp.asarray(q), "tool"))[:3, :3] @ np.array([-0.3, 0.0, 0.0])
    return LoadCase(name, q, "tool", np.concatenate([force, np.cross(arm, force)]), ("tool",), np.zeros((1, 6)),
                          tracker[None])  # fmt: skip


candidates = [hanging(f"posture {i}", q, (0.0, 0.0, -1470.0)) for i, q in enumerate(postures)]
design = choose_load_cases(robot, candidates, 10)
planned = [candidates[i] for i in sorted(design.chosen)]
print("chosen:", ", ".join(test.name for test in planned))

# %%
# Here the measurement is simulated: the built-in robot with the stiffnesses of Dumas et al. 2011, and the tracker's
# noise.


def measured(model: jaxmb.Model, test: LoadCase) -> LoadCase:
    """What the tracker would see."""
    moved = jaxmb.deflection(
        model, jnp.asarray(test.q), test.frame, jnp.asarray(test.wrench), test.points, linear=False
    )
    return dataclasses.replace(test, displacement=np.asarray(moved) + test.std * rng.normal(size=test.std.shape))


def identified(tests: list[LoadCase]) -> np.ndarray:
    """Standard deviations of compliances by weighted least squares, which are printed as stiffnesses."""
    matrix = observation_matrix(robot, tests, joint_terms(robot, robot.coordinates))
    fit = linear_fit(matrix, *measured_displacements(tests), lower=np.zeros(6), names=robot.coordinates)
    for name, value, std, true in zip(robot.coordinates, fit.values, fit.std, robot.stiffness, strict=True):
        known = f"{1 / value:.3g} ± {100 * std / value:.1f} %" if np.isfinite(std) else "not identifiable"
        print(f"{name}: {known} (true {float(true):.3g} N m/rad)")
    return fit.std


tests = [measured(robot, test) for test in planned]
known = np.isfinite(identified(tests))
assert known.tolist() == [False] + 5 * [True]

# %%
# Joint 1 turns about a vertical axis: no hanging mass loads it. Two tests with a rope that pulls to the side
# determine it.

sideways = [measured(robot, hanging(f"rope {i}", postures[i], (0.0, 1000.0, 0.0))) for i in range(2)]
assert np.isfinite(identified(tests + sideways)).all()

# %%
# Flexible links
# --------------
#
# The KR 270 stand-in has elastic links and bearings. Its study fits four models to 15 tests and compares what each of
# them would compensate in 30 other ones: joints alone (J1, J2) leave a tenth of the deflections, joints and
# links (C1, C2) a fiftieth.

result = jaxmb.identify(jaxmb.load_study("kr270-complete-stiffness"))
for row in result.metrics["table2_check"]:
    print(f"{row['model']:>4}: {row['parameters']:2d} parameters, RMS {row['position']['rms']:.2f} mm,"
          f" largest {row['position']['max']:.2f} mm, {row['compensated_percent']:.1f} %")  # fmt: skip
compensated = {row["model"]: row["compensated_percent"] for row in result.metrics["table2_check"]}
assert min(compensated[name] for name in ("C1", "C2")) > 97.0 > 91.0 > max(compensated[name] for name in ("J1", "J2"))

# %%
figure, axes = plt.subplots(figsize=(6.0, 3.0), layout="constrained")
for name, colour in (("J2", "0.7"), ("C2", "#0072B2")):
    distance = np.linalg.norm(result.metrics["errors_mm_check"][name], axis=1)
    axes.hist(distance, np.linspace(0.0, 1.3, 40), color=colour, alpha=0.8, label=name)
axes.set_xlabel("error after compensation (mm)")
axes.set_ylabel("number of points")
axes.set_title("Joints (J2); joints and links (C2)", loc="left")
axes.legend(frameon=False)
plt.show()

# %%
# Compensated targets
# -------------------
#
# The identified machine corrects the joint targets of a path; the real one (the stand-in again, with its compensator)
# follows them under a load. What a vertical load does is corrected. The compliance to a side load is poorly identified:
# nothing pulled that way.

real = jaxmb.build_model(jaxmb.load_machine("kuka-kr270"))
found = result.model
path = real.reference + jnp.linspace(0.0, 0.5, 8)[:, None] * jnp.array([1.0, 0.3, 0.2, 0.0, 0.0, 0.0])


@jax.jit
def missed(targets: jax.Array, wrench: jax.Array) -> jax.Array:
    """How far the loaded tool is from where it should be, mm."""

    def one(target: jax.Array, wanted: jax.Array) -> jax.Array:
        there = loaded_pose(real, target, "tool", wrench)
        return 1e3 * jnp.linalg.norm((there - jaxmb.frame_pose(real, wanted, "tool"))[:3, 3])

    return jax.vmap(one)(targets, path)


correct = jax.jit(jax.vmap(lambda q, wrench: corrected_target(found, q, "tool", wrench), in_axes=(0, None)))
for name, load in (("down", jnp.array([0.0, 0.0, -1500.0, 0, 0, 0])), ("aside", jnp.array([0.0, 1000.0, 0, 0, 0, 0]))):
    before, after = (jnp.sqrt(jnp.mean(missed(q, load) ** 2)) for q in (path, correct(path, load)))
    print(f"{name:>5}: {before:.2f} mm without correction, {after:.2f} mm with it")
    remains = after / before
    assert remains < 0.1 if name == "down" else remains > 0.1
