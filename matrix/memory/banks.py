"""Shared memory: the wavefronts that one warp's request takes, and the fewest that its bytes need.

32 banks of 4 bytes; a wavefront serves one word of each bank, to any number of lanes. A request of 8 bytes a
lane is served by half warps, one of 16 by quarter warps; neighbouring lanes that ask for the same words are
served together (CUDA C++ Programming Guide, "Shared Memory"; checked against ``ncu`` on an H200).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matrix.memory.operations import Array

BANKS = 32
BANK_BYTES = 4
WARP = 32


def wavefronts(addresses: Array, active: Array, width: int) -> tuple[Array, Array]:
    """Wavefronts and the ideal, one each a row. ``addresses`` and ``active`` are (requests, 32), bytes a lane."""
    lanes = min(WARP, WARP * BANK_BYTES // width) if width > BANK_BYTES else WARP
    words = max(1, width // BANK_BYTES)
    requests = len(addresses)
    base = (addresses // BANK_BYTES).reshape(-1, lanes)
    on = active.reshape(-1, lanes)
    if words > 1:
        base = (base[:, :, None] + np.arange(words)).reshape(len(base), -1)
        on = np.repeat(on, words, axis=1)
    served, distinct = _served(base, on)
    groups = WARP // lanes
    total = served.reshape(requests, groups).sum(1)
    ideal = np.ceil(distinct / BANKS).astype(np.int64).reshape(requests, groups).sum(1)
    return total, ideal


def matrix_wavefronts(addresses: Array, active: Array, matrices: int) -> tuple[Array, Array]:
    """ldmatrix and stmatrix: eight lanes give the rows, of 16 bytes, of each matrix in turn."""
    lanes = 8 * matrices
    rows = addresses[:, :lanes].reshape(-1, 8)
    on = active[:, :lanes].reshape(-1, 8)
    words = ((rows // BANK_BYTES)[:, :, None] + np.arange(4)).reshape(len(rows), -1)
    served, distinct = _served(words, np.repeat(on, 4, axis=1))
    ideal = np.ceil(distinct / BANKS).astype(np.int64)
    return served.reshape(-1, matrices).sum(1), ideal.reshape(-1, matrices).sum(1)


def _served(words: Array, on: Array) -> tuple[Array, Array]:
    """For each row: the most distinct words in one bank, and the distinct words in all."""
    ordered = np.sort(np.where(on, words, -1), axis=1)
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    fresh &= ordered >= 0
    rows, columns = np.nonzero(fresh)
    banks = ordered[rows, columns] % BANKS
    counts = np.bincount(rows * BANKS + banks, minlength=len(words) * BANKS).reshape(-1, BANKS)
    return counts.max(1), counts.sum(1)
