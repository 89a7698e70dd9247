"""
A parallel robot with flexible links
====================================

The Surgiscope, a Delta-like robot of three chains, was described by Rognant, Courteille and Maurine (2010) with two
tables: the geometry of its joints and the beams of its links. jaxmb ships it as ``surgiscope``, with sections and joint
stiffnesses that are chosen, since they were not printed. Here are its posture, its modes and its responses.
"""

import matplotlib.pyplot as plt
import numpy as np

import jaxmb

model = jaxmb.build_model(jaxmb.load_machine("surgiscope"))
print(len(model.coordinates), "coordinates, of which the drives are", [f"q1-{k}" for k in "abc"])

# %%
# Postures
# --------
#
# A posture gives the drives, and the loops decide where all other joints are. The platform moves without turning.

first = jaxmb.reference_posture(model)
second = jaxmb.close_loops(model, {"q1-a": 0.34776907, "q1-b": 0.96650266, "q1-c": 0.34673115})
for q in (first, second):
    print("platform at", np.round(np.asarray(jaxmb.frame_pose(model, q, "tool"))[:3, 3], 4) + 0.0, "m")
orientations = [np.asarray(jaxmb.frame_pose(model, q, "tool"))[:3, :3] for q in (first, second)]
assert np.abs(orientations[0] - orientations[1]).max() < 1e-6

# %%
# Modes
# -----
#
# Seen from above, the first configuration has three-fold symmetry. Two modes of three then come in pairs of one
# frequency; the platform moves sideways in the first pair, up and down in the third mode. In the second configuration
# all pairs split.

tangents = [jaxmb.linearize(model, q) for q in (first, second)]
of_first, of_second = (np.asarray(jaxmb.modes(t).frequency_hz)[:6] for t in tangents)
for a, b in zip(of_first, of_second, strict=True):
    print(f"{a:8.4f} Hz {b:8.4f} Hz")
figure = jaxmb.report.mode_shape_grid(model, first, count=3)
shapes = np.asarray(jaxmb.modes(tangents[0]).shape)[:, :6]
sideways = np.asarray(jaxmb.response_rows(model, first, [("tool", "x"), ("tool", "y")])) @ shapes
vertical = np.abs(np.asarray(jaxmb.response_rows(model, first, [("tool", "z")])) @ shapes)[0]
sideways = np.linalg.norm(sideways, axis=0)
assert abs(of_first[1] / of_first[0] - 1.0) < 1e-6  # a pair
assert (vertical[:2] < 1e-3 * sideways[:2]).all()
assert sideways[2] < 1e-3 * vertical[2]
assert (np.diff(of_second) > 1e-3 * of_second[:-1]).all()

# %%
# Responses
# ---------
#
# A vertical hit at the platform excites no member of a pair, so Table IV's five frequencies of the symmetric
# configuration are not five of these. Of 318 degrees of freedom a fifth is enough for responses up to 100 Hz.

points = [("tool", "x"), ("tool", "z")]
reduced = jaxmb.reduce_motion(model, first, highest_hz=100.0, outputs=points)
frequency_hz = np.linspace(1.0, 100.0, 400)
h = np.asarray(jaxmb.reduced_frf(reduced, frequency_hz))
print(f"{reduced.basis.shape[1]} of {reduced.basis.shape[0]} motions are kept, the error is {reduced.error:.1e}")
assert reduced.basis.shape[0] == 318
assert reduced.basis.shape[1] < 0.25 * 318
assert reduced.error < 1e-3
fig, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for k, (_, direction) in enumerate(points):
    axes.semilogy(frequency_hz, np.abs(h[:, k, k]), label=f"platform {direction}")
for f in of_first:
    axes.axvline(f, color="0.8", lw=0.8, zorder=0)
axes.set(xlabel="frequency (Hz)", ylabel="accelerance (m/s²/N)", title="first configuration, loss factor 0.096")
axes.legend()
plt.show()

# %%
# Another damping
# ---------------
#
# The printed loss factor of 0.096 is that of all joints and links. With damping ratios stated for each mode instead, as
# one takes them from a measurement, the same reduced machine answers.

light = reduced._replace(tangent=jaxmb.with_modal_damping(reduced.tangent, [0.02, 0.02, 0.05]))
change = np.abs(np.asarray(jaxmb.reduced_frf(light, of_first[2:3]))[0, 1, 1])
before = np.abs(np.asarray(jaxmb.reduced_frf(reduced, of_first[2:3]))[0, 1, 1])
print(f"vertical accelerance at {of_first[2]:.2f} Hz: {before:.4f}, with stated ratios {change:.4f} m/s²/N")
# At a resonance the response is proportional to 1 over the damping ratio, half the loss factor.
assert abs(change / before / (0.048 / 0.05) - 1.0) < 0.05
