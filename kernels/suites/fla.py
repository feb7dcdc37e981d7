"""flash-linear-attention, unmodified: its operators as they are called by its layers, against its own naive references.

A case ``fla_<op>`` is the forward pass, ``fla_<op>_backward`` the gradients of queries, keys and values through torch's
autograd. The naive references compute in fp32, whatever they are given. See docs/suites.md.
"""

import torch
import torch.nn.functional as F
from fla.ops.delta_rule import chunk_delta_rule
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.gla import chunk_gla, fused_recurrent_gla
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.hgrn import fused_recurrent_hgrn
from fla.ops.hgrn.naive import naive_recurrent_hgrn
from fla.ops.linear_attn import chunk_linear_attn
from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
from fla.ops.retention import chunk_retention
from fla.ops.retention.naive import naive_retention
from fla.ops.simple_gla import chunk_simple_gla
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

from matrix import Case, Tolerance

REQUIRES = ["fla-core==0.6.0", "einops==0.8.2", "packaging>=24"]

SMALL = {"batch": 1, "tokens": 100, "heads": 2, "dim": 64, "dtype": "fp32"}
LARGE = {"batch": 1, "tokens": 2048, "heads": 4, "dim": 64, "dtype": "bf16"}
# A chunked product in TF32 or bf16 against a recurrence in fp32. An element sums over tokens and width: in TF32 each
# term is off by up to 2**-11, some thousands of them by 0.04 in the standard deviation before the scale of 1/8, and of
# as many elements some lie five of these away.
LOOSE = {"fp32": Tolerance(atol=5e-2, rtol=1e-2), "bf16": Tolerance(atol=5e-2, rtol=5e-2)}
# Where nothing decays, the sums grow with the tokens and with them what they are off by.
GROWING = {"fp32": Tolerance(atol=1e-1, rtol=1e-2), "bf16": Tolerance(atol=5e-1, rtol=5e-2)}
# The chunked delta rule takes no fp32.
HALF = ({**SMALL, "dtype": "bf16"}, LARGE)


def heads_first(function):
    """A reference that takes [batch, heads, tokens, ...] where the operator takes [batch, tokens, heads, ...]."""

    def swapped(*tensors):
        result = function(*(tensor.transpose(1, 2) for tensor in tensors))
        result = result[0] if isinstance(result, tuple) else result
        return result.transpose(1, 2)

    return swapped


def first(function):
    def output(*tensors):
        result = function(*tensors)
        return result[0] if isinstance(result, tuple) else result

    return output


def backward_of(function, count):
    """Gradients of the first ``count`` inputs; the last input is the gradient of the output."""

    def backward(*tensors):
        *inputs, upstream = (tensor.detach().clone() for tensor in tensors)
        for tensor in inputs[:count]:
            tensor.requires_grad_()
        result = function(*inputs)
        return torch.autograd.grad(result, inputs[:count], upstream.to(result.dtype))

    return backward


def forward_of(function):
    def forward(*tensors):
        with torch.no_grad():
            return function(*tensors)

    return forward


def op(name, run, reference, inputs, *, wanted=3, points=(SMALL, LARGE), tolerance=LOOSE):
    """Two cases; the backward pass starts from a gradient of the last of the ``wanted`` inputs' shape."""
    small, large = points
    common = {
        "correctness": [small],
        "timing": [large],
        "tolerance": tolerance,
        "tags": ["suite", "fla"],
        "without": {
            "special_values": "a chunk's product spreads NaN where the recurrence does not",
            **dict.fromkeys(("large_values", "small_values"), "scaled, a gate is none any more"),
        },
    }
    run, reference = first(run), first(reference)

    def with_upstream(make, p):
        tensors = inputs(make, p)
        return [*tensors, make.normal(tuple(tensors[wanted - 1].shape), p.dtype)]

    return [
        Case(name=f"fla_{name}", run=forward_of(run), reference=forward_of(reference), inputs=inputs, **common),
        Case(
            name=f"fla_{name}_backward",
            run=backward_of(run, wanted),
            reference=backward_of(reference, wanted),
            inputs=with_upstream,
            **common,
        ),
    ]


def shape(p):
    return (p.batch, p.tokens, p.heads, p.dim)


def queries(make, p):
    """Queries, keys (of length 1, as the delta rules want them) and values."""
    q, k, v = (make.normal(shape(p), p.dtype) for _ in range(3))
    return [q, F.normalize(k.float(), dim=-1).to(k.dtype), v]


def with_gates(make, p):
    """A gate in logarithms a channel."""
    return [*queries(make, p), make.uniform(shape(p), p.dtype, low=-0.5, high=-0.01)]


def with_betas(make, p):
    return [*queries(make, p), make.uniform(shape(p)[:3], p.dtype, low=0.05, high=0.95)]


def with_scalar_gates(make, p):
    return [*queries(make, p), make.uniform(shape(p)[:3], "fp32", low=-0.5, high=-0.01)]


def gated_delta(make, p):
    gates = make.uniform(shape(p)[:3], "fp32", low=-0.5, high=-0.01)
    return [*queries(make, p), gates, make.uniform(shape(p)[:3], p.dtype, low=0.05, high=0.95)]


def delta_reference(q, k, v, beta):
    """The library's recurrence scales no queries; its operator does."""
    return heads_first(delta_rule_recurrence)(q, k, v, beta)


WIDE = (
    {"batch": 2, "tokens": 100, "cols": 128, "dtype": "fp32"},
    {"batch": 4, "tokens": 1024, "cols": 2048, "dtype": "bf16"},
)

CASES = [
    *op(
        "gated_delta_rule",
        chunk_gated_delta_rule,
        lambda q, k, v, g, beta: naive_recurrent_gated_delta_rule(q, k, v, beta, g),
        gated_delta,
    ),
    *op("gla", chunk_gla, naive_recurrent_gla, with_gates),
    *op("gla_recurrent", fused_recurrent_gla, naive_recurrent_gla, with_gates),
    *op("delta_rule", chunk_delta_rule, delta_reference, with_betas, points=HALF),
    *op("retention", chunk_retention, heads_first(naive_retention), queries),
    # One decay a head and step: the recurrence of Mamba-2 (state-space duality).
    *op("simple_gla", chunk_simple_gla, naive_recurrent_simple_gla, with_scalar_gates),
    *op(
        "linear_attn",
        lambda q, k, v: chunk_linear_attn(q, k, v, normalize=False),
        lambda q, k, v: naive_recurrent_linear_attn(q, k, v, normalize=False),
        queries,
        tolerance=GROWING,
    ),
    *op(
        "hgrn",
        fused_recurrent_hgrn,
        naive_recurrent_hgrn,
        lambda make, p: [
            make.normal((p.batch, p.tokens, p.cols), p.dtype),
            make.uniform((p.batch, p.tokens, p.cols), p.dtype, low=-0.5, high=-0.01),
        ],
        wanted=1,
        points=WIDE,
    ),
]
