"""The examples of docs/time-records.md as they stand, on records that are made to fit them."""

import re
from pathlib import Path

import numpy as np
import scipy.io

from jaxmb.measurement.records.file import estimate_of_records

TEXT = (Path(__file__).parents[3] / "docs" / "time-records.md").read_text()


def hammer_record(peaks, block, rate, outputs):
    """Force [n] of half sines, a block and a half apart, and responses [n, output] of one mode at 60 Hz."""
    force = np.zeros(int((len(peaks) + 1) * 1.5 * block))
    for number, peak in enumerate(peaks):
        at = int((0.5 + 1.5 * number) * block)
        force[at : at + 12] = peak * np.sin(np.pi * np.arange(1, 13) / 13)
    pole = 2 * np.pi * 60.0 * (-0.01 + 1j) / rate
    response = np.convolve(force, np.imag(np.exp(pole * np.arange(block))))[: force.size]
    return force, response[:, None] * np.arange(1.0, outputs + 1)


def test_descriptions(tmp_path):
    noise, hits = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "run3.npz", data=rng.normal(size=(40_000, 14)))
    (tmp_path / "noise.toml").write_text(noise.replace("run3.mat", "run3.npz"))
    shaken = estimate_of_records(tmp_path / "noise.toml")
    assert (shaken.frf_set.frf.shape[1:], shaken.frf_set.unit) == ((12, 2), "g/N")
    assert shaken.summary[0].endswith("df 0.125 Hz")
    force, response = hammer_record([250.0, 260.0, 520.0, 270.0, 300.0, 318.0, 290.0, 280.0], 8192, 4096.0, 3)
    columns = np.column_stack([np.arange(force.size) / 4096.0, force, response])
    scipy.io.savemat(tmp_path / "hits.mat", {"data": columns, "fs": 4096.0})
    (tmp_path / "hits.toml").write_text(hits)
    struck = estimate_of_records(tmp_path / "hits.toml")
    assert struck.frf_set.inputs == ("tool -z",)
    # the tops of twelve samples lie 0.7 % above the largest of them
    assert struck.summary == ("hits: 7 of 8 used, peak force 248 to 316 N, df 0.5 Hz",)
    assert struck.remarks == ("hit 3 is rejected: the force was overloaded",)
    np.testing.assert_allclose(struck.frf_set.decay_1_s, np.log(100.0) / 2.0)


def test_python():
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    rng = np.random.default_rng(1)
    hammer, answer = hammer_record([100.0, 120.0, 90.0], 8192, 4096.0, 2)
    names = {"force": rng.normal(size=40_000), "response": rng.normal(size=(40_000, 2))}
    names |= {"hammer": hammer, "answer": answer}
    exec(compile(code, "time-records.md", "exec"), names)  # noqa: S102  (the text is the repository's own)
    assert names["test"].accepted == (1, 2, 3)
    assert len(names["test"].peak_force) == 3
