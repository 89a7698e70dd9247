"""
The posterior of weakly identified damping
==========================================

A modal test gives natural frequencies to a fraction of a percent and damping ratios to a third of their value or worse.
The fit's intervals come from the curvature of its cost at the minimum. `jaxmb.log_density` gives the whole distribution
to a sampler of another package, here NUTS of blackjax (`pip install 'jaxmb[notebooks]'`), which shows where they
differ.
"""

import jaxmb  # before blackjax, which computes when it is imported

# isort: split
import blackjax
import jax
import matplotlib.pyplot as plt
import numpy as np

SAMPLES = globals().get("SAMPLES", 2000)

# %%
# The measurement
# ---------------
#
# Three modes of the validation manipulator. Stiffness is known to 6 %; damping has a prior of a factor of two
# (0.7 in its logarithm) about typical values.

test = {
    "kind": "modes",
    "posture": {"z2": "70 deg", "z3": "-100 deg"},
    "frequency_hz": [10.21, 11.20, 22.61],
    "damping_percent": [1.2, 2.6, 0.9],
    "frequency_std_hz": 0.03,
    "damping_std_percent": 0.8,
}
stiffness = {"stiffness.z1": 2.0e6, "stiffness.z2": 3.0e6, "stiffness.z3": 1.55e6}
damping = {"damping.z1": 1.2e3, "damping.z2": 1.545e3, "damping.z3": 340.0}
free = {name: {"lower": v / 1.06, "upper": 1.06 * v, "initial": v} for name, v in stiffness.items()}
free |= {name: {"lower": v / 100, "upper": 100 * v, "initial": v} for name, v in damping.items()}
study = jaxmb.make_study(
    {"machine": "manipulator-3r", "test": [test], "free": free, "prior": {"damping.*": 0.7}, "tolerances": "exact"},
    "weak-damping",
)
result = jaxmb.identify(study, seed=0)

# %%
# NUTS
# ----
#
# Samplers need coordinates without bounds and of similar scale: those of `of_unbounded`.

density = jaxmb.log_density(result.study)
start = density.to_unbounded({name: p.value for name, p in result.parameters.items()})
adapt = blackjax.window_adaptation(blackjax.nuts, density.of_unbounded)
(state, tuned), _ = adapt.run(jax.random.key(0), start, 500)
step = jax.jit(blackjax.nuts(density.of_unbounded, **tuned).step)


def one(state, key):
    state, info = step(key, state)
    return state, (state.position, info.is_divergent)


_, (position, divergent) = jax.lax.scan(one, state, jax.random.split(jax.random.key(1), SAMPLES))
samples = jax.vmap(density.from_unbounded)(position)

# %%
# Both intervals
# --------------

print(f"{int(divergent.sum())} divergent transitions in {SAMPLES}")
print(f"{'parameter':14} {'fit, 95 %':>24} {'posterior, 95 %':>24}")
posterior = {name: np.quantile(np.asarray(values), [0.025, 0.5, 0.975]) for name, values in samples.items()}
for name, p in result.parameters.items():
    low, high = p.interval_95
    print(f"{name:14} {low:11.4g} to {high:9.4g} {posterior[name][0]:11.4g} to {posterior[name][2]:9.4g}")

# %%
# Of stiffness, which is well determined, both intervals agree. Those of damping do not: the fit's is symmetric on the
# logarithmic scale, whereas a ratio of 0.9 % with a standard deviation of 0.8 % excludes large dampings better than
# small ones. The upper ends of the posterior's intervals are about a third below those of the fit.

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
for ax, name in zip(axes, damping, strict=True):
    p = result.parameters[name]
    logarithms = np.log10(np.asarray(samples[name]))
    ax.hist(logarithms, bins=40, density=True, color="0.75", label="posterior (NUTS)")
    x = np.linspace(logarithms.min(), logarithms.max(), 200)
    width = p.std_log / np.log(10)
    ax.plot(x, np.exp(-0.5 * ((x - np.log10(p.value)) / width) ** 2) / (width * np.sqrt(2 * np.pi)), label="fit")
    ax.set(title=name, xlabel="log10 of damping, N m s/rad")
axes[0].set_ylabel("probability density")
axes[0].legend()

# %%
# The statements of this page:

assert result.converged
assert int(divergent.sum()) <= 0.02 * SAMPLES
for name, p in result.parameters.items():
    low, middle, high = posterior[name]
    assert low < p.value < high, name  # the fit's value is inside the posterior's interval
    assert abs(np.log(middle / p.value)) < 1.0 * p.std_log, name
    if name in stiffness:
        assert np.abs(np.log([low, high]) - np.log(p.interval_95)).max() < 0.5 * p.std_log, name
    else:
        assert high < 0.9 * p.interval_95[1], name
plt.show()
