"""The Python examples of docs/torque-tests.md run as printed, with the output shown."""

import re
from pathlib import Path

import jaxmb

TEXT = (Path(__file__).parents[1] / "docs" / "torque-tests.md").read_text()


def test_the_examples_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)
    shown = [(kind, block) for kind, block in blocks if kind in ("python", "")]
    assert [kind for kind, _ in shown].count("python") >= 4
    for kind, block in shown:
        if kind == "python":
            exec(compile(block, "torque-tests.md", "exec"), names)  # noqa: S102  (the text is the repository's own)
            printed = capsys.readouterr().out
        else:
            assert block == printed
    assert "\n".join(names["base"].formulas) in TEXT
    record = jaxmb.read_motion("motion.csv", ["q1"])
    assert record.effort.shape == (1001, 1)
