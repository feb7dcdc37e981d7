"""Dropout with Philox random numbers, made in the kernel from a seed and each element's offset."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
LOW = 0xFFFFFFFF


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1.0 - p), 0.0), mask=mask)


def dropout(x, *, p, seed, block=1024):
    out = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), p, seed, BLOCK=block)
    return out


def reference(x, *, p, seed):
    keep = uniform(seed, torch.arange(x.numel(), device=x.device)) > p
    return torch.where(keep, x / (1.0 - p), torch.zeros_like(x))


def uniform(seed, offsets):
    """``tl.rand``: the first of Philox 4x32-10's four words as a float32 in [0, 1)."""
    word = philox(seed, offsets)
    signed = torch.where(word >= 1 << 31, word - (1 << 32), word)
    folded = torch.where(signed < 0, -signed - 1, signed)
    return folded.to(torch.float32) * torch.tensor(4.6566127342e-10, dtype=torch.float32, device=offsets.device)


def philox(seed, c0):
    """Philox 4x32-10 (Salmon et al., SC 2011) in int64: the first output word for the counter (c0, 0, 0, 0)."""
    k0, k1 = seed & LOW, seed >> 32 & LOW
    c1, c2, c3 = (torch.zeros_like(c0) for _ in range(3))
    for _ in range(10):
        high0, low0 = wide_product(0xD2511F53, c0)
        high1, low1 = wide_product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0


def wide_product(factor, word):
    """High and low 32 bits of the 64-bit product, through 16-bit halves so that int64 never overflows."""
    upper, lower = factor * (word >> 16), factor * (word & 0xFFFF)
    high = upper + (lower >> 16)
    return high >> 16, (high << 16 | lower & 0xFFFF) & LOW


case = Case(
    name="dropout",
    without={"strided": "takes contiguous inputs"},
    run=dropout,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.n,), p.dtype)],
    axes={"dtype": ["fp16", "fp32"], "p": [0.25], "seed": [20240501]},
    interpret=[{"n": 1, "dtype": "fp32"}, {"n": 4099, "dtype": "fp16"}],
    correctness=[{"n": 1}, {"n": 4099}, {"n": 1025, "p": 0.5, "seed": 7}, {"n": 4097 * 4096}],
    timing=[{"n": 1 << 24, "dtype": "fp16"}],
    bytes_moved=lambda p: 2 * p.n * BYTES[p.dtype],
    competitor=lambda x, *, p: torch.nn.functional.dropout(x, p),
    tags=["builtin", "memory-bound"],
)
