"""Negative controls by construction: what is launched as the same machine code cannot have become slower by it.

Where such a cell is called slower or faster all the same, something beside the kernel moved: torch, the driver,
another user of the GPU, or the instrument is noisier than its test believes. That row is contradicted, and never
decides. Whether the *other* calls of that comparison are worth more is a question of how many:

The controls measure how often a cell that did not change is called. ``k`` of ``m`` controls called, the other
``n`` cells hold some ``n * k / m`` false calls. Where that is more than the promised share
(``Thresholds.false_discovery_rate``) of the calls among them, the promise is broken by the run's own evidence and
no timing of the comparison decides. So one outlier among a thousand controls costs one row where sixty other cells
are called, and the run where two are. The run says how many of how many, and how sure that share is (the exact
binomial interval of Clopper and Pearson, 95 %).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from matrix.judging.speed import Speed
from matrix.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.records import VerdictRecord

    Comparison = tuple[str, str, str]  # run, baseline, candidate

CALLED = (Speed.SLOWER, Speed.FASTER)
TESTED = (*CALLED, Speed.EQUIVALENT, Speed.UNDECIDED)
_NAMED = 3


class Quiet(NamedTuple):
    """Timed cells that nothing was called of, by number: negative controls, and others."""

    controls: int = 0
    others: int = 0


NONE_QUIET: Mapping[Comparison, Quiet] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The timed cells of one comparison: negative controls, and the ``others`` with what was called among them."""

    tested: int
    contradicted: tuple[VerdictRecord, ...]
    others: int
    called: int
    promised: float

    @property
    def false_calls(self) -> float:
        """How many of the other cells' calls are false, were they called as often as the controls."""
        return self.others * len(self.contradicted) / self.tested if self.tested else 0.0

    @property
    def broken(self) -> bool:
        """Whether they say that more calls are false than was promised."""
        return bool(self.contradicted) and (not self.called or self.false_calls > self.promised * self.called)

    @property
    def said(self) -> str:
        """How many of how many, which, and what it means."""
        if not self.contradicted:
            return ""
        named = dict.fromkeys(f"{row.case} ({row.speed})" for row in self.contradicted)
        listed = ", ".join(list(named)[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")
        low, high = share_interval(len(self.contradicted), self.tested)
        text = (
            f"{listed}: identical machine code, and still another time, in {len(self.contradicted)} of {self.tested} "
            f"such cells ({_percent(low)} to {_percent(high)} of cells)"
        )
        if not self.broken:
            expected = f"some {self.false_calls:.1f} of the other {self.called} calls may be as false"
            return f"{text}: {expected}, no more than promised"
        return f"{text}. Something beside the kernels moved: these timings cannot be trusted"


def controls(rows: Iterable[VerdictRecord], quiet: Quiet | None = None) -> Controls:
    """Of the rows of one comparison; ``quiet`` are those that are not among them."""
    timed = [row for row in rows if row.stage == Stage.TIMING and row.speed in TESTED]
    own = [row for row in timed if row.negative_control]
    others = [row for row in timed if not row.negative_control]
    quiet = quiet or Quiet()
    return Controls(
        tested=len(own) + quiet.controls,
        contradicted=tuple(row for row in own if row.speed in CALLED),
        others=len(others) + quiet.others,
        called=sum(row.speed in CALLED for row in others),
        promised=_promised(timed),
    )


def by_comparison(
    rows: Iterable[VerdictRecord], quiet: Mapping[Comparison, Quiet] = NONE_QUIET
) -> list[tuple[list[VerdictRecord], Controls]]:
    """The rows of each comparison with its controls."""
    found: dict[Comparison, list[VerdictRecord]] = defaultdict(list)
    for row in rows:
        found[row.run_id, row.baseline, row.candidate].append(row)
    return [(members, controls(members, quiet.get(name))) for name, members in found.items()]


def distrust(rows: Sequence[VerdictRecord]) -> str:
    """Why the timings of these rows cannot be trusted; empty where nothing speaks against them."""
    return ". ".join(dict.fromkeys(found.said for _, found in by_comparison(rows) if found.broken))


def contradictions(rows: Sequence[VerdictRecord]) -> str:
    """What was called though its code is identical, where the other timings stand all the same."""
    told = (found.said for _, found in by_comparison(rows) if found.contradicted and not found.broken)
    return ". ".join(dict.fromkeys(told))


def believed(rows: Sequence[VerdictRecord], quiet: Mapping[Comparison, Quiet] = NONE_QUIET) -> list[VerdictRecord]:
    """The rows that nothing speaks against: no contradicted one, and no timing of a comparison with broken promises."""
    left: list[VerdictRecord] = []
    for members, found in by_comparison(rows, quiet):
        denied = {id(row) for row in found.contradicted}
        left += [row for row in members if id(row) not in denied and not (found.broken and row.stage == Stage.TIMING)]
    return left


def share_interval(hits: int, tries: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where the share lies that shows ``hits`` in ``tries`` (Clopper and Pearson)."""
    from scipy.special import betaincinv  # noqa: PLC0415 - only where there is something to say

    rest = (1 - confidence) / 2
    low = float(betaincinv(hits, tries - hits + 1, rest)) if hits else 0.0
    high = float(betaincinv(hits + 1, tries - hits, 1 - rest)) if hits < tries else 1.0
    return low, high


def _promised(timed: Sequence[VerdictRecord]) -> float:
    said = {row.parameters for row in timed if row.parameters}
    rates = [json.loads(parameters)["false_discovery_rate"] for parameters in said]
    return max(rates, default=0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
