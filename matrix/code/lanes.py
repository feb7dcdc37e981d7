"""Names for the coordinates of a tensor's lanes, kept while an operation moves lanes about.

The label of a tensor's dimension is its position. What is reshaped, reduced away or otherwise mixed gets a
label that says how, so that what is treated equally stays equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.code.mlir import Operation, Value

Label = int | None | tuple[object, ...]
Labels = tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean value, or its opposite, seen from a tensor whose coordinates are called ``labels``.

    ``epoch`` holds the loops of which a past iteration is meant: what such a loop defines has since changed.
    """

    value: Value
    labels: Labels
    negated: bool = False
    epoch: frozenset[int] = frozenset()

    def of(self, value: Value) -> Condition:
        """Another value seen in the same way."""
        return Condition(value, self.labels, epoch=self.epoch)

    def relabelled(self, rename: Callable[[Label], Label]) -> Condition:
        return Condition(self.value, tuple(map(rename, self.labels)), self.negated, self.epoch)

    def past(self, loop: int) -> Condition:
        return Condition(self.value, self.labels, self.negated, self.epoch | {loop})


def rename(label: Label, simple: Callable[[int], Label]) -> Label:
    """Applies ``simple`` to the positions inside a label."""
    if isinstance(label, int):
        return simple(label)
    if isinstance(label, tuple):
        return tuple(rename(part, simple) if isinstance(part, int | tuple) else part for part in label)
    return None


def positions(label: Label) -> frozenset[int]:
    """The positions that a label depends on."""
    if isinstance(label, int):
        return frozenset({label})
    if isinstance(label, tuple):
        return frozenset().union(*(positions(part) for part in label if isinstance(part, int | tuple)))
    return frozenset()


def reshaped(source: tuple[int, ...], target: tuple[int, ...], labels: Labels) -> Labels:
    """Labels of a tensor's dimensions before a reshape, from those after it.

    Only sizes of one come or go: the others keep theirs. Otherwise each dimension depends on all.
    """
    kept = [label for label, size in zip(labels, target, strict=True) if size != 1]
    if [size for size in source if size != 1] == [size for size in target if size != 1]:
        remaining = iter(kept)
        return tuple(next(remaining) if size != 1 else None for size in source)
    shape = "x".join(map(str, source)) + ">" + "x".join(map(str, target))
    return tuple(("reshape", shape, f"dim{index}", labels) for index in range(len(source)))


def order(operation: Operation) -> list[int]:
    """The permutation of ``tt.trans``."""
    match = re.search(r"order = array<i32: ([\d, ]+)>", operation.text)
    if match:
        return [int(part) for part in match[1].split(",")]
    return [*range(len(operation.results[0].shape))][::-1]
