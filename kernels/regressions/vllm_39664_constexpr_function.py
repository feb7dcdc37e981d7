"""vllm#39664: an import that fails is caught, and a slow path runs in silence.

A kernel package refers to ``tl.constexpr_function``, which exists in 3.4 only (``triton.constexpr_function``
from 3.5.0). The error is caught and logged and plain torch runs instead: right answers, no Triton kernel, and
a training step of four hours. The import stage passes; only who was launched tells.
https://github.com/vllm-project/vllm/issues/39664
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.4.0", "3.5.1"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "not_launched")}
FLAG = "not_launched"

try:
    constexpr_function = tl.constexpr_function
    HAVE_KERNELS = True
except AttributeError:
    HAVE_KERNELS = False

if HAVE_KERNELS:

    @constexpr_function
    def half(block):
        return block // 2

    @triton.jit
    def swap_halves_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        middle: tl.constexpr = half(BLOCK)
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + (offsets ^ middle), tl.load(x_ptr + offsets))


def swap_halves(x, *, block=256):
    if not HAVE_KERNELS:
        return x.view(-1, 2, block // 2).flip(1).reshape(x.shape)
    out = torch.empty_like(x)
    swap_halves_kernel[(x.numel() // block,)](x, out, BLOCK=block)
    return out


case = Case(
    name="regression_vllm_39664",
    run=swap_halves,
    reference=lambda x: x.view(-1, 2, 128).flip(1).reshape(x.shape),
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    kernels=["swap_halves_kernel"],
    expectations=[
        Expect(
            outcome="not_launched",
            triton="!=3.4.*",
            reason="tl.constexpr_function exists in 3.4 only; without it the package falls back to torch",
            link="https://github.com/vllm-project/vllm/issues/39664",
        ),
    ],
    tags=["regression"],
)
