"""ml-cross-entropy#45: the compiler never finishes a fused cross-entropy backward pass in fp32.

One program computes a tile of logits anew, takes the softmax less the one-hot target, and adds two products of it to
shared results under spin locks. 3.0.0 and 3.1.0 do not come to an end (more than a minute, whatever the tile); 3.2.0
takes seconds. Only a time limit shows it.
https://github.com/apple/ml-cross-entropy/issues/45
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.1.0"
TARGET = "sm_80"
PARAMS = {"rows": 1024, "words": 32000, "dim": 512}
FIGURE = {"outcome": ("passed", "timeout")}
FLAG = "timeout"
LIMIT_S = 30  # of a compile that takes seconds where it ends


@triton.jit
def backward_kernel(
    e_ptr, c_ptr, lse_ptr, target_ptr, de_ptr, de_lock_ptr, dc_ptr, dc_lock_ptr, B, D, V,
    BLOCK_B: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(V, BLOCK_V)
    row_tile, word_tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    row = row_tile * BLOCK_B + tl.arange(0, BLOCK_B)
    word = word_tile * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = tl.zeros((BLOCK_B, BLOCK_V), tl.float32)
    for start in range(0, D, BLOCK_D):
        dim = start + tl.arange(0, BLOCK_D)
        e = tl.load(e_ptr + row[:, None] * D + dim[None, :], mask=(row[:, None] < B) & (dim[None, :] < D), other=0.0)
        c = tl.load(c_ptr + word[None, :] * D + dim[:, None], mask=(word[None, :] < V) & (dim[:, None] < D), other=0.0)
        logits = tl.dot(e, c, logits)
    lse = tl.load(lse_ptr + row, mask=row < B, other=0.0)
    target = tl.load(target_ptr + row, mask=row < B, other=0)
    d = tl.exp(logits - lse[:, None]) - tl.where(target[:, None] == word[None, :], 1.0, 0.0)
    for start in range(0, D, BLOCK_D):
        dim = start + tl.arange(0, BLOCK_D)
        e_mask = (row[:, None] < B) & (dim[None, :] < D)
        c_mask = (word[:, None] < V) & (dim[None, :] < D)
        de = tl.dot(d, tl.load(c_ptr + word[:, None] * D + dim[None, :], mask=c_mask, other=0.0))
        while tl.atomic_cas(de_lock_ptr + row_tile, 0, 1) == 1:
            pass
        at = de_ptr + row[:, None] * D + dim[None, :]
        tl.store(at, tl.load(at, mask=e_mask, other=0.0) + de, mask=e_mask)
        tl.debug_barrier()
        tl.atomic_xchg(de_lock_ptr + row_tile, 0)
        dc = tl.dot(tl.trans(d), tl.load(e_ptr + row[:, None] * D + dim[None, :], mask=e_mask, other=0.0))
        while tl.atomic_cas(dc_lock_ptr + word_tile, 0, 1) == 1:
            pass
        at = dc_ptr + word[:, None] * D + dim[None, :]
        tl.store(at, tl.load(at, mask=c_mask, other=0.0) + dc, mask=c_mask)
        tl.debug_barrier()
        tl.atomic_xchg(dc_lock_ptr + word_tile, 0)


def backward(e, c, lse, target, *, block=64):
    (rows, dim), words = e.shape, c.shape[0]
    de, dc = torch.zeros_like(e), torch.zeros_like(c)
    row_tiles, word_tiles = triton.cdiv(rows, block), triton.cdiv(words, block)
    de_lock = torch.zeros(row_tiles, dtype=torch.int32, device=e.device)
    dc_lock = torch.zeros(word_tiles, dtype=torch.int32, device=e.device)
    backward_kernel[(row_tiles * word_tiles,)](
        e, c, lse, target, de, de_lock, dc, dc_lock, rows, dim, words,
        BLOCK_B=block, BLOCK_V=block, BLOCK_D=block, num_warps=4,
    )  # fmt: skip
    return de, dc


def reference(e, c, lse, target):
    d = torch.exp(e @ c.T - lse[:, None])
    d[torch.arange(len(d)), target] -= 1
    return d @ c, d.T @ e


case = Case(
    name="regression_ml_cross_entropy_45",
    run=backward,
    reference=reference,
    inputs=lambda make, p: [
        make.normal((p.rows, p.dim), "fp32"),
        make.normal((p.words, p.dim), "fp32", std=0.05),
        make.uniform((p.rows,), "fp32", low=10, high=11),
        make.integers((p.rows,), 0, p.words),
    ],
    compile=[{"rows": 1024, "words": 32000, "dim": 512}],
    targets=["sm_80", "sm_90"],
    expectations=[
        Expect(
            outcome="timeout",
            triton="<3.2",
            reason="the compiler does not come to an end before 3.2",
            link="https://github.com/apple/ml-cross-entropy/issues/45",
        ),
    ],
    tags=["regression"],
)
