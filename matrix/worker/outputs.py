"""Seeing what a run writes: what it allocates is guarded, and poisoned where it is not initialised.

Poison is a NaN with a payload of ours for floats and an unlikely bit pattern for integers. An element
still holding it was (almost certainly) never written; the caller runs again under a second pattern, and
only what is poison both times counts.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from matrix.worker.guards import BITS, Guards, guardable, poison_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNINITIALISED = frozenset(
    {
        torch.empty,
        torch.empty_like,
        torch.empty_strided,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    }
)
_INITIALISED = frozenset(
    {
        torch.zeros,
        torch.zeros_like,
        torch.ones,
        torch.ones_like,
        torch.full,
        torch.full_like,
        torch.clone,
        torch.Tensor.clone,
        torch.Tensor.new_zeros,
        torch.Tensor.new_ones,
        torch.Tensor.new_full,
    }
)


class Poison(TorchFunctionMode):
    """While active, allocations are guarded, and uninitialised ones start as poison ``pattern`` (0 or 1)."""

    def __init__(self, pattern: int, guards: Guards | None = None) -> None:
        super().__init__()
        self._guards = guards or Guards(pattern)
        self._count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        poison, keep = func in _UNINITIALISED, func in _INITIALISED
        if not (poison or keep) or not guardable(result) or result.requires_grad:
            return result
        name = f"allocation {self._count} {list(result.shape)}"
        self._count += 1
        return self._guards.poisoned(result, name) if poison else self._guards.place(result, name)


def untouched(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """A bool tensor: where ``tensor`` still holds its poison, bit for bit."""
    if tensor.dtype == torch.bool or tensor.numel() == 0 or tensor.element_size() not in BITS:
        return torch.zeros_like(tensor, dtype=torch.bool)
    bits = tensor.detach().contiguous().view(BITS[tensor.element_size()])
    return bits == poison_of(tensor.dtype, pattern)


class NoOutputsError(TypeError):
    """What a case's ``run`` or ``reference`` returned is no tensor, and no tuple or list of tensors."""


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a run's result, in order: one, or those of a tuple or list. Raises :class:`NoOutputsError`."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in tensors(item)]
    if result is None:
        return []
    raise NoOutputsError(f"run() and reference() return tensors, not {type(result).__name__}")
