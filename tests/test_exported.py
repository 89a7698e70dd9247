"""Programs that a command exported are called without tracing, and never in the place of another."""

import fractions
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb import exported, runtime
from jaxmb.compiled import compiled, compiled_partial
from jaxmb.exported import Programs
from jaxmb.spatial import rotation_by, rotation_vector, skew

VECTOR = jnp.asarray([0.3, -0.2, 0.5])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "exports", tmp_path)
    return tmp_path


def count(folder):
    return len(list(folder.glob("jaxmb-*-cache")))


def value(programs, *args):
    """By a program, or None."""
    program = programs.program(*args)
    return None if program is None else np.asarray(program())


def test_an_exported_program_is_not_traced_again(folder, monkeypatch):
    assert np.array_equal(value(Programs(skew, skew, skew), VECTOR), skew(VECTOR))
    assert count(folder) == 1
    monkeypatch.setattr(exported, "_export", None)
    again = Programs(skew, skew, skew)
    assert np.array_equal(value(again, 2.0 * VECTOR), skew(2.0 * VECTOR))
    assert value(again, VECTOR[:2]) is None  # of another form, and what is wrong is found by the caller


def test_programs_differ_by_all_that_they_depend_on(folder, monkeypatch):
    for source in (skew, rotation_by):
        for arguments in ((VECTOR,), (VECTOR.astype(jnp.float32),)):
            for fixed in (None, ("a", 1)):
                assert value(Programs(source, source, source, fixed), *arguments) == pytest.approx(source(*arguments))
    assert count(folder) == 8
    for name, content in (("JAX_NUMPY_RANK_PROMOTION", "raise"), ("XLA_FLAGS", "")):
        monkeypatch.setenv(name, content)
        exported._surroundings.cache_clear()
        value(Programs(skew, skew, skew), VECTOR)
    monkeypatch.setattr(exported, "version", lambda package: "0")
    exported._surroundings.cache_clear()
    value(Programs(skew, skew, skew), VECTOR)
    exported._surroundings.cache_clear()
    assert count(folder) == 11


def test_sources_are_part_of_the_key(tmp_path, monkeypatch):
    path = tmp_path / "package" / "exported.py"
    path.parent.mkdir()
    monkeypatch.setattr(exported, "__file__", str(path))
    keys = []
    for content in ("a = 1", "a = 2"):
        path.write_text(content)
        keys.append(exported._surroundings.__wrapped__())
    assert keys[0] != keys[1]
    assert keys[0][1:] == keys[1][1:]


def test_what_pickle_cannot_identify_is_traced(folder, monkeypatch):
    def local(vector):
        return vector

    for source, fixed in ((local, None), (lambda x: x, None), (skew, local), (np.vectorize(local), None)):
        assert value(Programs(source, skew, skew, fixed), VECTOR) is None
    replaced = jax.vmap(skew)  # what the module does not have under its name
    assert value(Programs(replaced, replaced, replaced), jnp.ones((2, 3))) is None
    assert value(Programs(Foreign(), skew, skew), VECTOR) is None
    assert value(Programs(skew, skew, skew, Foreign), VECTOR) is None
    assert value(Programs(skew, skew, skew, fractions.Fraction(1, 2)), VECTOR) is not None  # of the standard library
    assert count(folder) == 1


class Foreign:
    """Of a package whose version is not part of the key."""


def test_transformed_arguments_are_traced(folder):
    programs = Programs(skew, skew, skew)
    jax.vmap(lambda v: v if programs.program(v) is None else 1 / 0)(jnp.ones((2, 3)))
    assert count(folder) == 0


def test_a_damaged_program_is_exported_again(folder):
    value(Programs(skew, skew, skew), VECTOR)
    (path,) = folder.glob("jaxmb-*-cache")
    whole = path.read_bytes()
    for contents in (whole[:100], b"", whole[:-9] + b"123456789"):
        path.write_bytes(contents)
        assert np.array_equal(value(Programs(skew, skew, skew), VECTOR), skew(VECTOR))
        assert exported._read(path) is not None


def test_a_folder_that_cannot_be_written_is_no_error(folder):
    folder.rmdir()
    folder.write_text("a file")
    assert np.array_equal(value(Programs(skew, skew, skew), VECTOR), skew(VECTOR))


def test_compiled_functions_use_them(folder):
    """Of the package; of a test they are not found by name."""
    call = compiled(rotation_vector)
    assert call(jnp.eye(3)).tolist() == [0.0, 0.0, 0.0]
    assert count(folder) == 0
    partial = compiled_partial(rotation_by, VECTOR)
    assert partial() == pytest.approx(rotation_by(VECTOR))
    assert count(folder) == 1


COMMAND = """if True:
    import os, sys
    from jaxmb import exported
    from jaxmb.__main__ import run
    export = exported._export
    exported._export = {}
    sys.argv = ["jaxmb", "identify", "validation-3r", "--out", {!r}]
    run()
"""


def test_a_second_command_traces_none(tmp_path):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
    results = []
    for k, export in enumerate(("export", "lambda *form: os._exit(9)")):
        code = COMMAND.format(export, str(tmp_path / str(k)))
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, timeout=300)
        results.append(json.loads((tmp_path / str(k) / "result.json").read_text())["parameters"])
        assert count(tmp_path / "programs") > 3
    assert results[0] == results[1]


def test_in_python_all_is_traced():
    """Where functions and constants may have been replaced."""
    assert runtime.exports is None
