"""The kernel of the small solve: when there is one, when not, and that it leaves the process as it was."""

import concurrent.futures
import hashlib
import os
import platform
import pwd
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import platformdirs
import pytest

from jaxmb import native
from jaxmb.linalg.responses import receptance

NO_COMPILER = pytest.mark.skipif(not native.in_use(), reason="there is no kernel here")


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """An empty folder for the user's caches, and nothing set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(native.SETTING, raising=False)
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def compiler(folder, script):
    """A program that stands for a C++ compiler."""
    path = folder / "some-compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("word", ["off", "0"])
def test_it_can_be_turned_off(caches, monkeypatch, word):
    monkeypatch.setenv(native.SETTING, word)
    assert not native.in_use.__wrapped__()
    assert native.status() == f"by JAX: {native.SETTING} is '{word}'"
    assert not list(caches.iterdir())


def test_another_word_is_told(caches, monkeypatch):
    monkeypatch.setenv(native.SETTING, "of")
    with pytest.warns(RuntimeWarning, match="JAXMB_NATIVE is 'of', expected 'on' or 'off'"):
        native.status()


def test_without_a_compiler_jax_solves(caches, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert not native.in_use.__wrapped__()
    assert native.status() == "by JAX: no C++ compiler is found"


def test_the_compiler_that_is_asked_for_is_not_there(caches, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    assert not native.in_use.__wrapped__()
    assert native.status() == "by JAX: the C++ compiler 'no-such-compiler', which CXX names, is not found"


def test_a_compiler_that_fails_is_not_tried_again_within_an_hour(caches, monkeypatch):
    tried = caches / "tried"
    path = compiler(caches, f"echo once >> {tried}; echo 'error: no such header' >&2; exit 1")
    monkeypatch.setenv("CXX", path)
    assert not native.in_use.__wrapped__()
    assert native.status() == f"by JAX: {path} could not compile receptance.cpp: error: no such header"
    count = tried.read_text().count("once")
    assert not native.in_use.__wrapped__()
    assert tried.read_text().count("once") == count
    (note,) = (caches / "jaxmb" / "native").glob("*.failed")
    os.utime(note, (1e9, 1e9))  # the disk that was full may be so no longer
    assert not native.in_use.__wrapped__()
    assert tried.read_text().count("once") == 2 * count
    os.utime(path, (1e9, 1e9))  # another version of it
    assert native.status().startswith("native, to be compiled at first use by")


def test_a_failure_that_cannot_be_noted_is_one(caches, monkeypatch):
    monkeypatch.setenv("CXX", compiler(caches, f"rm -r {caches}/jaxmb; exit 1"))
    assert not native.in_use.__wrapped__()


def test_where_nothing_can_be_written_jax_solves(caches, monkeypatch):
    monkeypatch.setenv("CXX", compiler(caches, "exit 1"))
    (caches / "jaxmb").write_text("a file")
    assert not native.in_use.__wrapped__()
    assert native.status() == f"by JAX: {caches}/jaxmb/native cannot be written"
    native.begin()
    assert not native._compiling


def test_where_nothing_can_be_looked_for_jax_solves(caches, monkeypatch):
    """As in a folder that belongs to another user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches / ("long" * 100)))
    assert not native.in_use.__wrapped__()
    native.status()


@pytest.mark.parametrize("older", [False, True])
def test_without_a_home_nothing_is_written(caches, monkeypatch, older):
    """As of a user whom the system does not know. By older versions of platformdirs the folder of caches would be one
    named ~ where the user happens to be."""
    monkeypatch.chdir(caches)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    if older:
        monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/jaxmb"))
    assert not native.in_use.__wrapped__()
    assert native.status().startswith("by JAX: ")
    native.begin()
    assert not native._compiling
    assert not list(caches.iterdir())


@NO_COMPILER
def test_another_process_compiles_while_this_one_goes_on(caches):
    native.begin()
    assert len(native._compiling) == 1
    assert native.compile_now().exists()
    assert not native._compiling
    native.begin()
    assert not native._compiling


@NO_COMPILER
def test_files_of_the_user_are_no_modules_of_that_process(caches, monkeypatch):
    """It is a process of Python, which would look for modules where the user is."""
    (caches / "shlex.py").write_text(f"open({str(caches / 'run')!r}, 'w')")
    monkeypatch.chdir(caches)
    native.begin()
    native._compiling.pop().wait()
    assert not (caches / "run").exists()
    assert native._library_path().exists()


