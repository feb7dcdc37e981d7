"""The facts of two kernels side by side: only what moved or is the reason, the rest in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.changes import Direction
from matrix.memory.cost import estimate_us
from matrix.records import Verdict
from matrix.wording import NOTHING, TIMES, change, number, phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.records import CellRecord, KernelRecord, VerdictRecord

    Cells = tuple[CellRecord | None, CellRecord | None]
    Pair = tuple[KernelRecord, KernelRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A column of evidence.parquet; ``words`` are those that a reason code about it contains."""

    key: str
    label: str
    unit: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """One line of the evidence: both sides as text, what moved, and whether it is the verdict's reason."""

    label: str
    baseline: str
    candidate: str
    change: str
    direction: str = ""  # of the change that this fact is the reason of

    @property
    def reason(self) -> bool:
        return bool(self.direction)


# What is worth a word where it is equal on both sides.
_TOLD_WHEN_EQUAL = {
    "registers",
    "stack_bytes",
    "shared_bytes",
    "occupancy_share",
    "barriers",
    "shuffles",
    "matrix_pipe",
    "global_load_bits",
    "code_bytes",
}
_ROUNDED_FROM = 10.0
FACTS = (
    Fact(key="registers", label="Registers a thread", words=("register",)),
    Fact(key="stack_bytes", label="Stack (spills)", unit="B", words=("spill", "stack")),
    Fact(key="local_loads", label="Spill loads", words=("spill", "local")),
    Fact(key="local_stores", label="Spill stores", words=("spill", "local")),
    Fact(key="shared_bytes", label="Shared memory", unit="B", words=("shared_memory", "fit")),
    Fact(key="tensor_memory_columns", label="Tensor memory columns", words=("tensor_memory", "fit")),
    Fact(key="occupancy_blocks", label="Blocks an SM", words=("occupancy", "blocks")),
    Fact(key="occupancy_share", label="Occupancy", unit="%", words=("occupancy", "blocks")),
    Fact(key="occupancy_limit", label="Occupancy limited by", words=("occupancy", "fit")),
    Fact(key="estimate_us", label="Estimated time", unit="us", words=("traffic", "execution")),
    Fact(key="shared_wavefronts", label="Shared wavefronts a block", words=("shared_traffic",)),
    Fact(key="shared_wavefronts_ideal", label="Shared wavefronts without conflicts"),
    Fact(key="global_load_sectors", label="Global sectors loaded a block", words=("global_traffic",)),
    Fact(key="fetched_sectors", label="Global sectors that L1 lacks", words=("global_traffic",)),
    Fact(key="global_store_sectors", label="Global sectors stored a block", words=("global_traffic",)),
    Fact(key="global_sectors_ideal", label="Global sectors, all coalesced"),
    Fact(key="machine_instructions", label="Warp instructions a block", words=("execution",)),
    Fact(key="executed_instructions", label="Warp instructions a block (PTX)", words=("execution",)),
    Fact(key="warp_clocks", label="Clocks of one warp alone", words=("execution",)),
    Fact(key="local_sectors", label="Sectors that spills move a block", words=("spill", "local")),
    Fact(key="barriers", label="Barriers", words=("barrier", "exchange", "shared_traffic")),
    Fact(key="shuffles", label="Shuffles", words=("shuffle", "exchange", "shared_traffic")),
    Fact(key="shared_stores", label="Shared stores", words=("exchange", "shared_store", "shared_traffic")),
    Fact(key="shared_loads", label="Shared loads", words=("shared_load",)),
    Fact(key="atomics", label="Atomics", words=("atomic",)),
    Fact(key="matrix_ops", label="Matrix instructions (PTX)", words=("matrix", "mma")),
    Fact(key="matrix_pipe", label="Matrix instructions (SASS)", words=("matrix", "mma")),
    Fact(key="fma", label="FMA", words=("fma",)),
    Fact(key="global_load_bits", label="Global loads by width", words=("vector", "global_load")),
    Fact(key="global_store_bits", label="Global stores by width", words=("vector", "global_store")),
    Fact(key="shared_load_bits", label="Shared loads by width", words=("shared_load",)),
    Fact(key="shared_store_bits", label="Shared stores by width", words=("shared_store",)),
    Fact(key="async_copies", label="Asynchronous copies", words=("async",)),
    Fact(key="bulk_copies", label="Bulk copies (TMA)", words=("bulk", "async")),
    Fact(key="ldmatrix", label="ldmatrix", words=("ldmatrix",)),
    Fact(key="stmatrix", label="stmatrix", words=("stmatrix",)),
    Fact(key="dtypes", label="Interface types", words=("dtype", "interface")),
    Fact(key="instructions", label="Instructions", words=("code_size",)),
    Fact(key="code_bytes", label="Code size", unit="B", words=("code_size",)),
    Fact(key="num_warps", label="Warps a block", words=("num_warps",)),
    Fact(key="num_stages", label="Pipeline stages", words=("num_stages",)),
    Fact(key="num_ctas", label="Blocks a cluster", words=("num_ctas",)),
    Fact(key="total", label="Compile time", unit="s", words=("compile_time",)),
)


