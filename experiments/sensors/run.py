"""How much of an FRF is gravity where accelerometers feel it as they tilt, and what that does to a fit.

    python experiments/sensors/run.py

The KUKA KR90 at the postures of `kr90-postures`; fits to FRFs without noise at the posture of `kr90-modelled`.
"""

import dataclasses
from typing import cast

import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.fitting import FrfTest, with_tests
from jaxmb.studies import study_data

HERTZ = jnp.array([1.0, 2.0, 5.0, 10.0, 20.0])
FELT = jaxmb.Sensor(gravity=True)
STUDY = "kr90-modelled"


def shares() -> None:
    """Part of each FRF that is gravity, by frequency."""
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    found = []
    for test in study_data("kr90-postures")["test"]:
        q = jaxmb.posture(model, {name: np.radians(float(text.split()[0])) for name, text in test["posture"].items()})
        plain, felt = (np.asarray(jaxmb.frf(model, q, HERTZ, sensor=sensor)) for sensor in (jaxmb.Sensor(), FELT))
        found.append(np.abs(felt / plain - 1.0))
    every = np.array(found)
    direct = every[:, :, np.arange(3), np.arange(3)]
    cross = np.stack([every[:, :, o, i] for o in range(3) for i in range(3) if o != i], axis=-1)
    print("gravity in an FRF, % of what the motion itself gives: median and largest of all postures")
    print(f"{'Hz':>4s} {'direct':>16s} {'cross':>16s}")
    for k, hertz in enumerate(HERTZ):
        parts = [f"{100 * np.median(x[:, k]):7.2f} {100 * x[:, k].max():8.2f}" for x in (direct, cross)]
        print(f"{hertz:4.0f} {parts[0]} {parts[1]}")


def biases() -> None:
    """Errors of parameters where gravity is felt, and where the fit takes that into account."""
    for first_hz in (1.0, 3.0, 5.0):
        for known in (False, True):
            data = study_data(STUDY)
            (test,) = data["test"]
            test["simulate"] = {"lines": {"first_hz": first_hz, "last_hz": 30.0, "step_hz": 0.2}}
            test |= {"sensor": {"gravity": True}, "noise_log_std": 0.01}
            study = jaxmb.make_study(data, STUDY)
            if not known:
                ideal = jaxmb.make_study(data | {"test": [test | {"sensor": {}}]}, STUDY)
                measured, test = (cast("FrfTest", each.tests[0]) for each in (study, ideal))
                test = dataclasses.replace(test, measured=measured.measured)
                study = ideal.with_problem(with_tests(ideal.problem, [test]))
            result = jaxmb.identify(study)
            truth = jaxmb.parameters(study.model)
            errors = {n: p.value / truth[n] - 1.0 for n, p in result.parameters.items() if n.startswith("stiffness")}
            worst = max(errors, key=lambda name: abs(errors[name]))
            off = max(abs(np.log(p.value / truth[n])) / p.std_log for n, p in result.parameters.items())
            print(
                f"from {first_hz:.0f} Hz, {'with' if known else 'without'} gravity in the fit: {result.status},"
                f" {worst} {100 * errors[worst]:+.2f} %, largest error {off:.1f} standard deviations"
            )


def main() -> None:
    """Print both."""
    shares()
    biases()


if __name__ == "__main__":
    main()
