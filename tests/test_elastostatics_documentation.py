"""The Python of docs/elastostatics.md runs as it stands, one block after the other."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "elastostatics.md").read_text()


def test_the_blocks_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "elastostatics.md", "exec"), names)  # noqa: S102  (the text is the repository's own)
    printed = capsys.readouterr().out
    assert "'stiffness.q1': '3.8e+06 ±" in printed
    # Newton's steps end at 1e-9 m
    assert float(printed.splitlines()[-1]) < 1e-9
