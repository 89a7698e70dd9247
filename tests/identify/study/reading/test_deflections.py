"""Deflection tests that cannot be meant are refused."""

import pytest

import jaxmb
from tests.identify.arm import study_of

FREE = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}


@pytest.mark.parametrize(("load", "point"), [("tool", "ground"), ("ground", "tool")])
def test_a_frame_that_does_not_move(tmp_path, load, point):
    table = (
        "test,a deg,b deg,load frame,fz N,point,dx mm,dy mm,dz mm\n"
        f"one,10,20,{load},-30,tool,0.1,0,-0.5\none,,,,,{point},0.1,0,-0.5\n"
        "two,-10,40,tool,-30,tool,0.1,0,-0.4\n"
    )
    if load == "ground":
        table = table.replace("one,,,,,tool,0.1,0,-0.5\n", "")
    (tmp_path / "tests.csv").write_text(table)
    with pytest.raises(jaxmb.InputError, match="deflection test 'one': frame 'ground' does not move, expected one"):
        study_of(tmp_path, {"kind": "deflection", "file": "tests.csv"}, free=FREE)
    (tmp_path / "tests.csv").write_text(table.replace("ground", "elbow"))
    study_of(tmp_path, {"kind": "deflection", "file": "tests.csv"}, free=FREE)
