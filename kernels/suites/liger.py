"""Liger-Kernel, unmodified: its autograd functions as they are called by its modules, forward and backward.

A case ``liger_<op>`` is the forward pass without gradients; ``liger_<op>_backward`` takes gradients through torch's
autograd, which calls the library's own backward. References are plain torch. See docs/suites.md.
"""

import torch
import torch.nn.functional as F
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.poly_norm import LigerPolyNormFunction
from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction

from matrix import Case

REQUIRES = ["liger-kernel==0.8.5", "packaging>=24"]  # it imports packaging and does not say so

EPS = 1e-6
SMALL = {"rows": 33, "cols": 1000}
LARGE = {"rows": 2048, "cols": 4096}
HEADS = {"batch": 2, "tokens": 128, "heads": 8, "dim": 64}


def forward_of(function):
    def forward(*tensors):
        with torch.no_grad():
            return function(*tensors)

    return forward


def backward_of(function, wanted):
    """Gradients of the ``wanted`` inputs; the last input is the gradient of the (first) output."""

    def backward(*tensors):
        *inputs, upstream = (tensor.detach().clone() for tensor in tensors)
        for position in wanted:
            inputs[position].requires_grad_()
        result = function(*inputs)
        result = result[0] if isinstance(result, tuple) else result
        return torch.autograd.grad(result, [inputs[position] for position in wanted], upstream.to(result.dtype))

    return backward


def op(name, run, reference, inputs, upstream, *, points, wanted=(0,), unscaled="", deterministic=True):
    """Two cases. ``upstream(make, p)`` makes the gradient that the backward pass starts from.

    ``unscaled`` says why inputs are not scaled; ``deterministic`` is of the backward pass.
    """
    small, large = points
    without = {"special_values": "what becomes of NaN is the library's own"}
    if unscaled:
        without |= dict.fromkeys(("large_values", "small_values"), unscaled)
    common = {"correctness": [small], "timing": [large], "tags": ["suite", "liger"], "without": without}
    return [
        Case(name=f"liger_{name}", run=forward_of(run), reference=forward_of(reference), inputs=inputs, **common),
        Case(
            name=f"liger_{name}_backward",
            run=backward_of(run, wanted),
            reference=backward_of(reference, wanted),
            inputs=lambda make, p: [*inputs(make, p), upstream(make, p)],
            deterministic=deterministic,
            **common,
        ),
    ]


DISTRIBUTIONS = "scaled, its inputs are no distributions"
ROWS = ({**SMALL, "dtype": "bf16"}, {**LARGE, "dtype": "bf16"})
EXACT_ROWS = ({**SMALL, "dtype": "fp32"}, {**LARGE, "dtype": "fp32"})


def rows(count, vectors=0):
    def inputs(make, p):
        matrices = [make.normal((p.rows, p.cols), p.dtype) for _ in range(count)]
        return [*matrices, *(make.uniform((p.cols,), p.dtype, low=0.5, high=1.5) for _ in range(vectors))]

    return inputs


def one_more(make, p):
    return make.normal((p.rows, p.cols), p.dtype)


def scalar(make, p):
    return make.full((), 1.0, "fp32")


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def log_distributions(count):
    """Logarithms of distributions over the columns."""
    return lambda make, p: [
        torch.log_softmax(make.normal((p.rows, p.cols), "fp32"), -1).to(torch.float32) for _ in range(count)
    ]


def distributions(count):
    return lambda make, p: [torch.softmax(make.normal((p.rows, p.cols), "fp32"), -1) for _ in range(count)]


def mean_divergence(q, p, beta=0.5):
    """Jensen and Shannon's, of logarithms, mean over the rows."""
    mixture = beta * p.exp() + (1 - beta) * q.exp()
    whole = beta * p.exp() * (p - mixture.log()) + (1 - beta) * q.exp() * (q - mixture.log())
    return whole.sum() / q.shape[0]


def sparsemax(x):
    ordered = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    sums = ordered.cumsum(-1)
    count = (1 + ranks * ordered > sums).sum(-1, keepdim=True)
    threshold = (sums.gather(-1, count - 1) - 1) / count
    return (x - threshold).clamp(min=0)


def poly_norm(x, w, b):
    normed = [x**power / torch.sqrt((x ** (2 * power)).mean(-1, keepdim=True) + EPS) for power in (3, 2, 1)]
    return sum(weight * part for weight, part in zip(w, normed)) + b


def half_turned(x):
    one, other = x.chunk(2, -1)
    return torch.cat((-other, one), -1)


