"""The input generator: the same bits in every environment and on every host.

Neither torch's generator nor NumPy's distributions promise equal streams over their versions; NumPy's
Philox bit stream does (NEP 19). So values are made from its raw 64-bit words with exact integer
arithmetic only, one stream per cell point and argument.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch

from matrix.worker.philox import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
for _name, _attribute in {"fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}.items():
    if hasattr(torch, _attribute):
        DTYPES[_name] = getattr(torch, _attribute)

_WORD_53 = (1 << 53) - 1
_TOP_BITS = 0x8000_8000_8000_8000 - (1 << 64)
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of a dtype name. Raises ``ValueError`` that lists the known names."""
    try:
        return DTYPES[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}; known here: {', '.join(DTYPES)}") from None


class Make:
    """Makes a case's inputs. Every call draws from a stream of its own, keyed by ``seed`` and call number."""

    def __init__(self, seed: str, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._seed = seed
        self._calls = 0

    def normal(self, shape: Sequence[int], dtype: str, *, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Bell-shaped values: the sum of four 16-bit uniforms, so bounded by ``3.46 * std``."""
        # With their top bits turned over, the halves of a word are the uniforms less 2**15 each, as int16.
        halves = (self._words(math.prod(shape)) ^ _TOP_BITS).view(torch.int16).reshape(-1, 4)
        total = halves[:, 0].to(torch.int32)
        for i in range(1, 4):
            total += halves[:, i]
        values = (total + (4 * (1 << 15) - 2 * 0xFFFF)).double() * (math.sqrt(3.0) / 0xFFFF)
        return self._tensor(values * std + mean, shape, dtype)

    def uniform(self, shape: Sequence[int], dtype: str, *, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Values in ``[low, high)``, multiples of ``(high - low) / 2**24``."""
        values = ((self._words(math.prod(shape)) >> 40) & 0xFFFFFF).double() * 2.0**-24
        return self._tensor(values * (high - low) + low, shape, dtype)

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: str = "int64") -> torch.Tensor:
        """Whole numbers in ``[low, high)``; a float dtype gives integer-valued floats."""
        values = ((self._words(math.prod(shape)) >> 11) & _WORD_53) % (high - low)
        return self._tensor(values + low, shape, dtype)

    def permutation(self, n: int, dtype: str = "int64") -> torch.Tensor:
        """The numbers 0 to ``n - 1`` in random order."""
        # Words compare as unsigned: the sign bit turned over, the order of int64 is theirs.
        order = torch.argsort(self._words(n) ^ -(1 << 63), stable=True)
        return self._tensor(order, (n,), dtype)

    def zeros(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        return torch.zeros(tuple(shape), dtype=dtype_of(dtype), device=self.device)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> torch.Tensor:
        return torch.full(tuple(shape), value, dtype=torch.float64).to(dtype_of(dtype)).to(self.device)

    def _words(self, n: int) -> torch.Tensor:
        return words(self._next_key(), n, self.device)

    def _next_key(self) -> tuple[int, int]:
        key = hashlib.sha256(f"{self._seed}#{self._calls}".encode()).digest()
        self._calls += 1
        return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")

    def _tensor(self, values: torch.Tensor, shape: Sequence[int], dtype: str) -> torch.Tensor:
        tensor = values.reshape(tuple(shape))
        # bf16 and fp8 round from float32 on every release; from float64 some round twice and some do not.
        if tensor.dtype == torch.float64 and dtype != "fp64":
            tensor = tensor.to(torch.float32)
        return tensor.to(dtype_of(dtype))


class Blank(Make):
    """Makes inputs that are never read: the same shapes over lazily zeroed memory, so that size is free.

    ``drawn`` says, by where each tensor of integers lies, what :class:`Make` would have put there: whoever wants an
    element can draw it again (:mod:`matrix.memory.drawn`).
    """

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.drawn: dict[int, dict[str, Any]] = {}

    def _words(self, n: int) -> torch.Tensor:
        raise NotImplementedError

    def normal(self, shape: Sequence[int], dtype: str, *, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        return self._skipped(shape, dtype)

    def uniform(self, shape: Sequence[int], dtype: str, *, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return self._skipped(shape, dtype)

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: str = "int64") -> torch.Tensor:
        tensor = self._blank(shape, dtype)
        key = self._next_key()
        if tensor.numel() and not tensor.is_floating_point():
            self.drawn[tensor.untyped_storage().data_ptr()] = {
                "key": [f"{half:#x}" for half in key],  # as text: 64 bits are too many for some readers of JSON
                "low": low,
                "high": high,
                "count": tensor.numel(),
                "dtype": dtype,
            }
        return tensor

    def permutation(self, n: int, dtype: str = "int64") -> torch.Tensor:
        return self._skipped((n,), dtype)

    def zeros(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        return self._blank(shape, dtype)

    def full(self, shape: Sequence[int], value: float, dtype: str) -> torch.Tensor:
        return self._blank(shape, dtype)

    def _skipped(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        """Without its values, but its turn is taken: the next one's stream is the next."""
        self._next_key()
        return self._blank(shape, dtype)

    def _blank(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        wanted = dtype_of(dtype)
        size = math.prod(shape) * torch.empty((), dtype=wanted).element_size()
        # calloc hands out untouched pages; torch.zeros would write them.
        raw = torch.from_numpy(np.zeros(size, dtype=np.uint8))
        return raw.view(wanted).reshape(tuple(shape)) if size else torch.empty(tuple(shape), dtype=wanted)
