"""The inputs of a point: seeded by what every environment and host has in common."""

from __future__ import annotations

import torch

from matrix.model import Cell
from matrix.worker.inputs import Make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from matrix.case import Case, Params


def seed_of(case: Case, params: Params) -> str:
    """The seed leaves out environment and target: every environment gets the same bits."""
    return Cell.of("", "", case.name, params).point


def inputs_of(
    case: Case, params: Params, *, device: torch.device | str = "cpu", extra: str = "", make: type[Make] = Make
) -> list[Any]:
    """The case's inputs at this point; ``extra`` gives other values of the same kind (a fuzz seed, say)."""
    seed = seed_of(case, params)
    return list(case.inputs(make(f"{seed}@{extra}" if extra else seed, device), params))
