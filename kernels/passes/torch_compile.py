"""The feed-forward half of a transformer block through ``torch.compile``: the Triton code is torch's own.

What inductor fuses becomes generated kernels, which are captured, compiled and judged like any other; products go to
cuBLAS and are no kernels of Triton. Where a host has no GPU one build of torch serves every environment, so that the
generated code is the same and only Triton differs; on a host with GPUs each environment has the torch of its pair, and
what differs may be either's. There is no interpreter for generated code: inductor writes it for a GPU.
"""

import functools

import torch
import torch.nn.functional as F

from matrix import Case

EPS = 1e-6


def feed_forward(x, norm, w_gate, w_up, w_down):
    normed = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS).to(x.dtype) * norm
    return x + (F.silu(normed @ w_gate) * (normed @ w_up)) @ w_down


@functools.cache
def compiled():
    # Not at import: torch.compile brings in seconds of modules, and other stages have no use for them.
    return torch.compile(feed_forward, fullgraph=True, dynamic=False)


def run(x, norm, w_gate, w_up, w_down):
    return compiled()(x, norm, w_gate, w_up, w_down)


case = Case(
    name="feed_forward_torch_compile",
    run=run,
    torch_compile=True,
    reference=feed_forward,
    inputs=lambda make, p: [
        make.normal((p.tokens, p.width), p.dtype),
        make.uniform((p.width,), p.dtype, low=0.5, high=1.5),
        make.normal((p.width, p.hidden), p.dtype, std=p.width**-0.5),
        make.normal((p.width, p.hidden), p.dtype, std=p.width**-0.5),
        make.normal((p.hidden, p.width), p.dtype, std=p.hidden**-0.5),
    ],
    without={
        "strided": "takes contiguous inputs",
        "special_values": "a value that is not finite spreads over its row",
    },
    correctness=[{"tokens": 127, "width": 256, "hidden": 704, "dtype": "bf16"}],
    timing=[{"tokens": 4096, "width": 2048, "hidden": 5632, "dtype": "bf16"}],
    flops=lambda p: 6 * p.tokens * p.width * p.hidden,
    competitor=feed_forward,
    tags=["builtin", "pass"],
)