def rope(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + half_turned(q) * sin, k * cos + half_turned(k) * sin


def rope_inputs(make, p):
    shape = (p.batch, p.heads, p.tokens, p.dim)
    angles = make.uniform((1, p.tokens, p.dim // 2), "fp32", low=-3, high=3)
    angles = torch.cat((angles, angles), -1)
    tensors = [make.normal(shape, p.dtype), make.normal(shape, p.dtype), angles.cos(), angles.sin()]
    return [tensor.to(tensors[0].dtype) for tensor in tensors]


CASES = [
    *op(
        "rms_norm", lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False), rms, rows(1, 1), one_more,
        points=ROWS, wanted=(0, 1),
    ),
    *op(
        "layer_norm",
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPS),
        rows(1, 2), one_more, points=ROWS, wanted=(0, 1, 2),
    ),
    *op(
        "fused_add_rms_norm",
        lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, EPS, 0.0, "llama", False),
        lambda x, r, w: (rms(x + r, w), x + r),
        rows(2, 1), one_more, points=ROWS, wanted=(0, 1, 2),
    ),
    *op(
        "swiglu", LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, rows(2), one_more, points=ROWS, wanted=(0, 1)
    ),
    *op(
        "geglu", LigerGELUMulFunction.apply, lambda a, b: F.gelu(a, approximate="tanh") * b, rows(2), one_more,
        points=ROWS, wanted=(0, 1),
    ),
    *op("relu_squared", LigerReLUSquaredFunction.apply, lambda x: F.relu(x) ** 2, rows(1), one_more, points=ROWS),
    *op("softmax", LigerSoftmaxFunction.apply, lambda x: torch.softmax(x, -1), rows(1), one_more, points=ROWS),
    *op(
        "sparsemax", lambda x: LigerSparsemaxFunction.apply(x, -1), sparsemax, rows(1), one_more, points=EXACT_ROWS
    ),
    *op(
        "dyt",
        LigerDyTFunction.apply,
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        lambda make, p: [
            make.normal((p.rows, p.cols), p.dtype),
            make.full((1,), 0.5, p.dtype),
            make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
            make.normal((p.cols,), p.dtype),
        ],
        one_more, points=EXACT_ROWS, wanted=(0, 2, 3),
    ),
    *op(
        "poly_norm",
        lambda x, w, b: LigerPolyNormFunction.apply(x, w, b, EPS, False),
        poly_norm,
        lambda make, p: [
            make.normal((p.rows, p.cols), p.dtype),
            make.uniform((3,), p.dtype, low=0.2, high=0.5),
            make.normal((1,), p.dtype),
        ],
        one_more, points=EXACT_ROWS, unscaled="scaled, its sixth powers overflow",
    ),
    *op(
        "group_norm",
        lambda x, w, b: LigerGroupNormFunction.apply(x, w, b, x.shape[1], 8, EPS),
        lambda x, w, b: F.group_norm(x, 8, w, b, EPS),
        lambda make, p: [
            make.normal((p.batch, p.channels, p.size), p.dtype),
            *(make.uniform((p.channels,), p.dtype, low=0.5, high=1.5) for _ in range(2)),
        ],
        lambda make, p: make.normal((p.batch, p.channels, p.size), p.dtype),
        points=(
            {"batch": 3, "channels": 32, "size": 100, "dtype": "fp32"},
            {"batch": 64, "channels": 64, "size": 1024, "dtype": "fp32"},
        ),
        wanted=(0, 1, 2),
        deterministic=False,  # its weights' gradients are added up by atomics
    ),
    *op(
        "rope", LigerRopeFunction.apply, rope, rope_inputs,
        lambda make, p: make.normal((p.batch, p.heads, p.tokens, p.dim), p.dtype),
        points=({**HEADS, "dtype": "fp32"}, {**HEADS, "tokens": 2048, "dtype": "bf16"}),
    ),
    *op(
        "cross_entropy",
        lambda x, target: LigerCrossEntropyFunction.apply(x, target, None)[0],
        F.cross_entropy,
        lambda make, p: [make.normal((p.rows, p.cols), p.dtype), make.integers((p.rows,), 0, p.cols)],
        scalar, points=({**SMALL, "dtype": "fp32"}, {"rows": 4096, "cols": 32768, "dtype": "bf16"}),
    ),
    *op(
        "fused_linear_cross_entropy",
        lambda x, w, target: LigerFusedLinearCrossEntropyFunction.apply(x, w, target)[0],
        lambda x, w, target: F.cross_entropy(x @ w.T, target),
        lambda make, p: [
            make.normal((p.rows, p.dim), p.dtype),
            make.normal((p.cols, p.dim), p.dtype, std=0.05),
            make.integers((p.rows,), 0, p.cols),
        ],
        scalar,
        points=({**SMALL, "dim": 64, "dtype": "fp32"}, {"rows": 512, "cols": 8192, "dim": 256, "dtype": "bf16"}),
        wanted=(0, 1),
    ),
    *op(
        "kl_div",
        LigerKLDivLossFunction.apply,
        lambda q, p: F.kl_div(q, p, reduction="batchmean"),
        lambda make, p: [*log_distributions(1)(make, p), *distributions(1)(make, p)],
        scalar, points=EXACT_ROWS, unscaled=DISTRIBUTIONS,
    ),
    *op(
        "jsd", LigerJSDFunction.apply, mean_divergence, log_distributions(2), scalar, points=EXACT_ROWS,
        unscaled=DISTRIBUTIONS,
    ),
    *op(
        "tvd", LigerTVDLossFunction.apply, lambda p, q: 0.5 * (p - q).abs().sum() / p.shape[0], distributions(2),
        scalar, points=EXACT_ROWS, unscaled=DISTRIBUTIONS,
    ),
]  # fmt: skip
