"""The README's example and the notebooks run as they stand."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def test_readme_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example runs and finds the true parameters of the validation study."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102  (the text is the repository's own)
    printed = capsys.readouterr().out
    assert "modes: [" in printed
    assert "(145, 3, 3)" in printed
    assert re.search(r"stiffness\.z1: 2e\+06 N m/rad", printed)


def test_readme_links() -> None:
    """Every file that the README and the documents link to exists."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_readme_studies_are_valid() -> None:
    """The studies in the README are such as the format allows."""
    import tomllib

    from jaxmb.identify.study.format.study_format import StudyFile

    texts = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    kinds = [StudyFile.model_validate(tomllib.loads(text)).test[0].kind for text in texts]
    assert kinds == ["frf", "torque"]


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The KR90 story runs from its first cell to its last, and says what it promises to say."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "notebooks" / "kr90.py"))
    printed = capsys.readouterr().out
    assert "converged cost" in printed
    assert "moved by the data: stiffness.z1" in printed
    assert (tmp_path / "results" / "notebook" / "kr90-identified.toml").is_file()


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_hammer_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The way from hammer hits to an updated model runs, and the four modes are followed."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "notebooks" / "hammer.py"))
    assert "hits along z: 5 used" in capsys.readouterr().out
    assert min(mode["mac"] for mode in names["result"].metrics["measured_modes"]) > 0.9
    assert (tmp_path / "results" / "hammer" / "robot-updated.toml").is_file()


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_stiffness_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way from loads to corrected targets runs: a rope tells joint 1, and the tool no longer sags."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "notebooks" / "stiffness.py"))
    printed = capsys.readouterr().out
    assert printed.count("cannot be told") == 1
    down = np.array([0.0, 0.0, -1500.0, 0.0, 0.0, 0.0])
    assert names["missed"](names["correct"](names["path"], down), down).max() < 0.1


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_next_posture_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The posture that was chosen tells what the first did not, and the errors are what was promised."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "notebooks" / "next_posture.py"))
    before = [p.relative_std for p in names["plan"].parameters.values()]
    after = [p.next_std for p in names["plan"].parameters.values()]
    assert max(before) > 10.0
    assert max(after) < 0.5
    # errors in standard deviations: their mean square over 18 parameters is 1 on average; above 3 in one of 1e5 draws
    assert np.mean(np.square(list(names["within"].values()))) < 3.0


def test_parallel_robot_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs of the symmetric configuration, which split in the other one; few motions answer for all."""
    names = runpy.run_path(str(ROOT / "notebooks" / "parallel_robot.py"))
    pair, split = names["of_first"], names["of_second"]
    assert abs(pair[1] / pair[0] - 1.0) < 1e-6
    assert split[1] / split[0] - 1.0 > 1e-2
    assert names["reduced"].error < 1e-3
    # damping of 5 % instead of half the loss factor: a resonance as much lower
    assert names["change"] / names["before"] == pytest.approx(0.048 / 0.05, rel=0.05)
    assert "platform at [ 0.   0.  -1.1]" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_inertia_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seven base parameters come back, torques are missed by their noise, and a load is followed."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = runpy.run_path(str(ROOT / "notebooks" / "inertia_from_torque.py"))
    assert len(names["base"].names) == 7
    for row in names["torque"].base:  # one of seven beyond four standard deviations in one of 2000 draws
        assert abs(row.value - row.true) < 4.0 * row.std, row.name
    for row in names["torque"].torques:  # the noise of torques, and that of angles through the filter
        assert row.rms_error < 1.2 * names["TORQUE_STD"]
    assert min(names["least"]) > 0.0
    assert names["missed_by"]["encoder and gyroscope"] < 0.5 * names["missed_by"]["encoder"]
    i = names["columns"].index("first_moment.coupler.x")
    light, heavy = (truth[i] for truth in names["truths"])
    found, slow = (names["tracks"][forgetting][-1, i] for forgetting in (0.995, 1.0))
    assert abs(found - heavy) < 0.1 * (heavy - light)
    assert slow < heavy - 0.2 * (heavy - light)


def test_optimizers_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local method with derivatives finds six parameters, a blind one does not in as many evaluations."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("objective", "optimizers", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    runs = runpy.run_path(str(ROOT / "notebooks" / "optimizers.py"))["runs"]
    found = {name: sum("exact" in run for run in some) for name, some in runs.items()}
    assert found["jaxmb"] == 5
    assert found["random descent"] < 5
