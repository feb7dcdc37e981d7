"""ComfyUI#7106: ``AttrsDescriptor`` is gone from 3.3, and what imports it with it.

torch 2.6's Inductor imports it from ``triton.compiler.compiler`` at its own import, so torch 2.6 with Triton
3.3 fails before the first kernel. Good up to 3.2.0, an ImportError from 3.3.0; torch 2.7 does without.
https://github.com/Comfy-Org/ComfyUI/issues/7106
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "import"
GOOD, BAD = "3.2.0", "3.3.1"
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
    name="regression_comfyui_7106",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            stage="import",
            outcome="import_error",
            triton=">=3.3",
            reason="AttrsDescriptor was removed in 3.3",
            link="https://github.com/Comfy-Org/ComfyUI/issues/7106",
        ),
    ],
    tags=["regression"],
)

# Last, so that the case with its expectation is already there where this fails.
from triton.compiler.compiler import AttrsDescriptor  # noqa: E402, F401
