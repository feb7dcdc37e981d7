"""fla#58: two dots of different shapes whose results are added abort the compiler with eight warps.

A chunk of linear attention on Hopper: ``q @ h + (q @ k) @ v``. With eight warps one warp-group product's layout has to
be converted into another's, which 3.0.0 and 3.1.0 know for Ampere's alone: the process dies of SIGABRT. Four warps
pass, and from 3.2.0 eight do too.
https://github.com/fla-org/flash-linear-attention/issues/58, by way of https://github.com/triton-lang/triton/issues/4418
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.0.0"
TARGET = "sm_90"
PARAMS = {"warps": 8}
FIGURE = {"outcome": ("passed", "compiler_abort")}
FLAG = "compiler_abort"


@triton.jit
def chunk_kernel(q_ptr, k_ptr, v_ptr, h_ptr, out_ptr, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    step, key, value = tl.arange(0, T), tl.arange(0, K), tl.arange(0, V)
    q = tl.load(q_ptr + step[:, None] * K + key[None, :])
    k = tl.load(k_ptr + key[:, None] + step[None, :] * K)
    v = tl.load(v_ptr + step[:, None] * V + value[None, :])
    h = tl.load(h_ptr + key[:, None] * V + value[None, :])
    scores = tl.where(step[:, None] >= step[None, :], tl.dot(q, k), 0)
    out = tl.dot(q, h) + tl.dot(scores.to(v.dtype), v)
    tl.store(out_ptr + step[:, None] * V + value[None, :], out.to(v.dtype))


def chunk(q, k, v, h, *, warps):
    out = torch.empty_like(v)
    chunk_kernel[(1,)](q, k, v, h, out, T=q.shape[0], K=q.shape[1], V=v.shape[1], num_warps=warps)
    return out


case = Case(
    name="regression_fla_58",
    run=chunk,
    reference=lambda q, k, v, h: q @ h + (q @ k.T).tril() @ v,
    inputs=lambda make, _: [make.normal(shape, "bf16") for shape in ((64, 64), (64, 64), (64, 128), (64, 128))],
    axes={"warps": [4, 8]},
    targets=["sm_90"],
    expectations=[
        Expect(
            outcome="compiler_abort",
            triton="<3.2",
            params={"warps": 8},
            reason="3.0 and 3.1 convert no layout of one warp-group product into another's",
            link="https://github.com/triton-lang/triton/issues/4418",
        ),
    ],
    tags=["regression"],
)
