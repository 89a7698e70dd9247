"""Wheel and source distribution, checked, and the wheel in an empty environment of each version of Python.

Builds both into `dist/`, checks their metadata with twine, installs the wheel without anything else, identifies a study
and predicts a machine there, and lists the size of the installation by package and what evosax alone brings along.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
SMOKE = """
import sys
from pathlib import Path
import jaxmb
assert "evosax" not in sys.modules and "flax" not in sys.modules
result = jaxmb.identify(jaxmb.load_study("validation-3r"), seed=1)
assert result.converged, result.status
assert "evosax" not in sys.modules and "flax" not in sys.modules
model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
h = jaxmb.frf(model, jaxmb.reference_posture(model), [10.0, 20.0])
assert h.shape == (2, 3, 3)
print("jaxmb", jaxmb.__version__, "Python", sys.version.split()[0])
"""
SIZES = """
import importlib.metadata as im, json, re
from pathlib import Path
name = lambda text: re.sub(r"[-_.]+", "-", text).lower()
size, needs = {}, {}
for d in im.distributions():
    key = name(d.metadata["Name"])
    size[key] = sum(p.stat().st_size for f in d.files or [] if (p := Path(d.locate_file(f))).is_file())
    needs[key] = [name(re.split(r"[ ;<>=!~\\[(]", r)[0]) for r in d.requires or [] if "extra ==" not in r]
def reached(start, without):
    found, todo = set(), [start]
    while todo:
        key = todo.pop()
        if key in size and key not in found and key != without:
            found.add(key)
            todo += needs[key]
    return found
every, rest = reached("jaxmb", None), reached("jaxmb", "evosax")
print(json.dumps({"size": {k: size[k] for k in every}, "of_evosax": sorted(every - rest)}))
"""


def run(*command: str | Path, **options: object) -> str:
    """Output of a command, which must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def interpreter(version: str) -> str | None:
    """Path of an interpreter, on the path or of pyenv."""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return found
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    return str(of_pyenv[-1]) if of_pyenv else None


def tried(wheel: Path, python: str) -> str:
    """What a wheel reports in an empty environment after its smoke test, and the size of the installation."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", Path(folder) / "env")
        own = Path(folder) / "env" / "bin"
        run(own / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        run(own / "python", "-m", "pip", "check")
        said = run(own / "python", "-c", SMOKE, cwd=folder).strip()
        run(own / "jaxmb", "predict", "kuka-kr90", "--out", "out", cwd=folder)
        if not (Path(folder) / "out" / "frf.npz").is_file():
            sys.exit("jaxmb predict wrote no frf.npz")
        found = json.loads(run(own / "python", "-c", SIZES))
    size = found["size"]
    whole, of_evosax = sum(size.values()), sum(size[name] for name in found["of_evosax"])
    largest = sorted(size, key=lambda name: -size[name])[:8]
    listed = ", ".join(f"{name} {size[name] / 1e6:.0f}" for name in largest)
    return (
        f"{said}: smoke test passed; {len(size)} packages, {whole / 1e6:.0f} MB (largest, MB: {listed});"
        f" {len(found['of_evosax'])} packages and {of_evosax / 1e6:.0f} MB come with evosax alone"
        f" ({', '.join(found['of_evosax'])})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="versions of Python to try the wheel in")
    options = parser.parse_args()
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", dist, ROOT)
    files = sorted(dist.iterdir())
    plain = os.environ | {"NO_COLOR": "1", "COLUMNS": "200"}
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *files, env=plain)
    print(" ".join(checked.replace(f"{dist}/", "").split()))
    (wheel,) = dist.glob("*.whl")
    for path in files:
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    for version in options.python:
        python = interpreter(version)
        print(f"Python {version}: not found" if python is None else tried(wheel, python), flush=True)


if __name__ == "__main__":
    main()
