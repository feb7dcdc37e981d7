"""What the hardware counted over all launches of a call, on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrix.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matrix.explaining.sides import Sides
    from matrix.records import CounterRecord

# Hardware counts of two launches that differ by less count as the same: a choice, there is no noise floor for them.
NOTABLE_COUNT = 1.1


class Count(NamedTuple):
    """One figure of the hardware's over all launches of a call: less is better of each."""

    name: str
    before: float
    after: float

    @property
    def way(self) -> int:
        """-1 for less, 1 for more, 0 within what counts as the same."""
        small, large = sorted((self.before, self.after))
        if large == small or (small and large / small < NOTABLE_COUNT):
            return 0
        return 1 if self.after > self.before else -1


_COUNTS: Mapping[str, Callable[[CounterRecord], float | None]] = {
    "DRAM bytes": lambda row: _sum(row.dram_read_bytes, row.dram_write_bytes),
    "shared wavefronts": lambda row: row.shared_wavefronts,
    "bank conflicts": lambda row: row.shared_bank_conflicts,
    "sectors a load": lambda row: row.global_load_sectors_per_request,
    "sectors a store": lambda row: row.global_store_sectors_per_request,
}


def _sum(*values: float | None) -> float | None:
    return None if any(value is None for value in values) else sum(value for value in values if value is not None)


def _passed(rows: Iterable[CounterRecord]) -> list[CounterRecord]:
    return [row for row in rows if row.outcome == Outcome.PASSED]


def _total(rows: Sequence[CounterRecord], read: Callable[[CounterRecord], float | None]) -> float | None:
    return _sum(*map(read, rows)) if rows else None


def counts_of(sides: Sides) -> list[Count]:
    before, after = map(_passed, sides.counters)
    totals = ((name, _total(before, read), _total(after, read)) for name, read in _COUNTS.items())
    return [Count(name, one, other) for name, one, other in totals if one is not None and other is not None]


def profiled(sides: Sides) -> Count | None:
    one, other = (_total(_passed(rows), lambda row: row.kernel_us) for rows in sides.counters)
    return None if not one or not other else Count("kernels", one, other)
