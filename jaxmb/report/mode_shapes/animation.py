"""Animated GIF of a mode: the oscillating machine over the machine at rest."""

import os
import tempfile
from pathlib import Path

import numpy as np
from jaxtyping import Array, Float
from matplotlib.animation import PillowWriter

from jaxmb.io.files import write_atomically
from jaxmb.machine.build import Model
from jaxmb.report.mode_shapes.mode_motion import check_mode, found_modes, machine_motion
from jaxmb.report.mode_shapes.structure_figure import draw_displaced, single_figure
from jaxmb.report.style import drawing
from jaxmb.response.modal import Modes

FRAMES = 30
PERIOD_S = 2.0
"""Period of the animation, s."""
DPI = 120


def write_mode_animation(
    path: str | os.PathLike[str],
    model: Model,
    q: Float[Array, "n"],
    mode: int = 1,
    frames: int = FRAMES,
    found: Modes | None = None,
) -> Path:
    """Write one period of a mode as a looping animated GIF that begins at the largest displacement.

    Frames are as in `mode_shape_figures`; the amplitude is constant despite damping.

    Args:
        path: of the file.
        model: the machine.
        q: posture [n], rad or m.
        mode: number of the mode, 1 is the lowest frequency.
        frames: frames per period.
        found: the machine's modes, from `modes` or `undamped_modes` of the machine linearized at q; computed if not
            given.

    Returns:
        The path.

    Raises:
        ValueError: there is no such mode, frames is below 2, q does not have the machine's n coordinates, or a loop is
            open at q.
        OSError: the file cannot be written; no partial file remains.
    """
    if frames < 2:
        raise ValueError(f"frames is {frames}, expected 2 or more")
    found = found_modes(model, q, found)
    check_mode(model.name, found, mode)
    motion = machine_motion(model, q, found, [mode])
    (shown,) = motion.modes
    path = Path(path)
    with drawing(), tempfile.TemporaryDirectory() as folder:
        figure, views = single_figure(motion, shown)
        part, rate = Path(folder) / "mode.gif", frames / PERIOD_S
        writer = PillowWriter(fps=rate)  # pyright: ignore[reportArgumentType]  (need not be whole)
        with writer.saving(figure, part, DPI):
            for phase in np.linspace(0.0, 2.0 * np.pi, frames, endpoint=False):
                drawn = draw_displaced(views, motion, shown, phase)
                writer.grab_frame()
                for artist in drawn:
                    artist.remove()
        write_atomically(path, part.read_bytes())
    return path
