"""MJCF files, the format of MuJoCo: reading. MuJoCo itself resolves includes, defaults and frames."""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from jaxmb.io.files import one_line, reading
from jaxmb.io.validation import InputError, error_location, validated
from jaxmb.machine.mujoco_model import ModelReader
from jaxmb.machine.schema import Machine


def mujoco_module() -> Any:
    """MuJoCo's Python package, which is an optional dependency.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        return importlib.import_module("mujoco")
    except ModuleNotFoundError:
        raise ModuleNotFoundError("MJCF needs MuJoCo, which is not installed: pip install 'jaxmb[mujoco]'") from None


@contextmanager
def without_log(mujoco: Any) -> Iterator[None]:
    """Context in which MuJoCo's warnings write no MUJOCO_LOG.TXT into the current folder."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def machine_from_mjcf(path: Path) -> Machine:
    """Machine described by an MJCF file.

    Bodies become bodies, hinges and slides coordinates, sites frames, under their own names. Masses and inertias, also
    those that MuJoCo infers from geoms, stiffness, damping, armature (as rotor inertia), friction loss, ranges and
    force limits of joints are read. A rotor on a hinge of its own that a fixed tendon with stiffness couples to a joint
    is its motor; other fixed tendons with armature, damping or friction are transmissions; spatial ones between two
    sites with stiffness or damping are springs of type "length". A connect equality is a spherical loop, a weld a fixed
    one; a joint held at a constant is locked. Actuators of joints are stiffness and damping, where their force at the
    commands of the first keyframe depends on the motion, and their armature is rotor inertia; forces that do not depend
    on it, sensors and contacts are not read. Flags of <option> that disable gravity, springs, dampers, friction,
    equalities or actuators are obeyed. The reference posture is that of the first keyframe; without one, joints with
    stiffness are where their springs are unloaded.

    Args:
        path: of the file; files that it includes are found from there.

    Raises:
        InputError: MuJoCo cannot read the file, MuJoCo is not installed, or it describes no valid machine.
        NotImplementedError: a free or ball joint, a deformable body, an equality, a tendon or a controller that no part
            of a machine corresponds to, or stiffness or damping that depends on the displacement.
    """
    _check_root(path)
    try:
        mujoco = mujoco_module()
    except ModuleNotFoundError as error:
        raise InputError(f"{path}: {error}") from None
    with without_log(mujoco):
        model = _compiled(mujoco, path)
        with error_location(str(path)):
            data = ModelReader(mujoco, model).machine(path.stem)
    return validated(Machine, data, str(path))


def _check_root(path: Path) -> None:
    """Raise InputError where the file cannot be read, or its first element is not <mujoco>."""
    with reading(path), path.open("rb") as file:
        try:
            _, root = next(ElementTree.iterparse(file, ["start"]))
        except ElementTree.ParseError as error:
            raise ValueError(f"not valid XML: {error}") from None
    if root.tag != "mujoco":
        hint = "; a URDF has the ending .urdf" if root.tag == "robot" else ""
        raise InputError(f"{path}: found <{root.tag}>, expected <mujoco>{hint}")


def _compiled(mujoco: Any, path: Path) -> Any:
    """MuJoCo's model of a file; meshes whose files are missing are ignored where bodies state their inertia."""
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        try:
            return spec.compile()
        except (ValueError, RuntimeError):
            # A spec whose compilation failed is not used again.
            return _without_assets(mujoco, mujoco.MjSpec.from_file(str(path))).compile()
    except (ValueError, RuntimeError) as error:
        reason = one_line(re.sub(r"^(XML )?Error:\s*", "", str(error)))
        raise InputError(f"{path}: MuJoCo cannot read it: {reason}") from None


def _without_assets(mujoco: Any, spec: Any) -> Any:
    """The description with a small sphere for each mesh or height field of a body that states its inertia or is fixed
    to the world, and without the meshes and textures that are then not in use."""
    kept = set()
    still = _fixed_bodies(spec.worldbody)
    stated = spec.compiler.inertiafromgeom != mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    for geom in spec.geoms:
        fixed_mass = (geom.parent.explicitinertial and stated) or geom.parent.id in still
        if geom.type in (mujoco.mjtGeom.mjGEOM_MESH, mujoco.mjtGeom.mjGEOM_HFIELD, mujoco.mjtGeom.mjGEOM_SDF):
            if fixed_mass or geom.mass == 0.0:
                geom.type, geom.size, geom.meshname, geom.hfieldname = mujoco.mjtGeom.mjGEOM_SPHERE, [1e-3] * 3, "", ""
            else:
                kept.add(geom.meshname)
        elif geom.meshname:  # a primitive fitted to a mesh
            kept.add(geom.meshname)
        geom.material = ""
    for site in spec.sites:
        site.material = ""
    for assets in (spec.skins, spec.materials, spec.textures, spec.hfields, spec.meshes):
        for asset in list(assets):
            if asset.name not in kept:
                spec.delete(asset)
    return spec


def _fixed_bodies(body: Any) -> set[int]:
    """Numbers of a body that does not move and of those fixed to it."""
    found = {body.id}
    for child in body.bodies:
        found |= set() if child.joints else _fixed_bodies(child)
    return found
