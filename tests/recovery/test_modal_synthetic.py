"""Known modes come back from synthetic FRFs; all draws of the claim are run by experiments/modal-analysis."""

import os
import runpy
from pathlib import Path

import numpy as np
import pytest

import jaxmb

CLAIM = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "modal-analysis" / "run.py"))
SEED = 31
"""The claim's: its draws were looked at once, after the method and its options were settled."""
DATA = os.environ.get("JAXMB_DATA", "")
here = pytest.mark.skipif(
    not DATA or not (Path(DATA) / "daisy-subframe" / "flexible_structure_dat.mat").is_file(),
    reason="JAXMB_DATA names no folder with daisy-subframe/flexible_structure_dat.mat",
)


# The bounds are those of the claim: at 0.5 % noise, 0.01 % of frequency, 1 % of damping and a MAC of 0.999.
@pytest.mark.parametrize(("draw", "band_hz"), [(0, (20.0, 200.0)), (1, (20.0, 480.0))])
def test_close_pairs_at_little_noise(draw, band_hz):
    score = CLAIM["one_draw"](SEED, draw, 0.005, 0.003, band_hz)
    assert (score.found, score.false) == (12, 0)
    assert score.frequency < 1e-4
    assert score.damping < 0.01
    assert score.mac > 0.999


def test_much_noise():
    score = CLAIM["one_draw"](SEED, 0, 0.05, 0.003, (20.0, 200.0))
    assert (score.found, score.false) == (12, 0)
    assert score.damping < 0.02


def test_pairs_a_twentieth_of_their_bandwidth_apart():
    score = CLAIM["one_draw"](SEED, 0, 0.005, 0.0005, (20.0, 200.0))
    assert (score.found, score.false) == (12, 0)


@here
def test_daisy_subframe():
    from jaxmb.measurement.records.file import frf_of_records

    frf_set = jaxmb.in_band(frf_of_records("daisy-subframe"), (20.0, 480.0))
    analysis = jaxmb.modal_analysis(frf_set, band_hz=(20.0, 480.0))
    near = np.abs(analysis.frequency_hz[:, None] / np.array(CLAIM["PEAKS_HZ"]) - 1.0) < 0.01
    assert near.any(axis=0).all()
    assert np.sum(~near.any(axis=1)) <= 2
    agreement = jaxmb.frac(jaxmb.synthesize(analysis.model, frf_set.frequency_hz).frf, frf_set.frf)
    assert np.median(agreement) > 0.96
