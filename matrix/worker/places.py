"""Places: sets of buffers of one point, resident side by side, so that where they lie can be averaged over.

Where buffers lie changes the time of a kernel by more than what is to be told apart. A place holds copies
of the inputs. Where workers share a slab (:mod:`slab`), the places of all arms lie in the same memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch

from matrix.case import keyword_params

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matrix.case import Case, Params
    from matrix.model import ParamValue

# Buffers move by odd multiples of a large page, so that sets, channels and slices all change.
PAD_BYTES = 2 << 20
PADS = 61
_STEP = 37


@dataclass
class Place:
    """One set of buffers, and what calls the case on it."""

    case: Case
    params: Params
    inputs: list[Any]
    pad: torch.Tensor | None = None
    keywords: dict[str, ParamValue] = field(init=False)

    def __post_init__(self) -> None:
        # Once, and not in every call: it takes as long as a launch, and what a launch costs the host is measured here.
        self.keywords = keyword_params(self.case.run, self.params)

    def tensors(self) -> list[torch.Tensor]:
        return [item for item in self.inputs if isinstance(item, torch.Tensor)]

    def call(self) -> object:
        return self.case.run(*self.inputs, **self.keywords)


class Cycle:
    """One callable that takes the places in turn: within a round already, where buffers lie is averaged over."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self._calls = itertools.cycle(calls)

    def __call__(self) -> object:
        return next(self._calls)()


def pad_bytes(number: int) -> int:
    """How far the place of this number is moved."""
    return number * _STEP % PADS * PAD_BYTES


def place(case: Case, params: Params, masters: Sequence[Any], padding: int, device: torch.device) -> Place:
    """Tensors like ``masters``, not filled in, behind so many bytes of padding."""
    pad = torch.empty(padding, dtype=torch.uint8, device=device) if padding else None
    inputs = [torch.empty_like(item) if isinstance(item, torch.Tensor) else item for item in masters]
    return Place(case, params, inputs, pad=pad)
