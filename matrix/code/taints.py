"""Undefined lanes on their way through a kernel: which load left them, where they are, and how they move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.code.lanes import Condition, Label, order, rename, reshaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.code.mlir import Operation, Value


@dataclass(frozen=True, slots=True)
class Taint:
    """Lanes that ``load`` left undefined: those where ``mask`` does not hold but all of ``given`` does."""

    load: Operation
    mask: Condition
    given: frozenset[Condition] = frozenset()

    def relabelled(self, simple: Callable[[int], Label]) -> Taint:
        def whole(label: Label) -> Label:
            return rename(label, simple)

        given = frozenset(condition.relabelled(whole) for condition in self.given)
        return Taint(self.load, self.mask.relabelled(whole), given)

    def within(self, condition: Condition) -> Taint:
        return Taint(self.load, self.mask, self.given | {condition})

    def past(self, loop: int) -> Taint:
        return Taint(self.load, self.mask.past(loop), frozenset(c.past(loop) for c in self.given))


def whole(value: Value) -> Condition:
    return Condition(value, tuple(range(len(value.shape))))


def negated(condition: Condition) -> Condition:
    return Condition(condition.value, condition.labels, not condition.negated, condition.epoch)


def moved(operation: Operation, index: int, operand: Value) -> Callable[[int], Label]:
    """Where an operation's result has the coordinate that its operand calls by a position."""
    match operation.name:
        case "tt.expand_dims":
            axis = operation.integer("axis")
            return lambda position: position + (position >= axis)
        case "tt.trans":
            return lambda position: order(operation).index(position)
        case "tt.reshape":
            target = operation.results[0].shape
            labels = reshaped(operand.shape, target, tuple(range(len(target))))
            return lambda position: labels[position]
        case "tt.split":
            return replaced(len(operand.shape) - 1, gone(operation))
        case "tt.cat" | "tt.gather" if index == 0 or operation.name == "tt.cat":
            axis = operation.integer("axis") if operation.name == "tt.gather" else 0
            return replaced(axis, ("shuffled", f"{id(operation):x}", axis))
    return same


def same(position: int) -> Label:
    return position


def without(axis: int, label: Label) -> Callable[[int], Label]:
    return lambda position: label if position == axis else position - (position > axis)


def replaced(axis: int, label: Label) -> Callable[[int], Label]:
    return lambda position: label if position == axis else position


def gone(operation: Operation) -> Label:
    """The name of a coordinate that the operation's result no longer has."""
    return ("gone", f"{id(operation):x}")
