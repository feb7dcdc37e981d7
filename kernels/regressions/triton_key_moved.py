"""triton_key move: ``triton_key`` is in another module from 3.5 on.

Inductor of that time takes the compiler's own hash from ``triton.compiler.compiler``, where it is in 3.0.0 to 3.4.0;
from 3.5.0 it is in ``triton.runtime.cache``, and the import fails.
https://github.com/triton-lang/triton/blob/v3.5.0/python/triton/runtime/cache.py
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "import"
GOOD, BAD = "3.4.0", "3.5.1"
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
    name="regression_triton_key_moved",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            stage="import",
            outcome="import_error",
            triton=">=3.5",
            reason="triton_key moved to triton.runtime.cache in 3.5",
            link="https://github.com/triton-lang/triton/blob/v3.5.0/python/triton/runtime/cache.py",
        ),
    ],
    tags=["regression"],
)

# Last, so that the case with its expectation is already there where this fails.
from triton.compiler.compiler import triton_key  # noqa: E402, F401
