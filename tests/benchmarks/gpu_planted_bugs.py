"""The planted-bug suite on one GPU: how many bugs are caught, and how many correct controls pass.

    PYTHONPATH=. python tests/benchmarks/gpu_planted_bugs.py [--out FOLDER]

The same cases as the suite runs under the interpreter (tests/planted). A control passes where no dimension
fails at any of its points; *invalid*, where the reference itself is ill-conditioned, is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from gpu_crew import collected, workers

PLANTED = Path(__file__).resolve().parent.parent / "planted"
FINE = ("passed", "invalid")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    asked = parser.parse_args()
    counts: Counter[tuple[str, bool]] = Counter()
    rows = []
    with workers("worker") as bench:
        for path, case in collected(sorted(PLANTED.glob("*.py"))):
            kind = "bug" if "bug" in case["tags"] else "control"
            failures = [each for point in case["points"]["correctness"] if (each := _failure(bench, path, case, point))]
            counts[kind, bool(failures)] += 1
            rows.append({"case": case["name"], "kind": kind, "failures": failures})
            print(f"{kind:8} {case['name']:34} {'; '.join(failures)[:200] or 'passed'}", flush=True)
    bugs, controls = (counts[kind, True] + counts[kind, False] for kind in ("bug", "control"))
    print(f"bugs caught: {counts['bug', True]} of {bugs}; controls passed: {counts['control', False]} of {controls}")
    (asked.out / "planted-bugs.json").write_text(json.dumps(rows, indent=1))


def _failure(bench: Any, path: Path, case: dict[str, Any], point: dict[str, Any]) -> str:
    request = {"op": "correctness", "path": str(path), "case": case["name"], "params": point}
    part = bench.asks["worker"](request)
    return "" if part["outcome"] in FINE else f"{point}: {part['outcome']}: {part['reason']}"


if __name__ == "__main__":
    main()
