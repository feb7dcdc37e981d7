"""What is recorded of the two cells that a chain is between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.code_risk import identical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrix.explaining.owner import Beside
    from matrix.judging.arm_pairs import ArmPair
    from matrix.records import AssemblyRecord, CounterRecord, KernelRecord, VerdictRecord

    Pairs = Sequence[tuple[KernelRecord, KernelRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is recorded of two cells. ``row`` is the verdict to explain, ``timed`` and ``coded`` those of the same cell
    on time and on code. ``sources`` are digests of the case's files; ``counters`` the launches that were counted;
    ``assembled`` is each side's PTX with each side's ptxas, where that was asked for.
    """

    row: VerdictRecord
    pairs: Pairs = ()
    unmatched: Sequence[str] = ()
    sources: tuple[str, str] = ("", "")
    own_files: frozenset[str] = frozenset()
    arms: ArmPair | None = None
    timed: VerdictRecord | None = None
    coded: VerdictRecord | None = None
    counters: tuple[Sequence[CounterRecord], Sequence[CounterRecord]] = ((), ())
    beside: Callable[[], Sequence[Beside]] = tuple
    assembled: Sequence[AssemblyRecord] = ()


def same_code(sides: Sides) -> bool:
    """The same kernels, each the same machine code with the same resources."""
    return bool(sides.pairs) and not sides.unmatched and all(identical(a.facts, b.facts) for a, b in sides.pairs)


def is_pass(sides: Sides) -> bool:
    return len(sides.pairs) + len(sides.unmatched) > 1
