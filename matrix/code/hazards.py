"""Masked loads without ``other`` whose undefined lanes can reach a store or a reduction (triton#737).

A ``tl.load(p, mask=m)`` leaves the lanes outside ``m`` undefined. That is harmless where they are never
looked at, and most kernels are written so: the result is stored under the same mask, or under a stricter
one. This follows the undefined lanes through the TTIR, together with the condition under which a lane is
defined, and reports

* ``masked_load_without_other`` where they reach a store, an atomic or a reduction (a dot's contraction, a
  scan and a histogram included) that does not leave them out;
* ``masked_load_replaced_by_select``, a lint, where a ``tl.where`` replaces all of them: correct, but it rests
  on the two masks staying equal, and ``other=`` says it once.

Doubt is settled in the kernel's favour: values that go through memory, calls or a masked descriptor store
are not followed, and a mask of another loop iteration is taken to be the right one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from matrix.code import mlir
from matrix.code.lanes import Condition
from matrix.code.predicates import Atoms, Predicates
from matrix.code.taints import Taint, gone, moved, negated, replaced, same, whole, without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.code.mlir import Block, Operation, Value

REACHES = "masked_load_without_other"
REPLACED = "masked_load_replaced_by_select"

_CANDIDATE = re.compile(r"tt\.load %[\w.$#-]+, %[\w.$#-]+ *(?:[^,%]*) : ")
_ROUNDS = 8  # a fixed point over loops is reached in two or three
_MOST_TAINTS = 64
_DOT_OPERANDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """A load at ``file:line`` (the base name) whose undefined lanes get somewhere."""

    kind: str
    file: str
    line: int
    detail: str


Taints = frozenset[Taint]
_NONE: Taints = frozenset()


def hazards(ttir: str) -> list[Hazard]:
    """The hazards of a kernel, by line. TTIR of any release from 3.0 to 3.9."""
    if not _CANDIDATE.search(ttir):
        return []
    module = mlir.parse(ttir)
    found = [hazard for function in module.functions for hazard in _Analysis(module, function).hazards()]
    return sorted(set(found), key=lambda hazard: (hazard.file, hazard.line, hazard.kind))


class _Analysis:
    """One function: the taints of each value, to a fixed point."""

    def __init__(self, module: mlir.Module, function: Operation) -> None:
        self.module = module
        self.function = function
        self.taints: dict[Value, Taints] = {}
        self.reached: dict[Operation, str] = {}
        self.replaced: dict[Operation, str] = {}
        self.path: list[Atoms] = []
        loops: dict[Value, frozenset[int]] = {}
        carried: set[Value] = set()
        self.loop_ids: dict[Operation, int] = {}
        self._survey(function, frozenset(), loops, carried)
        self.predicates = Predicates(loops, carried)

    def hazards(self) -> list[Hazard]:
        for _ in range(_ROUNDS):
            before = dict(self.taints)
            self._region([block for region in self.function.regions for block in region])
            if before == self.taints:
                break
        reached = [self._hazard(REACHES, load, text) for load, text in self.reached.items()]
        lints = [(load, text) for load, text in self.replaced.items() if load not in self.reached]
        return reached + [self._hazard(REPLACED, load, text) for load, text in lints]

    def _hazard(self, kind: str, load: Operation, detail: str) -> Hazard:
        file, line = self.module.source(load.location)
        return Hazard(kind=kind, file=_base_name(file), line=line, detail=detail)

    def _survey(
        self,
        operation: Operation,
        inside: frozenset[int],
        loops: dict[Value, frozenset[int]],
        carried: set[Value],
    ) -> None:
        """Notes which loops define each value anew, and which values a loop carries."""
        if operation.name in {"scf.for", "scf.while"}:
            self.loop_ids[operation] = len(self.loop_ids)
            inside |= {self.loop_ids[operation]}
            carried.update(value for block in operation.blocks() for value in block.arguments)
        for block in operation.blocks():
            loops.update(dict.fromkeys(block.arguments, inside))
            for child in block.operations:
                self._survey(child, inside, loops, carried)
                loops.update(dict.fromkeys(child.results, inside))

    def _region(self, blocks: Iterable[Block]) -> None:
        by_label = {block.label: block for block in blocks}
        for block in by_label.values():
            for operation in block.operations:
                if operation.name in {"cf.br", "cf.cond_br"}:
                    self._branch(operation, by_label)
                else:
                    self._visit(operation)

    def _branch(self, operation: Operation, blocks: dict[str, Block]) -> None:
        operands = {value.name: value for value in operation.operands}
        for label, names in re.findall(r"(\^\w+)\(([^:()]*)", operation.text):
            values = [operands[name] for name in re.findall(r"%[\w.$#-]+", names) if name in operands]
            if label in blocks:
                self._pass_on(values, blocks[label].arguments)

    def _visit(self, operation: Operation) -> None:
        handlers = {
            "tt.load": self._load,
            "tt.store": self._write,
            "tt.atomic_rmw": self._write,
            "tt.atomic_cas": self._write,
            "tt.reduce": self._reduce,
            "tt.scan": self._reduce,
            "tt.dot": self._dot,
            "tt.dot_scaled": self._dot,
            "tt.histogram": self._histogram,
            "tt.call": lambda _: None,
            "arith.select": self._select,
            "arith.andi": self._and,
            "scf.for": self._loop,
            "scf.while": self._loop,
            "scf.if": self._if,
        }
        handlers.get(operation.name, self._elsewhere)(operation)

    def _elsewhere(self, operation: Operation) -> None:
        """Everything that moves lanes or works on each by itself."""
        for index, operand in enumerate(operation.operands):
            taints = self._of(operand)
            if taints:
                move = moved(operation, index, operand)
                for result in operation.results:
                    self._add(result, (taint.relabelled(move) for taint in taints))

    def _load(self, operation: Operation) -> None:
        pointer, *rest = operation.operands
        masked = [taint for mask in rest[:1] for taint in self._of(mask)]
        taints = [*self._under(self._of(pointer), rest[:1]), *masked]
        if len(rest) == 1:
            mask = whole(rest[0])
            if self.predicates.atoms(mask):
                taints.append(Taint(operation, mask))
        elif rest[1:]:
            taints += [taint.within(negated(whole(rest[0]))) for taint in self._of(rest[1])]
        self._add(operation.results[0], taints)

    def _write(self, operation: Operation) -> None:
        values = operation.operands[:2] if operation.name != "tt.atomic_cas" else operation.operands[:3]
        mask = operation.operands[len(values) :]
        taints = [taint for value in values for taint in self._under(self._of(value), mask)]
        taints += [taint for value in mask for taint in self._of(value)]
        given = [*self.path, *(self.predicates.atoms(whole(value)) for value in mask)]
        for taint in taints:
            if self._open(taint, given, lenient=True):
                self._reach(taint, operation, "a store" if operation.name == "tt.store" else "an atomic")

    def _reduce(self, operation: Operation) -> None:
        axis = operation.integer("axis")
        reverse = "reverse = true" in operation.attributes
        scan = operation.name == "tt.scan"
        move = same if scan else without(axis, gone(operation))
        for taint in frozenset().union(*map(self._of, operation.operands)):
            mixing = [a for a in self._open(taint, self.path) if self.predicates.depends_on(a, axis)]
            if scan and all(self.predicates.slope(a, axis) == (1 if reverse else -1) for a in mixing):
                mixing = []  # the undefined lanes are at the end, and come after all the others
            if mixing:
                self._reach(taint, operation, "a scan" if scan else "a reduction")
                continue
            for result in operation.results:
                self._add(result, [taint.relabelled(move)])

    def _dot(self, operation: Operation) -> None:
        rank = len(operation.results[0].shape)
        for index, operand in enumerate(operation.operands):
            contracted = rank - 1 if index == 0 else rank - 2
            for taint in self._of(operand):
                open_atoms = self._open(taint, self.path) if index < _DOT_OPERANDS else ()
                if any(self.predicates.depends_on(atom, contracted) for atom in open_atoms):
                    self._reach(taint, operation, "a dot's contraction")
                    continue
                move = replaced(contracted, gone(operation)) if index < _DOT_OPERANDS else same
                self._add(operation.results[0], [taint.relabelled(move)])

    def _histogram(self, operation: Operation) -> None:
        source, *mask = operation.operands
        given = [*self.path, *(self.predicates.atoms(whole(value)) for value in mask)]
        for taint in self._of(source):
            if self._open(taint, given):
                self._reach(taint, operation, "a histogram")

    def _select(self, operation: Operation) -> None:
        condition, chosen, otherwise = operation.operands
        result = operation.results[0]
        labels = tuple(range(len(result.shape))) if condition.shape else ()
        holds = Condition(condition, labels)
        self._add(result, self._of(condition))
        for value, given in ((chosen, holds), (otherwise, negated(holds))):
            for taint in self._of(value):
                narrowed = taint.within(given)
                if self._open(narrowed, self.path):
                    self._add(result, [narrowed])
                elif self._open(taint, self.path):
                    where = self._where(operation)
                    self.replaced.setdefault(taint.load, f"a select{where} replaces the lanes outside the mask")

    def _and(self, operation: Operation) -> None:
        """Where one side is false the result is, whatever the other side's lane holds."""
        left, right = operation.operands
        for value, other in ((left, right), (right, left)):
            self._add(operation.results[0], self._under(self._of(value), [other]))

    def _loop(self, operation: Operation) -> None:
        loop = self.loop_ids[operation]
        skip = 3 if operation.name == "scf.for" else 0
        initial = operation.operands[skip:]
        first, last = operation.regions[0], operation.regions[-1]
        arguments = first[0].arguments[1 if skip else 0 :]
        self._pass_on(initial, arguments)
        bound = self._bound(operation) if skip else frozenset()
        for _ in range(_ROUNDS):
            before = [self._of(argument) for argument in arguments]
            self.path.append(bound)
            for region in operation.regions:
                self._region(region)
            self.path.pop()
            self._pass_on(_yielded(last), arguments, loop)
            if before == [self._of(argument) for argument in arguments]:
                break
        if operation.name == "scf.while":
            leaving = _yielded(first, "scf.condition")[1:]
            self._pass_on(leaving, last[0].arguments)
            self._pass_on(leaving, operation.results, loop)
        else:
            self._pass_on(initial, operation.results)
            self._pass_on(_yielded(last), operation.results, loop)

    def _bound(self, operation: Operation) -> Atoms:
        low, high = operation.operands[:2]
        return self.predicates.between(low, operation.regions[0][0].arguments[0], high)

    def _if(self, operation: Operation) -> None:
        condition = Condition(operation.operands[0], ())
        for region, holds in zip(operation.regions, (condition, negated(condition)), strict=False):
            self.path.append(self.predicates.atoms(holds))
            self._region(region)
            self.path.pop()
            self._pass_on(_yielded(region), operation.results)

    def _pass_on(self, values: Iterable[Value], targets: Iterable[Value], loop: int | None = None) -> None:
        for value, target in zip(values, targets, strict=False):
            taints = self._of(value)
            self._add(target, taints if loop is None else (taint.past(loop) for taint in taints))

    def _under(self, taints: Iterable[Taint], mask: list[Value]) -> list[Taint]:
        """The taints that are left where ``mask`` holds."""
        narrowed = [taint.within(whole(mask[0])) if mask else taint for taint in taints]
        return [taint for taint in narrowed if self._open(taint, self.path)]

    def _open(self, taint: Taint, given: Iterable[Atoms], *, lenient: bool = False) -> Atoms:
        """The atoms of the taint's mask that may fail although ``given`` holds: none, no undefined lane."""
        known = frozenset[int]().union(*given, *map(self.predicates.atoms, taint.given))
        left = self.predicates.remaining(self.predicates.atoms(taint.mask), known)
        if lenient:
            left = frozenset(a for a in left if not any(self.predicates.varies(k, a) for k in known))
        return left

    def _reach(self, taint: Taint, operation: Operation, what: str) -> None:
        self.reached.setdefault(taint.load, f"lanes outside the mask reach {what}{self._where(operation)}")

    def _where(self, operation: Operation) -> str:
        file, line = self.module.caller(operation.location)
        return f" at {_base_name(file)}:{line}" if line else ""

    def _of(self, value: Value) -> Taints:
        return self.taints.get(value, _NONE)

    def _add(self, value: Value, taints: Iterable[Taint]) -> None:
        more = self._of(value) | frozenset(taints)
        if more and len(more) <= _MOST_TAINTS:
            self.taints[value] = more


def _yielded(region: list[Block], name: str = "scf.yield") -> list[Value]:
    operations = region[-1].operations
    return operations[-1].operands if operations and operations[-1].name == name else []


def _base_name(path: str) -> str:
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
