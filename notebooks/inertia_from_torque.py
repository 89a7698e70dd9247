"""
Inertial parameters from the torque of a drive
==============================================

A crank turns, a coupler follows, a slider moves to and fro: the slider-crank of Pyrhönen, Mikkola and Naets (2024),
which jaxmb ships with the inertias of their Table 1. Which of them are identifiable from the angle and the torque
of its crank alone, along which motion, and how well? All is simulated here, so that the truth is known; with files
of a real machine the same study has ``file`` in the place of ``simulate``.
"""

import matplotlib.pyplot as plt
import numpy as np

import jaxmb

machine = jaxmb.load_machine("slider-crank")
model = jaxmb.build_model(machine)
names = jaxmb.regressor_names(model)
print(f"torques are linear in {len(names)} numbers")

# %%
# Parameters identifiable from torques
# ------------------------------------
#
# Of bodies in a plane that close a loop only some sums act on the crank: the base parameters, eq. 9 of the paper. Here
# the friction of the slide is wanted too, as in the experiment of section 3.2.

WANTED = ["mass.*", "first_moment.*", "inertia.*", "friction.q3"]
base = jaxmb.base_parameters(model, WANTED)
print("\n".join(base.formulas))
assert len(base.names) == 7

# %%
# An informative motion
# ---------------------
#
# A period of 2 s begins and ends at rest and keeps to the limits of the drive. Printed are the standard deviations to
# be expected from two periods, with 0.01 N m of noise at 200 samples a second.

RATE_HZ, ANGLE_STD, TORQUE_STD = 200.0, 1e-3, 1e-2
drive = {"q1": {"speed": 15.0, "acceleration": 150.0}}
settings = {"base_hz": 0.5, "periods": 2, "harmonics": 4, "limits": drive, "starts": 1, "steps": 10}
best = jaxmb.exciting_motion(machine, WANTED, torque_std=TORQUE_STD, rate_hz=RATE_HZ, **settings)
for row in best.base:
    print(f"{row.std:9.1e}  {row.formula}")

# %%
# A record and its identification
# -------------------------------
#
# The machine as built differs from its drawing: slider and coupler are heavier, and the slide rubs with 2 N. The record
# has the paper's noise, 1 mrad and 0.01 N m. Another motion is held out. Where the crank is slow, friction is more than
# a constant on a real machine; so slow samples are left out here as well.

TRUE = {"mass.slider": 0.32, "mass.coupler": 0.26, "friction.q3": 2.0}
noise = {"rate_hz": RATE_HZ, "angle_std": ANGLE_STD, "torque_std": TORQUE_STD, "parameters": TRUE}
common = {"least_speed": 0.3, "cutoff_hz": 12.0}
training = best.as_test() | common | {"name": "training"}
training["simulate"] |= noise | {"noise_seed": 1}
turning = {"q1": {"speed": -8.0, "sine": [1.5], "cosine": [0.5, 0.5]}}
validation = {"kind": "torque"} | common | {"name": "validation", "role": "check"}
validation["simulate"] = noise | {"noise_seed": 2, "duration_s": 4.0, "base_hz": 0.5, "motion": turning}
free = {
    "mass.*": {"lower": 0.0, "upper": 2.0},
    "first_moment.*.[xy]": {"lower": -0.2, "upper": 0.2},
    "inertia.*.zz": {"lower": 0.0, "upper": 0.05},
    "friction.q3": {"lower": 0.0, "upper": 20.0},
}
study = jaxmb.make_study({"machine": "slider-crank", "test": [training, validation], "free": free}, "inertia")
result = jaxmb.identify(study)
torque = result.metrics.tests["torque"]
print(f"{'base parameter':24} {'found':>10} {'± 95 %':>9} {'true':>10}")
for row in torque.base:
    print(f"{row.name:24} {row.value:10.6f} {1.96 * row.std:9.6f} {row.true:10.6f}")