def test_what_hinders_a_compilation_is_told_where_it_is_needed(caches, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    native.begin()
    monkeypatch.setenv("CXX", "no-such-compiler")
    native.begin()
    with pytest.raises(native.NotAvailableError, match="which CXX names, is not found"):
        native.compile_now()


def test_what_cannot_be_loaded_is_not_used(caches):
    path = native._library_path()
    path.parent.mkdir(parents=True)
    path.write_text("no library")
    path.with_suffix(".sha256").write_text(hashlib.sha256(b"no library").hexdigest())
    assert not native.in_use.__wrapped__()
    assert native.status().startswith(f"by JAX: {path} cannot be loaded: ")


@NO_COMPILER
def test_a_damaged_kernel_is_compiled_again(caches):
    """Loading it would end the process with a bus error or a segmentation fault."""
    path = native.compile_now()
    whole = path.read_bytes()
    for damaged in (b"", whole[:20_000], whole[:-1], b"\0" * len(whole)):
        path.write_bytes(damaged)
        assert native.status().startswith("native, to be compiled at first use by")
    path.write_bytes(whole[:20_000])
    assert native.compile_now().read_bytes() == whole
    assert native.status() == f"native, {path}"


def test_other_processors_sources_and_versions_have_their_own(caches, monkeypatch):
    before = native._library_path()
    assert before == native._library_path()
    monkeypatch.setattr(native, "_processor", lambda: "another one")
    assert native._library_path() != before
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.setattr(native, "version", lambda _: "0.0.1")
    assert native._library_path() != before


def solved(code):
    kept = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@NO_COMPILER
def test_calls_that_do_not_depend_on_each_other_end():
    """24 of them in one program, while others run: with LAPACK these wait for each other for ever in most runs."""
    code = """if True:
        import os
        os.environ["PJRT_NPROC"] = "2"
        import concurrent.futures, jaxmb, jax, jax.numpy as jnp
        from jaxmb.linalg.responses import receptance
        @jax.jit
        def found(k):
            rows = [(n, j) for j in (1, 2, 3, 4) for n in range(5, 11)]
            one, w = jnp.eye(10), jnp.linspace(0.1, 9.0, 3000)
            parts = [(one[:n, :n], one[:j, :n]) for n, j in rows]
            return [receptance(m, 0.1 * m, k * m, w, b, b).sum() for m, b in parts]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda k: jax.block_until_ready(found(k)), [1.0 + n for n in range(20)]))
        print("ended")
    """
    assert solved(code) == ["ended"]


@NO_COMPILER
def test_small_numbers_are_not_flushed_to_zero():
    code = "from jaxmb import native; import numpy as np; print(native.in_use(), np.float64(1e-310) / 2.0 > 0.0)"
    assert solved(code) == ["True", "True"]


REPEATED = """if True:
    import resource, jaxmb, jax, numpy as np
    from jaxmb.linalg.responses import receptance
    one, w = np.eye(3), np.linspace(0.1, 9.0, 146)
    many = jax.jit(jax.vmap(lambda k: receptance(one, 0.1 * one, k * one, w, one, one)))
    k = jax.device_put(np.linspace(1.0, 9.0, 256))
    for n in range(30):
        jax.block_until_ready(many(k))
        if n == 9:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
"""


@NO_COMPILER
@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="a matter of glibc")
def test_memory_of_results_is_kept_from_call_to_call(monkeypatch):
    """5 MB of responses a call are 1300 pages of 4 kB, which the system gives page by page; the user may want it so."""
    for name in native.MALLOC:
        monkeypatch.delenv(name, raising=False)
    assert int(solved(REPEATED)[0]) < 300
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "100000")
    assert int(solved(REPEATED)[0]) > 1000


@NO_COMPILER
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads have no cores of their own here")
def test_threads_that_help_may_run_wherever_the_caller_may():
    """They are woken on another core than the caller's, and not kept from any."""
    code = """if True:
        import os, time, jaxmb, jax, numpy as np
        from jaxmb.linalg.responses import receptance
        one, w = np.eye(9), np.linspace(0.1, 9.0, 20000)
        many = jax.jit(lambda k: receptance(one, 0.1 * one, k * one, w, one, one).sum())
        for n in range(20):
            jax.block_until_ready(many(1.0 + n))
        own, kept = os.sched_getaffinity(0), 0
        for _ in range(100):
            kept = sum(os.sched_getaffinity(int(t)) != own for t in os.listdir("/proc/self/task"))
            if not kept:
                break
            time.sleep(0.05)
        print(kept)
    """
    assert solved(code) == ["0"]


@NO_COMPILER
def test_calls_from_several_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(2, 7)))
    omega, one = jnp.linspace(0.1, 9.0, 500), jnp.eye(7)
    many = jax.jit(jax.vmap(lambda k: receptance(one, 0.1 * one, k * one + 0.1, omega, rows, rows)))
    given = [jnp.asarray(rng.uniform(1.0, 9.0, 20)) for _ in range(8)]
    expected = [np.asarray(many(k)) for k in given]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for value, right in zip(pool.map(many, given * 5), expected * 5, strict=True):
            np.testing.assert_array_equal(value, right)
