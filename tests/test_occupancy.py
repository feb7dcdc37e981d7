"""Occupancy against figures of NVIDIA's calculator (cuda_occupancy.h), and every limit."""

from __future__ import annotations

import pytest

from matrix.code.occupancy import Limit, UnknownTargetError, occupancy, target_limits
from matrix.model import Target


@pytest.mark.parametrize(
    ("target", "kernel", "blocks", "limit"),
    [
        ("sm_90", (32, 4, 0), 16, Limit.WARPS),  # 64 warps / 4
        ("sm_90", (16, 1, 0), 32, Limit.BLOCKS),
        ("sm_120", (16, 1, 0), 24, Limit.BLOCKS),
        ("sm_120", (32, 4, 0), 12, Limit.WARPS),  # 48 warps / 4
        ("sm_80", (64, 4, 0), 8, Limit.REGISTERS),
        ("sm_80", (65, 4, 0), 7, Limit.REGISTERS),  # 72 a thread once rounded: 28 warps
        ("sm_80", (64, 16, 0), 2, Limit.REGISTERS),  # the step that 66 registers lose at 512 threads
        ("sm_80", (66, 16, 0), 1, Limit.REGISTERS),
        ("sm_90", (255, 8, 0), 1, Limit.REGISTERS),
        ("sm_90", (128, 4, 57344), 4, Limit.REGISTERS),  # four times 57 KiB is 228 KiB to the byte
        ("sm_90", (128, 4, 57345), 3, Limit.SHARED),
        ("sm_90", (32, 4, 232448), 1, Limit.SHARED),
        ("sm_90", (32, 4, 232449), 0, Limit.DOES_NOT_FIT),
        ("sm_80", (32, 4, 166912), 1, Limit.SHARED),
        ("sm_80", (32, 4, 166913), 0, Limit.DOES_NOT_FIT),
        ("sm_120", (32, 4, 101376), 1, Limit.SHARED),
        ("sm_120", (32, 4, 101377), 0, Limit.DOES_NOT_FIT),
        ("sm_100", (255, 32, 0), 0, Limit.DOES_NOT_FIT),  # 32 warps of 8192 registers
        ("sm_90", (256, 4, 0), 0, Limit.DOES_NOT_FIT),
    ],
)
def test_figures(target, kernel, blocks, limit):
    registers, num_warps, shared = kernel
    found = occupancy(target, registers=registers, num_warps=num_warps, shared_bytes=shared)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == blocks * num_warps / target_limits(target).warps


def test_tensor_memory():
    half = occupancy("sm_100", registers=32, num_warps=4, shared_bytes=0, tensor_memory_columns=256)
    assert (half.blocks, half.limit) == (2, Limit.TENSOR_MEMORY)
    more = occupancy("sm_100", registers=32, num_warps=4, shared_bytes=0, tensor_memory_columns=1024)
    assert more.limit is Limit.DOES_NOT_FIT


NVIDIA = [target for target in Target if not target.is_amd]


@pytest.mark.parametrize("target", NVIDIA)
def test_every_target_has_limits_that_agree(target):
    limits = target_limits(str(target))
    assert limits.shared_per_block + limits.shared_reserved_per_block == limits.shared
    assert limits.registers == 65536


def test_more_never_helps():
    for target in NVIDIA:
        for num_warps in (1, 2, 4, 8, 16, 32):
            blocks = [occupancy(target, registers=r, num_warps=num_warps, shared_bytes=0).blocks for r in range(1, 257)]
            assert blocks == sorted(blocks, reverse=True)


def test_unknown_target():
    with pytest.raises(UnknownTargetError, match="sm_75"):
        occupancy("sm_75", registers=1, num_warps=1, shared_bytes=0)
