"""triton#737: masked loads without ``other`` leave lanes undefined, and a maximum lets them through.

Max pooling over three neighbours, each loaded under its own edge mask. ``hidden`` selects -inf for the masked
lanes afterwards, as the report did (the first columns were random in fp16, right in fp32, in 2.0);
``exposed`` forgets to, and is the hazard to name with its line; ``given`` passes ``other`` and is clean.
https://github.com/triton-lang/triton/issues/737
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.9.0"
TARGET = "sm_90"
PARAMS = {"lanes": "given"}
BAD_PARAMS = {"lanes": "exposed"}
FIGURE = {"hazards": ([], ["masked_load_without_other"])}
FLAG = "hazard_appeared"
ON_GPU = {"STAGE": "correctness", "FIGURE": {"outcome": ("passed", "wrong")}}


@triton.jit
def pool_kernel(x_ptr, out_ptr, n, LANES: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float16)
    for shift in tl.static_range(-1, 2):
        there = (cols + shift >= 0) & (cols + shift < n)
        if LANES == "given":
            x = tl.load(x_ptr + cols + shift, mask=there, other=float("-inf"))
        else:
            x = tl.load(x_ptr + cols + shift, mask=there)
        if LANES == "hidden":
            x = tl.where(there, x, float("-inf"))
        best = tl.maximum(best, x)
    tl.store(out_ptr + cols, best, mask=cols < n)


def pool(x, *, lanes, block=256):
    out = torch.empty_like(x)
    pool_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), LANES=lanes, BLOCK=block)
    return out


def max_of_neighbours(x):
    padded = torch.nn.functional.pad(x, (1, 1), value=float("-inf"))
    return padded.unfold(0, 3, 1).max(-1).values


case = Case(
    name="regression_triton_737",
    without={"strided": "takes contiguous inputs", "special_values": "tl.maximum drops NaN, as it is documented to"},
    run=pool,
    reference=max_of_neighbours,
    inputs=lambda make, _: [make.normal((1000,), "fp16", mean=-8.0)],
    compile=[{"lanes": "given"}, {"lanes": "hidden"}, {"lanes": "exposed"}],
    interpret=[{"lanes": "given"}, {"lanes": "hidden"}],
    correctness=[{"lanes": "given"}, {"lanes": "hidden"}, {"lanes": "exposed"}],
    targets=["sm_90"],
    tags=["regression"],
)
