"""Identifies the studies that `write.py` wrote and judges the causes that their results name.

    python experiments/diagnosis/judge.py FOLDER [--out results/diagnosis.jsonl] [--only WORDS] [--every N]

A result names the model-error hypotheses of its metrics, or else the sentences among its doubts that name a cause. A
cause is right if it contains all words of the truth (the quantity, and the link, joint, channel or test that is
affected) and none of the words of another cause. Precision: right causes over all causes that are named for erroneous
studies; each of a group counts 1 / size. Recall: erroneous studies with a right cause, counted the same way.
"""

import argparse
import json
import re
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

MARKS = ("would explain", "is a column in another unit", "the residual contains friction", "against the angles")
"""Parts of doubts that name a cause."""


def causes(result: Any) -> list[str]:
    """Causes that a result names."""
    named = [error.text for error in result.metrics.model_errors or ()]
    if named:
        return named
    found = []
    for doubt in result.doubts:
        if "off is" in doubt:
            found.append(doubt.split("off is", 1)[1].split("; correct", 1)[0])
        for mark in MARKS:
            if mark in doubt and not found:
                found.append(doubt)
    return found


def right(text: str, truth: dict[str, Any]) -> bool:
    """Whether a cause is the true one."""

    def has(word: str) -> bool:
        return re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}", text) is not None

    return all(has(word) for word in truth["words"]) and not any(has(word) for word in truth.get("without", ()))


def judged(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Outcome of a study."""
    began = time.monotonic()
    try:
        study = jaxmb.load_study(folder / "study.toml")
        result = jaxmb.identify(study)
    except (ValueError, NotImplementedError) as error:
        named, truth = [str(error)], case["truth"]
        is_right = truth is not None and right(named[0], truth | {"words": truth.get("refused", truth["words"])})
        return {**case, "name": folder.name, "refused": True, "causes": named, "right": is_right, "flagged": True,
                "beyond": [], "seconds": time.monotonic() - began}  # fmt: skip
    own = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine(folder / "machine.toml")))
    if (folder / "values.json").exists():
        own = json.loads((folder / "values.json").read_text())
    beyond = [
        name
        for name, found in result.parameters.items()
        if found.identifiable == "yes"
        and found.interval_95 is not None
        and name in own
        and not found.interval_95[0] <= own[name] <= found.interval_95[1]
    ]
    yes = [name for name, found in result.parameters.items() if found.identifiable == "yes"]
    far = [
        name for name in beyond if abs(result.parameters[name].value - own[name]) > 4.0 * result.parameters[name].std
    ]
    named = causes(result)
    return {
        **case,
        "name": folder.name,
        "status": result.status,
        "causes": named,
        "right": case["truth"] is not None and any(right(text, case["truth"]) for text in named),
        "flagged": bool(result.doubts) or result.status != "converged",
        "doubts": list(result.doubts),
        "beyond": beyond,
        "far": far,
        "yes": len(yes),
        "seconds": time.monotonic() - began,
    }


def summary(outcomes: list[dict[str, Any]]) -> str:
    """Table of precision and recall by kind of test, and of correct studies."""
    lines, groups = [], defaultdict(list)
    for outcome in outcomes:
        groups[outcome["kind"].split()[0] + (" correct" if outcome["truth"] is None else "")].append(outcome)
    groups["all"] = [o for o in outcomes if o["truth"] is not None]
    groups["all correct"] = [o for o in outcomes if o["truth"] is None]
    for kind, own in groups.items():
        if not own:
            continue
        if kind.endswith("correct"):
            flagged, named = sum(o["flagged"] for o in own), sum(bool(o["causes"]) for o in own)
            lines.append(f"{kind:20s} {len(own):4d} studies, {flagged} flagged, {named} with a named cause")
            continue
        named = [o for o in own if o["causes"]]
        hits = sum(1.0 / len(o["causes"]) for o in named if o["right"])
        beyond, yes = sum(len(o["beyond"]) for o in own), sum(o.get("yes", 0) for o in own)
        far = sum(len(o.get("far", ())) for o in own)
        seen = sum(o["flagged"] for o in own)
        lines.append(
            f"{kind:20s} {len(own):4d} studies, {seen} flagged, {len(named)} with a named cause;"
            f" precision {hits / max(len(named), 1):.2f}, recall {hits / len(own):.2f};"
            f" {beyond} of {yes} 'yes' beyond their interval, {far} beyond four standard deviations;"
            f" median {np.median([o['seconds'] for o in own]):.1f} s"
        )
    by_kind = defaultdict(list)
    for o in outcomes:
        if o["truth"] is not None:
            by_kind[o["kind"]].append((1.0 / len(o["causes"]) if o["right"] else 0.0, bool(o["causes"])))
    lines += [f"  {kind:32s} recall {sum(h for h, _ in own):4.1f} of {len(own)}, named {sum(n for _, n in own)}"
              for kind, own in by_kind.items()]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Judge all studies, or a part of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/diagnosis.jsonl"))
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--summary", action="store_true", help="of the outcomes in --out, without judging")
    given = parser.parse_args()
    if not given.summary:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        files = sorted(f for f in (given.folder / "truth").glob("*.json") if given.only in f.stem)[:: given.every]
        with given.out.open("w") as out:
            for file in files:
                outcome = judged(given.folder / file.stem, json.loads(file.read_text()))
                out.write(json.dumps(outcome, default=float) + "\n")
                out.flush()
                mark = "right" if outcome["right"] else ("-" if not outcome["causes"] else "WRONG")
                print(f"{file.stem:50s} {mark:6s} {outcome['seconds']:5.1f} s {outcome['causes'][:4]}", flush=True)
    print(summary([json.loads(line) for line in given.out.read_text().splitlines()]))


if __name__ == "__main__":
    main()
