"""Pages of the API reference: one for each subject, with a table of its public names and their docstrings."""

import ast
import functools
import importlib
import inspect
import itertools
import sys
from pathlib import Path
from types import ModuleType

PARTS = {
    "machine": ("Machines and files", ("jaxmb.machine", "jaxmb.io")),
    "mechanics": ("Mechanics", ("jaxmb.mechanics",)),
    "response": ("Responses", ("jaxmb.response",)),
    "measurement": ("Measurements", ("jaxmb.measurement",)),
    "identification": ("Identification", ("jaxmb.identify",)),
    "others": ("Other names", ("",)),
}
"""Pages of the names of `jaxmb` itself: title, and the packages that define them."""
SUBJECTS = ("studies", "results", "plan", "deflections", "laws", "maps", "estimation", "fitting", "report")


def public_names(module: ModuleType) -> tuple[str, ...]:
    """Public names of a module, without the modules among them."""
    source = Path(str(module.__file__))
    stub = source.with_suffix(".pyi")
    imported = [
        n for n in ast.parse((stub if stub.exists() else source).read_text()).body if isinstance(n, ast.ImportFrom)
    ]
    names = {alias.name for node in imported for alias in node.names}
    return tuple(sorted(name for name in names if not inspect.ismodule(getattr(module, name))))


@functools.cache
def links() -> dict[str, str]:
    """Full name under which each public name is described, by the name alone and by its full names."""
    found: dict[str, str] = {}
    for module in (importlib.import_module(name) for name in ("jaxmb", *(f"jaxmb.{subject}" for subject in SUBJECTS))):
        for name in public_names(module):
            full_name = f"{module.__name__}.{name}"
            found[full_name] = found.setdefault(name, full_name)
    return found


def _text_of_data(name: str, value: object) -> str:
    """Docstring of a constant: the text below its assignment."""
    for module in [m for n, m in sys.modules.items() if n.startswith("jaxmb.") and vars(m).get(name) is value]:
        body = ast.parse(Path(str(module.__file__)).read_text()).body
        for node, below in itertools.pairwise(body):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            is_assigned = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if is_assigned and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return " ".join(str(below.value.value).split())
    raise ValueError(f"{name} has no docstring, expected one below its assignment")


def _entry(module: ModuleType, name: str) -> list[str]:
    value, full_name = getattr(module, name), f"{module.__name__}.{name}"
    if inspect.isclass(value):
        return [f".. autoclass:: {full_name}", "   :members:", ""]
    if callable(value):
        return [f".. autofunction:: {full_name}", ""]
    return [f".. py:data:: {full_name}", "", f"   {_text_of_data(name, value)}", ""]


def _page(title: str, text: str, module: ModuleType, names: list[str]) -> list[str]:
    described = [name for name in names if callable(getattr(module, name))]
    table = [".. autosummary::", "", *(f"   {module.__name__}.{name}" for name in described), ""]
    entries = [line for name in names for line in _entry(module, name)]
    return [title, "=" * len(title), "", text, "", *(table if described else []), *entries]


def _pages_of_package() -> dict[str, list[str]]:
    package = importlib.import_module("jaxmb")
    names: dict[str, list[str]] = {part: [] for part in PARTS}
    for name in public_names(package):
        source = getattr(getattr(package, name), "__module__", None) or ""
        names[next(part for part, (_, where) in PARTS.items() if source.startswith(where))].append(name)
    text = "Names of the package ``jaxmb`` itself."
    return {part: _page(PARTS[part][0], text, package, names[part]) for part in PARTS if names[part]}


def _page_of_subject(subject: str) -> list[str]:
    module = importlib.import_module(f"jaxmb.{subject}")
    names = public_names(module)
    own = [name for name in names if links()[name] == f"jaxmb.{subject}.{name}"]
    text = (inspect.getdoc(module) or "").replace("`", "``")
    if shared := [name for name in names if name not in own]:
        text += "\n\nAlso here: " + ", ".join(f":py:obj:`{name} <{links()[name]}>`" for name in shared) + "."
    return _page(f"jaxmb.{subject}", text, module, own)


def write(folder: Path) -> None:
    """Write the pages; a page that has not changed keeps its time, so that Sphinx does not read it again."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = _pages_of_package() | {subject: _page_of_subject(subject) for subject in SUBJECTS}
    pages["index"] = [
        "API reference",
        "=============",
        "",
        "Every public name, from its docstring. ``jaxmb`` has the names that most programs need, its modules further",
        "names by subject. Quantities are in SI units and angles in radians unless the name of an argument says",
        "otherwise; ``q`` is the vector of coordinates of a machine.",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *(f"   {name}" for name in pages),
        "",
    ]
    for name, lines in pages.items():
        path, text = folder / f"{name}.rst", "\n".join(lines)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
