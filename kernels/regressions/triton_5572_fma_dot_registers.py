"""triton#5572: small dots outside the tensor cores take far more registers and spill.

A change in the order in which FMA operands are read from shared memory keeps all of K alive at once. Good up
to 3.2.0 (40 registers); on sm_80 with four warps 72 in 3.3.1, 255 and a stack in 3.4.0; repaired in 3.5. With
one warp it stayed up to 3.7.1 on sm_90 and to this day on sm_80.
https://github.com/triton-lang/triton/issues/5572
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.4.0"
TARGET = "sm_80"
PARAMS = {"warps": 4, "k": 256}
FIGURE = {"registers": (40, 255), "stack_bytes": (0, 16)}
FLAG = "spills_appeared"


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr):
    rows, steps = tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + steps[None, :]).to(tl.float32)
    b = tl.load(b_ptr + steps[:, None] * N + rows[None, :]).to(tl.float32)
    out = tl.dot(a, b, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * N + rows[None, :], out)


def dot(a, b, *, warps):
    n, k = a.shape
    out = torch.empty((n, n), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, b, out, N=n, K=k, num_warps=warps)
    return out


LINK = "https://github.com/triton-lang/triton/issues/5572"

case = Case(
    name="regression_triton_5572",
    run=dot,
    reference=lambda a, b: a @ b,
    inputs=lambda make, p: [make.normal((16, p.k), "fp32"), make.normal((p.k, 16), "fp32")],
    compile=[{"warps": 4, "k": 256}],
    targets=["sm_80", "sm_90"],
    expectations=[
        *(
            Expect(
                change=change,
                triton="==3.4.*",
                targets=["sm_80"],
                reason="3.4 keeps all of K alive",
                link=LINK,
            )
            for change in ("spills_appeared", "occupancy_lost")
        ),
        *(
            Expect(change=change, triton=">=3.5", targets=["sm_80"], reason="3.5 repaired four warps", link=LINK)
            for change in ("spills_gone", "occupancy_gained")
        ),
    ],
    tags=["regression"],
)
