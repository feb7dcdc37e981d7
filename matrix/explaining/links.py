"""The links of a chain from source to time: each the same, changed or unknown."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(enum.StrEnum):
    """The links of a chain, in order."""

    SOURCE = "source"
    OPTIONS = "options"
    TTIR = "TTIR"
    TTGIR = "TTGIR"
    LLIR = "LLIR"
    PTX = "PTX"
    PTXAS = "ptxas"
    SASS = "SASS"
    STATIC = "static evidence"
    COUNTERS = "counters"
    KERNEL_TIME = "kernel time"
    PASS_TIME = "pass time"  # noqa: S105 - no password


class State(enum.StrEnum):
    SAME = "same"
    CHANGED = "changed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link. ``first``: the first that changed and had an effect."""

    step: Step
    state: State
    note: str = ""
    first: bool = False


def state_of(one: str, other: str) -> State:
    if not (one and other):
        return State.UNKNOWN
    return State.SAME if one == other else State.CHANGED


def joined(states: Sequence[State]) -> State:
    """Of all kernels: one that changed is enough, and one that is unknown keeps the rest from being the same."""
    for state in (State.CHANGED, State.UNKNOWN):
        if state in states:
            return state
    return State.SAME if states else State.UNKNOWN
