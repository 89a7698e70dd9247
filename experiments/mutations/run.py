"""Share of small changes of the package that the short tests notice.

    python experiments/mutations/run.py --count 40 --seed 1

Each mutant has one operator exchanged, sign dropped or number doubled, drawn evenly over five parts of the package. The
short tests of its part run first; if they pass, the whole short suite does. Nothing is changed in the checkout: mutants
are made in a copy, whose compiled programs are kept from mutant to mutant.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "results", "_build", "dist", "__pycache__")
PARTS = {
    "mechanics": (("mechanics", "response"), ("mechanics", "response")),
    "measurement": (("measurement",), ("measurement",)),
    "fit": (
        ("identify/fit", "identify/estimation", "identify/parameters", "identify/regression"),
        ("identify/fit", "identify/estimation", "identify/parameters", "identify/regression"),
    ),
    "experiments": (("identify/experiments",), ("identify/experiments",)),
    "assess": (("identify/assess",), ("identify/assess",)),
}
"""Folders of the package and of the tests of each part."""
EXCHANGED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
LONGEST_S = 1800.0
"""Time of a run of the tests beyond which a mutant counts as noticed: it does not end."""


def changed(node: ast.expr) -> ast.expr | None:
    """The expression with one thing changed; None where there is nothing to change."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in EXCHANGED:
        node.op = EXCHANGED[type(node.op)]()
        return node
    if isinstance(node, ast.Compare) and type(node.ops[0]) in EXCHANGED:
        node.ops[0] = EXCHANGED[type(node.ops[0])]()
        return node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value:
        return ast.Constant(2.0 * node.value)
    return None


def mutate(path: Path, rng: random.Random) -> tuple[int, str, str] | None:
    """Change one expression of a file: its line, before and after; None where the file has none."""
    source = path.read_bytes()
    nodes = list(ast.walk(ast.parse(source)))
    # parts of formatted texts have no positions in the file
    texts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    expressions = [node for node in nodes if isinstance(node, ast.expr) and id(node) not in texts]
    rng.shuffle(expressions)
    for node in expressions:
        before = ast.unparse(node)
        if (after := changed(node)) is not None:
            starts = [0]
            for line in source.splitlines(keepends=True):
                starts.append(starts[-1] + len(line))
            low = starts[node.lineno - 1] + node.col_offset
            high = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            path.write_bytes(source[:low] + f"({ast.unparse(after)})".encode() + source[high:])
            return node.lineno, before, ast.unparse(after)
    return None


def passes(copy: Path, tests: Sequence[str], workers: int) -> bool:
    """Whether the short tests of some folders pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long", "--numprocesses", str(workers), *tests]
    try:
        return subprocess.run(command, cwd=copy, capture_output=True, timeout=LONGEST_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Draw mutants and print each with its outcome."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rng, found = random.Random(args.seed), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "jaxmb"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        if not passes(copy, ["tests"], args.workers):
            raise SystemExit("the short tests fail without any change")
        for number in range(args.count):
            part = list(PARTS)[number % len(PARTS)]
            sources, tests = PARTS[part]
            files = sorted(path for source in sources for path in (copy / "jaxmb" / source).rglob("*.py"))
            began, made = time.perf_counter(), None
            while made is None:
                path = rng.choice(files)
                original = path.read_bytes()
                made = mutate(path, rng)
            line, before, after = made
            own = passes(copy, [f"tests/{test}" for test in tests], args.workers)
            outcome = "survived" if own and passes(copy, ["tests"], args.workers) else "noticed"
            path.write_bytes(original)
            found[part, outcome] += 1
            where = f"{path.relative_to(copy)}:{line}"
            seconds = f"{time.perf_counter() - began:.0f} s"
            print(part, where, before[:60], after[:60], outcome, seconds, sep=" | ", flush=True)
    for part in PARTS:
        print(f"{part}: {found[part, 'noticed']} noticed, {found[part, 'survived']} survived")


if __name__ == "__main__":
    main()
