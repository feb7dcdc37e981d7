"""triton#11270: whether a*b+c is fused changes its default in 3.10.

3.9.0 warns that ``TRITON_DEFAULT_FP_FUSION`` goes from on to off, so that results change in their last bits
with no change of code. A two-step Horner polynomial has two fma instructions with fusion and none without;
the arm that leaves the option out is the one that will move, the explicit arms show both sides everywhere.
https://github.com/triton-lang/triton/pull/11270
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.9.0"
TARGET = "sm_90"
PARAMS = {"fusion": "default"}
BAD_PARAMS = {"fusion": "off"}
FIGURE = {"fma": (2, 0)}
FLAG = "contraction_lost"
ON_GPU = {"STAGE": "correctness", "FIGURE": {"reason_code": ("", "values_changed")}}

OPTIONS = {"default": {}, "on": {"enable_fp_fusion": True}, "off": {"enable_fp_fusion": False}}


@triton.jit
def horner_kernel(x_ptr, out_ptr, a, b, c, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, (a * x + b) * x + c)


def horner(x, *, fusion, block=128):
    out = torch.empty_like(x)
    horner_kernel[(x.numel() // block,)](x, out, 0.5, 0.25, 0.75, BLOCK=block, **OPTIONS[fusion])
    return out


case = Case(
    name="regression_triton_11270",
    without={"strided": "takes contiguous inputs"},
    run=horner,
    reference=lambda x: (0.5 * x + 0.25) * x + 0.75,
    # The same values at each point, so that bits can be compared from one point to the other.
    inputs=lambda make, _: [torch.linspace(-3, 3, 1024, device=make.device)],
    compile=[{"fusion": "default"}, {"fusion": "on"}, {"fusion": "off"}],
    correctness=[{"fusion": "default"}, {"fusion": "on"}, {"fusion": "off"}],
    tags=["regression"],
)
