"""triton#11526: a tf32x3 matmul takes more shared memory in 3.8.

From 3.8.0 the big and the small half of each operand get buffers of their own: 1536 B become 3584 B for one
16x16 tile; at real tile sizes that crosses what an L40 or an RTX card has, and the launch fails. Good up to
3.7.1, bad in 3.8.0, repaired in 3.9.0. Plain tf32 is the control and stays at 1536 B.
https://github.com/triton-lang/triton/issues/11526
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.7.1", "3.8.0"
TARGET = "sm_90"
PARAMS = {"precision": "tf32x3"}
FIGURE = {"shared_bytes": (1536, 3584)}
FLAG = "shared_memory"


@triton.jit
def matmul_kernel(x_ptr, w_ptr, out_ptr, n, k, PRECISION: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    steps = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        x = tl.load(x_ptr + rows * k + start + steps).to(tl.float32)
        w = tl.load(w_ptr + cols * k + start + steps).to(tl.float32)
        total += tl.dot(x, tl.trans(w), input_precision=PRECISION)
    tl.store(out_ptr + rows * n + tl.trans(cols), total)


def matmul(x, w, *, precision, block=16):
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty((m, n), dtype=torch.float32, device=x.device)
    grid = (m // block, n // block)
    matmul_kernel[grid](x, w, out, n, k, PRECISION=precision, BLOCK=block, num_warps=1, num_stages=2)
    return out


LINK = "https://github.com/triton-lang/triton/issues/11526"

case = Case(
    name="regression_triton_11526",
    run=matmul,
    inputs=lambda make, _: [make.normal((256, 256), "bf16"), make.normal((256, 256), "fp32")],
    compile=[{"precision": "tf32x3"}, {"precision": "tf32"}],
    targets=["sm_80", "sm_90"],
    expectations=[
        Expect(
            outcome="compiler_abort",
            triton="<3.2",
            params={"precision": "tf32x3"},
            reason="3.0 and 3.1 abort on tf32x3 with an operand in registers",
            link=LINK,
        ),
        Expect(
            change="shared_memory",
            triton="==3.8.*",
            params={"precision": "tf32x3"},
            reason="3.8 gives both halves of each tf32x3 operand a buffer of their own",
            link=LINK,
        ),
        Expect(
            change="shared_memory_saved",
            triton=">=3.9",
            params={"precision": "tf32x3"},
            reason="3.9 repaired what 3.8 had doubled",
            link=LINK,
        ),
    ],
    tags=["regression"],
)
