"""
Which posture should I measure next?
====================================

A robot's frequency responses at one posture do not determine all of its joint stiffnesses and dampings, and one can
say so before measuring: the Jacobian of what would be measured, in units of its noise, is known from the model.
Here the KUKA KR90 of Huynh et al. 2020 is measured in its milling posture, and the question is where to go from
there.
"""

import matplotlib.pyplot as plt
import numpy as np

import jaxmb

MILLING = {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"}
RANGES = {"z1": ["-90 deg", "90 deg"], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}


def frf_test(name, posture, last_hz, seed=0):
    """A simulated test with 1 % noise: all nine FRFs at the tool, a line every half hertz."""
    lines = {"first_hz": 1.0, "last_hz": last_hz, "step_hz": 0.5}
    simulate = {"lines": lines, "noise_log_std": 0.01, "noise_seed": seed}
    return {"kind": "frf", "name": name, "posture": posture, "simulate": simulate, "noise_log_std": 0.01}


def study(*tests, **more):
    """A study of the robot with all 18 parameters free."""
    free = {"stiffness.*": {"lower": 5.5e5, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}}
    description = {"machine": "kuka-kr90", "test": list(tests), "free": free, "start": "random"} | more
    return jaxmb.make_study(description, "plan")


# %%
# Information of the milling posture
# ----------------------------------
#
# Up to 30 Hz, as published, four dampings cannot be known; the sentences say why, and what would help most.

candidates = {"postures": RANGES, "candidates": 20, "count": 1, "bands_hz": [[1.0, 100.0]], "step_hz": 0.5}
plan = jaxmb.inspect(study(frf_test("milling posture", MILLING, 30.0), next=candidates))
for name, expected in plan.parameters.items():
    print(f"{name}: {100 * expected.relative_std:.3g} %, {expected.identifiable}")
print(plan.parameters["damping.x2"].why)
unknown = [name for name, expected in plan.parameters.items() if expected.identifiable == "no"]
assert len(unknown) == 4
assert all(name.startswith("damping.") for name in unknown)

# %%
# The next posture
# ----------------
#
# Of 20 postures one is chosen, the one after which the sum of all variances is least; then its angles are improved by
# the gradient of that sum. The bars show the predicted standard deviations before and after this test.

(chosen,) = plan.next.tests
places = {name: i for i, name in enumerate(plan.study.model.coordinates) if name in RANGES}
print("next posture:", {name: f"{np.degrees(float(chosen.q[i])):.0f} deg" for name, i in places.items()})
print(f"sum of the variances: {plan.next.before:.4g}, {plan.next.chosen:.4g}, {plan.next.improved:.4g}")
assert plan.next.improved < plan.next.chosen < plan.next.before
assert (
    max(expected.next_std for expected in plan.parameters.values())
    < 0.5
    < 10.0
    < max(expected.relative_std for expected in plan.parameters.values())
)

names = list(plan.parameters)
figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
for offset, (label, values) in zip(
    (-0.2, 0.2),
    (
        ("milling posture to 30 Hz", [plan.parameters[n].relative_std for n in names]),
        ("and the chosen one to 100 Hz", [plan.parameters[n].next_std for n in names]),
    ),
    strict=True,
):
    axes.barh(np.arange(len(names)) + offset, values, height=0.4, label=label)
axes.set_xscale("log")
axes.axvline(0.1, color="0.3", lw=0.8, ls="--")
axes.set_yticks(range(len(names)), names)
axes.invert_yaxis()
axes.set_xlabel("predicted standard deviation of the logarithm (0.1: ten per cent)")
axes.legend()
plt.show()

# %%
# Comparison with a fit
# ---------------------
#
# Measure there (with noise), fit both postures together, and compare the errors with what was promised. A third posture
# is predicted only.

posture = {name: float(chosen.q[i]) for name, i in places.items()}
unseen = {"z1": "-45 deg", "z2": "55 deg", "z3": "-70 deg"}
measured = study(
    frf_test("milling posture", MILLING, 30.0, seed=1),
    frf_test("chosen", posture, 100.0, seed=2),
    frf_test("not used", unseen, 60.0, seed=3) | {"role": "check"},
)
result = jaxmb.identify(measured)
within = {}
for name, parameter in result.parameters.items():
    error = np.log(parameter.value / measured.truth[name])
    within[name] = abs(error) / plan.parameters[name].next_std
    print(f"{name}: off by {100 * error:+.3g} %, promised {100 * plan.parameters[name].next_std:.3g} %")
print("held out:", {k: v for k, v in result.metrics["holdout"].items() if k != "tests"})
# The mean square of 18 errors in standard deviations is 1 on average, and above 3 in one of 1e5 draws.
assert np.mean(np.square(list(within.values()))) < 3.0
