"""Modal tests as a study writes them: shapes as numbers, and what is wrong with them."""

import numpy as np
import pytest

from jaxmb.io.validation import InputError
from tests.identify.arm import shapes, study_of


def test_shapes_from_numbers(tmp_path):
    given = {"frequency_hz": [4.0, 14.0], "damping_percent": [1.0, 1.0], "simulate": None}  # none beside numbers
    test = shapes(shapes=[[1.0, [0.5, 0.1], -2.0, 0.0], [1.0, 0.0, 0.0, 0.0]], **given)
    (made,) = study_of(tmp_path, test).tests
    np.testing.assert_allclose(made.shape[0], [-0.5, -0.25 - 0.05j, 1.0, 0.0])
    for damping, doubted in (([0.01, 0.02], True), ([0.02, 1.0], False)):
        plain = shapes(shapes=None, outputs=[], **given | {"damping_percent": damping})
        remarks = study_of(tmp_path, plain).entries[0].remarks
        assert any("damping_percent is at most 0.02" in remark for remark in remarks) == doubted
    for changes, message in (
        ({"shapes": [[1.0, 0.0]]}, "shape 1 has 2 entries for 4 outputs"),
        ({"shapes": [[1.0] * 4]}, "shapes has 1 entries for 2 frequencies"),
        ({"shapes": [[1.0] * 4, [0.0] * 4]}, "shape 2 is zero at all outputs"),
        ({"shapes": None}, "shapes and outputs belong together"),
        ({"shapes": None, "outputs": [], "frequency_hz": None}, "expected frequency_hz and damping_percent"),
    ):
        with pytest.raises(ValueError, match=message):
            study_of(tmp_path, test | changes)
    with pytest.raises(InputError, match=r"frequency_std_hz has 3 entries for 2 modes"):
        study_of(tmp_path, shapes(frequency_std_hz=[0.1, 0.1, 0.1]))
