"""What is imported by whom: jaxmb's public names at their first use, and by commands no more than they need."""

import json
import subprocess
import sys
from inspect import ismodule
from pathlib import Path
from types import FunctionType
from typing import Any

SLOW = {"jax", "equinox", "scipy", "matplotlib", "pint", "h5py", "evosax", "optax"}
"""Packages that take a tenth of a second or more to import."""


def imported_after(code: str) -> tuple[Any, set[str]]:
    """What `code` leaves in the name `done`, and the slow packages that a fresh process has imported by then."""
    code += "\nimport sys, json; print(); print(json.dumps([done, sorted(sys.modules)]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    done, modules = json.loads(found.stdout.splitlines()[-1])
    return done, SLOW & set(modules)


def test_identify_is_the_function_whatever_was_imported():
    """A sub-package has the same name, which importing one of its modules would bind otherwise."""
    import jaxmb.identify.study.study
    from jaxmb import identify

    assert isinstance(jaxmb.identify, FunctionType)
    assert identify is jaxmb.identify
    packages = {path.parent.name for path in Path(jaxmb.__file__).parent.glob("*/__init__.py")}
    assert {name for name in packages & set(jaxmb.__all__) if not ismodule(getattr(jaxmb, name))} == {"identify"}


def test_importing_jaxmb_imports_nothing_slow():
    assert imported_after("import jaxmb; done = 0") == (0, set())


def test_identification_imports_no_statistics():
    """`scipy.signal` and `scipy.stats` take half a second, optax 0.06 s, and few tests need them; nor evosax before a
    search."""
    code = "import sys, jaxmb; jaxmb.identify(jaxmb.load_study('validation-3r')); "
    code += "done = [name for name in ('scipy.signal', 'scipy.stats', 'optax', 'evosax') if name in sys.modules]"
    assert imported_after(code)[0] == []


def test_optimizers_are_imported_at_first_use():
    """`scipy.optimize`, `scipy.integrate` and `scipy.spatial` take a fifth of a second; modes are paired without."""
    code = "import sys; import jaxmb.identify.assess.identify, jaxmb.identify.assess.saved; "
    code += "from jaxmb.response.modal import paired_modes; assert paired_modes([1.0, 2.0], [2.0]) == [(1, 0)]; "
    code += "done = [name for name in ('scipy.optimize', 'scipy.integrate', 'scipy.spatial') if name in sys.modules]"
    assert imported_after(code)[0] == []


def test_inspection_without_pictures_imports_no_matplotlib():
    done, slow = imported_after("from jaxmb.cli import main; done = main(['inspect', 'validation-3r'])")
    assert (done, "matplotlib" in slow) == (0, False)


def test_names_are_imported_by_a_star():
    assert imported_after("from jaxmb import *; done = int(callable(identify) and callable(mac))")[0] == 1


def test_answers_that_need_no_computing_import_nothing_slow(tmp_path):
    test = '[[test]]\nkind = "frf"\nfile = "a.npz"\n[free]\n"stiffness.*" = { lower = 1.0, upper = 2.0 }\n'
    wrong_key, wrong_machine, no_toml = (tmp_path / f"{name}.toml" for name in ("key", "machine", "no-toml"))
    wrong_key.write_text(f'machine = "kuka-kr90"\nmashine = "kuka"\n{test}')
    wrong_machine.write_text(f'machine = "kuka-kr9"\n{test}')
    no_toml.write_text("machine =")
    commands = [
        (["--help"], 0), (["--version"], 0), (["studies"], 0), (["identify", "--help"], 0), (["map", "--help"], 0),
        (["identify", "no-such-study"], 2), (["identify", "kr90-modelled", "--no-such-option"], 2),
        (["identify", str(wrong_key)], 2), (["inspect", str(wrong_machine)], 2), (["inspect", str(no_toml)], 2),
        (["predict", "no-such-machine"], 2), (["map", "no-such-machine"], 2), (["modal", "no-such-file.uff"], 2),
    ]  # fmt: skip
    run = f"from jaxmb.cli import main; done = [main(arguments) for arguments, _ in {commands!r}]"
    assert imported_after(run) == ([code for _, code in commands], set())
