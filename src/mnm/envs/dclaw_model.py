"""The D'Claw robot as a MuJoCo model: three equal fingers over a valve, or over nothing.

The numbers are ROBEL's (metres, kilograms, radian; half-sizes of boxes; radius and half-length of capsules and
cylinders). Nothing is loaded from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

TIMESTEP = 0.0025
JOINTS = 9
"""Of the claw, three a finger; the valve's hinge follows."""
MARK_GROUP = 1
"""Of the geoms that mark the valve's angle, which neither collide nor weigh."""

BOX, CAPSULE, CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER
METAL, PLASTIC = (1.0, 0.005, 0.0001), (0.2, 0.005, 0.0001)
COLOURS = {METAL: (0.62, 0.64, 0.68, 1.0), PLASTIC: (0.16, 0.17, 0.2, 1.0)}
VALVE_COLOUR, MARK_COLOUR = (0.93, 0.6, 0.13, 1.0), (0.85, 0.1, 0.1, 1.0)

FINGER_BASES = (((0.03, -0.052, 0.003), 0.52), ((0.03, 0.052, 0.003), 2.6), ((-0.06, 0.0, 0.003), -1.57))
"""Where on the claw each finger stands, and how far it is turned about z."""

# The motor below the valve: the convex hull of these points in two layers.
MOTOR_CORNERS = (
    (-0.0153996, -0.0344171),
    (-0.0153996, 0.0105425),
    (-0.0132542, -0.0365329),
    (-0.0132542, 0.0126583),
    (0.0130260, -0.0365329),
    (0.0130260, 0.0126583),
    (0.0151713, -0.0344171),
    (0.0151713, 0.0105425),
)
MOTOR_LAYERS = (-0.01797, 0.01806)

Triple = tuple[float, float, float]


def claw_model(*, valve: bool) -> mujoco.MjModel:
    """The claw, above a valve or alone (then a little lower)."""
    spec = mujoco.MjSpec()
    spec.option.timestep = TIMESTEP
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.iterations = 50
    spec.option.tolerance = 1e-10
    spec.compiler.degree = False
    _add_scene(spec)
    mount = spec.worldbody.add_body(name="mount", pos=(0.0, 0.0, 0.335 if valve else 0.30))
    if valve:
        _add_geom(mount, CYLINDER, (0.03, 0.005), METAL, condim=3, margin=0.0)
    claw = mount.add_body(name="claw", quat=_turned(3.14, 0.0, 0.0))
    _add_geom(claw, CYLINDER, (0.075, 0.004), METAL, mass=0.11)
    for number, (place, angle) in enumerate(FINGER_BASES):
        _add_finger(spec, claw, number, place, angle)
    if valve:
        _add_valve(spec)
    return spec.compile()


def _add_finger(spec: mujoco.MjSpec, claw: Any, number: int, place: Triple, angle: float) -> None:
    """Base and three links; each link hangs on the one before by a hinge with its own motor."""
    base = claw.add_body(pos=place, quat=_turned(0.0, 0.0, angle))
    _add_geom(base, BOX, (0.024, 0.0175, 0.015), METAL, (0.012, 0.0, 0.014), mass=0.093)

    first = base.add_body(pos=(0.0, 0.0, 0.01425), quat=_turned(0.0, 0.0, 3.14))
    _add_joint(spec, first, f"finger{number}_0", (0.0, 1.0, 0.0), (-0.45, 1.35), control=0.48)
    _add_motor(first, ((0.0125, 0.0214, 0.003), (0.011, 0.0012, 0.016), (0.0, 0.02, 0.013)))

    second = first.add_body(pos=(0.0, 0.0, 0.0675))
    _add_joint(spec, second, f"finger{number}_1", (1.0, 0.0, 0.0), (-2.0, 2.0), control=1.57)
    _add_motor(second, ((0.0214, 0.0125, 0.003), (0.0012, 0.011, 0.016), (0.02, 0.0, 0.013)))

    third = second.add_body(pos=(0.0, 0.0, 0.068))
    _add_joint(spec, third, f"finger{number}_2", (1.0, 0.0, 0.0), (-2.0, 2.0), control=1.57)
    _add_bracket(third, (0.0214, 0.0125, 0.003), (0.0012, 0.011, 0.016), (0.02, 0.0, 0.013))
    _add_geom(third, CAPSULE, (0.011, 0.02), PLASTIC, (0.0, 0.0, 0.053), mass=0.018)
    _add_geom(third, BOX, (0.0245, 0.014, 0.003), PLASTIC, (0.0, 0.0, 0.03), mass=0.007)
    third.add_site(name=f"fingertip{number}", pos=(0.0, 0.0, 0.076))


def _add_motor(link: Any, bracket: tuple[Triple, Triple, Triple]) -> None:
    """A link that carries the next link's motor: its case, its bracket and its collar."""
    _add_geom(link, BOX, (0.0175, 0.015, 0.024), METAL, (0.0, 0.0, 0.056), mass=0.093)
    _add_bracket(link, *bracket)
    _add_geom(link, BOX, (0.019, 0.014, 0.006), METAL, (0.0, 0.0, 0.033), mass=0.005)