def fact_rows(
    verdict: VerdictRecord, reasons: Mapping[str, str], cells: Cells, pair: Pair | None
) -> tuple[list[FactRow], list[str]]:
    """The rows to show, those of a reason first, and in words what is equal on both sides.

    ``reasons`` are the verdict's reason codes with the direction that each points in.
    """
    rows = list(_outcome_rows(verdict, cells))
    equal: list[str] = []
    for fact in FACTS if pair else ():
        before, after = (_side(record, fact) for record in pair or ())
        direction = next((reasons[code] for code in reasons if any(w in code for w in fact.words)), "")
        # What is known of one side alone is no difference.
        known = before is not None and after is not None
        if known and before != after and not _jitter(fact, reason=bool(direction)):
            rows.append(_fact_row(fact, before, after, direction))
        elif before and fact.key in _TOLD_WHEN_EQUAL:
            equal.append(f"{fact.label} {_text(before, fact.unit)}")
    if not any(row.reason for row in rows):
        rows[:0] = _own_row(verdict)
    return sorted(rows, key=lambda row: not row.reason), equal


def _jitter(fact: Fact, *, reason: bool) -> bool:
    """Compile seconds never repeat: they are evidence only where they are the reason."""
    return fact.key == "total" and not reason


def _outcome_rows(verdict: VerdictRecord, cells: Cells) -> Iterator[FactRow]:
    before, after = ((phrase(cell.outcome) if cell else "missing") for cell in cells)
    if before != after:
        yield FactRow(
            label="Outcome",
            baseline=before,
            candidate=after,
            change="changed",
            direction=_own_direction(verdict),
        )
    reasons = [(cell.reason if cell else "") for cell in cells]
    if reasons[0] != reasons[1]:
        yield FactRow(label="Reason", baseline=reasons[0] or NOTHING, candidate=reasons[1] or NOTHING, change="")


def _own_direction(verdict: VerdictRecord) -> str:
    return Direction.BETTER if verdict.verdict == Verdict.IMPROVED else Direction.WORSE


def _own_row(verdict: VerdictRecord) -> list[FactRow]:
    """The verdict's own two values, where no fact above is its reason."""
    before, after = verdict.baseline_value, verdict.candidate_value
    if before is None and after is None:
        return []
    return [
        FactRow(
            label=phrase(verdict.reason_code).capitalize(),
            baseline=number(before),
            candidate=number(after),
            change=change(before, after),
            direction=_own_direction(verdict),
        )
    ]


def _side(record: KernelRecord, fact: Fact) -> object:
    if fact.key == "total":
        return record.seconds.get(fact.key)
    if fact.key == "estimate_us":
        return round(estimate_us(record.facts.busy_us), 1) if record.facts.busy_us else None
    owner = record.facts if hasattr(record.facts, fact.key) else record
    value = getattr(owner, fact.key)
    # Means over a grid are mostly whole; three digits would hide them.
    return round(value) if isinstance(value, float) and value >= _ROUNDED_FROM else value


def _fact_row(fact: Fact, before: object, after: object, direction: str) -> FactRow:
    return FactRow(
        label=fact.label,
        baseline=_text(before, fact.unit),
        candidate=_text(after, fact.unit),
        change=_moved(before, after),
        direction=direction,
    )


def _moved(before: object, after: object) -> str:
    if isinstance(before, int | float) and isinstance(after, int | float):
        return change(before, after)
    return "changed"


def _text(value: object, unit: str) -> str:
    if isinstance(value, dict):
        return _counts(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, int | float) or value is None:
        return number(value, unit)
    return phrase(str(value)) or NOTHING


def _counts(counts: Mapping[str, int]) -> str:
    """``{"128": 4}`` as "4 times 128 bit", ``{"HGMMA": 2}`` as "2 times HGMMA"; widest first."""
    keys: Sequence[str] = sorted(counts, key=lambda key: (-int(key), key) if key.isdigit() else (0, key))
    return ", ".join(f"{counts[key]:,} {TIMES} {f'{key} bit' if key.isdigit() else key}" for key in keys) or "none"
