"""Rows of no cell: what a whole run lacks before it may decide anything."""

from __future__ import annotations

from typing import Any

from matrix.judging.changes import Change, Direction, encode
from matrix.records import Verdict, VerdictRecord

_SEVERITY = 8


def lack(reason_code: str, text: str, cause: str, **spot: Any) -> VerdictRecord:
    """An incomplete row; ``spot`` is where it stands: run, comparison, target, stage, ``candidate_cell_id`` ..."""
    change = Change(reason_code=reason_code, direction=Direction.NEUTRAL, severity=_SEVERITY, text=text, cause=cause)
    return VerdictRecord(
        **spot,
        case="",
        params="",
        verdict=Verdict.INCOMPLETE,
        reason_code=reason_code,
        change=change.said,
        severity=_SEVERITY,
        detail=encode((change,)),
    )
