"""A program cut into basic blocks of prepared steps: what to evaluate, what to log, where control goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.memory.accesses import Access, Kind, kind_of
from matrix.memory.operations import Array, dtype_of, operation
from matrix.memory.slices import needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.memory.parsing import Instruction, Program

_ENDS = ("bra", "ret", "exit", "trap")
# Instructions whose result depends on other lanes, or that waits: evaluated by name in matrix.memory.machine.
SPECIAL = ("shfl", "elect", "mbarrier.try_wait", "mbarrier.test_wait", "ld.param")

Source = "str | Array | None"


@dataclass(slots=True)
class Step:
    """One instruction to evaluate or to log. A source is a register's name or a constant."""

    instruction: Instruction
    guard: str
    negated: bool
    results: tuple[str, ...]
    function: Callable[..., Array] | None = None
    types: tuple[type, ...] = ()
    sources: tuple[Any, ...] = ()
    access: Access | None = None
    special: str = ""


@dataclass(slots=True)
class Block:
    """Instructions ``start`` to ``end`` (not included) that execute together; ``last`` may leave it."""

    start: int
    end: int
    steps: list[Step]
    last: Instruction | None
    goes_to: int | None = None  # where its branch goes
    carried: tuple[str, ...] = ()  # of a loop that ends here: registers that one iteration hands to the next
    condition: Step | None = None  # of such a loop: the comparison that ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A program ready to run."""

    program: Program
    blocks: dict[int, Block]
    merged: frozenset[str]  # registers with several writers: where paths join, they carry what one path chose
    loads_decide: bool  # whether something read from shared memory reaches an address


def prepare(program: Program, symbols: dict[str, int]) -> Prepared:
    """Cut and resolve. ``symbols`` are the addresses that names such as ``global_smem`` stand for."""
    wanted = needed(program)
    writers: dict[str, list[int]] = {}
    for index in wanted:
        for name in program.instructions[index].results:
            writers.setdefault(name, []).append(index)
    blocks = {}
    for start, end in _spans(program):
        blocks[start] = _block(program, start, end, wanted, symbols)
    for block in blocks.values():
        if block.goes_to is not None and block.goes_to <= block.start and block.last is not None:
            _describe_loop(program, block, writers, symbols)
    decide = any(_reads_shared(program.instructions[index]) for index in wanted)
    merged = frozenset(name for name, places in writers.items() if len(places) > 1)
    return Prepared(program=program, blocks=blocks, merged=merged, loads_decide=decide)


def _reads_shared(instruction: Instruction) -> bool:
    access = kind_of(instruction)
    return access is not None and access.kind in (Kind.SHARED_LOAD, Kind.LDMATRIX)


def _spans(program: Program) -> list[tuple[int, int]]:
    count = len(program.instructions)
    leaders = {0, count, *(place for places in program.labels.values() for place in places)}
    leaders |= {i.index + 1 for i in program.instructions if i.op.startswith(_ENDS)}
    ordered = sorted(leader for leader in leaders if leader <= count)
    return list(zip(ordered, ordered[1:], strict=False))


def _block(program: Program, start: int, end: int, wanted: set[int], symbols: dict[str, int]) -> Block:
    inside = program.instructions[start:end]
    last = inside[-1] if inside[-1].op.startswith(_ENDS) else None
    steps = [step for i in inside if (step := _step(i, symbols, evaluated=i.index in wanted)) is not None]
    block = Block(start, end, steps, last)
    if last is not None and last.op.startswith("bra"):
        block.goes_to = program.target(last.operands[0], last.index)
    return block


def _step(instruction: Instruction, symbols: dict[str, int], *, evaluated: bool) -> Step | None:
    access = kind_of(instruction)
    if access is None and not evaluated:
        return None
    step = Step(instruction, instruction.guard, instruction.negated, instruction.results if evaluated else ())
    if access is not None:
        step.access = access
        step.sources = tuple(_source(instruction.operands[p], symbols, np.int64) for p in access.positions)
        return step
    step.special = next((name for name in SPECIAL if instruction.op.startswith(name)), "")
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
        step.types = (*types, *(types[-1:] * (len(operands) - len(types))))
        step.sources = tuple(_source(o, symbols, t) for o, t in zip(operands, step.types, strict=False))
    return step


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
        return int(text[2:], 16)
    try:
        return int(text.rstrip("U"), 0)
    except ValueError:
        return None


def constant(value: int, dtype: type) -> Array:
    """A uniform value of a register's type; bits beyond it are dropped."""
    if dtype is np.bool_:
        return np.array([[value != 0]])
    bits = np.dtype(dtype).itemsize * 8
    return np.array([[value & ((1 << bits) - 1)]], dtype=f"u{bits // 8}").view(dtype)


def _describe_loop(program: Program, block: Block, writers: dict[str, list[int]], symbols: dict[str, int]) -> None:
    begin, end = block.goes_to or 0, block.end
    inside = {name for name, places in writers.items() if any(begin <= place < end for place in places)}
    block.carried = tuple(sorted(name for name in inside if len(writers[name]) > 1))
    guard = block.last.guard if block.last is not None else ""
    deciding = [place for place in writers.get(guard, ()) if begin <= place < end]
    if len(deciding) != 1:
        return
    comparison = program.instructions[deciding[0]]
    parts = comparison.op.split(".")
    if parts[0] == "setp" and len(parts) == 3 and dtype_of(parts[2]) is not None:  # noqa: PLR2004
        block.condition = _step(comparison, symbols, evaluated=True)
