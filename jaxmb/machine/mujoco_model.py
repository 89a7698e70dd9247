"""The table of a machine file from a compiled model of MuJoCo."""

import copy
import warnings
from typing import Any

import numpy as np

from jaxmb.io.validation import Table
from jaxmb.machine.elements import motion_matrix, origin_table, pose_matrix
from jaxmb.machine.values import GROUND, OUTSIDE_NAME, AngleText, unused_name

UNNAMED = "MuJoCo Model"
"""MuJoCo's name of a model without one."""
SAME = 1e-9
"""Relative difference below which two numbers of a file are equal."""
STEP = 2.0**-12
"""Step of the central differences of actuator forces, rad or m, and rad/s or m/s."""


class ModelReader:
    """Reads a compiled model of MuJoCo, whose numbers that flags of its options disable are set to 0."""

    def __init__(self, mujoco: Any, model: Any) -> None:
        self.mujoco, self.m = mujoco, model
        self._obey_flags()
        kinds = mujoco.mjtTrn
        self.joint_types = (int(kinds.mjTRN_JOINT), int(kinds.mjTRN_JOINTINPARENT))
        used: set[str] = {GROUND}
        self.bodies = [GROUND, *self._names("body", range(1, model.nbody), used)]
        self.sites = self._names("site", range(model.nsite), used)
        forces: set[str] = set()
        self.joints = self._names("joint", range(model.njnt), forces)
        self.tendons = self._names("tendon", range(model.ntendon), forces)

    def _obey_flags(self) -> None:
        """Set to 0 the numbers of the model that flags of its options disable."""
        m, bits = self.m, self.mujoco.mjtDisableBit
        friction = (m.dof_frictionloss, m.tendon_frictionloss)
        fields = {
            "GRAVITY": (m.opt.gravity,),
            "SPRING": (m.jnt_stiffness, m.tendon_stiffness),
            "DAMPER": (m.dof_damping, m.tendon_damping, getattr(m, "actuator_damping", np.zeros(0))),
            "FRICTIONLOSS": friction,
            "EQUALITY": (m.eq_active0,),
            "CONSTRAINT": (m.eq_active0, *friction),
        }
        for name, numbers in fields.items():
            # SPRING and DAMPER are one flag, PASSIVE, in older versions.
            bit = getattr(bits, f"mjDSBL_{name}", getattr(bits, "mjDSBL_PASSIVE", 0))
            if m.opt.disableflags & int(bit):
                for field in numbers:
                    field[:] = 0

    def _names(self, kind: str, ids: range, used: set[str]) -> list[str]:
        """Names of MuJoCo's objects as names of a machine, distinct from those in use."""
        given = (self._given_name(kind, i) or f"{kind}{i}" for i in ids)
        return [unused_name(OUTSIDE_NAME.sub("_", name)[:150], used, f"_{kind}") for name in given]

    def _given_name(self, kind: str, i: int) -> str | None:
        """Name of an object of MuJoCo in the file; None or empty where it has none."""
        return self.mujoco.mj_id2name(self.m, getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), i)

    def _read_equalities(self) -> None:
        """Joints that an equality holds at a constant; couplings; loops, and the frames that they need."""
        m, kinds = self.m, self.mujoco.mjtEq
        self.fixed, used = dict[int, float](), {*self.bodies, *self.sites}
        self.couplings, self.loops, self.loop_frames = list[Table](), list[Table](), list[Table]()
        for i in np.flatnonzero(m.eq_active0):
            kind, data = str(kinds(int(m.eq_type[i])).name).removeprefix("mjEQ_").lower(), m.eq_data[i]
            ids = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
            name = OUTSIDE_NAME.sub("_", self._given_name("equality", int(i)) or f"loop{i + 1}")[:150]
            match kind:
                case "joint":
                    self._read_coupling(ids, data)
                case "weld" if data[10] == 0.0:
                    raise NotImplementedError(
                        f"equality '{name}': found torquescale 0, expected a positive one, or connect"
                    )
                case "connect" | "weld":
                    if m.eq_objtype[i] == int(self.mujoco.mjtObj.mjOBJ_SITE):
                        ends = [self.sites[k] for k in ids]
                    else:
                        of_weld = _pose(data[3:6], data[6:10]) if kind == "weld" else pose_matrix(data[:3])
                        at = of_weld, pose_matrix(data[:3] if kind == "weld" else data[3:6])
                        ends = [unused_name(f"{name}/{end}", used, "_") for end in "ab"]
                        self.loop_frames += [
                            {"name": end, "body": self.bodies[body], "origin": origin_table(pose)}
                            for end, body, pose in zip(ends, ids, at, strict=True)
                        ]
                    loop = {"name": name, "type": "spherical" if kind == "connect" else "fixed"}
                    self.loops.append(loop | {"frame_a": ends[0], "frame_b": ends[1]})
                case _:
                    raise NotImplementedError(
                        f"equality '{name}': found type {kind}, which is not supported, expected connect, weld or joint"
                    )

    def _read_coupling(self, ids: tuple[int, int], data: np.ndarray) -> None:
        """A joint held at a constant, or coupled to another one; MuJoCo's polynomial is of differences from the
        reference."""
        constant, ratio, *further = data[:5].tolist()
        own, other = self.m.qpos0[self.m.jnt_qposadr[list(ids)]].tolist()
        names = [self.joints[k] for k in ids]
        if ids[1] < 0:
            self.fixed[ids[0]] = own + constant
        elif any(further):
            raise NotImplementedError(
                f"equality of '{names[0]}' and '{names[1]}': found a polynomial of higher order, expected a line"
            )
        else:
            coupling = {"ratio": ratio, "offset": own + constant - ratio * other}
            self.couplings.append({"coordinate": names[0], "follows": names[1]} | coupling)

    def machine(self, name: str) -> Table:
        """Table of a machine file."""
        m = self.m
        for j in range(m.njnt):
            kind = self._kind(j)
            if kind not in ("hinge", "slide"):
                raise NotImplementedError(
                    f"joint '{self.joints[j]}': a {kind} joint is not supported, expected hinge or slide"
                )
        if m.nflex and not np.all(m.flex_rigid):
            raise NotImplementedError("a deformable body (flex) is not supported, expected rigid bodies")
        if np.any(m.body_gravcomp):
            warnings.warn("gravcomp of bodies is not read: gravity acts on all of them", stacklevel=4)
        for option in ("density", "viscosity"):
            if getattr(m.opt, option):
                found = f"option {option}: found {getattr(m.opt, option):g}"
                warnings.warn(f"{found}, which is not read: no fluid", stacklevel=4)
        self._read_equalities()
        self._check_springs_at_rest()
        self.on_joints, self.on_tendons = self._reflected()
        drives, rotors, transmissions, springs = self._tendons()
        inertia = {b: (float(m.body_mass[b]), m.body_ipos[b], self._central(b)) for b in range(1, m.nbody)}
        for b in rotors:
            if carrier := int(m.body_parentid[b]):
                inertia[carrier] = _with_part(inertia[carrier], inertia[b], _pose(m.body_pos[b], m.body_quat[b]))
        frame = [
            {"name": self.sites[s], "body": self.bodies[m.site_bodyid[s]]}
            | {"origin": origin_table(_pose(m.site_pos[s], m.site_quat[s]))}
            for s in range(m.nsite)
        ]
        title = bytes(m.names).split(b"\0", 1)[0].decode("utf8", "replace")
        return {
            "name": OUTSIDE_NAME.sub("_", name if title in ("", UNNAMED) else title)[:150] or "_",
            "gravity": m.opt.gravity.tolist(),
            "body": [part for b in range(1, m.nbody) if b not in rotors for part in self._body(b, inertia[b], drives)],
            "frame": frame + self.loop_frames,
            "spring": springs,
            "transmission": transmissions,
            "loop": self.loops,
            "coupling": self.couplings,
            "posture": self._posture(),
        }

    def _kind(self, j: int) -> str:
        """Type of a joint: free, ball, slide or hinge."""
        return str(self.mujoco.mjtJoint(int(self.m.jnt_type[j])).name).removeprefix("mjJNT_").lower()

    def _posture(self) -> dict[str, float]:
        known = enumerate(zip(self.joints, self._reference().tolist(), strict=True))
        return {name: self._value(j, value) for j, (name, value) in known if value}

    def _value(self, j: int, value: float) -> float:
        """Value of a joint; of a hinge it may have any number of turns."""
        return AngleText(value) if self._kind(j) == "hinge" else float(value)

    def _reference(self) -> np.ndarray:
        """Values of the joints in the reference posture."""
        m = self.m
        address = np.asarray(m.jnt_qposadr)
        rest = np.where(np.ravel(m.jnt_stiffness) > 0.0, m.qpos_spring[address], m.qpos0[address])
        q = np.array(m.key_qpos[0][address] if m.nkey else rest)
        q[list(self.fixed)] = list(self.fixed.values())
        return q

    def _check_springs_at_rest(self) -> None:
        """Warn of springs that are loaded in the reference posture, unless it is at rest; a machine has none."""
        m, mujoco, q = self.m, self.mujoco, self._reference()
        for coupling in self.couplings:
            own, other = (self.joints.index(coupling[key]) for key in ("coordinate", "follows"))
            q[own] = coupling["ratio"] * q[other] + coupling["offset"]
        at_rest, data = m.qpos_spring[m.jnt_qposadr], mujoco.MjData(m)
        if m.nkey:
            mujoco.mj_resetDataKeyframe(m, data, 0)
        data.qpos[:] = q
        mujoco.mj_forward(m, data)
        force = np.abs(np.ravel(m.jnt_stiffness) * (at_rest - q))
        rest = np.abs(data.qfrc_bias - data.qfrc_passive - data.qfrc_actuator)[m.jnt_dofadr]
        is_loaded = (np.minimum(force, rest) > 1e-6 * force) & (np.abs(at_rest - q) > 1e-9)
        for j in np.flatnonzero(is_loaded):
            warnings.warn(
                f"joint '{self.joints[j]}': its spring is unloaded at {at_rest[j]:.6g} (rad or m) in the file; taken as"
                f" unloaded at {q[j]:.6g}, in the reference posture",
                stacklevel=5,
            )

    def _central(self, b: int) -> np.ndarray:
        """Inertia of a body about its centre of mass, in its own axes."""
        rotation = _pose(np.zeros(3), self.m.body_iquat[b])[:3, :3]
        tensor = rotation @ np.diag(self.m.body_inertia[b]) @ rotation.T
        return 0.5 * (tensor + tensor.T)

    def _body(self, b: int, inertia: "_Inertia", drives: dict[int, Table]) -> list[Table]:
        """A body and, where its joints turn about other points than its origin, massless bodies before it."""
        m, name = self.m, self.bodies[b]
        parts: list[Table] = []
        parent, pose = self.bodies[m.body_parentid[b]], _pose(m.body_pos[b], m.body_quat[b])
        anchor, joint = np.zeros(3), list[Table]()

        def close() -> str:
            """A massless body with the joints so far."""
            carrier = f"{name}/{len(parts) + 1}"
            parts.append({"name": carrier, "parent": parent, "origin": origin_table(pose), "joint": joint})
            return carrier

        for j in range(m.body_jntadr[b], m.body_jntadr[b] + m.body_jntnum[b]):
            point = m.jnt_pos[j] if self._kind(j) == "hinge" else anchor
            if joint and (m.qpos0[m.jnt_qposadr[j]] or not np.array_equal(point, anchor)):
                parent, pose, joint = close(), np.eye(4), []
            pose, anchor = pose @ pose_matrix(point - anchor) @ self._back_from_reference(j), np.array(point)
            joint.append(self._coordinate(j) | drives.get(j, {}))
        if np.any(anchor):
            parent, pose, joint = close(), pose_matrix(-anchor), []
        mass, center, tensor = inertia
        own = {"mass": mass, "center_of_mass": center.tolist(), "inertia_tensor": tensor.tolist()} if mass else {}
        return [*parts, {"name": name, "parent": parent, "origin": origin_table(pose), "joint": joint} | own]

    def _back_from_reference(self, j: int) -> np.ndarray:
        """Motion of a joint from its `ref`, where it has the pose of the file, to 0."""
        kind = "prismatic" if self._kind(j) == "slide" else "revolute"
        return motion_matrix(kind, self.m.jnt_axis[j], -float(self.m.qpos0[self.m.jnt_qposadr[j]]))

    def _coordinate(self, j: int) -> Table:
        m, d = self.m, int(self.m.jnt_dofadr[j])
        _check_linear(f"joint '{self.joints[j]}'", m, ("jnt_stiffnesspoly", j), ("dof_dampingpoly", d))
        stiffness, damping, armature = self.on_joints[j].tolist()
        data: Table = {
            "name": self.joints[j],
            "type": "revolute" if self._kind(j) == "hinge" else "prismatic",
            "axis": (m.jnt_axis[j] / np.linalg.norm(m.jnt_axis[j])).tolist(),
            "stiffness": float(m.jnt_stiffness[j]) + stiffness,
            "damping": float(m.dof_damping[d]) + damping,
            "rotor_inertia": float(m.dof_armature[d]) + armature,
            "friction": float(m.dof_frictionloss[d]),
        }
        if m.jnt_limited[j] and m.jnt_range[j][0] < m.jnt_range[j][1]:
            data["range"] = [self._value(j, end) for end in m.jnt_range[j].tolist()]
        if j in self.fixed:
            data["locked"] = True
        limit = self._effort_limit(j)
        return data | ({"effort_limit": limit} if limit > 0.0 else {})

    def _reflected(self) -> tuple[np.ndarray, np.ndarray]:
        """Stiffness, damping and armature of each joint [joint, 3] and tendon [tendon, 3] by their actuators.

        Raises:
            NotImplementedError: the force of an actuator of another kind, or the state of one, depends on the motion.
        """
        m, tendon = self.m, int(self.mujoco.mjtTrn.mjTRN_TENDON)
        own = np.zeros((m.nu, 3))
        own[:, :2] = self._controllers()
        for column, key in ((1, "actuator_damping"), (2, "actuator_armature")):
            own[:, column] += getattr(m, key, 0.0)  # since MuJoCo 3.6
        on_joints, on_tendons = np.zeros((m.njnt, 3)), np.zeros((m.ntendon, 3))
        for a, (stiffness, damping, armature) in enumerate(own.tolist()):
            _check_linear(self._actuator(a), m, ("actuator_dampingpoly", a))
            kind, target = int(m.actuator_trntype[a]), int(m.actuator_trnid[a][0])
            part = m.actuator_gear[a][0] ** 2 * own[a]
            if kind in self.joint_types:
                on_joints[target] += part
            elif kind == tendon and not stiffness:
                on_tendons[target] += part
            elif stiffness or damping or armature:
                raise NotImplementedError(
                    f"{self._actuator(a)}: found a force of stiffness {stiffness:g}, damping {damping:g} and armature"
                    f" {armature:g} that acts on no joint, expected one that does not depend on the motion"
                )
        for name, (stiffness, damping, _) in zip(self.joints, on_joints.tolist(), strict=True):
            if stiffness < 0.0 or damping < 0.0:
                raise NotImplementedError(f"joint '{name}': a controller with a negative gain is not supported")
        return on_joints, on_tendons

    def _controllers(self) -> np.ndarray:
        """Derivatives of each actuator's force by its length and velocity, sign reversed [actuator, 2].

        They are central differences at the reference posture with constant commands; limits of forces are ignored.
        """
        if not self.m.nu:
            return np.zeros((0, 2))
        m, mujoco = copy.copy(self.m), self.mujoco
        m.actuator_forcelimited[:] = 0
        bits = mujoco.mjtDisableBit
        m.opt.disableflags |= int(bits.mjDSBL_CONSTRAINT | bits.mjDSBL_CONTACT)
        data = mujoco.MjData(m)
        if m.nkey:
            mujoco.mj_resetDataKeyframe(m, data, 0)
        data.qpos[:], data.qvel[:] = self._reference(), 0.0
        found = np.zeros((m.nu, 2))
        for k, (state, along) in enumerate(((data.qpos, "actuator_length"), (data.qvel, "actuator_velocity"))):
            rates = np.zeros((3, m.nv, max(m.nu, m.na)))
            for j in range(m.nv):
                before = state[j]
                for sign in (1.0, -1.0):
                    state[j] = before + sign * STEP
                    mujoco.mj_forward(m, data)
                    for row, values in enumerate((getattr(data, along), data.actuator_force, data.act_dot)):
                        rates[row, j, : len(values)] += sign * values / (2.0 * STEP)
                state[j] = before
            for a in np.flatnonzero(np.any(np.abs(rates[2]) > SAME, axis=0)):
                owner = int(np.flatnonzero((m.actuator_actadr <= a) & (a < m.actuator_actadr + m.actuator_actnum))[0])
                raise NotImplementedError(f"{self._actuator(owner)}: a controller with an integrator is not supported")
            travel, force = rates[:2, :, : m.nu]
            slope = -np.sum(force * travel, axis=0) / np.maximum(np.sum(travel**2, axis=0), np.finfo(float).tiny)
            found[:, k] = [float(f"{x:.10g}") if abs(x) > SAME else 0.0 for x in slope]
        return found

    def _actuator(self, a: int) -> str:
        return f"actuator '{self._given_name('actuator', a) or a}'"

    def _effort_limit(self, j: int) -> float:
        """Largest force of a joint's actuators, 0 where it is unlimited."""
        m = self.m
        if m.jnt_actfrclimited[j]:
            return float(np.abs(m.jnt_actfrcrange[j]).max())
        own = [a for a in range(m.nu) if m.actuator_trntype[a] in self.joint_types and m.actuator_trnid[a][0] == j]
        if not own or not all(m.actuator_forcelimited[a] for a in own):
            return 0.0
        return float(sum(abs(m.actuator_gear[a][0]) * np.abs(m.actuator_forcerange[a]).max() for a in own))

    def _tendons(self) -> tuple[dict[int, Table], set[int], list[Table], list[Table]]:
        """Gear and motor of each driven joint, bodies of rotors, transmissions, springs."""
        m, wrap = self.m, self.mujoco.mjtWrap
        drives: dict[int, Table] = {}
        rotors: set[int] = set()
        transmissions: list[Table] = []
        springs: list[Table] = []
        for t, name in enumerate(self.tendons):
            label = f"tendon '{name}'"
            _check_linear(label, m, ("tendon_stiffnesspoly", t), ("tendon_dampingpoly", t))
            _, servo, reflected = self.on_tendons[t].tolist()
            stiffness, damping = float(m.tendon_stiffness[t]), float(m.tendon_damping[t]) + servo
            armature, friction = float(m.tendon_armature[t]) + reflected, float(m.tendon_frictionloss[t])
            if not any((stiffness, damping, armature, friction)):
                continue  # it only transmits forces of actuators
            low, high = m.tendon_lengthspring[t].tolist()
            if stiffness and low != high:
                raise NotImplementedError(f"{label}: a spring with slack is not supported, expected one springlength")
            wraps = range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t])
            kinds, ends = [int(m.wrap_type[w]) for w in wraps], [int(m.wrap_objid[w]) for w in wraps]
            if kinds == [int(wrap.mjWRAP_SITE)] * 2:
                if friction or armature:
                    raise NotImplementedError(f"{label}: friction and armature between sites are not supported")
                a, b = (self.sites[end] for end in ends)
                springs.append({"name": name, "type": "length", "frame_a": a, "frame_b": b, "free_length": low}
                               | {"stiffness": stiffness, "damping": damping})  # fmt: skip
                continue
            if set(kinds) != {int(wrap.mjWRAP_JOINT)}:
                raise NotImplementedError(f"{label}: expected two sites, or joints only")
            rates = dict(zip(ends, (float(m.wrap_prm[w]) for w in wraps), strict=True))
            if stiffness:
                joint, shaft = self._driven(label, rates, bool(armature or friction))
                if joint in drives or int(m.jnt_bodyid[shaft]) in rotors:
                    raise NotImplementedError(
                        f"{label}: a second gear of a joint or a rotor is not supported, expected one"
                    )
                scale = rates[joint] ** 2
                motor = self._motor(joint, shaft, -rates[joint] / rates[shaft])
                drives[joint] = {"stiffness": scale * stiffness, "damping": scale * damping} | motor
                rotors.add(int(m.jnt_bodyid[shaft]))
            else:
                of_rates = {self.joints[j]: rate for j, rate in rates.items() if rate}
                transmissions.append({"name": name, "coordinates": of_rates, "inertia": armature, "damping": damping}
                                     | {"friction": friction})  # fmt: skip
        return drives, rotors, transmissions, springs

    def _driven(self, label: str, rates: dict[int, float], further: bool) -> tuple[int, int]:
        """Joint and shaft that a tendon with stiffness couples.

        Raises:
            NotImplementedError: the tendon does not couple the first joint of a body and the rotor of its motor.
        """
        m = self.m
        if len(rates) == 2 and all(rates.values()) and not further:
            for joint, shaft in (tuple(rates), tuple(rates)[::-1]):
                body, rotor = int(m.jnt_bodyid[joint]), int(m.jnt_bodyid[shaft])
                same_carrier = body != rotor and m.body_parentid[body] == m.body_parentid[rotor]
                own = self._coordinate(joint)
                bare = not any(own[key] for key in ("stiffness", "damping", "rotor_inertia"))
                if same_carrier and bare and m.body_jntadr[body] == joint and self._spins(shaft):
                    return joint, shaft
        raise NotImplementedError(
            f"{label}: a spring on joints is not supported, expected one between the first joint of a body, without a"
            " spring, damper and armature of its own, and the rotor of its motor: a body without children on a hinge"
            " about its axis of symmetry, carried by the same body"
        )

    def _spins(self, j: int) -> bool:
        """Whether a joint is the hinge of a rotor."""
        m, b = self.m, int(self.m.jnt_bodyid[j])
        axis, tensor = np.array(m.jnt_axis[j]), self._central(b)
        inertia = axis @ tensor @ axis
        across = 0.5 * (np.trace(tensor) - inertia)
        symmetric = inertia * np.outer(axis, axis) + across * (np.eye(3) - np.outer(axis, axis))
        return bool(
            self._kind(j) == "hinge"
            and m.body_jntnum[b] == 1
            and b not in m.body_parentid[1:]
            and b not in m.site_bodyid
            and np.linalg.norm(np.cross(axis, m.body_ipos[b] - m.jnt_pos[j])) <= SAME
            and np.abs(tensor - symmetric).max() <= SAME * np.abs(tensor).max()
            and (self._coordinate(j)["rotor_inertia"] == 0.0 or m.body_parentid[b] == 0)
        )

    def _motor(self, joint: int, shaft: int, ratio: float) -> Table:
        m = self.m
        body, rotor = int(m.jnt_bodyid[joint]), int(m.jnt_bodyid[shaft])
        own = self._coordinate(shaft)
        turn = [_pose(np.zeros(3), m.body_quat[i])[:3, :3] for i in (body, rotor)]
        turn[0] = turn[0] @ self._back_from_reference(joint)[:3, :3]
        axis = np.array(m.jnt_axis[shaft])
        inertia = float(axis @ self._central(rotor) @ axis) + own["rotor_inertia"]
        keys = {"name", "stiffness", "damping", "friction", "locked"}
        motor = {key: own[key] for key in keys & own.keys()} | {"inertia": inertia, "ratio": ratio}
        drive: Table = {"motor": motor | {"axis": (turn[0].T @ turn[1] @ axis).tolist()}}
        limit = own.get("effort_limit", 0.0) * abs(ratio)
        return drive | ({"effort_limit": limit} if limit else {})


