"""What kind of thing a change is about: correctness, compilation, generated code, speed, launches, compile time.

A reader acts on the kind: wrong values stop a release, a code risk asks for a measurement, a compile time for
patience. So the kinds have words of their own, and so has which way a finding points.
"""

from __future__ import annotations

import enum

from matrix.judging.changes import CodeReason
from matrix.judging.speed import SpeedReason
from matrix.model import Stage


class Kind(enum.StrEnum):
    """The ``kind`` column of a verdict row."""

    IMPORT = "import"
    CORRECTNESS = "correctness"
    COMPILE = "compile"
    CODE_RISK = "code risk"
    SPEED = "speed"
    LAUNCH_COST = "launch cost"
    COMPILE_TIME = "compile time"


_OF_REASONS = {
    **{str(reason): Kind.CODE_RISK for reason in CodeReason},
    **{str(reason): Kind.SPEED for reason in SpeedReason if reason is not SpeedReason.INVALID},
    str(CodeReason.COMPILE_TIME_MULTIPLIED): Kind.COMPILE_TIME,
    str(CodeReason.COMPILE_TIME_CUT): Kind.COMPILE_TIME,
    str(SpeedReason.LAUNCH_SLOWER): Kind.LAUNCH_COST,
    str(SpeedReason.LAUNCH_FASTER): Kind.LAUNCH_COST,
}
_OF_STAGES = {
    Stage.IMPORT: Kind.IMPORT,
    Stage.COMPILE: Kind.COMPILE,
    Stage.INTERPRET: Kind.CORRECTNESS,
    Stage.CORRECTNESS: Kind.CORRECTNESS,
    Stage.TIMING: Kind.SPEED,
    Stage.COUNTERS: Kind.SPEED,
}
_GAPS = frozenset(("missing", "not_run", "too_short", "invalid", "interrupted"))


def kind_of(reason_code: str, stage: str) -> Kind:
    """By the reason, and for outcomes by the stage: what fails while it is timed fails at running."""
    if reason_code in _OF_REASONS:
        return _OF_REASONS[reason_code]
    if stage in (Stage.TIMING, Stage.COUNTERS) and reason_code not in _GAPS:
        return Kind.CORRECTNESS
    return _OF_STAGES[Stage(stage)]
