"""A program cut into basic blocks of prepared steps: what to evaluate, what to log, where control goes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.memory.liveness import carried
from matrix.memory.loops import Exit, Loop
from matrix.memory.operations import Array, dtype_of, operation
from matrix.memory.slices import needed, spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.memory.accesses import Access
    from matrix.memory.parsing import Instruction, Program

_ENDS = ("bra", "ret", "exit", "trap")
# Instructions whose result depends on other lanes, or that waits: evaluated by name in matrix.memory.machine.
SPECIAL = ("shfl", "elect", "mbarrier.try_wait", "mbarrier.test_wait", "ld.param")


@dataclass(slots=True)
class Step:
    """One instruction to evaluate or to log. A source is a register's name or a constant."""

    instruction: Instruction
    guard: str
    negated: bool
    results: tuple[str, ...]
    function: Callable[..., Array] | None = None
    sources: tuple[Any, ...] = ()
    operands: tuple[tuple[Any, Any], ...] = ()  # of arithmetic: sources, each with the type that it is read as
    access: Access | None = None
    places: tuple[tuple[str, int], ...] = ()  # of an access: base and offset of each of its operands
    special: str = ""

    @property
    def plain(self) -> bool:
        """Arithmetic that always executes."""
        return not self.guard and self.function is not None


@dataclass(slots=True)
class Block:
    """Instructions ``start`` to ``end`` (not included) that execute together; ``last`` may leave it."""

    start: int
    end: int
    steps: list[tuple[Step, bool]]  # with whether each is plain arithmetic
    last: Instruction | None
    goes_to: int | None = None  # where its branch goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A program ready to run."""

    program: Program
    blocks: dict[int, Block]
    loops: dict[int, Loop]  # by the place of their first instruction
    merged: frozenset[str]  # registers with several writers: where paths join, they carry what one path chose


def prepare(program: Program, symbols: dict[str, int]) -> Prepared:
    """Cut and resolve. ``symbols`` are the addresses that names such as ``global_smem`` stand for."""
    ranges = spans(program)
    wanted = needed(program, ranges)
    writers: dict[str, list[int]] = {}
    for index in sorted(wanted):
        for name in program.instructions[index].results:
            writers.setdefault(name, []).append(index)
    blocks = {start: _block(program, start, end, wanted, symbols) for start, end in ranges}
    merged = frozenset(name for name, places in writers.items() if len(places) > 1)
    return Prepared(
        program=program,
        blocks=blocks,
        loops=_loops(program, blocks, wanted, writers, symbols),
        merged=merged,
    )


def _block(program: Program, start: int, end: int, wanted: set[int], symbols: dict[str, int]) -> Block:
    inside = program.instructions[start:end]
    last = inside[-1] if inside[-1].op.startswith(_ENDS) else None
    chosen = [i for i in inside if i.access is not None or i.index in wanted]
    steps = [step for i in chosen if (step := _step(i, symbols, evaluated=i.index in wanted)) is not None]
    block = Block(start, end, [(step, step.plain) for step in steps], last)
    if last is not None and last.op.startswith("bra"):
        block.goes_to = program.target(last.operands[0], last.index)
    return block


def _step(instruction: Instruction, symbols: dict[str, int], *, evaluated: bool) -> Step | None:
    access = instruction.access
    if access is None and not evaluated:
        return None
    step = Step(instruction, instruction.guard, instruction.negated, instruction.results if evaluated else ())
    if access is not None:
        step.access = access
        step.places = tuple(instruction.address(position) for position in access.positions)
        step.sources = tuple(_source(instruction.operands[p], symbols, np.int64) for p in access.positions)
        return step
    step.special = _special(instruction.op)
    operands = instruction.operands[1:]
    if step.special:
        step.sources = tuple(_source(operand, symbols, np.int32) for operand in operands)
        return step
    if instruction.op.startswith("mov") and any(operand[0] == "{" for operand in instruction.operands):
        step.special = "mov"
        step.sources = tuple(_source(o, symbols, np.int32) for part in operands for o in part.strip("{}").split(","))
        return step
    found = operation(instruction.op)
    if found is not None:
        step.function, types = found
        types = (*types, *(types[-1:] * (len(operands) - len(types))))
        step.sources = tuple(_source(o, symbols, t) for o, t in zip(operands, types, strict=False))
        step.operands = tuple((source, np.dtype(t)) for source, t in zip(step.sources, types, strict=False))
    return step


