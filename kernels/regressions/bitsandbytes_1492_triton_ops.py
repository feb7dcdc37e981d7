"""bitsandbytes#1492: ``triton.ops`` is gone, and what imports it with it.

Wheels up to 3.1.0 carry matmul and its performance model under ``triton.ops``; from 3.2.0 the code is in
triton-lang/kernels, and the import fails. (The report has it with builds of the main branch before 3.0.)
https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1492
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "import"
GOOD, BAD = "3.1.0", "3.2.0"
TARGET = "cpu"
PARAMS = {}
FIGURE = {"outcome": ("passed", "import_error")}
FLAG = "import_error"


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


def copy(x, *, block=256):
    out = torch.empty_like(x)
    copy_kernel[(x.numel() // block,)](x, out, BLOCK=block)
    return out


case = Case(
    name="regression_bitsandbytes_1492",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            stage="import",
            outcome="import_error",
            triton=">=3.2",
            reason="triton.ops moved to triton-lang/kernels",
            link="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1492",
        ),
    ],
    tags=["regression"],
)

# Last, so that the case with its expectation is already there where this fails.
from triton.ops.matmul_perf_model import early_config_prune  # noqa: E402, F401
