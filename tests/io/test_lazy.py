"""Names of a package are imported when they are used, and not before."""

import sys
import types

import pytest

from jaxmb.io.lazy import lazy


@pytest.fixture
def package(monkeypatch):
    """A package whose only public name is `Fraction` of the standard library."""
    module = types.ModuleType("some_package")
    monkeypatch.setitem(sys.modules, "some_package", module)
    vars(module)["__getattr__"], vars(module)["__dir__"] = lazy("some_package", {"Fraction": "fractions"})
    return module


def test_a_name_is_imported_at_its_first_use(package, monkeypatch):
    monkeypatch.delitem(sys.modules, "fractions", raising=False)
    assert "Fraction" in dir(package)
    assert "fractions" not in sys.modules
    assert package.Fraction(1, 2) + package.Fraction(1, 2) == 1
    assert "fractions" in sys.modules
    assert vars(package)["Fraction"] is package.Fraction


def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="module 'some_package' has no attribute 'Fractoin'"):
        _ = package.Fractoin
