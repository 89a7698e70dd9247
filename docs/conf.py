"""Configuration of the documentation site. Sources are the Markdown files of the whole repository, so that links of a
page work on a code host and on the site alike; `make docs` builds it."""

import importlib.metadata
import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / "site"), str(ROOT)]

import api_pages  # noqa: E402

os.environ.setdefault("MPLBACKEND", "Agg")
api_pages.write(DOCS / "api")

project = "jaxmb"
author = "the jaxmb authors"
copyright = author
release = version = importlib.metadata.version("jaxmb")
root_doc = "docs/index"
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "pages",
    "offline_mathjax",
]
include_patterns = ["CHANGELOG.md", "CONTRIBUTING.md", "docs/**", "experiments/*/README.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "jaxmb",
    "notebooks",
    "results",
    "tests",
    "docs/_build",
    "docs/site",
    "docs/gallery/**.ipynb",
    "docs/gallery/**.py",
    "docs/gallery/**.md5",
]
nitpicky = True
# Types of other packages have no page here.
nitpick_ignore_regex = [(r"py:.*", r".*")]
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autosummary_generate = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
default_role = "code"
napoleon_custom_sections = [("Source", "notes")]

sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "notebooks")],
    "gallery_dirs": [str(DOCS / "gallery")],
    # The comparison of optimizers takes minutes and has an experiment of its own.
    "filename_pattern": r"/(?!optimizers)\w+\.py$",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "plot_gallery": "True",
}

html_theme = "furo"
html_title = f"jaxmb {release}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["site/root"]
copybutton_prompt_text = "$ "