_Inertia = tuple[float, np.ndarray, np.ndarray]
"""Mass, centre of mass, and inertia about it."""


def _with_part(carrier: _Inertia, part: _Inertia, pose: np.ndarray) -> _Inertia:
    """Inertia of a body including a part, whose inertia is in the axes of its own frame at a pose in the body."""
    turn, (m1, c1, i1), (m2, c, i) = pose[:3, :3], carrier, part
    c2, i2 = pose[:3, 3] + turn @ c, turn @ i @ turn.T
    if m1 + m2 == 0.0:
        return carrier
    center = (m1 * c1 + m2 * c2) / (m1 + m2)
    total = np.zeros((3, 3))
    for mass, at, own in ((m1, c1, i1), (m2, c2, i2)):
        d = at - center
        total += own + mass * (d @ d * np.eye(3) - np.outer(d, d))
    return m1 + m2, center, 0.5 * (total + total.T)


def _check_linear(label: str, model: Any, *fields: tuple[str, int]) -> None:
    """Raise NotImplementedError where a stiffness or damping is negative or depends on the displacement or speed."""
    for field, i in fields:
        further = getattr(model, field, None)  # since MuJoCo 3.6
        if further is not None and np.any(further[i]):
            raise NotImplementedError(f"{label}: a nonlinear spring or damper is not supported, expected one number")
        if np.any(getattr(model, field.removesuffix("poly"))[i] < 0.0):
            raise NotImplementedError(f"{label}: a negative stiffness or damping is not supported, expected 0 or more")


def _pose(position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """Homogeneous transform of a position and a quaternion, real part first."""
    w, x, y, z = np.asarray(quaternion) / np.linalg.norm(quaternion)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross, position
    return pose
