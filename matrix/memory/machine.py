"""The evaluator: a block's threads through its integer code, all lanes of all sampled blocks at once.

Lanes that part at a branch run one path after the other, lowest address first, and join where paths meet, as
the hardware's do. Floating-point values are unknown, and so are loaded ones but for a case's own integers
(:mod:`matrix.memory.drawn`); what depends on them is unknown too: None, never a guess. Barriers order nothing here,
because no evaluated value comes through memory that the kernel writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.memory.accesses import Kind
from matrix.memory.launch import BASE
from matrix.memory.log import Log, Touch, Visit
from matrix.memory.loops import History, jump
from matrix.memory.operations import Array, Value, as_type, stored
from matrix.memory.tensormaps import TensorMap
from matrix.memory.warps import WARP, elected, shuffled, special_registers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.memory.blocks import Block, Prepared, Step
    from matrix.memory.launch import Parameters, Sample
    from matrix.memory.loops import Exit, Jump, Loop

# Steps after which an evaluation is cut off: about 0.3 s on one core.
BUDGET = 40_000
_BY_ROWS = ("tile::gather4", "tile::scatter4")  # a column, and four rows that need not lie together
_UNSET = object()
_TRUE: Array = np.ones((1, 1), np.bool_)


class Machine:
    """Runs one prepared program once. Arrays are (sampled blocks or 1, threads or 1)."""

    def __init__(
        self, prepared: Prepared, parameters: Parameters, sample: Sample, grid: tuple[int, int, int], threads: int
    ) -> None:
        self._blocks = prepared.blocks
        self._loops = prepared.loops
        self._merged = prepared.merged
        self._parameters = parameters
        self._shape = (len(sample.blocks), threads)
        self._full: Array = np.full(len(sample.blocks), -(-threads // WARP))
        self._registers: dict[str, Any] = special_registers(sample, grid, threads)
        self._maps = dict(parameters.maps)
        self._histories: dict[int, History] = {}
        self._entries: dict[tuple[int, int], tuple[int, ...]] = {}  # loops that an edge leads into
        self._jumps: dict[int, Jump] = {}  # the last one of each loop
        self._alive: Array | None = None  # None: all lanes
        self._doubtful_until = -1  # code before this place may not run at all: a branch was unknown
        self._steps = 0
        self._counted: tuple[Value, Array] = None, self._full  # the last mask, with the warps that it has
        self._covered: tuple[Value, Value, bool] = None, None, False  # likewise, with the lanes that had not ended
        self._partial: Value = None  # the last mask that was not all lanes
        self.log = Log()

    def run(self, *, until_blocks_part: bool = False) -> Log:
        """``until_blocks_part``: no further than the first branch that sampled blocks take differently."""
        pending: dict[int, Value] = {0: None}
        came_back: set[int] = set()  # loops whose waiting lanes have all been round
        while pending and not self.log.cut and not (until_blocks_part and self.log.blocks_part):
            at = self._next(pending)
            mask = self._settled(pending.pop(at))
            block = self._blocks.get(at)
            if block is None:
                continue  # past the end
            if at in self._loops:
                self._go_round(self._loops[at], mask, again=at in came_back)
                came_back.discard(at)
            self._execute(block, mask)
            for place, lanes in self._leave(block, mask):
                if place in pending:
                    pending[place] = self._joined(pending[place], lanes)
                else:
                    pending[place] = lanes
                    if place <= block.start:
                        came_back.add(place)
                for loop in self._entered(block.start, place):
                    self._histories.pop(loop, None)
        return self.log

    def _next(self, pending: Mapping[int, Value]) -> int:
        """The lowest place; the head of a loop waits for lanes that are still inside it."""
        at = min(pending)
        while at in self._loops:
            inside = [place for place in pending if at < place < self._loops[at].end]
            if not inside:
                break
            at = min(inside)
        return at

    def _entered(self, start: int, place: int) -> tuple[int, ...]:
        """The loops that lanes come into between two basic blocks, maybe not at their first instruction."""
        found = self._entries.get((start, place))
        if found is None:
            ends = ((begin, loop.end) for begin, loop in self._loops.items())
            found = tuple(begin for begin, end in ends if begin <= place < end and not begin <= start < end)
            self._entries[start, place] = found
        return found

    def _settled(self, mask: Value) -> Value:
        if mask is None or mask is self._partial:
            return mask
        if bool(mask.all()):
            return None
        self._partial = mask
        return mask

    def _joined(self, one: Value, other: Value) -> Value:
        return None if one is None or other is None else one | other

    def _execute(self, block: Block, mask: Value) -> None:
        self._steps += len(block.steps) + 1
        self.log.cut = self.log.cut or self._steps > BUDGET
        self.log.visits.append(Visit(block.start, self._warps(mask)))
        partial = mask is not None and not self._covers_the_living(mask)
        straight = not partial and block.start >= self._doubtful_until
        for step, plain in block.steps:
            if plain and straight:
                self._registers[step.results[0]] = self._computed(step)
                continue
            active, sure = self._active(step, mask)
            if step.access is not None:
                self._touch(step, active, sure)
            if step.results:
                self._assign(step, active, sure, partial=partial or bool(step.guard))

    def _covers_the_living(self, mask: Array) -> bool:
        if self._alive is None:
            return False
        if mask is not self._covered[0] or self._alive is not self._covered[1]:
            self._covered = mask, self._alive, not bool((self._alive & ~mask).any())
        return self._covered[2]

    def _warps(self, mask: Value) -> Array:
        """Warps of each sampled block that have a lane in the mask."""
        if mask is None:
            return self._full
        if mask is not self._counted[0]:  # mostly the same as of the basic block before
            full = self._spread(mask)
            self._counted = mask, full.reshape(self._shape[0], -1, WARP).any(-1).sum(-1)
        return self._counted[1]

    def _active(self, step: Step, mask: Value) -> tuple[Value, bool]:
        """The lanes that execute a step, and whether that is known."""
        if not step.guard:
            return mask, True
        guard = self._registers.get(step.guard)
        if guard is None:
            return mask, False
        taken = ~guard if step.negated else guard
        return (taken if mask is None else taken & mask), True

    def _assign(self, step: Step, active: Value, sure: bool, *, partial: bool) -> None:
        values = self._results(step, active)
        doubtful = step.instruction.index < self._doubtful_until
        for name, value in zip(step.results, values, strict=False):
            if name == "_":
                continue
            if doubtful and name in self._merged:  # whether this path ran is unknown, and so is what it hands on
                self._registers[name] = None
                continue
            old = self._registers.get(name, _UNSET)
            if not partial or old is _UNSET or (active is None and sure):
                self._registers[name] = value
            elif value is None or old is None or not sure:
                self._registers[name] = None
            else:
                self._registers[name] = np.where(active, as_type(value, old.dtype.type), old)

    def _results(self, step: Step, active: Value) -> tuple[Value, ...]:
        if step.special:
            return self._special(step, active)
        if step.access is not None:
            return self._loaded(step, active)
        if step.function is None:
            return (None,) * len(step.results)
        return (self._computed(step),)

    def _computed(self, step: Step) -> Value:
        registers, values = self._registers, []
        for source, kind in step.operands:
            value = registers.get(source) if source.__class__ is str else source
            if value is None:
                return None
            values.append(value if value.dtype == kind else as_type(value, kind.type))
        result = step.function(*values)  # type: ignore[misc]  # callers have looked
        return stored(result) if result.dtype.kind == "u" else result

    def _read(self, source: Any, kind: type | None = None) -> Value:
        value: Value = self._registers.get(source) if isinstance(source, str) else source
        return value if value is None or kind is None else as_type(value, kind)

    def _special(self, step: Step, active: Value) -> tuple[Value, ...]:
        match step.special:
            case "ld.param":
                return self._loaded_parameter(step)
            case "mov":
                return self._packed(step)
            case "elect":
                return None, elected(active, self._shape)
            case "shfl":
                mode = step.instruction.op.split(".")[2]
                operands = [self._read(source, np.int32) for source in step.sources[:3]]
                return shuffled(mode, operands, self._shape[1]), None
        return (_TRUE,) * len(step.results)  # a wait ends, sooner or later

    def _loaded_parameter(self, step: Step) -> tuple[Value, ...]:
        name, offset = step.instruction.address(1)
        value = self._parameters.values.get(name) if not offset and len(step.results) == 1 else None
        return (value,) * len(step.results)

    def _loaded(self, step: Step, active: Value) -> tuple[Value, ...]:
        """Unknown but where all lanes read one tensor whose integers can be drawn again."""
        unknown = (None,) * len(step.results)
        is_load = step.access is not None and step.access.kind is Kind.GLOBAL_LOAD
        address = self._address(step, 0) if is_load and self._parameters.drawn else None
        if address is None or (active is not None and not active.any()):
            return unknown
        lanes = _TRUE if active is None else active
        storages = address // BASE
        number = int(self._spread(storages)[self._spread(lanes)][0])
        drawn = self._parameters.drawn.get(number)
        if drawn is None or bool((lanes & (storages != number)).any()):
            return unknown
        return drawn.loaded(address - number * BASE, lanes, step.instruction.op, step.results)

    def _packed(self, step: Step) -> tuple[Value, ...]:
        """``mov`` between one register and its parts."""
        parts = [self._read(source) for source in step.sources]
        if any(part is None for part in parts):
            return (None,) * len(step.results)
        known = [part for part in parts if part is not None]
        if len(step.results) > 1:
            whole = known[0]
            bits = whole.dtype.itemsize * 8 // len(step.results)
            kind = np.dtype(f"i{bits // 8}").type
            return tuple((whole >> (bits * i)).astype(kind) for i in range(len(step.results)))
        bits = int(step.instruction.op.rpartition(".")[2][1:]) // len(known)
        mask = np.int64((1 << bits) - 1)
        total = known[0].astype(np.int64) & mask
        for i, part in enumerate(known[1:], 1):
            total = total | ((part.astype(np.int64) & mask) << np.int64(bits * i))
        return (total.astype(f"i{bits * len(known) // 8}"),)

    def _touch(self, step: Step, active: Value, sure: bool) -> None:
        access = step.access
        if access is None or (active is not None and not active.any()):
            return
        sure = sure and step.instruction.index >= self._doubtful_until
        if access.kind is Kind.TENSORMAP:
            self._tensormap(step)
            return
        touch = Touch(step.instruction, access, None, active, sure)
        match access.kind:
            case Kind.BULK_LOAD | Kind.BULK_STORE:
                touch.extent = self._bulk(step)
            case Kind.ASYNC_COPY:
                self._async_copy(step, touch)
            case _:
                touch.address = self._address(step, 0)
        self.log.touches.append(touch)

    def _address(self, step: Step, number: int) -> Value:
        return self._resolved(*step.places[number])

    def _resolved(self, name: str, offset: int) -> Value:
        if name in self._parameters.symbols:
            return np.array([[self._parameters.symbols[name] + offset]])
        if name.isdigit():
            return np.array([[int(name) + offset]])
        value = self._registers.get(name)
        if value is None:
            return None
        value = value.astype(np.int64) if value.dtype != np.int64 else value
        return value + offset if offset else value

    def _async_copy(self, step: Step, touch: Touch) -> None:
        """``cp.async [to], [from], bytes, bytes to read``: what is not read is filled with zeros."""
        size = self._read(step.sources[2])
        touch.address, touch.second = self._address(step, 0), self._address(step, 1)
        touch.second_active = touch.active
        if size is not None:
            touch.access = type(touch.access)(Kind.ASYNC_COPY, int(size.flat[0]), touch.access.positions)
        if len(step.sources) > 3 and isinstance(step.sources[3], str) and step.sources[3][:1] == "%":
            read = self._read(step.sources[3], np.int32)
            if read is None:
                touch.second = None
            else:
                reads = read > 0
                touch.second_active = reads if touch.active is None else reads & touch.active

    def _bulk(self, step: Step) -> tuple[float, float, float] | None:
        if "tensor" not in step.instruction.op:
            size = self._read(step.sources[2])
            return None if size is None else (float(size.flat[0]), float(size.flat[0]) / 32, float(size.flat[0]))
        inside = step.instruction.operands[step.access.positions[0]]  # type: ignore[union-attr]
        name, _, rest = inside.strip("[] ").partition(",")
        address = self._resolved(name.strip(), 0)
        if address is None:
            return None
        described = self._maps.get(int(address.flat[0]))
        if described is None:
            return None
        names = [part.strip() for part in rest.strip(" {}").split(",")]
        coordinates = [self._lane(self._read(self._coordinate(part)), step) for part in names]
        if any(mode in step.instruction.op for mode in _BY_ROWS):
            return described.rows(coordinates[0], coordinates[1:])
        return described.extent(coordinates)

    @staticmethod
    def _coordinate(text: str) -> Any:
        return text if text[:1] == "%" else np.array([[int(text)]])

    def _lane(self, value: Value, step: Step) -> int | None:
        """The value in the one lane that issues a copy, in the middle block."""
        if value is None:
            return None
        active, _ = self._active(step, None)
        row = min(value.shape[0] - 1, self._shape[0] // 2)
        if active is None or value.shape[1] == 1:
            return int(value[row, 0])
        lanes = np.flatnonzero(active[min(active.shape[0] - 1, row)])
        return int(value[row, lanes[0]]) if len(lanes) else None

    def _tensormap(self, step: Step) -> None:
        op, instruction = step.instruction.op.split("."), step.instruction
        if op[1] == "replace":
            address = self._resolved(*instruction.address(0))
            values = [self._read(source) for source in step.sources[1:]]
            numbers = [None if value is None else self._lane(value, step) for value in values]
            if address is not None:
                self._maps.setdefault(int(address.flat[0]), TensorMap()).replace(op[3], numbers)
        elif op[1] == "cp_fenceproxy":
            to, source = self._resolved(*instruction.address(0)), self._resolved(*instruction.address(1))
            if to is not None and source is not None and int(source.flat[0]) in self._maps:
                held = self._maps[int(source.flat[0])]
                copied = TensorMap(held.element_bytes, dict(held.box), dict(held.dims))
                self._maps[int(to.flat[0])] = copied

    def _leave(self, block: Block, mask: Value) -> list[tuple[int, Value]]:
        """Where the lanes of a block go on."""
        last = block.last
        if last is not None and not last.op.startswith("bra"):
            return self._left(block, mask)
        if last is None or block.goes_to is None:
            return [(block.end, mask)]
        if block.start < self._doubtful_until:  # an "else" part is in doubt as its "then" part was
            self._doubtful_until = max(self._doubtful_until, block.goes_to)
        if not last.guard:
            return [(block.goes_to, mask)]
        guard = self._registers.get(last.guard)
        if guard is None:
            return self._unknown_branch(block, mask)
        return self._parted(block, mask, ~guard if last.negated else guard)

    def _parted(self, block: Block, mask: Value, condition: Array) -> list[tuple[int, Value]]:
        """Both ways of a branch, each with its lanes, if it has any."""
        self.log.blocks_part = self.log.blocks_part or len(condition) > 1
        goes = condition if mask is None else condition & mask
        if not goes.any() or block.goes_to is None:
            return [(block.end, mask)]
        stays = self._spread(~goes if mask is None else mask & ~goes)
        if not stays.any():
            return [(block.goes_to, mask)]
        return [(block.goes_to, self._spread(goes)), (block.end, stays)]

    def _spread(self, lanes: Array) -> Array:
        """One for each lane of each sampled block."""
        return lanes if lanes.shape == self._shape else np.broadcast_to(lanes, self._shape)

    def _left(self, block: Block, mask: Value) -> list[tuple[int, Value]]:
        """Lanes that end here; guarded, the others go on."""
        if block.start < self._doubtful_until:
            return []  # the other path is under way with the same lanes
        lanes = ends = self._spread(_TRUE if mask is None else mask)
        if block.last is not None and block.last.guard:
            guard = self._registers.get(block.last.guard)
            if guard is None:
                return [(block.end, mask)]
            ends = lanes & (~guard if block.last.negated else guard)
        self._alive = (self._alive if self._alive is not None else np.ones(self._shape, np.bool_)) & ~ends
        rest = lanes & ~ends
        return [(block.end, rest)] if rest.any() else []

    def _unknown_branch(self, block: Block, mask: Value) -> list[tuple[int, Value]]:
        """A loop ends after one iteration; of an "if" both paths are run by all lanes, and are in doubt."""
        self.log.unknown_branches += 1
        if block.goes_to is None or block.goes_to <= block.start:
            return [(block.end, mask)]
        self._doubtful_until = max(self._doubtful_until, block.goes_to)
        return [(block.end, mask), (block.goes_to, mask)]

    def _go_round(self, loop: Loop, mask: Value, *, again: bool) -> None:
        """At a loop's head: note where its lanes stand, and step over steady iterations."""
        history = self._histories.get(loop.begin)
        if history is None or not again or not history.goes_on(mask):
            history = self._histories[loop.begin] = History(mask)
        history.values.append(tuple(self._registers.get(name) for name in loop.carried))
        history.operands.append(tuple(self._operands(exit_) for exit_ in loop.exits or ()))
        history.marks.append(self.log.mark())
        found = jump(history, loop, mask, self._jumps.get(loop.begin))
        if found is None:
            return
        self._jumps[loop.begin] = found
        for name, move in zip(loop.carried, found.moves, strict=True):
            value = self._registers.get(name)
            if value is not None and move is not None:
                moved = value + move * np.asarray(found.periods).astype(move.dtype)
                self._registers[name] = moved if mask is None else np.where(mask, moved, value)
        self.log.repeat(history.marks[-1 - found.length], np.ravel(found.periods))
        self.log.sampled_loops += 1
        self._histories.pop(loop.begin)

    def _operands(self, exit_: Exit) -> tuple[Value, Value]:
        first, second = exit_.sources
        return self._read(first), self._read(second)
