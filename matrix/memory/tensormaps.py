"""Tensor maps: what one bulk-tensor copy moves, from the descriptor that it names.

A descriptor made on the host comes with the launch; one made on the device is followed through
``tensormap.replace`` and its copy to global memory. Boxes and clipping: PTX ISA, "Tensors", "Tiled mode".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SECTOR_BYTES = 32
_BOX_LIMIT = 256  # elements a dimension
_SWIZZLE_BYTES = 128
# PTX ISA, "tensormap.replace": element types by their number.
_ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}


@dataclass(slots=True)
class TensorMap:
    """Dimensions innermost first. ``element_bytes`` of 0 and missing dimensions mean that it is not known."""

    element_bytes: int = 0
    box: dict[int, int] = field(default_factory=dict)
    dims: dict[int, int] = field(default_factory=dict)

    def replace(self, name: str, values: Sequence[int | None]) -> None:
        """One field as ``tensormap.replace`` sets it."""
        if any(value is None for value in values):
            return
        numbers = [value for value in values if value is not None]
        if name == "elemtype":
            self.element_bytes = _ELEMENT_BYTES.get(numbers[0], 0)
        elif name == "box_dim":
            self.box[numbers[0]] = numbers[1]
        elif name == "global_dim":
            self.dims[numbers[0]] = numbers[1]

    def extent(self, coordinates: Sequence[int | None]) -> tuple[float, float, float] | None:
        """Bytes in shared memory, sectors and bytes of global memory that one copy of the box touches.

        What lies outside the tensor is filled in shared memory and never read. None where it is not known.
        """
        rank = len(coordinates)
        if not self.element_bytes or any(i not in self.box for i in range(rank)):
            return None
        shared = math.prod(self.box[i] for i in range(rank)) * self.element_bytes
        inside = [self._inside(i, coordinate) for i, coordinate in enumerate(coordinates)]
        row_bytes, rows = inside[0] * self.element_bytes, math.prod(inside[1:])
        start = (coordinates[0] or 0) * self.element_bytes % SECTOR_BYTES
        sectors = -(-(start + row_bytes) // SECTOR_BYTES) * rows if row_bytes else 0
        return float(shared), float(sectors), float(row_bytes * rows)

    def rows(self, column: int | None, rows: Sequence[int | None]) -> tuple[float, float, float] | None:
        """The same of rows, each a box of its own, that one copy gathers or scatters."""
        parts = [self.extent((column, row)) for row in rows]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        shared, sectors, used = (sum(column) for column in zip(*known, strict=True))
        return shared, sectors, used

    def _inside(self, dimension: int, coordinate: int | None) -> int:
        box, size = self.box[dimension], self.dims.get(dimension)
        if coordinate is None or size is None:
            return box
        return max(0, min(coordinate + box, size) - max(coordinate, 0))


def host_map(element_bytes: int, shape: Sequence[int], block: Sequence[int]) -> TensorMap:
    """The map of a descriptor that the launch brings: Triton cuts boxes at 256 elements and at the swizzle."""
    boxes = [min(size, _BOX_LIMIT) for size in reversed(block)]
    boxes[0] = min(boxes[0], max(1, _SWIZZLE_BYTES // element_bytes))
    dims = dict(enumerate(reversed(shape)))
    return TensorMap(element_bytes=element_bytes, box=dict(enumerate(boxes)), dims=dims)