@functools.cache
def _special(op: str) -> str:
    return next((name for name in SPECIAL if op.startswith(name)), "")


def _source(operand: str, symbols: dict[str, int], dtype: type) -> Any:
    """A register's name, or the constant that the operand is; None for what has no integer value."""
    text = operand.strip()
    if text[:1] == "[":
        return text
    if text[:1] == "%":
        return text
    if text in symbols:
        return constant(symbols[text], dtype)
    value = _number(text)
    if value is None:
        return text if text[:1].isalpha() or text[:1] in "_$" else None
    return constant(value, dtype)


def _number(text: str) -> int | None:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return int(text[2:], 16)  # noqa: FURB166 - the bits of a float, not a number in base 15
    try:
        return int(text.rstrip("U"), 0)
    except ValueError:
        return None


@functools.lru_cache(maxsize=4096)
def constant(value: int, dtype: type) -> Array:
    """A uniform value of a register's type; bits beyond it are dropped. Nothing writes into it."""
    if dtype is np.bool_:
        return np.array([[value != 0]])
    bits = np.dtype(dtype).itemsize * 8
    return np.array([[value & ((1 << bits) - 1)]], dtype=f"u{bits // 8}").view(dtype)


def _loops(
    program: Program,
    blocks: dict[int, Block],
    wanted: set[int],
    writers: dict[str, list[int]],
    symbols: dict[str, int],
) -> dict[int, Loop]:
    """Every place that a branch goes back to, with all that is needed to step over its iterations."""
    ends: dict[int, int] = {}
    for block in blocks.values():
        if block.goes_to is not None and block.goes_to <= block.start:
            ends[block.goes_to] = max(ends.get(block.goes_to, 0), block.end)
    found = {}
    for begin, end in ends.items():
        exits = _exits(program, blocks, writers, symbols, (begin, end))
        handed_on = carried(program, blocks, wanted, (begin, end))
        found[begin] = Loop(begin=begin, end=end, carried=handed_on, exits=exits)
    return found


def _exits(
    program: Program,
    blocks: dict[int, Block],
    writers: dict[str, list[int]],
    symbols: dict[str, int],
    span: tuple[int, int],
) -> tuple[Exit, ...] | None:
    """The comparisons that end a loop; None where one of them is no comparison of integers."""
    begin, end = span
    found: list[Exit] = []
    for block in blocks.values():
        if not begin <= block.start < end or block.last is None or not block.last.guard:
            continue
        leaves_by_branch = not begin <= _destination(blocks, block.goes_to) < end
        leaves_by_falling = not begin <= _destination(blocks, block.end) < end
        if leaves_by_branch == leaves_by_falling:
            continue
        stays = block.last.negated if leaves_by_branch else not block.last.negated
        exits = _comparisons(program, writers, symbols, span, (block.last.guard, stays))
        if exits is None:
            return None
        found += exits
    return tuple(found)


def _destination(blocks: dict[int, Block], place: int | None) -> int:
    """Where control is after the jumps that are all there is at a place; -1 for nowhere."""
    for _ in range(len(blocks)):
        block = blocks.get(-1 if place is None else place)
        if block is None or block.end - block.start > 1 or block.goes_to is None or block.last is None:
            break
        if block.last.guard:
            break
        place = block.goes_to
    return -1 if place is None else place


def _comparisons(
    program: Program,
    writers: dict[str, list[int]],
    symbols: dict[str, int],
    span: tuple[int, int],
    condition: tuple[str, bool],
) -> list[Exit] | None:
    """What must hold for a predicate to keep its value: comparisons, "and"s of them, or nothing that changes."""
    name, value = condition
    places = [place for place in writers.get(name, ()) if span[0] <= place < span[1]]
    if not places:
        return []
    instruction = program.instructions[places[0]]
    parts = instruction.op.split(".")
    if len(places) > 1 or instruction.guard:
        return None
    if parts[0] == "setp" and len(parts) == 3 and dtype_of(parts[2]) is not None:
        step = _step(instruction, symbols, evaluated=True)
        return [Exit(step.sources, parts[1], value)] if step is not None else None
    if instruction.op == "not.pred":
        return _comparisons(program, writers, symbols, span, (instruction.operands[1], not value))
    if instruction.op == ("and.pred" if value else "or.pred"):
        both = [_comparisons(program, writers, symbols, span, (o, value)) for o in instruction.operands[1:3]]
        return None if any(one is None for one in both) else [exit_ for one in both if one for exit_ in one]
    return None
