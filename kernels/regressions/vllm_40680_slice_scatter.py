"""vllm#40680: writing a slice with step 3 into a tensor shifts it cyclically in 3.5.1 (torch 2.10 rc).

Rotary positions of three kinds are interleaved: every third element is taken from the second leading slice, every
third from the third. ``slices`` writes it as Inductor does, an index that is divided by the step and multiplied
again, loaded under the slice's mask; ``mask`` takes the element's own index and is the workaround. The report saw
step 3 alone; 2 and 4 stand beside it.
https://github.com/vllm-project/vllm/pull/40680
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # the report names values on a GPU, no mark in the code
GOOD, BAD = "3.9.0", "3.5.1"
TARGET = "sm_90"
PARAMS = {"tokens": 1009, "width": 64, "step": 3, "form": "slices", "dtype": "bf16"}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def interleave_kernel(
    x_ptr, out_ptr, n, W: tl.constexpr, STEP: tl.constexpr, SLICES: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    col, row = at % W, at // W
    value = tl.load(x_ptr + at, mask=live, other=0.0)
    for lead in tl.static_range(1, 3):
        inside = (col >= lead) & ((col - lead) % STEP == 0) & live
        source = lead * n + at
        if SLICES:
            source = lead * n + row * W + lead + STEP * ((col - lead) // STEP)
        value = tl.where(inside, tl.load(x_ptr + source, mask=inside, other=0.0), value)
    tl.store(out_ptr + at, value, mask=live)


def interleave(x, *, step, form, block=1024):
    out = torch.empty_like(x[0])
    n, width = out.numel(), out.shape[-1]
    grid = (triton.cdiv(n, block),)
    interleave_kernel[grid](x, out, n, W=width, STEP=step, SLICES=form == "slices", BLOCK=block)
    return out


def assigned_slices(x, *, step):
    out = x[0].clone()
    out[:, 1::step] = x[1, :, 1::step]
    out[:, 2::step] = x[2, :, 2::step]
    return out


case = Case(
    name="regression_vllm_40680",
    without={"strided": "takes contiguous inputs"},
    run=interleave,
    reference=assigned_slices,
    inputs=lambda make, p: [make.normal((3, p.tokens, p.width), p.dtype)],
    axes={"form": ["slices", "mask"], "step": [2, 3, 4], "dtype": ["bf16", "fp16", "fp32"]},
    interpret=[{"tokens": 37, "width": 64, "dtype": "fp16"}, {"tokens": 5, "width": 127, "dtype": "fp32"}],
    correctness=[{"tokens": 1009, "width": 64}, {"tokens": 37, "width": 127}],
    timing=[{"tokens": 1 << 19, "width": 64, "step": 3, "dtype": "bf16"}],
    bytes_moved=lambda p: 2 * p.tokens * p.width * {"fp32": 4, "fp16": 2, "bf16": 2}[p.dtype],
    targets=["sm_90"],
    tags=["regression"],
)
