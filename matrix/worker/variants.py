"""The same inputs made difficult: special values, other magnitudes, other layouts, whole numbers."""

from __future__ import annotations

import torch

from matrix.worker.inputs import Make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Powers of two, so that scaling itself rounds nothing; as far as squares and long sums stay in range.
_SCALES = {
    torch.float64: (2.0**40, 2.0**-40),
    torch.float32: (2.0**40, 2.0**-40),
    torch.bfloat16: (2.0**40, 2.0**-40),
    torch.float16: (2.0**5, 2.0**-8),
}
_WHOLE = 4
# In elements: a multiple of 16 bytes for every type, as tensor descriptors want it.
_PADDING = 16


def floats(inputs: Sequence[Any]) -> list[int]:
    """Positions of the float tensors that can be changed: not empty, and of a type with room for it."""
    return [
        i
        for i, item in enumerate(inputs)
        if isinstance(item, torch.Tensor) and item.dtype in _SCALES and item.numel() > 0
    ]


def special(inputs: Sequence[Any]) -> list[Any]:
    """A NaN and both infinities put into each float tensor, in other places in each."""
    result = list(inputs)
    for order, position in enumerate(floats(inputs)):
        tensor = inputs[position].clone()
        count = tensor.numel()
        # Values far apart, so that most rows or tiles keep ordinary values.
        for share, value in ((0.31, float("nan")), (0.57, float("inf")), (0.83, float("-inf"))):
            tensor[_index(int(count * share + 7 * order) % count, tensor.shape)] = value
        result[position] = tensor
    return result


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))


def scaled(inputs: Sequence[Any], *, large: bool) -> list[Any]:
    """Every float tensor times a large or a small power of two."""
    result = list(inputs)
    for position in floats(inputs):
        tensor = inputs[position]
        result[position] = tensor * _SCALES[tensor.dtype][0 if large else 1]
    return result


def padded_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the same tensor as a view into something wider: no dimension follows on from the next."""
    strides, step = [], 1
    for position, size in enumerate(reversed(tensor.shape)):
        if position == 0 and tensor.dim() == 1:
            step = 2  # a vector has no rows to pad: every other element of a longer one
        strides.append(step)
        step *= size
        if position == 0 and tensor.dim() > 1:
            step += _PADDING
    return tuple(reversed(strides))


def stridable(inputs: Sequence[Any]) -> list[int]:
    return [i for i, item in enumerate(inputs) if isinstance(item, torch.Tensor) and item.numel() > 1]


class Whole(Make):
    """Makes small whole numbers wherever a case asks for floats, so that sums of products are exact."""

    def normal(self, shape: Sequence[int], dtype: str, *, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        return self.integers(shape, -_WHOLE, _WHOLE + 1, dtype)

    def uniform(self, shape: Sequence[int], dtype: str, *, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return self.integers(shape, -_WHOLE, _WHOLE + 1, dtype)
