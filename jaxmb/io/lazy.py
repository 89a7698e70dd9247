"""Names of a package that are imported when they are first used, so that importing the package is fast (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose public names are imported at their first use.

    In the package's `__init__.py`:

        __getattr__, __dir__ = lazy(__name__, {"find_zones": "jaxmb.maps.zones"})

    with the same names in `__all__` and, for type checkers, real imports of them under `if TYPE_CHECKING:`. A name that
    is also a module or sub-package of the package does not work: importing that one binds the name to it.

    Args:
        package: `__name__` of the package.
        modules: by public name the full name of the module that defines it under the same name.
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without coming here
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return __getattr__, __dir__
