"""Rotary position embedding (RoPE), the rotate-half form: one program rotates all heads of a token."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, half, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    lane = tl.arange(0, HALF)[None, :]
    mask = (head < heads) & (lane < half)
    left = (token * heads + head) * 2 * half + lane
    lane_mask = lane < half
    cos = tl.load(cos_ptr + token * half + lane, mask=lane_mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * half + lane, mask=lane_mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + left, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(x_ptr + left + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + left, x * cos - y * sin, mask=mask)
    tl.store(out_ptr + left + half, y * cos + x * sin, mask=mask)


def rope(x, cos, sin):
    tokens, heads, dim = x.shape
    if dim % 2:
        raise ValueError(f"{dim} elements are no pairs")
    out = torch.empty_like(x)
    blocks = {"HEADS": triton.next_power_of_2(heads), "HALF": triton.next_power_of_2(dim // 2)}
    rope_kernel[(tokens,)](x, cos, sin, out, heads, dim // 2, **blocks)
    return out


def reference(x, cos, sin):
    left, right = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


case = Case(
    name="rope",
    without={"strided": "takes contiguous inputs"},
    run=rope,
    reference=reference,
    inputs=lambda make, p: [
        make.normal((p.tokens, p.heads, p.dim), p.dtype),
        make.uniform((p.tokens, p.dim // 2), "fp32", low=-1),
        make.uniform((p.tokens, p.dim // 2), "fp32", low=-1),
    ],
    axes={"dtype": ["bf16", "fp16", "fp32"]},
    interpret=[
        {"tokens": 1, "heads": 1, "dim": 2, "dtype": "fp32"},
        {"tokens": 17, "heads": 3, "dim": 64, "dtype": "fp16"},
        {"tokens": 5, "heads": 33, "dim": 96, "dtype": "bf16"},
    ],
    correctness=[
        {"tokens": tokens, "heads": heads, "dim": dim}
        for tokens, heads, dim in [(1, 1, 2), (17, 3, 64), (127, 33, 96), (4097, 32, 128)]
    ],
    timing=[{"tokens": 16384, "heads": 32, "dim": 128, "dtype": "bf16"}],
    bytes_moved=lambda p: p.tokens * p.dim * (2 * p.heads * BYTES[p.dtype] + 4),
    competitor=reference,
    tags=["builtin", "memory-bound"],
)
