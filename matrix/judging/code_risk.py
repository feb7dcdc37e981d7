"""Whether the code of one kernel got riskier: plain rules over two sets of facts.

Counts are not costs: barriers doubled where a kernel got faster. So memory traffic is judged by what it costs
(:func:`memory_cost`), counts only where that is not known, and a rule says "risk", never "slower". Each is a
plain function of :data:`RULES` that a better one may replace. A rule compares both ways with one definition
of a loss, so that swapping baseline and candidate turns every loss into its gain.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, TypeVar

from matrix.code.hazards import REACHES
from matrix.judging import changes, traffic
from matrix.judging.changes import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.judging.changes import Change, Pair
    from matrix.judging.thresholds import Thresholds
    from matrix.records import KernelFacts

    Rule = Callable[[KernelFacts, KernelFacts, Thresholds], list[Change]]

T = TypeVar("T")


def risk_changes(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Every change of the kernel that passes its threshold, worst first."""
    if identical(baseline, candidate):
        return []
    # The body of a kernel that does not fit is only a trap: it has no traffic and would look like a gain.
    if not (fits(baseline) and fits(candidate)):
        return fit(baseline, candidate, thresholds)
    found = [change for rule in RULES for change in rule(baseline, candidate, thresholds)]
    return sorted(found, key=lambda change: -change.severity)


def identical(baseline: KernelFacts, candidate: KernelFacts) -> bool:
    """The same machine code, given the same resources."""
    if not baseline.sass_hash or baseline.sass_hash != candidate.sass_hash:
        return False
    return baseline is candidate or _resources(baseline) == _resources(candidate)


def fits(facts: KernelFacts) -> bool:
    return facts.occupancy_limit != "does_not_fit"


