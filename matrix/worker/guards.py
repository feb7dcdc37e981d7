"""Guard bands: tensors put between poisoned bytes, which are looked at again after a run.

The bytes around a tensor, and those between its rows where it is padded, are poison (NaN for floats). So
a read outside ends up in the result, and a write outside is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Wide enough for a tile that runs over the end; a multiple of 512, so that alignment stays what it was.
GUARD_BYTES = 64 << 10

# Bit patterns, two of each. Those of floats are signalling NaNs with an odd payload: arithmetic makes them quiet, so
# that what is read outside, computed with and written back is seen, too. Quiet ones would come back as they were.
_FLOATS = {
    torch.float16: (0x7D5B, 0x7CE3),
    torch.bfloat16: (0x7FA5, 0x7F9D),
    torch.float32: (0x7FA5A5A5, 0x7F9D1D1D),
    torch.float64: (0x7FF4A5A5A5A5A5A5, 0x7FF31D1D1D1D1D1D),
}
# By element size: a positive and a negative one, since a clamp leaves one of them alone. In the 8-bit ones lie NaNs of
# e4m3 and e5m2.
_OTHERS = {
    1: (0x7F, 0x7D),
    2: (0x5A5B, -0x5A5D),
    4: (0x5A5A5A5B, -0x5A5A5A5D),
    8: (0x5A5A5A5A5A5A5A5B, -0x5A5A5A5A5A5A5A5D),
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def poison_of(dtype: torch.dtype, pattern: int) -> int:
    """The bits of a poisoned element of that type, as an integer of :data:`BITS`; ``pattern`` is 0 or 1."""
    return (_FLOATS.get(dtype) or _OTHERS[dtype.itemsize])[pattern]


@dataclass(frozen=True)
class _Band:
    name: str
    raw: torch.Tensor  # the whole allocation, as integers of the element size
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    pattern: int


class Guards:
    """The guarded tensors of one run."""

    def __init__(self, pattern: int = 0) -> None:
        self._pattern = pattern
        self._bands: list[_Band] = []

    def place(
        self, tensor: torch.Tensor, name: str, *, stride: tuple[int, ...] | None = None, shift: int = 0
    ) -> torch.Tensor:
        """A copy of ``tensor`` between guard bands, ``shift`` elements off alignment, with these strides.

        A leaf of autograd is one again: its ``grad`` is filled.
        """
        value = None
        if stride is not None and not tensor.dtype.is_floating_point and tensor.numel():
            # An index read with the wrong stride shall give a wrong result, not end the process.
            value = int(tensor.reshape(-1)[:1].view(BITS[tensor.element_size()]))
        placed = self._allocate(tensor, name, tuple(tensor.stride()) if stride is None else stride, shift, value)
        placed.copy_(tensor.detach())
        return placed.requires_grad_(tensor.requires_grad)

    def poisoned(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """A guarded tensor of the same shape and strides that starts as poison (a bool has no third value)."""
        placed = self._allocate(tensor, name, tuple(tensor.stride()), 0)
        return placed.fill_(False) if tensor.dtype == torch.bool else placed

    def breached(self) -> list[str]:
        """What was written outside, one text for each guarded tensor that it happened to."""
        return [text for band in self._bands if (text := _breach(band))]

    def _allocate(
        self, like: torch.Tensor, name: str, stride: tuple[int, ...], shift: int, value: int | None = None
    ) -> torch.Tensor:
        bits = BITS[like.element_size()]
        margin = GUARD_BYTES // like.element_size()
        extent = _extent(tuple(like.shape), stride)
        value = poison_of(like.dtype, self._pattern) if value is None else value
        raw = torch.full((margin + shift + extent + margin,), value, dtype=bits, device=like.device)
        band = _Band(name, raw, tuple(like.shape), stride, margin + shift, value)
        self._bands.append(band)
        return _inner(band, raw).view(like.dtype)


def guardable(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be moved between guard bands: plain, with memory of its own, not too exotic."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and tensor.element_size() in BITS
        and not tensor.dtype.is_complex
        and all(stride > 0 or size <= 1 for size, stride in zip(tensor.shape, tensor.stride()))
    )


def _extent(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride))


def _inner(band: _Band, raw: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(raw, band.size, band.stride, band.offset)


def _breach(band: _Band) -> str:
    expected = torch.full_like(band.raw, band.pattern)
    _inner(band, expected).copy_(_inner(band, band.raw))
    changed = torch.nonzero(expected != band.raw).flatten()
    if not len(changed):
        return ""
    first = int(changed[0]) - band.offset
    extent = _extent(band.size, band.stride)
    where = f"{-first} before its start" if first < 0 else f"at {first}, its extent is {extent}"
    return f"{band.name}: {len(changed)} elements written outside of it, first {where}"
