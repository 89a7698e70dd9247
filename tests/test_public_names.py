"""Public names: there for Python and for type checkers, documented, and enough for what is written with jaxmb."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BY_SUBJECT = ("deflections", "estimation", "fitting", "laws", "maps", "plan", "report", "results", "studies")
PACKAGES = ("jaxmb", *(f"jaxmb.{name}" for name in BY_SUBJECT))
IMPORT = re.compile(r"^\s*(?:from|import) (jaxmb(?:\.\w+)*)", re.MULTILINE)


def tree_of(package):
    return ast.parse(Path(str(importlib.import_module(package).__file__)).read_text())


def modules_of(package):
    """By name the module in which a package says that it is defined."""
    body = tree_of(package).body
    call = next(
        node.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "lazy"
    )
    own = {node.name: package for node in body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    return ast.literal_eval(call.args[1]) | own


@pytest.mark.parametrize("package", PACKAGES)
def test_all_names_are_there_for_python_and_for_type_checkers(package):
    seen_by_checkers = {
        (alias.name, node.module)
        for block in tree_of(package).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module, defined_in = importlib.import_module(package), modules_of(package)
    assert {pair for pair in defined_in.items() if pair[1] != package} <= seen_by_checkers
    assert sorted(defined_in) == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'identity'"):
        _ = module.identity


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
        inside = {path.stem for path in folder.parent.iterdir()} if folder.name == "__init__.py" else set()
        assert not inside & set(modules_of(package))


def test_what_is_written_with_jaxmb_imports_public_names():
    """Documents, notebooks and experiments import from jaxmb and its subjects, and nothing from further inside."""
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.py"), *ROOT.glob("experiments/*/*")]
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        if path.suffix in (".md", ".py")
        for name in IMPORT.findall(path.read_text())
    }
    assert {line.split(": ")[1] for line in found} >= {"jaxmb", "jaxmb.deflections", "jaxmb.maps"}
    assert [line for line in sorted(found) if line.split(": ")[1] not in PACKAGES] == []