def _add_bracket(link: Any, plate: Triple, cheek: Triple, side: Triple) -> None:
    """A plate across, and a cheek on either side of the joint."""
    _add_geom(link, BOX, plate, METAL, (0.0, 0.0, 0.026), mass=0.003)
    x, y, z = side
    for sign in (1.0, -1.0):
        _add_geom(link, BOX, cheek, METAL, (sign * x, sign * y, z), mass=0.002)


def _add_joint(
    spec: mujoco.MjSpec, body: Any, name: str, axis: Triple, limits: Sequence[float], control: float
) -> None:
    """A hinge, and the position servo that moves it."""
    _add_hinge(body, name, axis, limits)
    gain = 2.0
    spec.add_actuator(
        name=name,
        target=name,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=_padded(gain),
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=_padded(0.0, -gain),
        ctrllimited=True,
        ctrlrange=(-control, control),
    )


def _add_hinge(body: Any, name: str, axis: Triple, limits: Sequence[float]) -> None:
    body.add_joint(
        name=name,
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=axis,
        limited=True,
        range=limits,
        damping=0.1,
        armature=0.001,
    )


def _add_valve(spec: mujoco.MjSpec) -> None:
    """A three-armed handle on a motor that holds still."""
    station = spec.worldbody.add_body(name="station", pos=(0.0, 0.0, 0.0001))
    base = station.add_body(name="valve_base", pos=(0.0, 0.0, 0.01))
    points = [(x, y, z) for z in MOTOR_LAYERS for x, y in MOTOR_CORNERS]
    spec.add_mesh(name="motor", uservert=np.array(points).ravel())
    _add_geom(
        base,
        mujoco.mjtGeom.mjGEOM_MESH,
        (),
        METAL,
        (0.0, 0.0, 0.018),
        quat=_turned(0.0, 0.0, 1.57),
        meshname="motor",
    )
    valve = base.add_body(name="valve", pos=(0.0, 0.0, 0.038), quat=_turned(0.0, 0.0, -1.57))
    _add_hinge(valve, "valve", (0.0, 0.0, 1.0), (-6.28, 6.28))
    arms = (((0.0, 0.038, 0.054), 0.0), ((-0.034, -0.019, 0.054), 2.0944), ((0.034, -0.019, 0.054), 4.1887))
    for place, angle in arms:
        _add_geom(valve, CAPSULE, (0.021, 0.035), PLASTIC, place, quat=_turned(1.57, angle, 0.0), rgba=VALVE_COLOUR)
    _add_geom(valve, CYLINDER, (0.02, 0.0275), PLASTIC, (0.0, 0.0, 0.027), rgba=VALVE_COLOUR)
    valve.add_geom(
        name="mark",
        type=CAPSULE,
        size=(0.005, 0.05, 0.0),
        pos=(0.0, 0.07, 0.078),
        quat=_turned(1.57, 0.0, 0.0),
        rgba=MARK_COLOUR,
        group=MARK_GROUP,
        contype=0,
        conaffinity=0,
        mass=0.0,
    )


def _add_geom(
    body: Any, shape: Any, size: Sequence[float], friction: Triple, pos: Triple = (0.0, 0.0, 0.0), **others: Any
) -> None:
    """A geom that collides; `others` go before what all have."""
    common = {"condim": 4, "margin": 0.0005, "rgba": COLOURS[friction]}
    body.add_geom(type=shape, size=(*size, *(0.0,) * (3 - len(size))), friction=friction, pos=pos, **(common | others))


def _add_scene(spec: mujoco.MjSpec) -> None:
    """Floor, light and camera. No shadows, no reflections: a picture takes a CPU a tenth of a second."""
    spec.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=(0.5, 0.5, 0.01), condim=3, rgba=(0.87, 0.89, 0.91, 1.0)
    )
    spec.add_texture(
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=(1.0, 1.0, 1.0),
        rgb2=(0.75, 0.8, 0.87),
        width=64,
        height=64,
    )
    spec.worldbody.add_light(pos=(0.3, -0.3, 1.0), dir=(-0.3, 0.3, -1.0), castshadow=False)
    spec.worldbody.add_camera(name="front", pos=(0.56, 0.1, 0.42), quat=_looking((-0.84, -0.15, -0.45)), fovy=45.0)


def _looking(direction: Triple) -> np.ndarray:
    """The quaternion of a camera that looks there, upright."""
    backward = -np.array(direction) / np.linalg.norm(direction)
    right = np.cross((0.0, 0.0, 1.0), backward)
    right /= np.linalg.norm(right)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.stack([right, np.cross(backward, right), backward], axis=1).ravel())
    return quat


def _turned(a: float, b: float, c: float) -> np.ndarray:
    """The quaternion of intrinsic xyz Euler angles."""
    quat = np.zeros(4)
    mujoco.mju_euler2Quat(quat, np.array([a, b, c]), "xyz")
    return quat


def _padded(*values: float) -> np.ndarray:
    """The ten parameters of an actuator."""
    return np.array([*values, *(0.0,) * (10 - len(values))])
