"""A kernel in Gluon, Triton's lower-level language, where the author states the layout; in this form from 3.5."""

import torch
import triton

from matrix import Case

try:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
except ImportError:  # before 3.4; the case is for releases that have it
    gluon = None

if gluon is not None:

    @gluon.jit
    def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: gl.constexpr):
        layout: gl.constexpr = gl.BlockedLayout(
            size_per_thread=[4], threads_per_warp=[32], warps_per_cta=[4], order=[0]
        )
        offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
        mask = offsets < n
        gl.store(out_ptr + offsets, factor * gl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def scale(x, *, block=1024):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), 2.0, BLOCK=block, num_warps=4)
    return out


case = Case(
    name="gluon_scale",
    run=scale,
    reference=lambda x: 2 * x,
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    correctness=[{"n": 1}, {"n": 1023}, {"n": 98_432}],
    timing=[{"n": 1 << 24}],
    bytes_moved=lambda p: 8 * p.n,
    without={"strided": "takes contiguous inputs"},
    triton=">=3.5",
    tags=["builtin", "front-end"],
)
