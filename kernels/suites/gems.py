"""FlagGems, unmodified: operators of torch written in Triton, called as the library calls them.

The library looks for a GPU's vendor tools as it is imported and is told the vendor instead. See docs/suites.md.
"""

import os

os.environ.setdefault("GEMS_VENDOR", "nvidia")

import flag_gems
import torch
from flag_gems import ops

from matrix import Case

REQUIRES = ["flag-gems==5.0.2"]

SMALL = {"rows": 33, "cols": 1000}
LARGE = {"rows": 2048, "cols": 4096}


def rows(make, p):
    return [make.normal((p.rows, p.cols), p.dtype)]


def weighted(make, p):
    return [*rows(make, p), make.uniform((p.cols,), p.dtype, low=0.5, high=1.5)]


def op(name, run, reference, inputs=rows, *, dtype="bf16", **more):
    points = {"correctness": [{**SMALL, "dtype": "fp32"}], "timing": [{**LARGE, "dtype": dtype}]}
    return Case(
        name=f"gems_{name}",
        run=run,
        reference=reference,
        inputs=inputs,
        tags=["suite", "gems"],
        without={"special_values": "what becomes of NaN is the library's own"},
        **points,
        **more,
    )


CASES = [
    op("softmax", lambda x: ops.softmax(x, -1), lambda x: torch.softmax(x, -1)),
    op(
        "rms_norm",
        lambda x, w: flag_gems.rms_norm(x, (x.shape[-1],), w, 1e-6),
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        weighted,
    ),
    op("sum_dim", lambda x: ops.sum_dim(x, [1]), lambda x: x.sum(1), dtype="fp32"),
    op("mean_dim", lambda x: ops.mean_dim(x, [1]), lambda x: x.mean(1), dtype="fp32"),
    op("max", ops.max, torch.max, dtype="fp32", exact=True),
    op("argmax", lambda x: ops.argmax(x, 1), lambda x: x.argmax(1), dtype="fp32", exact=True),
    op("cumsum", lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), dtype="fp32"),
    op("sort", lambda x: ops.sort(x)[0], lambda x: x.sort().values, dtype="fp32", exact=True),
    op("topk", lambda x: ops.topk(x, 8)[0], lambda x: x.topk(8).values, dtype="fp32", exact=True),
    op("vector_norm", lambda x: ops.vector_norm(x, 2, [1]), lambda x: x.norm(dim=1), dtype="fp32"),
    op("add", ops.add, torch.add, lambda make, p: [*rows(make, p), *rows(make, p)]),
    op("gelu", ops.gelu, torch.nn.functional.gelu),
    op(
        "layer_norm",
        lambda x, w: ops.layer_norm(x, (x.shape[-1],), w, w, 1e-6)[0],
        lambda x, w: torch.nn.functional.layer_norm(x, (x.shape[-1],), w, w, 1e-6),
        weighted,
    ),
]
