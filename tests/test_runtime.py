"""What JAX is told when jaxmb is imported."""

import os
import subprocess
import sys

import pytest

from jaxmb import runtime


def printed(code: str, **environment: str) -> str:
    """What a fresh process prints that runs the code."""
    kept = {k: v for k, v in os.environ.items() if k not in runtime.POOL_SIZES}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


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
def test_it_holds_for_the_process_that_imports_jaxmb(first, monkeypatch):
    """The version of jaxlib that is installed may need it or not: the first that needs it is put in its place."""
    code = (
        f"import importlib.metadata as m; m.version = lambda name: '0.10.2'; {first}import jaxmb, jax.numpy as jnp, os;"
        " jnp.ones(3); print(os.environ['PJRT_NPROC'])"
    )
    assert printed(code) == "1"


def test_jax_that_has_computed_is_noticed():
    code = "import jax.numpy as jnp; from jaxmb import runtime; {}print(runtime._has_computed())"
    assert printed(code.format("")) == "False"
    assert printed(code.format("jnp.ones(3); ")) == "True"


def test_batched_lapack_calls_that_do_not_depend_on_each_other_end():
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
