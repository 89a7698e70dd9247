"""Damaged files of every format: one sentence or a set, never another error; and the memory that a large one takes."""

import random
import subprocess
import sys

import numpy as np
import pytest
import pyuff
import scipy.io

from jaxmb.io.validation import InputError
from jaxmb.measurement.files.frf_file import read_frf, write_frf
from jaxmb.measurement.frf_set import FrfSet

RANDOM = np.random.default_rng(0)
H = RANDOM.normal(size=(9, 2, 2)) + 1j * RANDOM.normal(size=(9, 2, 2))
MADE = FrfSet(
    np.arange(9) + 1.0, H, "accelerance", ("1 x", "arm y"), ("1 x", "2 z"), RANDOM.uniform(size=(9, 2, 2)), 3,
    posture={"z1": 1.5}, nodes={"1": (0.0, 1.0, 2.0)},
)  # fmt: skip
MUTANTS = 120


def whole_file(path, form):
    """A small file that is right."""
    if form in ("npz", "uff", "csv"):
        write_frf(path, MADE)
    elif form == "ascii":
        for i in (0, 1):
            dataset = {
                "type": 58, "func_type": 4, "rsp_node": i + 1, "rsp_dir": 1, "ref_node": 1, "ref_dir": -3,
                "data": H[:, 0, i].copy(), "x": np.arange(9) + 1.0, "abscissa_spacing": i, "abscissa_min": 1.0,
                "abscissa_inc": 1.0, "abscissa_spec_data_type": 18, "ordinate_spec_data_type": 12,
                "orddenom_spec_data_type": 13,
            }  # fmt: skip
            pyuff.UFF(str(path)).write_sets(dataset, "add")
    else:
        variables = {"frequency_hz": np.arange(9) + 1.0, "frf": H, "kind": "mobility", "inputs": ["1 x", "2 z"]}
        scipy.io.savemat(path, {"test": variables} if form == "struct" else variables, do_compression=form == "packed")
    return path.read_bytes()


def damaged(whole, chance):
    """A file with some bytes other than they should be, left out, put in twice, or cut off."""
    data, way = bytearray(whole), chance.randrange(7)
    for _ in range(chance.choice([1, 1, 1, 2, 5, 20])):
        at = chance.randrange(len(data) or 1)
        if way == 0:
            data[at : at + 1] = bytes(b ^ (1 << chance.randrange(8)) for b in data[at : at + 1])
        elif way == 1:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif way == 2:
            del data[at : at + chance.choice([1, 1, 2, 8, 80, 1000])]
        elif way == 3:
            data[at:at] = data[at : at + chance.choice([1, 8, 80])]
        elif way == 4:
            del data[at:]
        elif way == 5:
            data[at : at + 1] = bytes([chance.choice(b"0123456789-+.eEDnai \n\r,;#_")])
        else:
            data[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"9999", b"    "])
    return bytes(data)


@pytest.mark.filterwarnings("ignore:.*skipped:UserWarning")
@pytest.mark.parametrize("form", ["npz", "uff", "ascii", "csv", "mat", "packed", "struct"])
def test_damage_is_refused_with_one_sentence(tmp_path, form):
    ending = {"ascii": "uff", "packed": "mat", "struct": "mat"}.get(form, form)
    whole = whole_file(tmp_path / f"whole.{ending}", form)
    path, chance, refused = tmp_path / f"damaged.{ending}", random.Random(form), []
    for _ in range(MUTANTS):
        path.write_bytes(damaged(whole, chance))
        try:
            read_frf(path)
        except InputError as error:
            refused.append(str(error))
    # A digit that became another digit is no damage that could be seen
    assert len(refused) > MUTANTS / 3
    assert [x for x in refused if "\n" in x or not x.startswith(f"{path}: ")] == []


READ = """
import resource, sys
import jaxmb
from jaxmb.measurement.files.frf_file import read_frf
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(read_frf(sys.argv[1]).frf.shape, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("binary", [False, True])
def test_memory_of_a_large_file(tmp_path, binary):
    """A universal file of 25 MB takes no more than three times its size: itself as a set, and pieces of it."""
    lines, functions = (26_000, 60) if binary else (10_300, 60)
    path = tmp_path / "large.uff"
    h = np.ones((lines, functions, 1)) * (1.0 + 2.0j)
    made = FrfSet(np.arange(lines) + 1.0, h, "mobility", tuple(f"{i + 1} x" for i in range(functions)), ("1 x",))
    write_frf(path, made)
    if not binary:
        text_of_binary(path, made)
    size = path.stat().st_size
    assert 24e6 < size < 26e6
    command = [sys.executable, "-c", READ, str(path)]
    shape, _, kilobytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition(" ")
    assert shape == str((lines, functions, 1))
    assert int(kilobytes) * 1024 < 3 * size


def text_of_binary(path, made):
    """The same set in the text form of the format."""
    row = np.stack([made.frf[:, 0, 0].real, made.frf[:, 0, 0].imag], axis=1).reshape(-1, 4)
    values = ("%20.12E%20.12E%20.12E%20.12E\n" * len(row)) % tuple(row.ravel())
    with path.open("w") as file:
        for i in range(made.frf.shape[1]):
            file.write(f"    -1\n{58:6d}\n" + "NONE\n" * 5)
            file.write(f"{4:5d}{0:10d}{0:5d}{0:10d} {'NONE':10}{i + 1:10d}{1:4d} {'NONE':10}{1:10d}{1:4d}\n")
            file.write(f"{6:10d}{len(made.frf):10d}{1:10d}{1.0:13.5E}{1.0:13.5E}{0.0:13.5E}\n")
            for kind in (18, 11, 13, 0):
                file.write(f"{kind:10d}{0:5d}{0:5d}{0:5d} {'NONE':20} {'NONE':20}\n")
            file.write(values + "    -1\n")