for row in torque.torques:
    print(f"{row.test}: {row.rms_error:.4f} N m of {row.rms:.3f} N m are missed")
for row in torque.base:  # one of seven is beyond four standard deviations in one of 2000 draws
    assert abs(row.value - row.true) < 4.0 * row.std, row.name
for row in torque.torques:  # the noise of torques, and that of angles through the filter
    assert row.rms_error < 1.2 * TORQUE_STD

# %%
# Separate masses, moments and inertias are not identifiable. Those of the identified machine are one of many choices
# with the same sums, for which the bodies are physically consistent: their pseudo-inertias are positive definite.

found = result.model
least = []
for i, body in enumerate(found.masses):
    pseudo = jaxmb.spatial.pseudo_inertia(found.mass[i], found.first_moment[i], found.inertia[i])
    least.append(np.linalg.eigvalsh(pseudo)[0])
    print(f"{body}: {float(found.mass[i]):.3f} kg, smallest eigenvalue of the pseudo-inertia {least[-1]:.1e}")
assert min(least) > 0.0

# %%
# Torques, measured and predicted
# -------------------------------
#
# As in Figures 4, 7 and 9 of the paper: left the motion that was fitted, right the one that was held out. Predictions
# use the measured angle alone. What is missed is noise of 0.01 N m, drawn below in a scale of its own. Torques jump
# where the crank turns round and the friction with it; slow samples there are left out.

shape = {"figsize": (8.0, 4.5), "sharex": "col", "sharey": "row", "height_ratios": [3, 2]}
fig, axes = plt.subplots(2, 2, layout="constrained", **shape)
for (effort, missed), entry in zip(axes.T, study.entries, strict=True):
    measured = np.asarray(entry.test.effort)
    predicted = np.asarray(entry.test.predict(entry.test.view(found)))
    # no line over slow samples, which were left out
    gaps = 1 + np.flatnonzero(np.diff(entry.source.time_s) > 1.5 / RATE_HZ)
    time_s, measured, predicted = (np.insert(x, gaps, np.nan) for x in (entry.source.time_s, measured, predicted))
    effort.plot(time_s, measured, color="0.65", lw=1.8, label="measured")
    effort.plot(time_s, predicted, color="#0072B2", lw=0.9, label="predicted")
    missed.plot(time_s, 1e3 * (measured - predicted), color="#D55E00", lw=0.6)
    effort.set_title(f"{entry.name}, {'fitted' if entry.role == 'fit' else 'held out'}", loc="left")
    missed.set_xlabel("time (s)")
for row, label in zip(axes[:, 0], ("torque (N m)", "residual (mN m)"), strict=True):
    row.set_ylabel(label)
fig.align_ylabels(axes[:, 0])
fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# While the machine runs: sensors
# -------------------------------
#
# Filters that run forwards and backwards need the whole record. A causal Kalman filter needs only past samples,
# and a gyroscope at the crank improves it more than any tuning: accelerations are then first differences of rates, not
# second differences of angles.

time_s = np.arange(0.0, 4.0 * best.duration_s, 1.0 / RATE_HZ)
z, zd, zdd = best.states(time_s)
draw = np.random.default_rng(3)
GYROSCOPE_STD = 1e-2
angle = z + ANGLE_STD * draw.normal(size=z.shape)
rate = zd + GYROSCOPE_STD * draw.normal(size=z.shape)
alone = jaxmb.kalman_motion(angle, RATE_HZ, ANGLE_STD, causal=True)
both = jaxmb.kalman_motion(angle, RATE_HZ, ANGLE_STD, velocity=rate, velocity_std=GYROSCOPE_STD, causal=True)
missed_by = {}
for sensors, motion in (("encoder", alone), ("encoder and gyroscope", both)):
    missed_by[sensors] = np.sqrt(np.mean((motion.acceleration - zdd)[200:] ** 2))
    print(f"{sensors}: accelerations err by {missed_by[sensors]:.2f} rad/s², root mean square")
