"""FlashMLA#12: ``do_bench`` no longer takes ``fast_flush``.

A benchmark that calls ``triton.testing.do_bench(run, fast_flush=False)`` works up to 3.1.0 and raises a TypeError from
3.2.0. What is flushed before each repetition changed with it, so do_bench's figures across that step are not
comparable. The call's arguments are bound to the signature and the timer is not started: it needs a GPU.
https://github.com/deepseek-ai/FlashMLA/issues/12, removed by https://github.com/triton-lang/triton/pull/4485
"""

import inspect

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.1.0", "3.2.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "case_error")}
FLAG = "case_error"


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


def copy(x, *, block=256):
    out = torch.empty_like(x)

    def launch():
        copy_kernel[(x.numel() // block,)](x, out, BLOCK=block)

    inspect.signature(triton.testing.do_bench).bind(launch, fast_flush=False)
    launch()
    return out


case = Case(
    name="regression_flashmla_12",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            outcome="case_error",
            triton=">=3.2",
            reason="do_bench lost its fast_flush in 3.2",
            link="https://github.com/triton-lang/triton/pull/4485",
        ),
    ],
    tags=["regression"],
)
