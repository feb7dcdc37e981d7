"""Negative controls by construction: what compiled to the same machine code cannot have become slower by it.

Where such a cell is called slower or faster all the same, the instrument or something beside the kernel
(torch, the driver, another user of the GPU) moved, and no other timing of that comparison is worth more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from matrix.model import Stage
from matrix.records import Verdict
from matrix.speed import SpeedReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records import VerdictRecord

# What the tuner did is no such control: it may launch another of the configurations that are all identical.
_MOVED = (SpeedReason.SLOWER, SpeedReason.FASTER)
_NAMED = 3


def distrusted(rows: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    """The timing rows that moved though the code of the same cell is identical."""
    same = {_place(row) for row in rows if row.stage == Stage.COMPILE and row.verdict is Verdict.IDENTICAL}
    return [row for row in rows if row.stage == Stage.TIMING and row.reason_code in _MOVED and _place(row) in same]


def distrust(rows: Sequence[VerdictRecord]) -> str:
    """Why the timings of these rows cannot be trusted; empty where nothing speaks against them."""
    found = distrusted(rows)
    if not found:
        return ""
    by_case: dict[str, list[VerdictRecord]] = defaultdict(list)
    for row in found:
        by_case[row.case].append(row)
    named = [f"{case} ({members[0].reason_code})" for case, members in by_case.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"{', '.join(named[:_NAMED])}{more}: identical machine code, and still another time. "
        "Something beside the kernels moved: these timings cannot be trusted"
    )


def _place(row: VerdictRecord) -> tuple[str, ...]:
    return row.run_id, row.baseline, row.candidate, row.target, row.case, row.params
