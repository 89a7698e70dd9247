"""The documentation site: every public name is described, and all pages build without a warning."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxmb

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import api_pages  # noqa: E402  (part of the site, not of the package)


def test_every_public_name_is_in_the_api_reference(tmp_path: Path) -> None:
    api_pages.write(tmp_path)
    text = "\n".join(path.read_text() for path in tmp_path.glob("*.rst"))
    described = re.findall(r"^\.\. (?:auto\w+|py:data):: jaxmb\.(?:\w+\.)?(\w+)$", text, re.MULTILINE)
    assert len(described) == len(set(described))
    assert set(described) == {name for name in api_pages.links() if "." not in name}
    public = {name for name in dir(jaxmb) if callable(getattr(jaxmb, name)) and not name.startswith("_")}
    assert public <= set(described)


def test_pages_build_without_a_warning(tmp_path: Path) -> None:
    """All pages with their links; notebooks are not run."""
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("myst_parser") is None:
        pytest.skip("Sphinx is not installed: pip install '.[docs]'")
    options = shlex.split("-m sphinx -W --keep-going -n -q -b dummy -D plot_gallery=0 -c docs .")
    done = subprocess.run([sys.executable, *options, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
