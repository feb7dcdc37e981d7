"""A launch as the evaluator takes it: the grid, the blocks sampled of it, and every parameter's value.

Pointers get base addresses of their own, far apart and aligned as an allocation on the GPU is; a view keeps
its offset in its storage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.blocks import constant
from matrix.memory.drawn import Drawn
from matrix.memory.tensormaps import TensorMap, host_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.operations import Array
    from matrix.memory.parsing import Program

# All of a kernel's shared memory, which starts at an address that is aligned to rows of banks.
_SHARED_SYMBOL = "global_smem"
BASE = 1 << 40
# Where a parameter's own bytes (a descriptor) lie: below every pointer, and it must fit 32 bits.
_PARAM_BASE = 0x7000_0000
_PARAM_STEP = 1 << 12
_FEW, _MANY = 8, 16
_STEPS = (1, 5, 7)  # odd: each axis is gone through in an order of its own
DTYPE_BYTES = {
    "fp64": 8,
    "int64": 8,
    "fp32": 4,
    "int32": 4,
    "fp16": 2,
    "bf16": 2,
    "int16": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The blocks that stand for a grid: their indices (one row each: x, y, z) and their shares of it."""

    blocks: tuple[tuple[int, int, int], ...]
    weights: tuple[float, ...]
    total: int


def sample(grid: Sequence[int]) -> Sample:
    """First, middle and last block; the middle one stands for all between."""
    x, y, z = (*grid, 1, 1, 1)[:3]
    total = max(1, x * y * z)
    middle = (x // 2, y // 2, z // 2)
    chosen = {(0, 0, 0): 1, (x - 1, y - 1, z - 1): 1}
    chosen.setdefault(middle, 0)
    chosen[middle] += total - sum(chosen.values())
    weights = tuple(count / total for count in chosen.values())
    return Sample(blocks=tuple(chosen), weights=weights, total=total)


def spread_sample(grid: Sequence[int]) -> Sample:
    """First, last, and more, evenly over each axis, for all others: where blocks take ways of their own.

    Eight tell what grows along an axis; each place of a short one may differ from all others, so it takes sixteen.
    """
    sizes = (*grid, 1, 1, 1)[:3]
    total = max(1, math.prod(sizes))
    count = _FEW if all(size == 1 or size > _MANY for size in sizes) else _MANY
    ends = ((0, 0, 0), (sizes[0] - 1, sizes[1] - 1, sizes[2] - 1))
    chosen: dict[tuple[int, int, int], float] = dict.fromkeys(ends, 1.0)
    share = (total - len(chosen)) / count
    for number in range(count):
        x, y, z = (
            (2 * (number * step % count) + 1) * size // (2 * count) for step, size in zip(_STEPS, sizes, strict=True)
        )
        chosen[x, y, z] = chosen.get((x, y, z), 0.0) + share
    weights = tuple(count / total for count in chosen.values())
    return Sample(blocks=tuple(chosen), weights=weights, total=total)


@dataclass(slots=True, kw_only=True)
class Parameters:
    """``values`` by PTX parameter name (None where unknown), ``maps`` by the address of a descriptor."""

    values: dict[str, Array | None] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    maps: dict[int, TensorMap] = field(default_factory=dict)
    storage_bytes: dict[int, int] = field(default_factory=dict)  # by number: address over BASE
    drawn: dict[int, Drawn] = field(default_factory=dict)  # likewise


def parameters(program: Program, arguments: Sequence[Mapping[str, object]], signature: Mapping[str, str]) -> Parameters:
    """Every PTX parameter's value: the launch's arguments in order, then what Triton itself appends."""
    found = Parameters(symbols={_SHARED_SYMBOL: 0})
    by_name = {str(argument["name"]): argument for argument in arguments}
    storages: dict[object, int] = {}
    left = list(program.params)
    for name, kind in signature.items():
        argument = by_name.get(name, {})
        if argument.get("kind") == "descriptor" and left:
            _describe(found, left, argument, storages)
        elif left:
            parameter = left.pop(0)
            found.values[parameter[0]] = _value(argument, kind, parameter[1], storages)
    found.storage_bytes = _storage_bytes(arguments, storages)
    found.drawn = {
        storages[argument["storage"]] // BASE: Drawn.of(told)
        for argument in arguments
        if isinstance(told := argument.get("drawn"), dict) and argument.get("storage") in storages
    }
    for number, (name, kind, _) in enumerate(left):
        # Scratch memory, global and for the profiler: pointers of the launcher's.
        found.values[name] = constant((len(storages) + number + 1) * BASE, np.int64) if kind.endswith("64") else None
    return found


def _storage_bytes(arguments: Sequence[Mapping[str, object]], storages: Mapping[object, int]) -> dict[int, int]:
    """Bytes of all views of each storage that came with its number; a view that comes twice counts once."""
    views = {
        (storages[argument["storage"]] // BASE, argument.get("offset_bytes"), str(argument.get("shape"))): argument
        for argument in arguments
        if argument.get("storage") in storages
    }
    found: dict[int, int] = {}
    for (number, _, _), argument in views.items():
        found[number] = found.get(number, 0) + tensor_bytes(argument)
    return found


def tensor_bytes(argument: Mapping[str, object]) -> int:
    shape = argument.get("shape")
    count = math.prod(int(size) for size in shape) if isinstance(shape, (list, tuple)) else 0
    return count * DTYPE_BYTES.get(str(argument.get("dtype")), 1)


def _describe(
    found: Parameters,
    left: list[tuple[str, str, int]],
    argument: Mapping[str, object],
    storages: dict[object, int],
) -> None:
    """A host-side descriptor: 128 bytes or, where the target has no copy engine, a pointer with its shape.

    Shape and strides follow, flags (how to pad and round) between the two times that a pointer brings them.
    """
    shape, strides, block = (_numbers(argument.get(key)) for key in ("shape", "strides", "block_shape"))
    name, _, size = left.pop(0)
    if size:
        address = _PARAM_BASE + len(found.symbols) * _PARAM_STEP
        found.symbols[name] = address
        found.maps[address] = host_map(DTYPE_BYTES.get(str(argument.get("dtype")), 1), shape, block)
    else:
        found.values[name] = _value(argument, "*", "u64", storages)
        _describe_shape(found, left, (*shape, *strides))
    while left and left[0][1] == "u8":
        found.values[left.pop(0)[0]] = constant(0, np.int16)
    _describe_shape(found, left, (*shape, *strides))


def _describe_shape(found: Parameters, left: list[tuple[str, str, int]], values: Sequence[int]) -> None:
    for value in values:
        if left and not left[0][2]:
            name, kind, _ = left.pop(0)
            found.values[name] = constant(value, np.int64 if kind.endswith("64") else np.int32)


def _value(argument: Mapping[str, object], kind: str, ptx_type: str, storages: dict[object, int]) -> Array | None:
    if kind.startswith("*") or argument.get("kind") == "tensor":
        storage = argument.get("storage", len(storages) + 1000)
        base = storages.setdefault(storage, (len(storages) + 1) * BASE)
        offset = argument.get("offset_bytes", 0)
        return constant(base + (offset if isinstance(offset, int) else 0), np.int64)
    value = argument.get("value")
    if isinstance(value, (bool, int)) and kind[:1] in "iu":
        return constant(int(value), np.int64 if ptx_type.endswith("64") else np.int32)
    return None


def _numbers(value: object) -> list[int]:
    return [int(number) for number in value] if isinstance(value, (list, tuple)) else []
