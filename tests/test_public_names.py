"""Public names: there for Python and for type checkers, documented, and enough for what is written with jaxmb."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import jaxmb

ROOT = Path(__file__).parents[1]
BY_SUBJECT = ("deflections", "estimation", "fitting", "laws", "maps", "plan", "report", "results", "studies")
PACKAGES = ("jaxmb", *(f"jaxmb.{name}" for name in BY_SUBJECT))
IMPORT = re.compile(r"^\s*(?:from|import) (jaxmb(?:\.\w+)*)", re.MULTILINE)


def tree_of(package):
    return ast.parse(Path(str(importlib.import_module(package).__file__)).read_text())


def modules_of(package):
    """By name the module that defines it: from the package's stub, or from the imports of a module."""
    path = Path(str(importlib.import_module(package).__file__))
    stub = path.with_suffix(".pyi")
    body = ast.parse((stub if stub.exists() else path).read_text()).body
    imported = [node for node in body if isinstance(node, ast.ImportFrom) and node.module]
    assert all(alias.asname == alias.name for node in imported for alias in node.names)
    return {
        alias.name: f"{package}.{node.module}" if node.level else str(node.module)
        for node in imported
        for alias in node.names
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_all_names_are_there(package):
    module, defined_in = importlib.import_module(package), modules_of(package)
    for name, inside in defined_in.items():
        assert getattr(module, name) is getattr(importlib.import_module(inside), name)
    assert set(defined_in) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"{package}.* attribute '?identity"):
        _ = module.identity


def test_the_function_that_identifies_is_no_sub_package():
    importlib.import_module("jaxmb.identify.assess.identify")
    assert callable(jaxmb.identify)


def documented(name, module):
    """Whether a module says what a name of it is: in its docstring, or in the text below it."""
    body = tree_of(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) is not None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    return False


@pytest.mark.parametrize("package", PACKAGES)
def test_all_names_are_documented(package):
    assert importlib.import_module(package).__doc__
    assert [name for name, module in modules_of(package).items() if not documented(name, module)] == []


def test_no_name_of_a_subject_is_also_one_of_its_modules():
    """Importing the module would bind the name to it."""
    for package in PACKAGES[1:]:
        folder = Path(str(importlib.import_module(package).__file__))
        inside = {path.stem for path in folder.parent.iterdir()} if folder.stem == "__init__" else set()
        assert not inside & set(modules_of(package))


def test_what_is_written_with_jaxmb_imports_public_names():
    """Documents, notebooks and experiments import from jaxmb and its subjects, and nothing from further inside, but
    for the one that times the ways in which a small solve is done."""
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.py"), *ROOT.glob("experiments/*/*")]
    files.remove(ROOT / "experiments" / "speed" / "kernels.py")
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        if path.suffix in (".md", ".py")
        for name in IMPORT.findall(path.read_text())
    }
    assert {line.split(": ")[1] for line in found} >= {"jaxmb", "jaxmb.deflections", "jaxmb.maps"}
    assert [line for line in sorted(found) if line.split(": ")[1] not in PACKAGES] == []
