"""Coverage of the fit's 95 % intervals and of the posterior's, where damping is weakly identified.

In each draw the dampings of the validation manipulator are drawn from the study's prior, its three modes are measured
with noise, and the study is fitted and sampled with NUTS (blackjax). An interval should contain the truth in 95 of 100
draws; the posterior's does on average, since truth and prior agree.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jaxmb  # before blackjax, which computes when it is imported

# isort: split
import blackjax
import equinox as eqx
import jax
import numpy as np

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}
FREQUENCY_STD_HZ, DAMPING_STD_PERCENT, PRIOR_STD = 0.03, 0.8, 0.7
STIFFNESS = {"stiffness.z1": 2.0e6, "stiffness.z2": 3.0e6, "stiffness.z3": 1.55e6}
NOMINAL = {"damping.z1": 1.2e3, "damping.z2": 1.545e3, "damping.z3": 340.0}


def study_of(frequency_hz: np.ndarray, damping_percent: np.ndarray) -> jaxmb.Study:
    """Study of measured modes: stiffness is free, damping has a log-normal prior about the nominal values."""
    test = {
        "kind": "modes", "posture": POSTURE, "frequency_hz": frequency_hz.tolist(),
        "damping_percent": damping_percent.tolist(), "frequency_std_hz": FREQUENCY_STD_HZ,
        "damping_std_percent": DAMPING_STD_PERCENT,
    }  # fmt: skip
    # With bounds wider than 15 % two sets of stiffnesses have the same three frequencies.
    free: dict[str, Any] = {name: {"lower": v / 1.06, "upper": 1.06 * v, "initial": v} for name, v in STIFFNESS.items()}
    free |= {name: {"lower": 1e-2 * v, "upper": 1e2 * v, "initial": v} for name, v in NOMINAL.items()}
    data = {"machine": "manipulator-3r", "test": [test], "free": free, "prior": {"damping.*": PRIOR_STD}}
    return jaxmb.studies.make_study(data | {"tolerances": "exact"}, "weak-damping")


def sampler(warmup: int, draws: int) -> Callable[..., Any]:
    """A compiled function of a density and a start: parameters of the samples by name."""

    @eqx.filter_jit
    def sample(density: jaxmb.LogDensity, start: dict[str, jax.Array], key: jax.Array) -> Any:
        adapt = blackjax.window_adaptation(blackjax.nuts, density.of_unbounded)
        (state, tuned), _ = adapt.run(key, start, warmup)  # pyright: ignore[reportCallIssue]
        kernel: Any = blackjax.nuts(density.of_unbounded, **tuned)

        def step(state: Any, key: jax.Array) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent)

        _, (position, divergent) = jax.lax.scan(step, state, jax.random.split(key, draws))
        return jax.vmap(density.from_unbounded)(position), divergent

    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    rng, sample = np.random.default_rng(0), sampler(400, options.samples)
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    q = jaxmb.posture(model, POSTURE)
    inside: dict[str, list[tuple[bool, bool]]] = {}
    widths: dict[str, list[float]] = {}
    divergences = 0
    for k in range(options.draws):
        truth = {name: value * np.exp(PRIOR_STD * rng.standard_normal()) for name, value in NOMINAL.items()}
        true = jaxmb.parameters(jaxmb.set_parameters(model, truth))
        modes = jaxmb.modes(jaxmb.linearize(jaxmb.set_parameters(model, truth), q))
        study = study_of(
            np.asarray(modes.damped_frequency_hz) + FREQUENCY_STD_HZ * rng.standard_normal(3),
            np.maximum(100.0 * np.asarray(modes.damping_ratio) + DAMPING_STD_PERCENT * rng.standard_normal(3), 1e-3),
        )
        result = jaxmb.identify(study, seed=k)
        density = jaxmb.log_density(result.study)
        start = density.to_unbounded({name: p.value for name, p in result.parameters.items()})
        found, divergent = sample(density, start, jax.random.key(k))
        divergences += int(divergent.sum())
        for name, p in result.parameters.items():
            low, high = np.quantile(np.asarray(found[name]), [0.025, 0.975])
            fitted = p.interval_95 is not None and p.interval_95[0] <= true[name] <= p.interval_95[1]
            inside.setdefault(name, []).append((fitted, bool(low <= true[name] <= high)))
            widths.setdefault(name, []).append(float(np.log(high / low)) / (2 * 1.96 * p.std_log))
    print(f"{options.draws} draws, {options.samples} samples each, {divergences} divergent transitions")
    print(f"{'parameter':14} {'fit, % inside':>14} {'posterior':>10} {'width of posterior / fit':>25}")
    for name, pairs in inside.items():
        fit, posterior = 100.0 * np.mean(pairs, axis=0)
        print(f"{name:14} {fit:14.0f} {posterior:10.0f} {np.median(widths[name]):25.2f}")
    for label, family in (("all stiffnesses", "stiffness"), ("all dampings", "damping")):
        pairs = [pair for name, found in inside.items() if name.startswith(family) for pair in found]
        fit, posterior = 100.0 * np.mean(pairs, axis=0)
        print(f"{label:14} {fit:14.1f} {posterior:10.1f}   ({len(pairs)} intervals)")


if __name__ == "__main__":
    main()