assert missed_by["encoder and gyroscope"] < 0.5 * missed_by["encoder"]

# %%
# While the machine runs: parameters
# ----------------------------------
#
# At half time the slider takes up 0.2 kg. Least squares with forgetting, one sample after the other, follow within some
# seconds; without forgetting they end between the two machines. Drawn from the end of the first period on. Friction
# comes out several per cent too small: the fit attributes the lag of accelerations of a causal filter to friction.
# To identify friction, use the whole record.


def closed(z):
    """All coordinates at angles of the crank, by trigonometry."""
    coupler = -z - np.arcsin(0.08 * np.sin(z) / 0.25)
    return np.stack([z, coupler, 0.08 * np.cos(z) + 0.25 * np.cos(z + coupler)], axis=-1)


LOAD = 0.2
columns, half = list(base.names), len(time_s) // 2
before = jaxmb.set_parameters(model, TRUE)
after = jaxmb.set_parameters(before, {"mass.slider": TRUE["mass.slider"] + LOAD})
truths = [base.matrix @ [jaxmb.parameters(m)[name] for name in names] for m in (before, after)]
exact = jaxmb.stacked_torque_regressor(model, closed(z[:, 0]), zd, zdd, names=columns)
torques = np.concatenate([exact[:half] @ truths[0], exact[half:] @ truths[1]])
torques += TORQUE_STD * draw.normal(size=torques.shape)
Y = jaxmb.stacked_torque_regressor(model, closed(both.position[:, 0]), both.velocity, both.acceleration, names=columns)
tracks = {}
for forgetting in (0.995, 1.0):
    state, track = jaxmb.recursive_least_squares(len(columns), forgetting), []
    for rows, effort, speed in zip(Y, torques, both.velocity[:, 0], strict=True):
        if abs(speed) > 1.0:  # below, an estimate that lags may have the wrong direction of friction
            state = jaxmb.update_least_squares(state, rows, effort, TORQUE_STD)
        track.append(jaxmb.least_squares_estimate(state).values)
    tracks[forgetting] = np.array(track)

# %%
fig, axes = plt.subplots(2, 1, figsize=(7.0, 4.5), sharex=True, layout="constrained")
for row, name, label in zip(
    axes,
    ("first_moment.coupler.x", "friction.q3"),
    ("$m_2 X_2 + 0.25\\,m_3$ (kg m)", "friction of the slide (N)"),
    strict=True,
):
    i = columns.index(name)
    row.step(
        time_s[[0, half, -1]],
        [truths[0][i], truths[1][i], truths[1][i]],
        color="0.65",
        lw=2.5,
        where="post",
        label="true",
    )
    for (forgetting, track), color in zip(tracks.items(), ("#0072B2", "#D55E00"), strict=True):
        row.plot(time_s[400:], track[400:, i], color=color, lw=1.0, label=f"forgetting {forgetting:g}")
    low, high = min(t[i] for t in truths), max(t[i] for t in truths)
    room = 0.6 * max(high - low, 0.15 * high)
    row.set(ylabel=label, ylim=(low - room, high + room))
axes[0].legend(frameon=False, loc="upper left")
axes[-1].set_xlabel("time (s)")
fig.align_ylabels(axes)
plt.show()
for truth, when in zip(truths, (half - 1, -1), strict=True):
    i = columns.index("first_moment.coupler.x")
    print(f"at {time_s[when]:.1f} s: {tracks[0.995][when, i]:.4f} kg m, true {truth[i]:.4f}")
light, heavy = (truth[i] for truth in truths)
followed, slow = (tracks[forgetting][-1, i] for forgetting in (0.995, 1.0))
assert abs(followed - heavy) < 0.1 * (heavy - light)
assert light < slow < heavy - 0.2 * (heavy - light)
friction = tracks[1.0][[half - 1, -1], columns.index("friction.q3")] / TRUE["friction.q3"]
print("friction over the true one:", friction.round(3))
assert ((friction > 0.88) & (friction < 0.98)).all()
