"""fla#640: a dot's result, transposed and used as an operand, gives wrong gradients on Hopper.

A tile of 64x64 is added up from several dots, scaled by gates and masked, cast to 16 bits, and its transpose multiplied
again: db and dg of a gated backward pass were beyond 0.02 in 3.4.0 to 3.7.0, and right in 3.3.1 and 3.7.1. ``memory``
takes the tile through memory in place of the transpose, which was right everywhere: the two must agree.
https://github.com/fla-org/flash-linear-attention/issues/640
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # wrong values of a warp-group product: no mark in the code is known
GOOD, BAD = "3.7.1", "3.6.0"
TARGET = "sm_90"
PARAMS = {"chunks": 64, "dim": 128, "form": "registers", "dtype": "bf16"}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def gradient_kernel(
    q_ptr, v_ptr, do_ptr, dh_ptr, g_ptr, scratch_ptr, dk_ptr, scale,
    D: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr, MEMORY: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0).to(tl.int64)
    steps, dims, cols = tl.arange(0, BT), tl.arange(0, D), tl.arange(0, BV)
    s = tl.zeros((BT, BT), tl.float32)
    dk = tl.zeros((BT, D), tl.float32)
    for start in range(0, D, BV):
        at = chunk * BT * D + steps[:, None] * D + start + cols[None, :]
        v, do = tl.load(v_ptr + at), tl.load(do_ptr + at)
        dh = tl.load(dh_ptr + chunk * D * D + dims[:, None] * D + start + cols[None, :])
        s += tl.dot(do, tl.trans(v))
        dk += tl.dot(v, tl.trans(dh))
    g = tl.load(g_ptr + chunk * BT + steps)
    gated = s * tl.exp(g[:, None] - g[None, :]) * scale
    kept = tl.where(steps[:, None] >= steps[None, :], gated, 0.0).to(q_ptr.dtype.element_ty)
    q = tl.load(q_ptr + chunk * BT * D + steps[:, None] * D + dims[None, :])
    if MEMORY:
        own = scratch_ptr + chunk * BT * BT
        tl.store(own + steps[:, None] * BT + steps[None, :], kept)
        tl.debug_barrier()
        dk += tl.dot(tl.load(own + steps[None, :] * BT + steps[:, None]), q)
    else:
        dk += tl.dot(tl.trans(kept), q)
    tl.store(dk_ptr + chunk * BT * D + steps[:, None] * D + dims[None, :], dk.to(dk_ptr.dtype.element_ty))


def gradient(q, v, do, dh, g, *, form):
    chunks, steps, dim = q.shape
    dk = torch.empty_like(q)
    scratch = torch.zeros((chunks, steps, steps), dtype=q.dtype, device=q.device)
    gradient_kernel[(chunks,)](
        q, v, do, dh, g, scratch, dk, dim**-0.5, D=dim, BT=steps, BV=64, MEMORY=form == "memory", num_warps=4,
        num_stages=2,
    )  # fmt: skip
    return dk


def reference(q, v, do, dh, g):
    gates = torch.exp(g[:, :, None] - g[:, None, :]) * q.shape[-1] ** -0.5
    s = torch.tril(do @ v.transpose(1, 2) * gates)
    return v @ dh.transpose(1, 2) + s.transpose(1, 2) @ q


def inputs(make, p):
    return [
        *(make.normal((p.chunks, 64, p.dim), p.dtype) for _ in range(3)),
        make.normal((p.chunks, p.dim, p.dim), p.dtype, std=0.1),
        make.uniform((p.chunks, 64), "fp32", low=-0.1, high=0.0),
    ]


case = Case(
    name="regression_fla_640",
    without={"strided": "takes contiguous inputs"},
    run=gradient,
    reference=reference,
    inputs=inputs,
    axes={"form": ["registers", "memory"], "dtype": ["bf16", "fp16"]},
    compile=[{"chunks": 64, "dim": 128}],
    interpret=[{"chunks": 2, "dim": 128, "form": "registers", "dtype": "fp16"}],
    correctness=[{"chunks": 64, "dim": 128}, {"chunks": 64, "dim": 64}],
    targets=["sm_90"],
    tags=["regression"],
)
