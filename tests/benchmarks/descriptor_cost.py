"""What a tensor descriptor that a block makes for itself costs, apart from the bytes that it moves.

    python -P tests/benchmarks/descriptor_cost.py [OUT.json]

Kernels alike but for how each block gets its tile of 512 bytes: by pointers, by a descriptor that came with the launch,
by one, two or four that it makes. Printed: microseconds a launch, and clocks an SM spends on a block; the difference
from one made descriptor to four, over three, is ``descriptor_clocks`` of ``matrix/data/rates.toml``. Needs a GPU with a
copy engine, torch and Triton (3.4 or later); about 10 s.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = COLS = 16
TILES = 1024
CLOCK_GHZ = 1.98  # an H200's, boosted; kernels of this kind do not slow it down


@triton.jit
def by_pointers(x, out, tiles, R: tl.constexpr, C: tl.constexpr):
    block = tl.program_id(0)
    places = (block % tiles) * R * C + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(out + block, tl.max(tl.max(tl.load(x + places), 1), 0))


@triton.jit
def by_given(descriptor, out, tiles, R: tl.constexpr, C: tl.constexpr):
    block = tl.program_id(0)
    tl.store(out + block, tl.max(tl.max(descriptor.load([(block % tiles) * R, 0]), 1), 0))


@triton.jit
def by_made(x, out, tiles, R: tl.constexpr, C: tl.constexpr, MANY: tl.constexpr):
    block = tl.program_id(0)
    most = tl.full((R, C), 0.0, tl.float16)
    for i in tl.static_range(MANY):
        made = tl.make_tensor_descriptor(x + i * R * C, shape=[tiles * R, C], strides=[C, 1], block_shape=[R, C])
        most = tl.maximum(most, made.load([(block % 8) * R, 0]))
    tl.store(out + block, tl.max(tl.max(most, 1), 0))


def timed_us(run: Callable[[], object]) -> float:
    samples = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            run()
        end.record()
        torch.cuda.synchronize()
        samples.append(begin.elapsed_time(end) * 1000 / 5)
    return statistics.median(samples)


def main() -> None:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.randn(TILES * ROWS, COLS, device="cuda").half()
    given = TensorDescriptor(x, [TILES * ROWS, COLS], [COLS, 1], [ROWS, COLS])
    rows = []
    for blocks in (8192, 32768):
        out = torch.empty(blocks, device="cuda", dtype=torch.float16)
        for warps in (1, 4):
            ways = {
                "pointers": (by_pointers, x, TILES, ()),
                "given": (by_given, given, TILES, ()),
                **{f"made {many}": (by_made, x, TILES - 8, (many,)) for many in (1, 2, 4)},
            }
            for name, (kernel, source, tiles, more) in ways.items():
                arguments = (source, out, tiles, ROWS, COLS, *more)
                us = timed_us(lambda k=kernel, a=arguments, n=blocks, w=warps: k[(n,)](*a, num_warps=w))
                clocks = us * CLOCK_GHZ * 1000 / (blocks / multiprocessors)
                rows.append({"how": name, "blocks": blocks, "warps": warps, "us": us, "clocks": clocks})
                print(f"{name:9s} {blocks:6d} blocks of {warps} warps: {us:8.2f} us, {clocks:7.1f} clocks", flush=True)
    if len(sys.argv) > 1:
        about = {"gpu": torch.cuda.get_device_name(), "triton": triton.__version__}
        Path(sys.argv[1]).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
