"""An animation is one period of a mode: as many pictures as asked for, at rest in the middle of each half."""

import numpy as np
import pytest
from PIL import Image

import jaxmb
from jaxmb.report import write_mode_animation
from jaxmb.response.modal import undamped_modes


@pytest.fixture(scope="module")
def arm():
    return jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))


def pictures_of(path):
    with Image.open(path) as image:
        assert image.format == "GIF"
        assert image.info["loop"] == 0  # for ever
        frames = []
        for k in range(image.n_frames):
            image.seek(k)
            frames.append(np.asarray(image.convert("RGB"), dtype=int))
    return frames


def test_frames(arm, tmp_path):
    found = undamped_modes(jaxmb.linearize(arm, arm.reference))  # of real shapes, all points at rest at once
    path = write_mode_animation(tmp_path / "mode.gif", arm, arm.reference, mode=2, frames=12, found=found)
    assert path == tmp_path / "mode.gif"
    assert list(tmp_path.iterdir()) == [path]
    frames = pictures_of(path)
    assert len(frames) == 12

    def apart(i, j):
        return np.mean(np.abs(frames[i] - frames[j]).max(axis=2) > 60)  # but for the colours of the palette

    assert apart(0, 6) > 10.0 * max(apart(1, 11), 1e-5)  # there and back is the same picture
    assert apart(0, 6) > 10.0 * max(apart(3, 9), 1e-5)  # at rest twice a period
    blue = [np.sum((frame[..., 2] > 120) & (frame[..., 0] < 80)) for frame in frames]
    assert min(blue) > 0.5 * max(blue) > 100  # one machine in colour in each, the one before is gone


def test_wrong_modes(arm, tmp_path):
    with pytest.raises(ValueError, match="mode 4: 'manipulator-3r' has no such mode, expected 1 to 3"):
        write_mode_animation(tmp_path / "mode.gif", arm, arm.reference, mode=4)
    with pytest.raises(ValueError, match=r"mode 0: .* expected 1 to 3"):
        write_mode_animation(tmp_path / "mode.gif", arm, arm.reference, mode=0)
    with pytest.raises(ValueError, match="frames is 1, expected a whole number of at least 2"):
        write_mode_animation(tmp_path / "mode.gif", arm, arm.reference, frames=1)
    with pytest.raises(OSError, match="missing"):
        write_mode_animation(tmp_path / "missing" / "mode.gif", arm, arm.reference, frames=2)
    assert list(tmp_path.iterdir()) == []
