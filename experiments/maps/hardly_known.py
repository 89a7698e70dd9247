"""How far first-order standard deviations of modal damping hold where dampings are hardly known.

    jaxmb identify kr90-modelled
    python experiments/maps/hardly_known.py results/kr90-modelled

Draws dampers from the normal distribution of the covariance that the identification gives their values, keeps those
draws in which all dampers are positive, as dampers are, and maps each at 16 postures.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmb import parameters
from jaxmb.maps import load_identified, modal_maps

DRAWS = 150
TRIED = 400_000
OVER = {"z2": np.radians(np.linspace(10, 120, 4)), "z3": np.radians(np.linspace(-140, -30, 4))}


def main() -> None:
    """Print by mode how the spread of the draws compares with first order, and how many lie within 1.96 of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    known = load_identified(parser.parse_args().result)
    found = modal_maps(known.model, OVER, free=known.free, covariance=known.covariance).maps["damping"]
    std = np.asarray(found.std)
    names = [name for name in known.free.names if name.startswith("damping.")]
    rows = [known.free.names.index(name) for name in names]
    columns = np.array([known.model.coordinates.index(name.removeprefix("damping.")) for name in names])
    value = np.array([float(parameters(known.model)[name]) for name in names])
    of_logarithms = np.asarray(known.covariance)[np.ix_(rows, rows)]
    print("std of log:", {n: round(float(s), 2) for n, s in zip(names, np.sqrt(np.diag(of_logarithms)), strict=True)})
    tried = np.random.default_rng(0).multivariate_normal(value, of_logarithms * np.outer(value, value), size=TRIED)
    draws = tried[(tried > 0.0).all(axis=1)][:DRAWS]
    print(f"{len(draws)} draws of positive dampers, a share of {np.mean((tried > 0.0).all(axis=1)):.2g} of all")
    maps = []
    for draw in draws:
        model = eqx.tree_at(lambda m: m.damping, known.model, known.model.damping.at[columns].set(jnp.asarray(draw)))
        maps.append(modal_maps(model, OVER, quantities=("damping",)).maps["damping"].values)
    difference = np.array(maps) - found.values
    ratio = np.std(difference, axis=0) / std
    within = np.mean(np.abs(difference) < 1.96 * std, axis=0)
    for m in range(found.values.shape[-1]):
        low, middle, high = np.percentile(ratio[..., m], [0, 50, 100])
        print(
            f"mode {m + 1}: std of the draws is {middle:.2f} ({low:.2f} to {high:.2f}) times that of first order;"
            f" {within[..., m].mean():.2f} of them within 1.96 std, {within[..., m].min():.2f} at the worst posture"
        )


if __name__ == "__main__":
    main()
