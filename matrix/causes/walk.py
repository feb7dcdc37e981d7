"""The walk between a good and a bad release: which to try next, and what can be said at the end. Runs nothing.

A release is *bad* where it shows what the bad end shows, *good* where nothing got worse, and *unknown* where it was
not judged or something else got worse: that is stepped over, and the answer says so.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.causes.redcell import reasons
from matrix.judging.speed import SpeedReason
from matrix.model import Outcome, Stage
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matrix.records import VerdictRecord

MOST_ATTEMPTS = 5
ENOUGH = 2  # attempts that must show it, where another one did not
_UNSURE = frozenset((Verdict.INCOMPLETE, Verdict.UNSUPPORTED, Verdict.UNEXPECTED_PASS))
_UNDECIDED = frozenset(
    (SpeedReason.TOO_NOISY, SpeedReason.AT_THRESHOLD, SpeedReason.CYCLES_DISAGREE, SpeedReason.INVALID)
)
# What may come out differently without anything having changed.
_TRANSIENT = frozenset((Outcome.TIMEOUT, Outcome.CRASH, Outcome.OUT_OF_MEMORY, Outcome.COMPILER_ABORT))


class Side(enum.StrEnum):
    """On which side of the change a release is."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One look at one release: what the verdict against the good end said, and in which run."""

    side: Side
    said: str
    run_id: str
    recorded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A release with every look at it."""

    version: str
    attempts: tuple[Attempt, ...]

    @property
    def side(self) -> Side:
        return settled([attempt.side for attempt in self.attempts])

    @property
    def flaky(self) -> bool:
        return len({attempt.side for attempt in self.attempts}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The releases in order from the good end to the bad one, and the steps in the order in which they were made."""

    releases: tuple[str, ...]
    steps: tuple[Step, ...]

    def _of(self, side: Side) -> list[int]:
        return [self.releases.index(step.version) for step in self.steps if step.side is side]

    @property
    def last_good(self) -> str:
        return self.releases[max([0, *self._of(Side.GOOD)])]

    @property
    def first_bad(self) -> str:
        return self.releases[min([len(self.releases) - 1, *self._of(Side.BAD)])]

    @property
    def skipped(self) -> tuple[str, ...]:
        """Releases between the two of which it is not known; the change may have come with any of them."""
        good, bad = self.releases.index(self.last_good), self.releases.index(self.first_bad)
        return self.releases[good + 1 : bad]


def walk(releases: Sequence[str], look: Callable[[str], Step]) -> Path:
    """Halve the way from the first release, which is good, to the last, which is bad, until nothing is between."""
    steps: dict[str, Step] = {}
    good, bad = 0, len(releases) - 1
    while open_ := [place for place in range(good + 1, bad) if releases[place] not in steps]:
        middle = min(open_, key=lambda place: (abs(place - (good + bad) / 2), place))
        step = look(releases[middle])
        steps[step.version] = step
        match step.side:
            case Side.GOOD:
                good = middle
            case Side.BAD:
                bad = middle
            case Side.UNKNOWN:
                pass
    return Path(releases=tuple(releases), steps=tuple(steps.values()))


def settled(sides: Iterable[Side]) -> Side:
    """One side of several looks that need not agree: what was seen twice is there, what was seen once may be noise.

    ============================== =========
    all the same                   that
    bad twice or more              bad
    bad once, and good or unknown  unknown
    good and unknown               good
    ============================== =========
    """
    seen = list(sides)
    if len(set(seen)) == 1:
        return seen[0]
    if Side.BAD in seen:
        return Side.BAD if seen.count(Side.BAD) >= ENOUGH else Side.UNKNOWN
    return Side.GOOD if Side.GOOD in seen else Side.UNKNOWN


def is_open(attempts: Sequence[Attempt], *, steady: bool) -> bool:
    """Whether to look again. A steady stage shows the same again; of the others, two looks must agree, or five."""
    if not attempts or attempts[0].recorded:
        return not attempts
    sides = [attempt.side for attempt in attempts]
    if len(set(sides)) > 1:
        return len(sides) < MOST_ATTEMPTS
    return not steady and len(sides) < ENOUGH


def is_steady(stage: Stage, outcomes: Iterable[str]) -> bool:
    """Whether a look need not be repeated: a compiler that came to an end does so again."""
    return stage in (Stage.IMPORT, Stage.COMPILE) and not _TRANSIENT.intersection(map(str, outcomes))


def side_of(row: VerdictRecord | None, bad: VerdictRecord) -> tuple[Side, str]:
    """On which side a verdict against the good end is, the bad end's being ``bad``; and in words."""
    if row is None:
        return Side.UNKNOWN, "not judged"
    said = row.change or str(row.verdict)
    if row.verdict in _UNSURE or row.reason_code in _UNDECIDED:
        return Side.UNKNOWN, said
    worse = reasons(row)
    if not worse:
        return Side.GOOD, said
    if not worse & reasons(bad):
        return Side.UNKNOWN, f"something else got worse: {said}"
    if _is_far_less(row, bad):
        return Side.UNKNOWN, f"far less than at the bad end, so perhaps for another reason: {said}"
    return Side.BAD, said


def _is_far_less(row: VerdictRecord, bad: VerdictRecord) -> bool:
    """A slow-down nearer to none than to the bad end's, by ratios."""
    if not (row.ratio and bad.ratio and row.ratio > 1 and bad.ratio > 1):
        return False
    return math.log(row.ratio) < math.log(bad.ratio) / 2
