"""Operators of Liger-Kernel and flash-linear-attention as case files: the figures on other people's kernels.

Their own wrappers run unmodified, forward and without gradients. Chosen are operators whose addresses depend on
no loaded value. Needs liger-kernel and fla-core (with einops and packaging) in the environment.
"""

import torch
from fla.modules.norm.l2norm import l2norm_fwd
from fla.modules.rotary import rotary_embedding
from fla.ops.attn.parallel import parallel_attn_fwd
from fla.ops.delta_rule import chunk_delta_rule
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gla import chunk_gla, fused_recurrent_gla
from fla.ops.hgrn import fused_recurrent_hgrn
from fla.ops.retention import chunk_retention
from fla.ops.utils.cumsum import chunk_global_cumsum, chunk_local_cumsum
from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward
from liger_kernel.ops.geglu import geglu_backward, geglu_forward
from liger_kernel.ops.group_norm import group_norm_forward
from liger_kernel.ops.layer_norm import layer_norm_forward
from liger_kernel.ops.poly_norm import poly_norm_forward
from liger_kernel.ops.rms_norm import rms_norm_forward
from liger_kernel.ops.rope import rope_forward
from liger_kernel.ops.softmax import _softmax_forward
from liger_kernel.ops.swiglu import swiglu_backward, swiglu_forward

from matrix import Case

ROWS = {"rows": 8192, "cols": 4096, "dtype": "bf16"}
HEADS = {"batch": 4, "tokens": 4096, "heads": 16, "dim": 128, "dtype": "bf16"}


def rows(count):
    return lambda make, p: [make.normal((p.rows, p.cols), p.dtype) for _ in range(count)]


def rows_and_weights(count, weights):
    def inputs(make, p):
        matrices = [make.normal((p.rows, p.cols), p.dtype) for _ in range(count)]
        return [*matrices, *(make.uniform((p.cols,), p.dtype, low=0.5, high=1.5) for _ in range(weights))]

    return inputs


def heads(count, *, gates=0, scalars=0):
    """Queries, keys and values; then gates in logarithms, a value a channel; then one a head, in (0, 1)."""

    def inputs(make, p):
        shape = (p.batch, p.tokens, p.heads, p.dim)
        tensors = [make.normal(shape, p.dtype) for _ in range(count)]
        tensors += [make.uniform(shape, p.dtype, low=-0.5, high=-0.01) for _ in range(gates)]
        return [*tensors, *(make.uniform(shape[:3], p.dtype, low=0.05, high=0.95) for _ in range(scalars))]

    return inputs


def angles(make, p):
    half = (p.tokens, p.dim // 2)
    return [
        make.normal((p.batch, p.tokens, p.heads, p.dim), p.dtype),
        make.uniform(half, p.dtype, low=-1.0),
        make.uniform(half, p.dtype, low=-1.0),
    ]


def liger_angles(make, p):
    query, cos, sin = angles(make, p)
    cos, sin = (torch.cat((one, one), -1)[None] for one in (cos, sin))
    return [query.transpose(1, 2), make.normal(query.shape, p.dtype).transpose(1, 2), cos, sin]


def attention(q, k, v):
    return parallel_attn_fwd(q, k, v, None, None, q.shape[-1] ** -0.5)


def op(name, run, inputs, point):
    def without_gradients(*tensors):
        with torch.no_grad():
            return run(*tensors)

    return Case(name=name, run=without_gradients, inputs=inputs, timing=[point], tags=["third-party"])


CASES = [
    op(
        "liger_rms_norm", lambda x, w: rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)[0], rows_and_weights(1, 1), ROWS
    ),
    op("liger_layer_norm", lambda x, w, b: layer_norm_forward(x, w, b, 1e-5)[0], rows_and_weights(1, 2), ROWS),
    op(
        "liger_add_rms_norm",
        lambda x, r, w: fused_add_rms_norm_forward(x, r, w, 1e-6, 0.0, "llama")[:2],
        rows_and_weights(2, 1),
        ROWS,
    ),
    op("liger_swiglu", swiglu_forward, rows(2), ROWS),
    op("liger_swiglu_backward", swiglu_backward, rows(3), ROWS),
    op("liger_geglu", geglu_forward, rows(2), ROWS),
    op("liger_geglu_backward", geglu_backward, rows(3), ROWS),
    op("liger_softmax", lambda x: _softmax_forward(x)[0], rows(1), ROWS),
    op("liger_poly_norm", lambda x, w: poly_norm_forward(x, w[:3], w[3:4])[0], rows_and_weights(1, 1), ROWS),
    op("liger_rope", lambda q, k, cos, sin: rope_forward(q, k, cos, sin)[:2], liger_angles, HEADS),
    op(
        "liger_group_norm",
        lambda x, w, b: group_norm_forward(x, x.shape[1], 8, w, b, 1e-5)[0],
        lambda make, p: [
            make.normal((p.batch, p.channels, p.size), p.dtype),
            *(make.uniform((p.channels,), p.dtype, low=0.5, high=1.5) for _ in range(2)),
        ],
        {"batch": 64, "channels": 64, "size": 1024, "dtype": "fp32"},
    ),
    op("fla_l2norm", lambda x: l2norm_fwd(x)[0], heads(1), HEADS),
    op("fla_rotary", rotary_embedding, angles, HEADS),
    op("fla_local_cumsum", lambda g: chunk_local_cumsum(g, 64), heads(0, gates=1), HEADS),
    op("fla_global_cumsum", chunk_global_cumsum, heads(0, gates=1), HEADS),
    op("fla_attention", attention, heads(3), HEADS),
    op("fla_retention", lambda q, k, v: chunk_retention(q, k, v)[0], heads(3), HEADS),
    op("fla_gla", lambda q, k, v, g: chunk_gla(q, k, v, g)[0], heads(3, gates=1), HEADS),
    op("fla_gla_recurrent", lambda q, k, v, g: fused_recurrent_gla(q, k, v, g)[0], heads(3, gates=1), HEADS),
    op("fla_delta_rule", lambda q, k, v, b: chunk_delta_rule(q, l2norm_fwd(k)[0], v, b)[0], heads(3, scalars=1), HEADS),
    op(
        "fla_gated_delta_rule",
        lambda q, k, v, b, g: chunk_gated_delta_rule(q, l2norm_fwd(k)[0], v, -g.float(), b)[0],
        heads(3, scalars=2),
        HEADS,
    ),
    op(
        "fla_hgrn",
        lambda x, g: fused_recurrent_hgrn(x, g)[0],
        lambda make, p: [
            make.normal((p.batch, p.tokens, p.cols), p.dtype),
            make.uniform((p.batch, p.tokens, p.cols), p.dtype, low=-0.5, high=-0.01),
        ],
        {"batch": 16, "tokens": 1024, "cols": 4096, "dtype": "bf16"},
    ),
]
