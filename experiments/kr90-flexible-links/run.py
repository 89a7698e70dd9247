"""How far the bending of its links moves the modes of the KUKA KR90.

    python experiments/kr90-flexible-links/run.py [--out results/kr90-flexible-links]

The upper arm and the forearm are replaced by uniform beams of their mass between the same places: boxes of cast
aluminium, 280 x 220 x 15 mm and 220 x 200 x 12 mm, which are chosen and not KUKA's. Joints stay as they were identified
(Huynh et al. 2020, Table 5). The same beams a million times as stiff are the machine with rigid links.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

ALUMINIUM = {"young_modulus": 7.0e10, "shear_modulus": 2.6e10}
PLACES = {"link2": ("upper", 1.35, (0.28, 0.22, 0.015)), "link3": ("fore", 1.566, (0.22, 0.20, 0.012))}
"""Beam, length and box (height, width, wall) of each link, m."""
MODES = 4


def box(height: float, width: float, wall: float) -> dict[str, float]:
    """Section of a box with thin walls: bending resists along its height about y."""
    inner_height, inner_width = height - 2 * wall, width - 2 * wall
    middle = (height - wall) * (width - wall)
    return {
        "area": height * width - inner_height * inner_width,
        "second_moment_y": (width * height**3 - inner_width * inner_height**3) / 12,
        "second_moment_z": (height * width**3 - inner_height * inner_width**3) / 12,
        "torsion_constant": 4 * middle**2 * wall / (2 * (height - wall) + 2 * (width - wall)),
    }


def flexible(stiffer: float = 1.0, elements: int = 4) -> jaxmb.Machine:
    """The KR90 with beams for its upper arm and forearm."""
    data: dict[str, Any] = jaxmb.load_machine("kuka-kr90").model_dump(mode="json", exclude_none=True)
    beams = []
    for body in data["body"]:
        if body["name"] == "link3":
            body["parent"], body["origin"] = "upper", {}
        if body["name"] in PLACES:
            name, length, size = PLACES[body["name"]]
            section = box(*size)
            material = {key: stiffer * value for key, value in ALUMINIUM.items()}
            density = body["mass"] / (section["area"] * length)
            beams.append(section | material | {"name": name, "body": body["name"], "length": length,
                                               "elements": elements, "density": density})  # fmt: skip
            for key in ("mass", "center_of_mass", "inertia_products"):
                del body[key]
    data["frame"] = [{"name": "tool", "body": "fore", "origin": {"rpy": ["-90 deg", 0.0, 0.0]}}]
    return jaxmb.Machine.model_validate(data | {"beam": beams})


def frequencies(machine: jaxmb.Machine) -> np.ndarray:
    """Natural frequencies of the first modes in the reference posture, Hz."""
    model = jaxmb.build_model(machine)
    return np.asarray(jaxmb.modes(jaxmb.linearize(model, jaxmb.reference_posture(model))).frequency_hz)[:MODES]


def main() -> None:
    """Print the modes and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/kr90-flexible-links"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    published = jaxmb.load_machine("kuka-kr90")
    found = {
        "published": frequencies(published),
        "rigid rods": frequencies(flexible(1e6)),
        "beams": frequencies(flexible()),
        "beams, 8 elements": frequencies(flexible(elements=8)),
    }
    print("links              " + "".join(f"mode {m} Hz  " for m in range(1, MODES + 1)))
    for name, hz in found.items():
        print(f"{name:18s}" + "".join(f"{value:10.3f}" for value in hz))
    change = 100.0 * (found["beams"] / found["rigid rods"] - 1.0)
    print(f"{'bending, %':18s}" + "".join(f"{value:10.2f}" for value in change))
    (options.out / "modes.json").write_text(json.dumps({name: hz.tolist() for name, hz in found.items()}))


if __name__ == "__main__":
    main()
