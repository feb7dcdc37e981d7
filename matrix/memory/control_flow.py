"""Loops of machine code: what lies between a branch back and the instruction that all ways to it lead through.

A branch to a lower address alone is none: ptxas puts waits that seldom happen behind the rest, and returns from them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def natural_loops(ways: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """Each loop as the nodes of it, the smaller ones first. ``ways`` lead from each node to others; 0 is the first."""
    before = _before(ways)
    dominators = _dominators(len(ways), before)
    loops: dict[int, set[int]] = {}
    for node, following in enumerate(ways):
        for head in following:
            if dominators[node] >> head & 1:
                loops.setdefault(head, {head}).update(_body(node, head, before))
    return sorted((frozenset(body) for body in loops.values()), key=lambda body: (len(body), min(body)))


def certain(ways: Sequence[Sequence[int]]) -> frozenset[int]:
    """The nodes that every way from the first node to any last one leads through."""
    dominators = _dominators(len(ways), _before(ways))
    common = (1 << len(ways)) - 1
    for node, following in enumerate(ways):
        if not following and dominators[node]:
            common &= dominators[node]
    return frozenset(node for node in range(len(ways)) if common >> node & 1)


def _before(ways: Sequence[Sequence[int]]) -> Mapping[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for node, following in enumerate(ways):
        for one in following:
            found[one].append(node)
    return found


def _dominators(count: int, before: Mapping[int, Sequence[int]]) -> list[int]:
    """For each node, as bits, those that every way to it leads through, itself included. 0 where no way leads."""
    everything = (1 << count) - 1
    found = [1, *[everything] * (count - 1)]
    moved = True
    while moved:
        moved = False
        for node in range(1, count):
            common = everything if before.get(node) else 0
            for one in before.get(node, ()):
                common &= found[one]
            common |= 1 << node if before.get(node) else 0
            moved = moved or common != found[node]
            found[node] = common
    return found


def _body(tail: int, head: int, before: Mapping[int, Sequence[int]]) -> set[int]:
    """What reaches the branch back without the loop's head."""
    found, left = {tail}, [tail]
    while left:
        node = left.pop()
        if node == head:
            continue
        for one in before.get(node, ()):
            if one not in found:
                found.add(one)
                left.append(one)
    return found
