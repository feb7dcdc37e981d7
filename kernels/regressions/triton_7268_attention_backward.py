"""triton#7268: attention backward takes more shared memory and spills.

The dK/dV half of a flash-attention backward pass, 128x128 blocks: its dots take the transpose of a probability tile
that was computed. The report's kernel no longer fitted the 99 KiB cards (sm_86, sm_89) with 3.3, which keeps a buffer
for the transposed operand. Ours takes as much shared memory as before, and spills: 8 to 376 bytes a thread, 8 in 3.9.0.
https://github.com/triton-lang/triton/issues/7268
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.3.1"
TARGET = "sm_80"
PARAMS = {"n": 1024, "d": 64, "dtype": "bf16"}
FIGURE = {"stack_bytes": (8, 376)}
FLAG = "spills_grew"


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, scale, n,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    keys = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    k = tl.load(k_ptr + keys[:, None] * D + dims[None, :])
    v = tl.load(v_ptr + keys[:, None] * D + dims[None, :])
    dk = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    for start in range(0, n, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q = tl.load(q_ptr + rows[:, None] * D + dims[None, :])
        p = tl.exp(tl.dot(q, tl.trans(k)) * scale - tl.load(lse_ptr + rows)[:, None])
        do = tl.load(do_ptr + rows[:, None] * D + dims[None, :])
        dv += tl.dot(tl.trans(p.to(do.dtype)), do)
        ds = p * (tl.dot(do, tl.trans(v)) - tl.load(delta_ptr + rows)[:, None]) * scale
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q)
    tl.store(dk_ptr + keys[:, None] * D + dims[None, :], dk.to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + keys[:, None] * D + dims[None, :], dv.to(dv_ptr.dtype.element_ty))


def backward(q, k, v, do, lse, delta, *, block=128):
    n, d = q.shape
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    backward_kernel[(n // block,)](
        q, k, v, do, lse, delta, dk, dv, d**-0.5, n, D=d, BLOCK_M=block, BLOCK_N=block, num_warps=8, num_stages=1
    )
    return dk, dv


def reference(q, k, v, do, lse, delta):
    scale = q.shape[1] ** -0.5
    p = torch.exp(q @ k.T * scale - lse[:, None])
    ds = p * (do @ v.T - delta[:, None]) * scale
    return ds.T @ q, p.T @ do


case = Case(
    name="regression_triton_7268_backward",
    run=backward,
    reference=reference,
    inputs=lambda make, p: [
        *(make.normal((p.n, p.d), p.dtype) for _ in range(4)),
        make.uniform((p.n,), "fp32", low=8, high=9),
        make.normal((p.n,), "fp32"),
    ],
    compile=[{"n": 1024, "d": 64, "dtype": "bf16"}],
    tags=["regression"],
)
