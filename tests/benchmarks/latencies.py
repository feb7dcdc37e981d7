"""How long one warp waits for what it asked for, in clocks of the SM: the latencies of ``matrix/data/rates.toml``.

    python -P tests/benchmarks/latencies.py [OUT.json]

Chains of instructions of which each needs the one before, on one warp, between two readings of ``%clock64``: loads out
of L1, L2 and DRAM (an index that leads to the next), special functions, shuffles, multiplications and additions.
Needs a GPU, torch and Triton; about 10 s.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

STEP = 32  # words: one load a line of 128 bytes
UNROLLED = 16


@triton.jit
def clock():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def follow(chain, out, count, warm):
    place = 0
    for _ in range(warm):
        place = tl.load(chain + place)
    begin = clock()
    for _ in range(count):
        place = tl.load(chain + place)
    end = clock() + (place >> 31)  # after the last load
    tl.store(out, end - begin)
    tl.store(out + 1, (place + 0).to(tl.int64))


@triton.jit
def repeat(values, out, count, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr, UNROLL: tl.constexpr):
    lanes = tl.arange(0, 32)
    found = tl.load(values + lanes)  # unknown and different in each lane: nothing can be worked out beforehand
    begin = clock()
    for _ in range(count):
        for _ in tl.static_range(UNROLL):
            found = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [found], dtype=found.dtype, is_pure=False, pack=1)
    end = clock()
    tl.store(out, end - begin)
    tl.store(out + 1 + lanes, found.to(tl.int64))


CHAINS = {
    "special": ("ex2.approx.ftz.f32 $0, $1;", "=f,f", 0.5),
    "fma": ("fma.rn.f32 $0, $1, $1, $1;", "=f,f", 0.5),
    "integer": ("mad.lo.s32 $0, $1, $1, 3;", "=r,r", 1),
    "shuffle": ("shfl.sync.bfly.b32 $0, $1, 1, 31, 0xffffffff;", "=r,r", 1),
}
# Bytes that each chain runs through, and loads before it is timed: DRAM's are all new.
# The farther apart, the more of them also wait for the page's address.
SIZES = {"l1": (32 << 10, 2048), "l2": (8 << 20, 65536), "dram": (256 << 20, 0), "dram_4_gib": (4 << 30, 0)}


def chain_of(size: int) -> torch.Tensor:
    """A tensor of 32-bit words in which each line's first word leads to another line, through all in one ring."""
    lines = size // (4 * STEP)
    order = torch.randperm(lines, device="cuda", dtype=torch.int64)
    found = torch.zeros(lines * STEP, dtype=torch.int32, device="cuda")
    found[order * STEP] = (order.roll(-1) * STEP).to(torch.int32)
    return found


def loaded(name: str) -> float:
    size, warm = SIZES[name]
    chain, out, count = chain_of(size), torch.zeros(2, dtype=torch.int64, device="cuda"), 1024
    samples = []
    for _ in range(5):
        if not warm:
            torch.empty(256 << 20, dtype=torch.int8, device="cuda").fill_(1)  # out of L2
        follow[(1,)](chain, out, count, warm, num_warps=1)
        samples.append(int(out[0]) / count)
    return statistics.median(samples)


def repeated(name: str) -> float:
    asm, constraints, value = CHAINS[name]
    out, count = torch.zeros(33, dtype=torch.int64, device="cuda"), 256
    lanes = torch.arange(32, device="cuda")
    values = lanes * 3 + 1 if isinstance(value, int) else (lanes + value) / 64
    values = values.to(torch.int32 if isinstance(value, int) else torch.float32)
    samples = []
    for _ in range(5):
        repeat[(1,)](values, out, count, asm, constraints, UNROLLED, num_warps=1)
        samples.append(int(out[0]) / count / UNROLLED)
    return statistics.median(samples)


def main() -> None:
    about = {"gpu": torch.cuda.get_device_name(), "triton": triton.__version__}
    found: dict[str, float] = {}
    for name, measure in [*((name, loaded) for name in SIZES), *((name, repeated) for name in CHAINS)]:
        found[name] = round(measure(name), 1)
        print(f"{name}: {found[name]} clocks", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps({**about, "clocks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
