"""The README's example and the notebooks run as they stand."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = [pytest.param(path, id=path.stem) for path in sorted((ROOT / "notebooks").glob("*.py"))]


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
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every notebook runs from its first cell to its last, and asserts what it states."""
    if path.stem == "optimizers":
        pytest.skip("has a test of its own")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), init_globals={"SAMPLES": 500} if path.stem == "posterior" else None)
    assert re.search(r"^assert ", path.read_text(), re.MULTILINE)


def test_optimizers_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asserts what it says; here of the fewest optimizers, evaluations and seeds that let it."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("objective", "optimizers", "run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    few = ["jaxmb", "evosax CMA_ES", "SciPy trust region", "random descent"]
    small = {"ONLY": few, "SEEDS": 2, "MOST": 2000}
    runs = runpy.run_path(str(ROOT / "notebooks" / "optimizers.py"), init_globals=small)["runs"]
    for problem in ("3R", "KR90"):
        found = {name: sum("exact" in run for run in some) for name, some in runs[problem].items()}
        assert found["jaxmb"] == 2
        assert found["random descent"] == 0
