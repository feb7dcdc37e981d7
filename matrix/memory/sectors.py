"""Global memory: sectors of 32 bytes that one warp's request touches, and the fewest that its bytes need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matrix.memory.operations import Array

SECTOR_BYTES = 32


def sectors(addresses: Array, active: Array, width: int, lanes: int = 32) -> tuple[Array, Array, Array]:
    """Sectors, ideal sectors and distinct bytes used, one each a row; ``addresses`` is (requests, 32).

    An access is aligned to its width (PTX demands it), so lanes use the same bytes or none in common. ``lanes`` that
    lie together ask as one.
    """
    asked = np.where(active, addresses, -1)
    starts = np.sort(asked, axis=1)
    used = _distinct(starts) * width
    parts = np.sort(asked.reshape(-1, lanes), axis=1) // SECTOR_BYTES
    touched = _distinct(parts).reshape(len(asked), -1).sum(1) * max(1, width // SECTOR_BYTES)
    return touched, -(-used // SECTOR_BYTES), used


def most_on_one_address(addresses: Array, active: Array) -> Array:
    """How many lanes of a row share their address, at most: what atomics take turns on."""
    ordered = np.sort(np.where(active, addresses, -1), axis=1)
    most: Array = np.zeros(len(ordered), np.int64)
    run: Array = np.zeros(len(ordered), np.int64)
    for column in range(ordered.shape[1]):
        same = ordered[:, column] == ordered[:, column - 1] if column else np.zeros(len(ordered), np.bool_)
        run = np.where(ordered[:, column] < 0, 0, np.where(same, run + 1, 1))
        most = np.maximum(most, run)
    return most


def _distinct(ordered: Array) -> Array:
    """Distinct values of each sorted row; negative ones are lanes that take no part."""
    changes = np.ones(ordered.shape, np.bool_)
    changes[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return (changes & (ordered >= 0)).sum(1)
