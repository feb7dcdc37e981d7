"""How many blocks of a kernel one SM of a target holds, and what stops it from holding more.

The formula is that of ``cuda_occupancy.h`` (``cudaOccMaxActiveBlocksPerMultiprocessor``); the limits of each
target are data, in ``data/targets.toml``, with their sources.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from importlib import resources

import tomllib

from matrix.errors import MatrixError

WARP_SIZE = 32


class Limit(enum.StrEnum):
    """What runs out first."""

    REGISTERS = "registers"
    SHARED = "shared"
    TENSOR_MEMORY = "tensor_memory"
    WARPS = "warps"
    BLOCKS = "blocks"
    DOES_NOT_FIT = "does_not_fit"


class UnknownTargetError(MatrixError):
    """A target without a row in ``targets.toml``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """What one SM holds. Sizes in bytes; ``register_unit`` is the granularity of a warp's registers."""

    registers: int
    registers_per_thread: int
    register_unit: int
    sub_partitions: int
    warps: int
    blocks: int
    shared: int
    shared_per_block: int
    shared_reserved_per_block: int
    shared_unit: int
    unified_cache: int
    tensor_memory_columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """``blocks`` per SM; ``share`` of the SM's warps that they fill, 0 to 1; the ``limit`` met first."""

    blocks: int
    share: float
    limit: Limit


@functools.cache
def target_limits(target: str) -> TargetLimits:
    """The row of ``sm_90``, say. Raises :class:`UnknownTargetError`."""
    rows = _rows()
    if target not in rows:
        raise UnknownTargetError(f"no limits known for target {target!r}", hint=f"known: {', '.join(rows)}")
    return TargetLimits(**rows[target])


@functools.cache
def _rows() -> dict[str, dict[str, int]]:
    return tomllib.loads(resources.files("matrix").joinpath("data/targets.toml").read_text(encoding="utf-8"))


def occupancy(
    target: str, *, registers: int, num_warps: int, shared_bytes: int, tensor_memory_columns: int = 0
) -> Occupancy:
    """Occupancy of a kernel that takes ``registers`` a thread and ``shared_bytes`` a block.

    ``shared_bytes`` is static and dynamic shared memory without the part that the driver reserves. Where
    several limits allow the same number of blocks, warps and blocks are named before what the kernel takes:
    taking less would not help. Raises :class:`UnknownTargetError`.
    """
    limits = target_limits(target)
    allowed = {
        Limit.WARPS: limits.warps // num_warps,
        Limit.BLOCKS: limits.blocks,
        Limit.REGISTERS: _by_registers(limits, registers, num_warps),
        Limit.SHARED: _by_shared(limits, shared_bytes),
        Limit.TENSOR_MEMORY: _by_tensor_memory(limits, tensor_memory_columns),
    }
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limit]
    if blocks == 0:
        return Occupancy(blocks=0, share=0.0, limit=Limit.DOES_NOT_FIT)
    return Occupancy(blocks=blocks, share=blocks * num_warps / limits.warps, limit=limit)


def _by_registers(limits: TargetLimits, registers: int, num_warps: int) -> int:
    if registers == 0:
        return limits.blocks
    if registers > limits.registers_per_thread:
        return 0
    per_warp = _round_up(registers * WARP_SIZE, limits.register_unit)
    # A block's warps are dealt to the sub-partitions, so one block takes whole rows of them.
    if per_warp * _round_up(num_warps, limits.sub_partitions) > limits.registers:
        return 0
    warps = limits.registers // limits.sub_partitions // per_warp * limits.sub_partitions
    return warps // num_warps


def _by_shared(limits: TargetLimits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_per_block:
        return 0
    per_block = _round_up(shared_bytes + limits.shared_reserved_per_block, limits.shared_unit)
    return limits.shared // per_block


def _by_tensor_memory(limits: TargetLimits, columns: int) -> int:
    if columns == 0:
        return limits.blocks
    return limits.tensor_memory_columns // columns


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
