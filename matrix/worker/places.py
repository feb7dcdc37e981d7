"""Places: sets of buffers of one point, resident side by side, so that where they lie can be averaged over.

Where buffers lie changes the time of a kernel by more than what is to be told apart. A place holds clones of
the inputs and, once its calls are captured, outputs of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch

from matrix.worker import cases
from matrix.worker.graphs import capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matrix.case import Case, Params

# Buffers move by odd multiples of a large page, so that sets, channels and slices all change.
_PAD_BYTES = 2 << 20
_PADS = 61


@dataclass
class Place:
    """One set of buffers, and what calls the case on it."""

    case: Case
    params: Params
    inputs: list[Any]
    pad: torch.Tensor | None = None
    replays: dict[int, Callable[[], object]] = field(default_factory=dict)

    def call(self) -> object:
        return cases.call(self.case.run, self.inputs, self.params)

    def calls(self, number: int, *, replayed: bool) -> Callable[[], object]:
        """Something that makes ``number`` calls: the call itself, or the replay of a graph of so many."""
        if number == 1 and not replayed:
            return self.call
        if number not in self.replays:
            self.replays[number] = capture(self.call, number)
            self.replays[number]()
        return self.replays[number]


class Cycle:
    """One callable that takes the places in turn: within a round already, where buffers lie is averaged over."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = itertools.cycle(calls)

    def __call__(self) -> object:
        return next(self._calls)()


def place(case: Case, params: Params, masters: Sequence[Any], number: int, device: torch.device) -> Place:
    """Place ``number``: clones of ``masters`` behind a pad whose size goes with the number."""
    size = (number * 37 % _PADS) * _PAD_BYTES
    pad = torch.empty(size, dtype=torch.uint8, device=device) if size else None
    inputs = [item.clone() if isinstance(item, torch.Tensor) else item for item in masters]
    return Place(case, params, inputs, pad=pad)
