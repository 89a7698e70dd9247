# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # Which optimizer?
#
# Stiffness and damping of joints from frequency responses are a least-squares problem with many false minima: a
# resonance of the model may lock onto the wrong peak. This notebook sets optimizers on one study, with one way of
# counting, and shows where to put another one. The whole comparison, more studies and twenty seeds each, is
# `experiments/optimizers/run.py`; this notebook uses its parts from a checkout of the repository.

# %%
import sys
from pathlib import Path

import numpy as np

import jaxmb

sys.path.insert(0, str(Path(jaxmb.__file__).parents[1] / "experiments" / "optimizers"))

from objective import Objective, goal_of
from optimizers import ALL, OWN, random_points
from run import one_run, profile

# %% [markdown]
# ## The problem
#
# Six parameters of three joints, noise-free FRFs at the tool, random starts in the bounds. All optimizers work on the
# unit cube; stiffness and damping stand on a logarithmic scale in it. "Exact" is a cost of a millionth of what 1 %
# noise would leave. Each Jacobian or gradient counts as as many evaluations as it takes the time of.

# %%
study = jaxmb.load_study("validation-3r")
objective = Objective(study, judge=None, goal=goal_of(study.problem, least=0.0), most=2000, seconds=5.0)
print(f"{objective.size} parameters; exact is a cost of {objective.goal.exact:.2g}")

# %% [markdown]
# ## Another optimizer is one function
#
# It calls the objective until that ends the run, and nothing else is asked of it. In the experiment it is one line of
# `ALL`.


# %%
def random_descent(objective, seed):
    """A step in a random direction, taken where the cost falls; longer after it did, shorter after it did not."""
    draw, x, size = np.random.default_rng(seed), next(random_points(objective, seed)), 0.3
    best = objective(x)
    while True:
        trial = np.clip(x + size * draw.normal(size=x.size), 0.0, 1.0)
        cost = objective(trial)
        x, best, size = (trial, cost, 1.5 * size) if cost < best else (x, best, 0.9 * size + 1e-12)


ways = {"random descent": random_descent} | {name: ALL[name] for name in (OWN, "SciPy trust region", "SciPy L-BFGS-B")}

# %% [markdown]
# ## All of them, from five seeds
#
# The first run of each, in which programs are compiled, does not count.

# %%
runs = {name: [one_run(way, objective, seed) for seed in (99, *range(5))][1:] for name, way in ways.items()}
for name, found in runs.items():
    exact = [run["exact"][0] for run in found if "exact" in run]
    price = f", median of {np.median(exact):.0f} evaluations" if exact else ""
    print(f"{name}: exact in {len(exact)} of {len(found)} runs{price}")

# %%
figure = profile("three joints, six parameters", runs)
