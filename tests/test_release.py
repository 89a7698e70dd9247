"""Distributions: what they hold, and their version with and without the history of the repository."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def built(folder: Path, out: Path) -> tuple[Path, Path]:
    """Wheel and source distribution of a folder, built in the environment of the tests."""
    for kind in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(out)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Of a copy without history, as a downloaded archive is; built files and caches are left behind."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the files of the repository are not known without git")
    folder = tmp_path_factory.mktemp("archive")
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.split("\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return built(folder, tmp_path_factory.mktemp("dist"))


def test_version_without_history(distributions):
    for path in distributions:
        assert re.match(r"jaxmb-0\.1\.0\.dev0[.-]", path.name), path.name


def test_contents_of_the_wheel(distributions):
    """All modules, stubs and descriptions of the package, C++ source, parts of pages and licence, and nothing else."""
    names = set(zipfile.ZipFile(distributions[0]).namelist())
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "jaxmb").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {name for name in names if name.startswith("jaxmb/")} == files
    assert {Path(name).suffix for name in files} <= {
        ".py", ".pyi", ".typed", ".toml", ".cpp", ".css", ".html", ".js", "",
    }  # fmt: skip
    others = {name.split("/", 1)[1] for name in names if not name.startswith("jaxmb/")}
    assert others == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert "jaxmb/library/machines/kuka-kr90.toml" in names


def test_contents_of_the_source_distribution(distributions):
    with tarfile.open(distributions[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {name.split("/")[0] for name in names} == {
        ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md",
        "constraints.txt", "docs", "jaxmb", "notebooks", "pyproject.toml", "tests",
    }  # fmt: skip


def test_metadata(distributions):
    """What `twine check` requires, and versions of Python and platforms that are tested."""
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, distributions)],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout
    text = zipfile.ZipFile(distributions[0]).read("jaxmb-0.1.0.dev0.dist-info/METADATA").decode()
    for expected in ("Requires-Python: >=3.11", "License-Expression: Apache-2.0", "Python :: 3.13", "POSIX :: Linux"):
        assert expected in text
    extras = set(re.findall(r"^Provides-Extra: (\S+)", text, re.MULTILINE))
    assert {"docs", "mujoco", "notebooks", "report", "test"} <= extras


def test_changelog_begins_with_the_next_version():
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)", first[1])