def fit(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    del thresholds  # it fits or it does not
    text = f"shared memory {_step(baseline.shared_bytes, candidate.shared_bytes)} bytes"
    if baseline.tensor_memory_columns != candidate.tensor_memory_columns:
        columns = _step(baseline.tensor_memory_columns, candidate.tensor_memory_columns)
        text += f", tensor memory {columns} columns"
    sizes = (baseline.shared_bytes, candidate.shared_bytes)
    return _judged(changes.FIT, operator.gt, (fits(baseline), fits(candidate)), text, sizes)


def spills(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Spilled registers live on the stack; the cubin's own figure for local memory stays 0.

    Where it is known what they move, that has to grow too: a stack that is touched no more than before costs nothing.
    """
    moved = (baseline.local_sectors, candidate.local_sectors)

    def lost(before: KernelFacts, after: KernelFacts) -> bool:
        both = before.stack_bytes and after.stack_bytes
        least = thresholds.spill_more_bytes if both else thresholds.spill_growth_bytes
        one, other = before.local_sectors, after.local_sectors
        if one is None or other is None:
            one, other = before.stack_bytes, after.stack_bytes
        grown = other > one and other >= one * (thresholds.spill_more_ratio if both else 1.0)
        return grown and after.stack_bytes - before.stack_bytes >= least

    stacks = (baseline.stack_bytes, candidate.stack_bytes)
    text = f"stack {_step(*stacks)} bytes a thread"
    if None not in moved:
        text += f", spilled registers move {moved[0]:,.0f} to {moved[1]:,.0f} sectors a block"
    pair = changes.SPILL_SIZE if all(stacks) else changes.SPILLS
    return _judged(pair, lost, (baseline, candidate), text, stacks)


def occupancy(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Blocks an SM, where the resident warps fell with them: bigger blocks alone are no loss."""

    def lost(before: KernelFacts, after: KernelFacts) -> bool:
        step = after.occupancy_share * thresholds.occupancy_ratio <= before.occupancy_share
        return step and after.occupancy_blocks < before.occupancy_blocks

    blocks = (baseline.occupancy_blocks, candidate.occupancy_blocks)
    loser = candidate if candidate.occupancy_blocks < baseline.occupancy_blocks else baseline
    registers = _step(baseline.registers, candidate.registers)
    text = f"blocks per SM {_step(*blocks)}, limited by {loser.occupancy_limit} (registers {registers})"
    return _judged(changes.OCCUPANCY, lost, (baseline, candidate), text, blocks)


def shared_memory(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Multiplied where it holds tiles, or grown past what one block may have on some GPU.

    Operands of matrix instructions and asynchronous copies grow with the tile: what is doubled here does not fit where
    the tile is larger. What else takes shared memory is scratch, through which threads exchange values, in rounds where
    these are many: its cost is in the traffic, and what it limits in the occupancy.
    """

    def crossed(before: KernelFacts, after: KernelFacts) -> list[int]:
        limits = thresholds.shared_limits_bytes
        return [limit for limit in limits if before.shared_bytes <= limit < after.shared_bytes]

    def lost(before: KernelFacts, after: KernelFacts) -> bool:
        ratio, growth = thresholds.shared_ratio, thresholds.shared_growth_bytes
        multiplied = _multiplied(before.shared_bytes, after.shared_bytes, ratio, growth)
        return bool(crossed(before, after)) or (_holds_tiles(after) and multiplied)

    sizes = (baseline.shared_bytes, candidate.shared_bytes)
    limits = crossed(baseline, candidate) or crossed(candidate, baseline)
    text = f"shared memory {_step(*sizes)} bytes a block"
    text += f", across the limit of {limits[-1]}" if limits else ""
    return _judged(changes.SHARED_MEMORY, lost, (baseline, candidate), text, sizes)


def vector_width(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Mean bits a global access, loads and stores apart. Traffic that went elsewhere (TMA) is no loss."""
    loads = _width_changes(baseline.global_load_bits, candidate.global_load_bits, "loads", thresholds)
    return loads + _width_changes(baseline.global_store_bits, candidate.global_store_bits, "stores", thresholds)


def matrix_class(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """tcgen05 over wgmma over mma over none; the strongest in use decides, then the weakest."""
    del thresholds  # a class is there or it is not
    before, after = _matrix_ranks(baseline), _matrix_ranks(candidate)
    text = f"matrix instructions {_matrix_names(baseline)} to {_matrix_names(candidate)}"
    return _judged(changes.MATRIX_CLASS, operator.gt, (before, after), text, (before[0], after[0]))


def matrix_type(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """The narrowest operand of a matrix instruction, in bits: fp8 converted and multiplied as fp16."""
    del thresholds  # as above
    before, after = _operand_bits(baseline), _operand_bits(candidate)
    if not (before and after):
        return []
    text = f"narrowest matrix operand {_step(before, after)} bits"
    return _judged(changes.MATRIX_TYPE, operator.lt, (before, after), text, (before, after))


def memory_cost(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """The launch's estimated time, told by what moved it most; counts of exchanges where there is no estimate."""
    found = traffic.compared(baseline, candidate, thresholds)
    if found is None:
        return exchange(baseline, candidate, thresholds)

    def lost(before: float, after: float) -> bool:
        return _multiplied(before, after, thresholds.cost_ratio, thresholds.cost_growth_us)

    before_us, after_us = found.estimates
    text = f"{found.text}, estimate {before_us:.1f} to {after_us:.1f} us"
    moved = [f"{name} {_step(*counts)}" for name, *counts in _exchanges(baseline, candidate) if counts[0] != counts[1]]
    if found.resource is traffic.Resource.SHARED and moved:
        text += f"; {', '.join(moved)}"
    return _judged(_TRAFFIC[found.resource], lost, found.estimates, text, found.values)


_TRAFFIC = {
    traffic.Resource.SHARED: changes.SHARED_TRAFFIC,
    traffic.Resource.GLOBAL: changes.GLOBAL_TRAFFIC,
    traffic.Resource.EXECUTION: changes.EXECUTION,
    traffic.Resource.SPILLS: changes.EXECUTION,
    traffic.Resource.WAITING: changes.EXECUTION,
}


def exchange(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Barriers, shuffles and shared stores: how the threads of a block exchange data. One reason."""
    ratio = thresholds.exchange_ratio
    growths = (thresholds.barrier_growth, thresholds.shuffle_growth, thresholds.shared_store_growth)
    signals = [(*counts, growth) for counts, growth in zip(_exchanges(baseline, candidate), growths, strict=True)]
    grown = sum(_multiplied(before, after, ratio, growth) for _, before, after, growth in signals)
    shrunk = sum(_multiplied(after, before, ratio, growth) for _, before, after, growth in signals)

    def lost(down: int, up: int) -> bool:
        return up - down >= thresholds.exchange_signals

    text = _exchange_text(baseline, candidate)
    values = (baseline.barriers + baseline.shuffles, candidate.barriers + candidate.shuffles)
    return _judged(changes.EXCHANGE, lost, (shrunk, grown), text, values)


def async_copies(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Copies that overlap with arithmetic (cp.async and bulk), all gone: the software pipeline is lost."""
    copies = (baseline.async_copies + baseline.bulk_copies, candidate.async_copies + candidate.bulk_copies)

    def lost(before: int, after: int) -> bool:
        return before >= thresholds.async_copies_min and not after

    return _judged(changes.ASYNC_COPIES, lost, copies, f"asynchronous copies {_step(*copies)}", copies)


def contraction(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Fused multiply-adds, all gone: every product is rounded by itself, whatever the source says.

    Each takes an instruction more then: code that got shorter has lost them with the arithmetic. Where the matrix
    instructions are others, so is what is around them.
    """
    if baseline.matrix_ops != candidate.matrix_ops:
        return []

    def lost(before: KernelFacts, after: KernelFacts) -> bool:
        longer = after.instructions > before.instructions
        return before.fma >= thresholds.fma_min and not after.fma and longer

    counts = (baseline.fma, candidate.fma)
    text = f"fused multiply-adds {_step(*counts)}"
    return _judged(changes.CONTRACTION, lost, (baseline, candidate), text, counts)


def hazard(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    """Undefined lanes of a masked load that can reach a result where they could not (:mod:`matrix.code.hazards`)."""
    del thresholds  # there is a way or there is none
    before, after = _reaching(baseline), _reaching(candidate)

    def lost(down: list[str], up: list[str]) -> bool:
        return bool(up) and not down

    text = f"undefined lanes of a masked load reach a result: {', '.join(after or before)}"
    return _judged(changes.HAZARD, lost, (before, after), text, (len(before), len(after)))


def code_size(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> list[Change]:
    def lost(before: KernelFacts, after: KernelFacts) -> bool:
        ratio, growth = thresholds.code_ratio, thresholds.code_growth_bytes
        return _multiplied(before.code_bytes, after.code_bytes, ratio, growth)

    sizes = (baseline.code_bytes, candidate.code_bytes)
    text = f"code {_step(*sizes)} bytes"
    return _judged(changes.CODE_SIZE, lost, (baseline, candidate), text, sizes)


RULES: tuple[Rule, ...] = (
    matrix_class,
    matrix_type,
    hazard,
    spills,
    occupancy,
    vector_width,
    memory_cost,
    async_copies,
    contraction,
    shared_memory,
    code_size,
)


def compile_time_changes(baseline_s: float, candidate_s: float, thresholds: Thresholds) -> list[Change]:
    """The compiler's own seconds of processor time over the same kernels."""

    def lost(before: float, after: float) -> bool:
        return _multiplied(before, after, thresholds.compile_time_ratio, thresholds.compile_time_growth_s)

    seconds = (baseline_s, candidate_s)
    text = f"compile time {baseline_s:.1f} to {candidate_s:.1f} s"
    return _judged(changes.COMPILE_TIME, lost, seconds, text, seconds)


def _judged(
    pair: Pair, lost: Callable[[T, T], bool], sides: tuple[T, T], text: str, values: tuple[float, float]
) -> list[Change]:
    """The change of ``pair`` that ``lost`` sees from baseline to candidate, or the other way round."""
    before, after = sides
    if lost(before, after):
        direction = Direction.WORSE
    elif lost(after, before):
        direction = Direction.BETTER
    else:
        return []
    return [pair.change(direction, text, baseline=float(values[0]), candidate=float(values[1]))]


def _multiplied(before: float, after: float, ratio: float, growth: float) -> bool:
    return after >= before * ratio and after - before >= growth


def _step(before: float, after: float) -> str:
    return f"{before} to {after}"


def _resources(facts: KernelFacts) -> tuple[str, int, int, int]:
    return facts.sass_hash, facts.registers, facts.shared_bytes, facts.stack_bytes


def _exchanges(baseline: KernelFacts, candidate: KernelFacts) -> list[tuple[str, int, int]]:
    return [
        ("barriers", baseline.barriers, candidate.barriers),
        ("shuffles", baseline.shuffles, candidate.shuffles),
        ("shared stores", _stores(baseline), _stores(candidate)),
    ]


def _exchange_text(baseline: KernelFacts, candidate: KernelFacts) -> str:
    return ", ".join(f"{name} {_step(before, after)}" for name, before, after in _exchanges(baseline, candidate))


def _reaching(facts: KernelFacts) -> list[str]:
    """Where the undefined lanes come from, as ``file:line``."""
    return sorted({f"{h['file']}:{h['line']}" for h in facts.hazards if h["kind"] == REACHES})


def _holds_tiles(facts: KernelFacts) -> bool:
    return bool(facts.matrix_ops or facts.async_copies or facts.bulk_copies)


def _stores(facts: KernelFacts) -> int:
    # st.shared and stmatrix replace each other without meaning.
    return facts.shared_stores + facts.stmatrix


def _width_changes(
    baseline: Mapping[str, int], candidate: Mapping[str, int], what: str, thresholds: Thresholds
) -> list[Change]:
    (before, before_bits), (after, after_bits) = _width(baseline), _width(candidate)
    moved = thresholds.vector_traffic_ratio
    if not (before and after) or max(before_bits, after_bits) > moved * min(before_bits, after_bits):
        return []

    def lost(wide: float, narrow: float) -> bool:
        return wide >= thresholds.vector_width_ratio * narrow

    text = f"mean width of global {what} {before:.0f} to {after:.0f} bits"
    return _judged(changes.VECTOR_WIDTH, lost, (before, after), text, (before, after))


def _width(bits: Mapping[str, int]) -> tuple[float, int]:
    """Mean bits an access, and the bits of all accesses."""
    count = sum(bits.values())
    total = sum(int(width) * number for width, number in bits.items())
    return (total / count if count else 0.0), total


_CLASSES = ("none", "mma", "wgmma", "tcgen05")
# Operand types as PTX spells them, with the kinds of tcgen05; f32 and s32 are accumulators.
_OPERAND_BITS = {
    **dict.fromkeys(("e2m1", "s4", "u4", "mxf4", "mxf4nvf4"), 4),
    **dict.fromkeys(("e4m3", "e5m2", "s8", "u8", "i8", "f8f6f4", "mxf8f6f4"), 8),
    **dict.fromkeys(("f16", "bf16"), 16),
    "tf32": 32,
    "f64": 64,
}


def _matrix_ranks(facts: KernelFacts) -> tuple[int, int]:
    ranks = [_rank(name) for name in facts.matrix_ops] or [0]
    return max(ranks), min(ranks)


def _rank(operation: str) -> int:
    head = operation.split(".", 1)[0]
    return _CLASSES.index(head) if head in _CLASSES else _CLASSES.index("mma")


def _matrix_names(facts: KernelFacts) -> str:
    ranks = sorted({_rank(name) for name in facts.matrix_ops} or {0}, reverse=True)
    return " and ".join(_CLASSES[rank] for rank in ranks)


def _operand_bits(facts: KernelFacts) -> int:
    """Bits of the narrowest operand type that any matrix instruction names; 0 where none does."""
    tokens = {token for name in facts.matrix_ops for token in re.split(r"[.:]+", name)}
    return min((_OPERAND_BITS[token] for token in tokens if token in _OPERAND_BITS), default=0)
