"""fla#196: the state kernel of the gated delta rule aborts the compiler at head dimension 256.

A loop over chunks of 64 steps keeps four [64, BV] tiles of the state, eight or sixteen warps share them. 3.1.0 compiles
it for Hopper; 3.2.0 dies in an assertion on its linear layouts, 3.3.1 raises, 3.5.1 is right again. Block pointers, so
not for 3.9. At head dimension 128 it is the kernel of triton#9757.
https://github.com/fla-org/flash-linear-attention/issues/196
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.1.0", "3.2.0"
TARGET = "sm_90"
PARAMS = {"steps": 4096, "warps": 8}
FIGURE = {"outcome": ("passed", "compiler_abort")}
FLAG = "compiler_abort"


@triton.jit
def tile(ptr, rows, cols, stride, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    return tl.make_block_ptr(ptr, (rows, cols), (stride, 1), (row, col), (ROWS, COLS), (1, 0))


@triton.jit
def transposed(ptr, rows, cols, stride, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    return tl.make_block_ptr(ptr, (rows, cols), (1, stride), (row, col), (ROWS, COLS), (0, 1))


@triton.jit
def states_kernel(
    k_ptr, v_ptr, w_ptr, g_ptr, new_ptr, states_ptr, T,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    col, head = tl.program_id(0) * BV, tl.program_id(1)
    k_ptr += head * K
    w_ptr += head * K
    v_ptr += head * V
    new_ptr += head * V
    h0 = tl.zeros((64, BV), tl.float32)
    h1 = tl.zeros((64, BV), tl.float32)
    h2 = tl.zeros((64, BV), tl.float32)
    h3 = tl.zeros((64, BV), tl.float32)
    for chunk in range(tl.cdiv(T, BT)):
        kept = states_ptr + (chunk * H + head) * K * V
        tl.store(tile(kept, K, V, V, 0, col, 64, BV), h0.to(kept.dtype.element_ty), boundary_check=(0, 1))
        tl.store(tile(kept, K, V, V, 64, col, 64, BV), h1.to(kept.dtype.element_ty), boundary_check=(0, 1))
        tl.store(tile(kept, K, V, V, 128, col, 64, BV), h2.to(kept.dtype.element_ty), boundary_check=(0, 1))
        tl.store(tile(kept, K, V, V, 192, col, 64, BV), h3.to(kept.dtype.element_ty), boundary_check=(0, 1))
        row = chunk * BT
        old = tl.dot(
            tl.load(tile(w_ptr, T, K, H * K, row, 0, BT, 64), boundary_check=(0, 1)), h0.to(w_ptr.dtype.element_ty)
        )
        old += tl.dot(
            tl.load(tile(w_ptr, T, K, H * K, row, 64, BT, 64), boundary_check=(0, 1)), h1.to(w_ptr.dtype.element_ty)
        )
        old += tl.dot(
            tl.load(tile(w_ptr, T, K, H * K, row, 128, BT, 64), boundary_check=(0, 1)), h2.to(w_ptr.dtype.element_ty)
        )
        old += tl.dot(
            tl.load(tile(w_ptr, T, K, H * K, row, 192, BT, 64), boundary_check=(0, 1)), h3.to(w_ptr.dtype.element_ty)
        )
        v = tl.load(tile(v_ptr, T, V, H * V, row, col, BT, BV), boundary_check=(0, 1)) - old
        tl.store(tile(new_ptr, T, V, H * V, row, col, BT, BV), v.to(new_ptr.dtype.element_ty), boundary_check=(0, 1))
        step = row + tl.arange(0, BT)
        last = tl.load(g_ptr + (tl.minimum(row + BT, T) - 1) * H + head)
        gate = tl.load(g_ptr + step * H + head, mask=step < T, other=0.0)
        v = (v * tl.where(step < T, tl.exp(last - gate), 0)[:, None]).to(k_ptr.dtype.element_ty)
        decay = tl.exp(last)
        h0 = h0 * decay + tl.dot(tl.load(transposed(k_ptr, K, T, H * K, 0, row, 64, BT), boundary_check=(0, 1)), v)
        h1 = h1 * decay + tl.dot(tl.load(transposed(k_ptr, K, T, H * K, 64, row, 64, BT), boundary_check=(0, 1)), v)
        h2 = h2 * decay + tl.dot(tl.load(transposed(k_ptr, K, T, H * K, 128, row, 64, BT), boundary_check=(0, 1)), v)
        h3 = h3 * decay + tl.dot(tl.load(transposed(k_ptr, K, T, H * K, 192, row, 64, BT), boundary_check=(0, 1)), v)


def states(k, v, w, g, *, warps, tile_v=64):
    steps, heads, dim = k.shape
    new = torch.empty_like(v)
    kept = torch.empty((triton.cdiv(steps, 64), heads, dim, dim), dtype=k.dtype, device=k.device)
    states_kernel[(dim // tile_v, heads)](
        k, v, w, g, new, kept, steps, H=heads, K=dim, V=dim, BT=64, BV=tile_v, num_warps=warps, num_stages=2
    )
    return new, kept


case = Case(
    name="regression_fla_196",
    run=states,
    inputs=lambda make, p: [
        *(make.normal((p.steps, 4, 256), "bf16") for _ in range(3)),
        make.uniform((p.steps, 4), "fp32", low=-1, high=0),
    ],
    compile=[{"steps": 4096, "warps": 8}],
    triton="<3.9",
    targets=["sm_90"],
    expectations=[
        Expect(
            outcome="compiler_abort",
            triton="==3.2.*",
            reason="an assertion on linear layouts at head dimension 256",
            link="https://github.com/fla-org/flash-linear-attention/issues/196",
        ),
    ],
    tags=["regression"],
)
