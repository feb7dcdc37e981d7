"""fla#1262: ptxas 12.8 assembles a backward pass over states wrongly where its scale is the constant 1.

The states of chunks are gone through in reverse: dh is carried in two [64, BV] tiles of fp32, dv comes of k @ dh and a
local term. Given as the whole number 1, ``scale`` becomes a constant of the code. On an H20, Triton 3.7.1 with its own
ptxas 12.8.93 then gave a wrong dv and wrote outside of shared memory; with ptxas 13.1.80 the same PTX was right, and
the library's repair is to keep the scale out of specialisation, which is what ``float`` does here.
https://github.com/fla-org/flash-linear-attention/issues/1262
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # the assembler's: the PTX is the same
GOOD, BAD = "3.7.1", "3.7.1"
TARGET = "sm_90"
PARAMS = {"steps": 1024, "heads": 8, "scale": "float"}
BAD_PARAMS = {"steps": 1024, "heads": 8, "scale": "constant"}
FIGURE = {"outcome": ("passed", "wrong or out_of_bounds or run_error")}

SCALES = {"float": 1.0, "constant": 1}


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, w_ptr, g_ptr, do_ptr, dv_ptr, dh_ptr, dv2_ptr, scale, T,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    cols = tl.program_id(0) * BV + tl.arange(0, BV)
    half = tl.arange(0, 64)
    dh0 = tl.zeros((64, BV), tl.float32)
    dh1 = tl.zeros((64, BV), tl.float32)
    for chunk in range(tl.cdiv(T, BT) - 1, -1, -1):
        kept = dh_ptr + (chunk * H + head).to(tl.int64) * K * V + cols[None, :]
        tl.store(kept + half[:, None] * V, dh0.to(dh_ptr.dtype.element_ty))
        tl.store(kept + (half[:, None] + 64) * V, dh1.to(dh_ptr.dtype.element_ty))
        step = chunk * BT + tl.arange(0, BT)
        live = step < T
        last = tl.load(g_ptr + (tl.minimum(chunk * BT + BT, T) - 1) * H + head)
        gate = tl.load(g_ptr + step * H + head, mask=live, other=0.0)
        key = (step[:, None] * H + head) * K + half[None, :]
        value = (step[:, None] * H + head) * V + cols[None, :]
        k0 = tl.load(k_ptr + key, mask=live[:, None], other=0.0)
        k1 = tl.load(k_ptr + key + 64, mask=live[:, None], other=0.0)
        dv = tl.dot(k0, dh0.to(k0.dtype)) + tl.dot(k1, dh1.to(k1.dtype))
        dv = dv * tl.where(live, tl.exp(last - gate), 0.0)[:, None]
        dv += tl.load(dv_ptr + value, mask=live[:, None], other=0.0)
        tl.store(dv2_ptr + value, dv.to(dv2_ptr.dtype.element_ty), mask=live[:, None])
        dv = dv.to(k0.dtype)
        do = tl.load(do_ptr + value, mask=live[:, None], other=0.0)
        turned = (step[None, :] * H + head) * K + half[:, None]
        gates = tl.where(live, tl.exp(gate), 0.0)[None, :]
        q0 = tl.load(q_ptr + turned, mask=live[None, :], other=0.0)
        q1 = tl.load(q_ptr + turned + 64, mask=live[None, :], other=0.0)
        w0 = tl.load(w_ptr + turned, mask=live[None, :], other=0.0)
        w1 = tl.load(w_ptr + turned + 64, mask=live[None, :], other=0.0)
        decay = tl.exp(last)
        q0, q1 = (q0 * gates).to(q0.dtype), (q1 * gates).to(q1.dtype)
        dh0 = dh0 * decay + tl.dot(q0, do) * scale - tl.dot(w0, dv)
        dh1 = dh1 * decay + tl.dot(q1, do) * scale - tl.dot(w1, dv)


def backward(q, k, w, g, do, dv, *, scale, tile_v=64, stages=2):
    steps, heads, dim = q.shape
    dv2 = torch.empty_like(dv)
    dh = torch.empty((triton.cdiv(steps, 64), heads, dim, dim), dtype=q.dtype, device=q.device)
    backward_kernel[(dim // tile_v, heads)](
        q, k, w, g, do, dv, dh, dv2, SCALES[scale], steps, H=heads, K=dim, V=dim, BT=64, BV=tile_v, num_warps=4,
        num_stages=stages,
    )  # fmt: skip
    return dv2, dh


def reference(q, k, w, g, do, dv):
    steps, heads, dim = q.shape
    dv2, kept = torch.empty_like(dv), []
    dh = torch.zeros((heads, dim, dim), dtype=g.dtype, device=dv.device)
    for start in reversed(range(0, steps, 64)):
        part = slice(start, min(start + 64, steps))
        kept.append(dh.to(dv.dtype))
        last = g[part][-1]
        product = torch.einsum("thk,hkv->thv", k[part], dh.to(k.dtype))
        dv2[part] = (product * torch.exp(last - g[part])[..., None] + dv[part]).to(dv.dtype)
        gated = (q[part] * torch.exp(g[part])[..., None]).to(q.dtype)
        dh = dh * torch.exp(last)[:, None, None] + torch.einsum("thk,thv->hkv", gated, do[part])
        dh = dh - torch.einsum("thk,thv->hkv", w[part], dv2[part])
    return dv2, torch.stack(kept[::-1])


def inputs(make, p):
    shape, small = (p.steps, p.heads, 128), {"std": 0.05}  # what is carried grows with the steps
    return [
        make.normal(shape, "bf16", **small),
        make.normal(shape, "bf16", **small),
        make.normal(shape, "bf16", **small),
        make.uniform((p.steps, p.heads), "fp32", low=-0.5, high=0),
        make.normal(shape, "bf16"),
        make.normal(shape, "bf16"),
    ]


case = Case(
    name="regression_fla_1262",
    without={
        "strided": "takes contiguous inputs",
        "special_values": "where infinities meet in the state the order of the terms decides",
    },
    run=backward,
    reference=reference,
    inputs=inputs,
    axes={"scale": ["float", "constant"]},
    correctness=[{"steps": 1024, "heads": 8}],
    targets=["sm_90"],
    tags=["regression"],
)
