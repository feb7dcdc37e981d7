"""triton#10629: dots with N=8 in TF32 became wgmma, whose 8-column operand is not padded.

On sm_90 such a dot is refused up to 3.4.0, runs on mma.sync up to 3.7.1, and on wgmma m64n8k8 from 3.8.0
(triton#10234): faster, and in the report an illegal address where shared memory is nearly full. Closed as not
reproduced on its own, so it is kept as a sentinel of the changed instruction and the 18432 B it takes.
https://github.com/triton-lang/triton/issues/10629
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect, Tolerance

STAGE = "compile"
GOOD, BAD = "3.7.1", "3.8.0"
TARGET = "sm_90"
PARAMS = {}
ON_GPU = {"STAGE": "correctness", "FIGURE": {"outcome": ("passed", "out_of_bounds or run_error or crash")}}
FIGURE = {"matrix_ops": ({"mma.m16n8k8.f32.tf32.tf32": 8}, {"wgmma.m64n8k8.f32.tf32.tf32": 8})}


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, cols, steps = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + steps[None, :])
    b = tl.load(b_ptr + steps[:, None] * N + cols[None, :])
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], tl.dot(a, b, input_precision="tf32"))


def dot(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, b, out, M=m, N=n, K=k)
    return out


case = Case(
    name="regression_triton_10629",
    run=dot,
    reference=torch.matmul,
    without={"strided": "takes contiguous inputs"},
    tolerance=Tolerance(atol=0.02, rtol=0.02),  # of TF32
    correctness=[{}],
    inputs=lambda make, _: [make.normal((64, 64), "fp32"), make.normal((64, 8), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            outcome="compile_error",
            triton="<3.5",
            reason="up to 3.4 a dot needs 16 columns",
            link="https://github.com/triton-lang/triton/issues/10629",
        ),
        Expect(
            change="matrix_class_gained",
            triton=">=3.8",
            reason="from 3.8 (triton#10234) a TF32 dot of 8 columns is wgmma, its operand not padded",
            link="https://github.com/triton-lang/triton/issues/10629",
        ),
    ],
    tags=["regression"],
)
