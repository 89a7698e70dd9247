"""What JAX is told when jaxmb is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmb import runtime

OWN = (*runtime.POOL_SIZES, runtime.CACHE, "JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR",
       "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES")  # fmt: skip
"""What importing jaxmb sets, or reads: the tests themselves have set some of it."""


def started(code: str, caches: Path, **environment: str) -> subprocess.Popen:
    """A fresh process that runs the code, any warning an error, with the user's caches in a folder."""
    kept = {k: v for k, v in os.environ.items() if k not in OWN} | {"XDG_CACHE_HOME": str(caches)}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.Popen(
        command, env=kept | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip


@pytest.fixture
def printed(tmp_path):
    """What a fresh process prints that runs the code, its caches in `tmp_path`."""

    def what(code: str, **environment: str) -> str:
        return ended(started(code, tmp_path, **environment))

    return what


def ended(process: subprocess.Popen) -> str:
    """What a process prints, which says nothing on stderr."""
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    return out.strip()


def test_without_a_home_jaxmb_is_imported_and_keeps_nothing(printed):
    """As of a user whom the system does not know, in a container."""
    code = """if True:
        import os, pwd
        for name in ("XDG_CACHE_HOME", "HOME"):
            os.environ.pop(name, None)
        pwd.getpwuid = {}.__getitem__
        import jaxmb
        print("JAX_COMPILATION_CACHE_DIR" in os.environ)
    """
    assert printed(code) == "False"


@pytest.fixture
def pool(monkeypatch):
    """The environment without a size of the pool, before JAX has computed, with a jaxlib of the given version."""

    def with_version(number: str, computed: bool = False, **environment: str) -> str | None:
        for name in runtime.POOL_SIZES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(runtime, "version", lambda _: number)
        monkeypatch.setattr(runtime, "_has_computed", lambda: computed)
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        runtime.one_thread()
        return os.environ.get("PJRT_NPROC")

    return with_version


@pytest.mark.parametrize("number", ["0.10.0", "0.10.2", "0.11.0"])
def test_a_jaxlib_that_can_wait_for_itself_gets_one_thread(pool, number):
    assert pool(number) == "1"


@pytest.mark.parametrize("number", ["0.9.2", "0.11.1", "0.12.0", "1.0.0"])
def test_another_jaxlib_keeps_its_threads(pool, number):
    assert pool(number) is None


@pytest.mark.parametrize("name", runtime.POOL_SIZES)
def test_the_size_that_the_user_has_chosen_stays(pool, name):
    assert pool("0.10.2", **{name: "4"}) == ("4" if name == "PJRT_NPROC" else None)


def test_where_it_is_too_late_a_warning_says_what_to_do(pool):
    with pytest.warns(RuntimeWarning, match=r"jaxlib 0\.10\.2 .*import jaxmb first, or set PJRT_NPROC=1"):
        assert pool("0.10.2", computed=True) is None


@pytest.mark.parametrize("first", ["", "import jax; "])
def test_it_holds_for_the_process_that_imports_jaxmb(first, printed):
    """The version of jaxlib that is installed may need it or not: the first that needs it is put in its place."""
    code = (
        f"import importlib.metadata as m; m.version = lambda name: '0.10.2'; {first}import jaxmb, jax.numpy as jnp, os;"
        " jnp.ones(3); print(os.environ['PJRT_NPROC'])"
    )
    assert printed(code) == "1"


def test_jax_that_has_computed_is_noticed(printed):
    code = "import jax.numpy as jnp; from jaxmb import runtime; {}print(runtime._has_computed())"
    assert printed(code.format("")) == "False"
    assert printed(code.format("jnp.ones(3); ")) == "True"


def test_batched_lapack_calls_that_do_not_depend_on_each_other_end(printed):
    """With two threads in the pool and jaxlib 0.10.2 this waits for itself for ever in nearly every run."""
    code = """if True:
        import jaxmb, jax, jax.numpy as jnp
        @jax.jit
        def solved(a):
            sizes = range(5, 11)
            rows = [(j, n) for j in (1, 2, 3, 4) for n in sizes]
            return [jnp.linalg.solve(a[:, :n, :n], jnp.ones((len(a), n, j))) for j, n in rows]
        a = jax.random.normal(jax.random.PRNGKey(0), (2000, 10, 10)) + 10 * jnp.eye(10)
        for _ in range(5):
            jax.block_until_ready(solved(a))
        print("ended")
    """
    assert printed(code) == "ended"


SETTINGS = "print(jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir)"
PROGRAM = """if True:
    import collections, jax.monitoring
    heard = collections.Counter()
    jax.monitoring.register_event_listener(lambda event, **_: heard.update([event.rpartition('/')[2]]))
    import jaxmb, jax.numpy as jnp
    value = jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones(3))
    print(round(float(value), 6), heard["cache_hits"], heard["cache_misses"])
"""
"""Prints its result, programs that it found compiled and programs that it compiled and kept."""


@pytest.mark.parametrize("imports", ["jaxmb, jax", "jax, jaxmb"])
def test_whichever_is_imported_first_jax_has_64_bits_and_a_cache(imports, printed, tmp_path):
    assert printed(f"import {imports}; {SETTINGS}") == f"True {tmp_path / 'jaxmb' / 'programs'}"


@pytest.mark.parametrize("imports", ["jaxmb, jax", "jax, jaxmb"])
def test_what_the_environment_says_stays(imports, printed):
    chosen = {"JAX_ENABLE_X64": "0", "JAX_COMPILATION_CACHE_DIR": "/somewhere"}
    assert printed(f"import {imports}; {SETTINGS}", **chosen) == "False /somewhere"


def test_a_folder_that_the_user_gave_to_jax_stays(printed):
    code = f"import jax; jax.config.update('jax_compilation_cache_dir', '/mine'); import jaxmb; {SETTINGS}"
    assert printed(code) == "True /mine"


def test_the_cache_can_be_turned_off(printed, tmp_path):
    assert printed(f"import jaxmb, jax; {SETTINGS}", JAXMB_COMPILATION_CACHE="off") == "True None"
    assert not list(tmp_path.iterdir())


def test_a_child_process_can_turn_the_cache_of_its_parent_off(printed, tmp_path):
    ours = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jaxmb" / "programs")}
    assert printed(f"import jaxmb, jax; {SETTINGS}", JAXMB_COMPILATION_CACHE="off", **ours) == "True None"
    assert printed(f"import jaxmb, jax; {SETTINGS}", **ours) == f"True {tmp_path / 'jaxmb' / 'programs'}"


def test_another_word_than_on_and_off_is_told(monkeypatch):
    monkeypatch.setenv("JAXMB_COMPILATION_CACHE", "of")
    with pytest.warns(RuntimeWarning, match="JAXMB_COMPILATION_CACHE is 'of', expected 'on' or 'off'"):
        runtime.keep_programs()


def test_a_program_is_compiled_once_for_all_processes(printed):
    value, hits, misses = printed(PROGRAM).split()
    assert (hits, int(misses) > 0) == ("0", True)
    assert printed(PROGRAM).split() == [value, misses, "0"]


def test_two_processes_share_the_cache(tmp_path):
    assert len({ended(process).split()[0] for process in [started(PROGRAM, tmp_path) for _ in range(2)]}) == 1


def test_where_no_folder_can_be_made_there_is_no_cache(printed, tmp_path):
    (tmp_path / "jaxmb").write_text("a file")
    assert printed(PROGRAM).split()[1:] == ["0", "0"]


def test_programs_that_are_cut_off_or_cannot_be_written_are_compiled(printed, tmp_path):
    value = printed(PROGRAM).split()[0]
    for path in (tmp_path / "jaxmb" / "programs").glob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    assert printed(PROGRAM).split()[0] == value
    for path in (tmp_path / "jaxmb" / "programs").glob("*-cache"):
        path.unlink()
        path.mkdir()
    assert printed(PROGRAM).split()[0] == value


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    for age in range(8):
        path = tmp_path / f"{age}-cache"
        path.write_bytes(bytes(100_000))
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "other").write_bytes(bytes(100_000))
    runtime.cut_back(tmp_path, most_bytes=900_000)
    assert len(list(tmp_path.iterdir())) == 9
    runtime.cut_back(tmp_path, most_bytes=500_000)  # cut back to three quarters of that
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-cache", "1-cache", "2-cache", "other"]


def test_a_process_looks_at_its_end_once_an_hour(printed, tmp_path):
    folder = tmp_path / "jaxmb" / "programs"
    code = "import jaxmb; from jaxmb import runtime; runtime.cut_back = lambda folder: print('looks')"
    assert printed(code) == ""  # JAX was not used
    assert printed(f"{code}; import jax") == "looks"
    assert printed(f"{code}; import jax") == ""
    os.utime(folder / "looked", (0, 0))
    assert printed(f"{code}; import jax") == "looks"
