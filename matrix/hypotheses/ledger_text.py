"""The ledger for a terminal."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from matrix.hypotheses.ledger import HYPOTHESIS, RESULT
from matrix.hypotheses.trials import overall
from matrix.wording import microseconds, plural, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.hypotheses.hypothesis import Hypothesis
    from matrix.hypotheses.ledger import LedgerRow

_SHOWN = 20


def opened_text(row: LedgerRow, read: Hypothesis) -> str:
    """What was written, and what of it figures will decide."""
    lines = [f"hypothesis {row.number} is open: the next run of {row.cases or 'any case'} fills it"]
    lines += [f"  will be held against figures: {claim.text} ({claim.metric})" for claim in read.claims]
    lines += [f"  no figure that this program reads, so it stays undecided: {text}" for text in read.unread]
    return "\n".join([*lines, ""])


def ledger_text(rows: Sequence[LedgerRow]) -> str:
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: Sequence[LedgerRow]) -> Iterator[str]:
    filled: dict[int, list[LedgerRow]] = defaultdict(list)
    for row in rows:
        if row.kind == RESULT:
            filled[row.hypothesis].append(row)
    for row in rows:
        if row.kind == HYPOTHESIS:
            own = filled[row.number]
            yield f"{row.number}. {overall(each.verdict for each in own) if own else 'open'}: {row.text}"
            yield from map(_result, own[:_SHOWN])
            if len(own) > _SHOWN:
                yield f"   and {len(own) - _SHOWN} more rows"
    last = f", the last hash {rows[-1].hash}" if rows else ""
    yield f"{plural(len(rows), 'row')}, the chain holds{last}"


def _result(row: LedgerRow) -> str:
    time = (
        f" {microseconds(row.baseline_median_us)} -> {microseconds(row.median_us)} ({times(row.ratio)})"
        if row.median_us is not None
        else ""
    )
    several = "; SEVERAL THINGS CHANGED AT ONCE" if row.several_changes else ""
    return f"   {row.verdict}: {row.workload}{time}; {row.reason}; changed: {row.change}{several}"
