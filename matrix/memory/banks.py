"""Shared memory: the wavefronts that one warp's request takes, and the fewest that its bytes need.

32 banks of 4 bytes; a wavefront serves one word of each bank, to any number of lanes. A request of 8 bytes a
lane is served by half warps, one of 16 by quarter warps; neighbouring lanes that ask for the same words are
served together (CUDA C++ Programming Guide, "Shared Memory"). Plain accesses of 4 bytes a lane agree with ``ncu``
on an H200 to what docs/memory.md's first table shows; the rule for neighbouring lanes has not been held against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matrix.memory.operations import Array

BANKS = 32
BANK_BYTES = 4


def wavefronts(addresses: Array, active: Array, width: int) -> tuple[Array, Array]:
    """Wavefronts and the ideal, one each a row. ``addresses`` and ``active`` are (requests, 32), bytes a lane."""
    if width <= BANK_BYTES:
        served, distinct = _served(addresses // BANK_BYTES, active)
        return served, _fewest(distinct)
    if width <= 2 * BANK_BYTES:
        return _by_group(addresses, active, width, 16)
    return _by_group(addresses, active, width, 8)


def _by_group(addresses: Array, active: Array, width: int, lanes: int) -> tuple[Array, Array]:
    """Groups of ``lanes`` one after the other; two neighbouring groups together where their lanes share words."""
    requests = len(addresses)
    pairs, on = addresses.reshape(-1, 2 * lanes), active.reshape(-1, 2 * lanes)
    served, distinct = _served(*_words(addresses.reshape(-1, lanes), active.reshape(-1, lanes), width))
    total, ideal = served.reshape(-1, 2).sum(1), _fewest(distinct).reshape(-1, 2).sum(1)
    merged = _shared_with(pairs, on, 1) | _shared_with(pairs, on, 2)
    if merged.any():
        served, distinct = _served(*_words(pairs[merged], on[merged], width))
        total[merged], ideal[merged] = served, _fewest(distinct)
    return total.reshape(requests, -1).sum(1), ideal.reshape(requests, -1).sum(1)


def _words(addresses: Array, active: Array, width: int) -> tuple[Array, Array]:
    count = width // BANK_BYTES
    words = (addresses // BANK_BYTES)[:, :, None] + np.arange(count)
    return words.reshape(len(words), -1), np.repeat(active, count, axis=1)


def _shared_with(addresses: Array, active: Array, distance: int) -> Array:
    """Whether each lane of a row has the address of the lane ``distance`` bits away, or has none to share."""
    other = np.arange(addresses.shape[1]) ^ distance
    same = (addresses == addresses[:, other]) | ~active | ~active[:, other]
    return same.all(1)


def _fewest(distinct: Array) -> Array:
    return -(-distinct // BANKS)


def matrix_wavefronts(addresses: Array, active: Array, matrices: int) -> tuple[Array, Array]:
    """Ldmatrix and stmatrix: eight lanes give the rows, of 16 bytes, of each matrix in turn."""
    lanes = 8 * matrices
    rows = addresses[:, :lanes].reshape(-1, 8)
    on = active[:, :lanes].reshape(-1, 8)
    served, distinct = _served(*_words(rows, on, 16))
    ideal = _fewest(distinct)
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
