"""Recall over the documented regressions, and false alarms over the built-in cases and neighbouring releases.

    python -P tests/benchmarks/catalogue_recall.py

Runs in the folder it is started in. What a step between two neighbouring releases flags is no false alarm for being
flagged: the list is printed, so that each can be looked at. Up to 3.3.1 sm_80 and sm_90 alone are compared, for lack
of Blackwell before.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

from matrix.judging.compare import judge_again
from matrix.judging.findings import REGRESSIONS
from matrix.judging.thresholds import Thresholds
from matrix.model import Stage
from matrix.records import Verdict

SERIES = (
    (("3.0.0", "3.1.0", "3.2.0", "3.3.1"), "sm_80,sm_90"),
    (("3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"), "sm_80,sm_90,sm_100,sm_120"),
)


def matrix(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-P", "-m", "matrix", "run", *arguments, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    found = matrix("--catalogue")
    print(f"recall: {found['flagged']} of {found['reproduced']} reproduced rows flagged")
    compared = flagged = 0
    for versions, targets in SERIES:
        run = matrix("--baseline", versions[0], "--candidate", ",".join(versions[1:]), "--targets", targets,
                     "--stages", "import,compile")  # fmt: skip
        folder = Path(str(run["folder"]))
        ids = json.loads((folder / "run.json").read_text())["request"]
        names = [ids["baseline"], *ids["candidates"]]
        for before, after in itertools.pairwise(names):
            judged, _ = judge_again([folder], before, [after], Thresholds())
            rows = [v for v in judged.verdicts if v.stage == Stage.COMPILE]
            rows = [v for v in rows if v.verdict not in {Verdict.INCOMPLETE, Verdict.UNSUPPORTED}]
            red = [v for v in rows if v.verdict in REGRESSIONS]
            print(f"{before} to {after}: {len(red)} of {len(rows)} cells flagged")
            for verdict in red:
                print(f"    {verdict.target} {verdict.case}:{verdict.params}  {verdict.reason_code}: {verdict.change}")
            compared, flagged = compared + len(rows), flagged + len(red)
    print(f"flagged between neighbouring releases: {flagged} of {compared} cells ({flagged / compared:.1%})")


if __name__ == "__main__":
    main()
