"""triton#9834: a stride annotated ``int`` is no longer specialised to 1.

Up to 3.3 an argument of value 1 was folded to a constant whatever its annotation, so that accesses through
it vectorise. From 3.4.0 the annotation makes it a run-time i32 and every access scalar: one 128-bit load
becomes eight of 16 bits (6.5 times slower was reported for an fp8 transpose). Closed as not a bug, so it
stays; the arms without annotation and with ``tl.constexpr`` keep their width.
https://github.com/triton-lang/triton/issues/9834
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.3.1", "3.4.0"
TARGET = "sm_90"
PARAMS = {"stride": "annotated"}
FIGURE = {"global_load_bits": ({"128": 1}, {"16": 8})}
FLAG = "vector_width_lost"


@triton.jit
def copy_annotated(source, target, stride: int, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets * stride))


@triton.jit
def copy_plain(source, target, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets * stride))


@triton.jit
def copy_constant(source, target, stride: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets * stride))


KERNELS = {"annotated": copy_annotated, "plain": copy_plain, "constexpr": copy_constant}


def copy(source, *, stride, block=1024):
    out = torch.empty_like(source)
    KERNELS[stride][(source.numel() // block,)](source, out, source.stride(0), BLOCK=block)
    return out


case = Case(
    name="regression_triton_9834",
    run=copy,
    reference=lambda source: source,
    inputs=lambda make, _: [make.normal((1 << 20,), "fp16")],
    compile=[{"stride": "annotated"}, {"stride": "plain"}, {"stride": "constexpr"}],
    expectations=[
        Expect(
            change="vector_width_lost",
            triton=">=3.4",
            params={"stride": "annotated"},
            reason="from 3.4 an argument annotated int is a run-time value, also where it is 1",
            link="https://github.com/triton-lang/triton/issues/9834",
        ),
    ],
    tags=["regression"],
)
