"""One observed run of a case: guarded inputs, guarded and poisoned allocations, launches noted."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from matrix.worker import cases, observe
from matrix.worker.guards import Guards, guardable
from matrix.worker.outputs import Poison, tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from matrix.case import Case, Params


@dataclass(frozen=True)
class Trial:
    """What a run gave and what it was seen to do."""

    results: list[torch.Tensor]
    launched: list[str]
    functions: list[Any]
    by_hand: list[str]  # of those launched, what was launched past its function
    breached: list[str]
    modified: list[int]


def attempt(
    case: Case,
    inputs: Sequence[Any],
    params: Params,
    *,
    pattern: int = 0,
    strides: Mapping[int, tuple[int, ...]] | None = None,
    shift: int = 0,
) -> Trial:
    """Run the case on copies of ``inputs``, laid out with ``strides`` and ``shift`` elements off alignment."""
    # Around the inputs lies the other pattern: what is copied from outside an input is seen outside an output.
    guards, around = Guards(pattern), Guards(1 - pattern)
    placed = [_place(around, item, i, (strides or {}).get(i), shift) for i, item in enumerate(inputs)]
    with observe.launches() as launched, Poison(pattern, guards):
        results = tensors(cases.call(case.run, placed, params))
    _synchronize(placed)
    return Trial(
        results=results,
        launched=[launch.name for launch in launched],
        functions=[launch.function for launch in launched],
        by_hand=[launch.name for launch in launched if launch.by_hand],
        breached=[*around.breached(), *guards.breached()],
        modified=[i for i, (new, old) in enumerate(zip(placed, inputs)) if _differs(new, old)],
    )


def _place(guards: Guards, item: Any, position: int, stride: tuple[int, ...] | None, shift: int) -> Any:
    if not isinstance(item, torch.Tensor):
        return item
    if not guardable(item):
        return item.clone()
    return guards.place(item, f"input {position}", stride=stride, shift=shift)


def _differs(new: Any, old: Any) -> bool:
    return isinstance(old, torch.Tensor) and not same_bits_of(new, old)


def same_bits_of(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits, whatever their layout."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    left, right = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(left, right))


def _synchronize(placed: Sequence[Any]) -> None:
    if any(isinstance(item, torch.Tensor) and item.is_cuda for item in placed):
        torch.cuda.synchronize()
