"""triton#9757: the state kernel of the gated delta rule is 35 % slower on an H20.

A loop over chunks of 64 steps keeps two [64, BV] tiles of the state: it stores them, subtracts w @ h from u, scales by
gates and adds k^T @ v. Good in 3.5.0, 0.451 to 0.608 ms in 3.6.0. Compiled for sm_90, 3.6.0 shows nothing of it: fewer
instructions, the same shared-memory wavefronts and occupancy (tried with BV 32 and 64, two and three stages).
https://github.com/triton-lang/triton/issues/9757
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "timing"  # it leaves no mark in the code
GOOD, BAD = "3.5.1", "3.6.0"
TARGET = "sm_90"
PARAMS = {"steps": 9418, "heads": 8}
FIGURE = {"ratio": (1.0, 1.348)}


@triton.jit
def tile(ptr, rows, cols, stride, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    return tl.make_block_ptr(ptr, (rows, cols), (stride, 1), (row, col), (ROWS, COLS), (1, 0))


@triton.jit
def transposed(ptr, rows, cols, stride, row, col, ROWS: tl.constexpr, COLS: tl.constexpr):
    return tl.make_block_ptr(ptr, (rows, cols), (1, stride), (row, col), (ROWS, COLS), (0, 1))


@triton.jit
def states_kernel(
    k_ptr, v_ptr, w_ptr, g_ptr, new_ptr, states_ptr, T,
    H: tl.constexpr, HG: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    col, head = tl.program_id(0) * BV, tl.program_id(1)
    k_ptr += head // (H // HG) * K
    w_ptr += head * K
    v_ptr += head * V
    new_ptr += head * V
    h0 = tl.zeros((64, BV), tl.float32)
    h1 = tl.zeros((64, BV), tl.float32)
    for chunk in range(tl.cdiv(T, BT)):
        kept = states_ptr + (chunk * H + head) * K * V
        tl.store(tile(kept, K, V, V, 0, col, 64, BV), h0.to(kept.dtype.element_ty), boundary_check=(0, 1))
        tl.store(tile(kept, K, V, V, 64, col, 64, BV), h1.to(kept.dtype.element_ty), boundary_check=(0, 1))
        row = chunk * BT
        w0 = tl.load(tile(w_ptr, T, K, H * K, row, 0, BT, 64), boundary_check=(0, 1))
        w1 = tl.load(tile(w_ptr, T, K, H * K, row, 64, BT, 64), boundary_check=(0, 1))
        old = tl.dot(w0, h0.to(w0.dtype)) + tl.dot(w1, h1.to(w1.dtype))
        v = tl.load(tile(v_ptr, T, V, H * V, row, col, BT, BV), boundary_check=(0, 1)) - old
        tl.store(tile(new_ptr, T, V, H * V, row, col, BT, BV), v.to(new_ptr.dtype.element_ty), boundary_check=(0, 1))
        step = row + tl.arange(0, BT)
        last = tl.load(g_ptr + (tl.minimum(row + BT, T) - 1) * H + head)
        gate = tl.load(g_ptr + step * H + head, mask=step < T, other=0.0)
        v = (v * tl.where(step < T, tl.exp(last - gate), 0)[:, None]).to(k_ptr.dtype.element_ty)
        decay = tl.exp(last)
        k0 = tl.load(transposed(k_ptr, K, T, HG * K, 0, row, 64, BT), boundary_check=(0, 1))
        k1 = tl.load(transposed(k_ptr, K, T, HG * K, 64, row, 64, BT), boundary_check=(0, 1))
        h0 = h0 * decay + tl.dot(k0, v)
        h1 = h1 * decay + tl.dot(k1, v)


def states(k, v, w, g, *, tile_v=32):
    (steps, heads, dim), groups = v.shape, k.shape[1]
    new = torch.empty_like(v)
    kept = torch.empty((triton.cdiv(steps, 64), heads, dim, dim), dtype=k.dtype, device=k.device)
    states_kernel[(dim // tile_v, heads)](
        k, v, w, g, new, kept, steps, H=heads, HG=groups, K=dim, V=dim, BT=64, BV=tile_v, num_warps=4, num_stages=2
    )
    return new, kept


def reference(k, v, w, g):
    steps, heads, dim = v.shape
    k = k.repeat_interleave(heads // k.shape[1], 1)
    new, kept = torch.empty_like(v), []
    h = torch.zeros((heads, dim, dim), dtype=g.dtype, device=v.device)
    for start in range(0, steps, 64):
        part = slice(start, min(start + 64, steps))
        kept.append(h.to(v.dtype))
        left = v[part] - torch.einsum("thk,hkv->thv", w[part], h.to(w.dtype))
        new[part] = left
        last = g[part][-1]
        scaled = (left * torch.exp(last - g[part])[..., None]).to(k.dtype)
        h = h * torch.exp(last)[:, None, None] + torch.einsum("thk,thv->hkv", k[part], scaled)
    return new, torch.stack(kept)


def inputs(make, p):
    small = {"std": 0.05}  # the state grows with the steps
    return [
        make.normal((p.steps, p.heads // 2, 128), "bf16", **small),
        make.normal((p.steps, p.heads, 128), "bf16"),
        make.normal((p.steps, p.heads, 128), "bf16", **small),
        make.uniform((p.steps, p.heads), "fp32", low=-0.5, high=0),
    ]


case = Case(
    name="regression_triton_9757",
    without={
        "strided": "takes contiguous inputs",
        "special_values": "where infinities meet in the state the order of the terms decides",
    },
    run=states,
    reference=reference,
    inputs=inputs,
    correctness=[{"steps": 200, "heads": 4}],
    timing=[{"steps": 9418, "heads": 8}],
    triton="<3.9",
    targets=["sm_90"],
    tags=["regression"],
)
