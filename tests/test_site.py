"""The documentation site: every public name is described, and all pages build without a warning."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxmb
from tests.report.browser import chromium

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


def test_pages_are_no_wider_than_the_window(tmp_path: Path) -> None:
    furo = importlib.util.find_spec("furo")
    if furo is None or furo.origin is None:
        pytest.skip("Furo is not installed: pip install '.[docs]'")
    theme = Path(furo.origin).parent / "theme" / "furo" / "static" / "styles" / "furo.css"
    styles = theme.read_text() + (ROOT / "docs" / "site" / "static" / "site.css").read_text()
    wide = f"<div class='table-wrapper docutils container'><table class='docutils'><td>{100 * 'wide'}</table></div>"
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><style>{styles}</style><body data-state='ready'><div class='page'>"
        "<aside class='sidebar-drawer'></aside><div class='main'><div class='content'><div class='article-container'>"
        f"<article role='main'>{99 * 'text '}{wide}</article></div></div><aside class='toc-drawer'></aside></div></div>"
    )
    with chromium(tmp_path) as tab:
        for width in (400, 800, 1024, 1366, 1440, 1600):
            tab.open(page, width)
            assert tab.run("document.documentElement.scrollWidth") == width
