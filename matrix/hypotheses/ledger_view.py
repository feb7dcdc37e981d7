"""The ledger as the report shows it: each hypothesis with what runs said."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.hypotheses.hypothesis import Standing
from matrix.hypotheses.ledger import HYPOTHESIS, RESULT, broken, read_copy
from matrix.hypotheses.trials import overall
from matrix.wording import NOTHING, Look, microseconds, number, phrase, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.hypotheses.ledger import LedgerRow
    from matrix.storage.runfolder import RunFolder

SHOWN = 40
OPEN = Look(word="open", glyph="…", tone="none", meaning="no run has filled it yet")
LOOKS = {
    Standing.CONFIRMED: Look(word="confirmed", glyph="✔", tone="good", meaning="every figure is as it was claimed"),
    Standing.REFUTED: Look(word="refuted", glyph="✖", tone="bad", meaning="a figure is not as it was claimed"),
    Standing.UNDECIDED: Look(word="undecided", glyph="?", tone="missing", meaning="a figure is missing or too close"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One cell's row, figures as texts."""

    workload: str
    run_id: str
    here: bool  # in the run that the report is of
    look: Look
    reason: str
    time: str
    spread: str
    counters: Sequence[str]
    correct: str
    change: str
    several: bool
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One hypothesis; ``trials`` are its first rows, refuted ones first, ``rows`` how many there are."""

    number: int
    written_at: str
    text: str
    revision: str
    look: Look
    trials: Sequence[Trial]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """``broken`` says where the chain of the copy breaks; empty where it holds up to ``hash``."""

    entries: Sequence[Entry]
    rows: int
    hash: str
    broken: str


def ledger_view(runs: Sequence[RunFolder]) -> LedgerView | None:
    """The longest copy that these runs hold; None where none has a ledger."""
    rows = max((read_copy(run.path) for run in runs), key=len, default=[])
    if not rows:
        return None
    here = {run.run_id for run in runs}
    filled: dict[int, list[LedgerRow]] = defaultdict(list)
    for row in rows:
        if row.kind == RESULT:
            filled[row.hypothesis].append(row)
    entries = [_entry(row, filled[row.number], here) for row in rows if row.kind == HYPOTHESIS]
    return LedgerView(entries=entries[::-1], rows=len(rows), hash=rows[-1].hash, broken=broken(rows))


def _entry(row: LedgerRow, filled: Sequence[LedgerRow], here: set[str]) -> Entry:
    order = [str(Standing.REFUTED), str(Standing.UNDECIDED), str(Standing.CONFIRMED)]
    ranked = sorted(filled, key=lambda each: order.index(each.verdict))
    return Entry(
        number=row.number,
        written_at=row.written_at,
        text=row.text,
        revision=row.revision,
        look=LOOKS[overall(each.verdict for each in filled)] if filled else OPEN,
        trials=[_trial(each, here) for each in ranked[:SHOWN]],
        rows=len(filled),
    )


def _trial(row: LedgerRow, here: set[str]) -> Trial:
    timed = row.median_us is not None
    return Trial(
        workload=row.workload,
        run_id=row.run_id,
        here=row.run_id in here,
        look=LOOKS[Standing(row.verdict)],
        reason=row.reason,
        time=f"{microseconds(row.baseline_median_us)} → {microseconds(row.median_us)}" if timed else NOTHING,
        spread=f"{microseconds(row.p20_us)} to {microseconds(row.p80_us)}, {times(row.ratio)}" if timed else "",
        counters=[
            f"{phrase(name)} {number(before)} → {number(after)}"
            for name, (before, after) in json.loads(row.counters).items()
        ],
        correct=row.correct,
        change=row.change,
        several=row.several_changes,
        revision=row.revision,
    )
