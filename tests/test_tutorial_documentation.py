"""The tutorials run as printed, and their outputs are those shown."""

import re
import shlex
from pathlib import Path

import pytest

from jaxmb.cli import main

TEXT = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text()


def shown_in(block: str, printed: str) -> None:
    """All lines of a block, but those left out, are lines of the output, in this order."""
    lines = iter([line.rstrip() for line in printed.splitlines()])
    for line in block.splitlines():
        assert line == "..." or line in lines, f"not printed, or not in this order: {line}"


def test_the_tutorial_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["xml", "python", "toml", "", "", "python", "", "toml", "", "python", "", ""]
    printed = ""
    for kind, block in blocks:
        if kind == "xml":
            Path("arm.urdf").write_text(block)
        elif kind == "toml":
            with Path("arm.toml").open("a") as study:
                study.write(block)
        elif kind == "python":
            exec(compile(block, "tutorial.md", "exec"), {})  # noqa: S102  (the text is the repository's own)
            printed = capsys.readouterr().out
        elif block.startswith("$ jaxmb "):
            command, shown = block.split("\n", 1)
            assert main(shlex.split(command)[2:]) == 0
            shown_in(shown, capsys.readouterr().out)
        else:
            shown_in(block, printed)
    figures = {path.name for path in Path("results/arm/figures").iterdir()}
    assert {"frf-stretched.png", "parameters.png"} <= figures
    assert {path.name for path in Path("results/arm").iterdir()} >= {"result.json", "machine.toml", "study.toml"}


SHORT = ("planning", "deflections", "torques", "flexible-closed")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", SHORT)
def test_short_tutorials_run(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written under the last name mentioned before them, commands and code run, outputs are those shown."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / f"tutorial-{name}.md").read_text()
    printed = ""
    for found in BLOCK.finditer(text):
        kind, block = found.groups()
        if kind == "toml":
            Path(re.findall(r"`(\w+\.toml)`", text[: found.start()])[-1]).write_text(block)
        elif kind == "python":
            exec(compile(block, f"{name}.md", "exec"), {})  # noqa: S102  (the text is the repository's own)
            printed = capsys.readouterr().out
        elif block.startswith("$ jaxmb "):
            command, shown = block.split("\n", 1)
            assert main(shlex.split(command)[2:]) == 0
            shown_in(shown, capsys.readouterr().out)
        else:
            shown_in(block, printed)
