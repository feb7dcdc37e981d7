"""NumPy's Philox bit stream on the device that wants it: the same 64-bit words, without the way over the host.

Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) maps each
counter to four words and needs no state, so that a GPU makes them in parallel (:mod:`philox_kernel`). Where the words
are wanted on the CPU, NumPy makes them; and a reproducer, which has torch alone, makes them by torch. All are the same
bits (a test compares them, on the GPU too where there is one).
"""

from __future__ import annotations

import numpy as np
import torch

from matrix.worker import philox_kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF
_WORD = (1 << 64) - 1
# Counters at a time: what the rounds need beside their result is a dozen times as much.
_CHUNK = 1 << 22


def words(key: tuple[int, int], n: int, device: torch.device) -> torch.Tensor:
    """The first ``n`` words of the stream of ``key``, as the int64 of the same bits."""
    if device.type == "cpu":
        generator = np.random.Philox(key=np.array(key, dtype=np.uint64))
        drawn = np.asarray(generator.random_raw(n), dtype=np.uint64).reshape(-1)
        return torch.from_numpy(drawn.view(np.int64))
    return philox_kernel.words(key, n, device)


def by_torch(key: tuple[int, int], n: int, device: torch.device) -> torch.Tensor:
    """The same words by torch's own operations, on any device: a hundred times as slow as the kernel."""
    result = torch.empty((n + 3) // 4, 4, dtype=torch.int64, device=device)
    for first in range(0, len(result), _CHUNK):
        part = result[first : first + _CHUNK]
        # NumPy counts up before it draws: the first block is that of counter 1.
        _fill(part, torch.arange(first + 1, first + 1 + len(part), dtype=torch.int64, device=device), key)
    return result.reshape(-1)[:n]


def _fill(part: torch.Tensor, counter: torch.Tensor, key: tuple[int, int]) -> None:
    zero = torch.zeros_like(counter)
    a, b, c, d = counter, zero, zero, zero
    for first, second in _keys(key):
        high_a, low_a = _product(_MULTIPLIERS[0], a)
        high_c, low_c = _product(_MULTIPLIERS[1], c)
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    for column, values in enumerate((a, b, c, d)):
        part[:, column] = values


def _keys(key: tuple[int, int]) -> Iterator[tuple[int, int]]:
    first, second = key
    for _ in range(_ROUNDS):
        yield _signed(first), _signed(second)
        first, second = (first + _WEYL[0]) & _WORD, (second + _WEYL[1]) & _WORD


def _product(factor: int, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 64 bits of the unsigned product, by way of 32-bit halves; int64 wraps as uint64 does."""
    factor_low, factor_high = factor & _LOW, factor >> 32
    low, high = values & _LOW, (values >> 32) & _LOW
    middle = high * factor_low + (((low * factor_low) >> 32) & _LOW)
    cross = low * factor_high + (middle & _LOW)
    upper = high * factor_high + ((middle >> 32) & _LOW) + ((cross >> 32) & _LOW)
    return upper, values * _signed(factor)


def _signed(value: int) -> int:
    """The int64 of the same bits."""
    return value - (1 << 64) if value >> 63 else value
