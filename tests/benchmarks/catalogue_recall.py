"""Recall over the documented regressions, and false alarms over the built-in cases and neighbouring releases.

    python -P tests/benchmarks/catalogue_recall.py [--record kernels/regressions/neighbours.json]

Runs in the folder it is started in. What a step between two neighbouring releases flags is no false alarm for being
flagged: the list is printed, so that each can be looked at, and recorded for docs/catalogue.md. Up to 3.3.1 sm_80 and
sm_90 alone are compared, for lack of Blackwell before.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import subprocess
import sys
from pathlib import Path

from matrix.judging.compare import judge_again
from matrix.judging.findings import REGRESSIONS
from matrix.judging.thresholds import Thresholds
from matrix.model import Stage
from matrix.records import Verdict, VerdictRecord

SERIES = (
    (("3.0.0", "3.1.0", "3.2.0", "3.3.1"), "sm_80,sm_90"),
    (("3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"), "sm_80,sm_90,sm_100,sm_120"),
)


def matrix(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-P", "-m", "matrix", "run", *arguments, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def neighbours() -> tuple[int, list[dict[str, str]]]:
    """How many cells of the built-in cases were compared over all steps, and those that were flagged."""
    compared, flagged = 0, []
    for versions, targets in SERIES:
        run = matrix("--baseline", versions[0], "--candidate", ",".join(versions[1:]), "--targets", targets,
                     "--stages", "import,compile")  # fmt: skip
        folder = Path(str(run["folder"]))
        ids = json.loads((folder / "run.json").read_text())["request"]
        pairs = itertools.pairwise([ids["baseline"], *ids["candidates"]])
        for (before, after), releases in zip(pairs, itertools.pairwise(versions), strict=True):
            judged, _ = judge_again([folder], before, [after], Thresholds())
            rows = [row for row in judged.verdicts if row.stage == Stage.COMPILE and row.verdict != Verdict.UNSUPPORTED]
            complete = [row for row in rows if row.verdict != Verdict.INCOMPLETE]
            red = [_flagged(row, releases) for row in complete if row.verdict in REGRESSIONS]
            lacking = f", {len(rows) - len(complete)} incomplete" if len(rows) > len(complete) else ""
            print(f"{before} to {after}: {len(red)} of {len(complete)} cells flagged{lacking}")
            for each in red:
                print(f"    {each['cell']}  {each['reason_code']}: {each['change']}")
            compared, flagged = compared + len(complete), flagged + red
    return compared, flagged


def _flagged(row: VerdictRecord, releases: tuple[str, str]) -> dict[str, str]:
    return {
        "before": releases[0],
        "after": releases[1],
        "cell": f"{row.target}/{row.case}:{row.params}",
        "reason_code": row.reason_code,
        "change": row.change,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, help="Where what is flagged is written; its list of true ones is kept.")
    record = parser.parse_args().record
    found = matrix("--catalogue")
    print(f"recall: {found['flagged']} of {found['reproduced']} reproduced rows flagged")
    compared, flagged = neighbours()
    print(f"flagged between neighbouring releases: {len(flagged)} of {compared} cells ({len(flagged) / compared:.1%})")
    if record:
        known = json.loads(record.read_text())["true"] if record.exists() else []
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        data = {"day": today, "compared": compared, "flagged": flagged, "true": known}
        record.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
