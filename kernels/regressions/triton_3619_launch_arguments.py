"""triton#3619: a launch with about twenty mixed arguments grew from 70 to 350 us on the host.

Good in late 2023; main of early 2024 was slow, and 3.0.0 has the repairs (18 us at the end). So a sentinel with no
bad release: the cost is Python's, for binding and specialising the arguments. ``n`` is large enough for the kernel
itself to be timed; the figure is the host time of a call.
https://github.com/triton-lang/triton/issues/3619, repaired by
https://github.com/triton-lang/triton/pull/3638 and https://github.com/triton-lang/triton/pull/3648
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "timing"  # the host time of a launch is taken where there is something to launch on
GOOD, BAD = "3.9.0", ""
TARGET = "sm_90"
PARAMS = {"n": 16_777_216}
FIGURE = {"reason_code": ("", "")}


@triton.jit
def mixed_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, out_ptr, n, i, j, k, one, sixteen, wide, x, y, none, flag,
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    total = tl.load(a_ptr + at, mask=mask, other=0.0) + tl.load(b_ptr + at, mask=mask, other=0.0)
    total += tl.load(c_ptr + at, mask=mask, other=0.0) + tl.load(d_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, total, mask=mask)


def add_four(a, b, c, d, *, block=1024):
    out = torch.empty_like(a)
    n = a.numel()
    mixed_kernel[(triton.cdiv(n, block),)](
        a, b, c, d, out, n, 7, 32, 100_003, 1, 16, 1 << 40, 0.5, 2.0, None, True,
        A=1, B=True, C="text", D=None, BLOCK=block,
    )  # fmt: skip
    return out


case = Case(
    name="regression_triton_3619",
    without={"strided": "takes contiguous inputs"},
    run=add_four,
    reference=lambda a, b, c, d: a + b + c + d,
    inputs=lambda make, p: [make.normal((p.n,), "fp32") for _ in range(4)],
    interpret=[{"n": 2053}],
    correctness=[{"n": 2053}, {"n": 98_432}],
    timing=[{"n": 1 << 24}],
    bytes_moved=lambda p: 5 * 4 * p.n,
    targets=["sm_90"],
    tags=["regression", "sentinel"],
)
