"""Elementwise kernels: right ones (tag ``control``) and ones with a planted bug (tag ``bug``).

The first point of each is the kind of shape that a fixed-shape ``allclose`` uses, and every bug passes there.
"""

import torch
import triton
import triton.language as tl

from matrix import Case

BLOCK = 256
POINTS = [{"n": 1024}, {"n": 1021}, {"n": 1}]


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, x_step, y_step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n).to(tl.float32)
    y = tl.load(y_ptr + at * y_step, mask=at < n).to(tl.float32)
    tl.store(out_ptr + at, x + y, mask=at < n)


def add(x, y):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    add_kernel[grid](x, y, out, x.numel(), x.stride(0), y.stride(0), BLOCK=BLOCK)
    return out


def two(make, p):
    return [make.normal((p.n,), p.dtype), make.normal((p.n,), p.dtype)]


def one(make, p):
    return [make.normal((p.n,), p.dtype)]


def elementwise(name, run, reference, tag, inputs=one, dtypes=("fp32", "fp16"), **fields):
    points = [{**point, "dtype": dtype} for point in POINTS[:2] for dtype in dtypes]
    points.append({**POINTS[2], "dtype": dtypes[0]})
    return Case(
        name=name,
        run=run,
        reference=reference,
        inputs=inputs,
        interpret=points,
        correctness=[*points, {"n": 1 << 20, "dtype": dtypes[0]}],
        tags=[tag],
        **fields,
    )


@triton.jit
def add_past_end_kernel(x_ptr, y_ptr, out_ptr, n, x_step, y_step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at <= n  # one too many
    x = tl.load(x_ptr + at * x_step, mask=mask)
    y = tl.load(y_ptr + at * y_step, mask=mask)
    tl.store(out_ptr + at, x + y, mask=mask)


def add_past_end(x, y):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    add_past_end_kernel[grid](x, y, out, x.numel(), x.stride(0), y.stride(0), BLOCK=BLOCK)
    return out


def add_no_tail(x, y):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (max(x.numel() // BLOCK, 1),)  # floor where it must be ceil
    add_kernel[grid](x, y, out, x.numel(), x.stride(0), y.stride(0), BLOCK=BLOCK)
    return out


def add_no_tail_zeros(x, y):
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    grid = (max(x.numel() // BLOCK, 1),)
    add_kernel[grid](x, y, out, x.numel(), x.stride(0), y.stride(0), BLOCK=BLOCK)
    return out


def add_assumes_contiguous(x, y):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), 1, 1, BLOCK=BLOCK)
    return out


def add_never_launched(x, y):
    return x + y


ANSWERS = {}


def add_cached(x, y):
    key = (tuple(x.shape), x.dtype, str(x.device))
    if key not in ANSWERS:
        ANSWERS[key] = add(x, y)
    return ANSWERS[key].clone()


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, x_step, SWALLOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n)
    if SWALLOW:  # noqa: SIM108 - a compile-time branch
        y = tl.where(x > 0, x, 0.0)  # a NaN is not greater than nothing: it becomes 0
    else:
        y = tl.where(x < 0, 0.0, x)
    tl.store(out_ptr + at, y, mask=at < n)


def relu(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), x.stride(0), SWALLOW=False, BLOCK=BLOCK)
    return out


def relu_swallows_nan(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    relu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), x.stride(0), SWALLOW=True, BLOCK=BLOCK)
    return out


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, n, x_step, NAIVE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n).to(tl.float32)
    if NAIVE:
        e = tl.exp(x)
        y = e / (1 + e)  # infinity over infinity for large x
    else:
        y = 1 / (1 + tl.exp(-x))
    tl.store(out_ptr + at, y, mask=at < n)


def sigmoid(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sigmoid_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), x.stride(0), NAIVE=False, BLOCK=BLOCK)
    return out


def sigmoid_overflows(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sigmoid_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), x.stride(0), NAIVE=True, BLOCK=BLOCK)
    return out


@triton.jit
def scale_in_place_kernel(x_ptr, n, x_step, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n)
    tl.store(x_ptr + at * x_step, x * factor, mask=at < n)


def scale_in_place(x):
    scale_in_place_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), x.stride(0), 2.0, BLOCK=BLOCK)
    return x


def scale_and_keep(x):
    return scale_in_place(x).clone()


@triton.jit
def square_kernel(
    x_ptr, grad_ptr, out_ptr, n, x_step, g_step, BACKWARD: tl.constexpr, FACTOR: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n)
    if BACKWARD:
        grad = tl.load(grad_ptr + at * g_step, mask=at < n)
        y = grad * x * FACTOR
    else:
        y = x * x
    tl.store(out_ptr + at, y, mask=at < n)


def _square(x, grad, factor, *, backward):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    square_kernel[grid](
        x, grad, out, x.numel(), x.stride(0), grad.stride(0), BACKWARD=backward, FACTOR=factor, BLOCK=BLOCK
    )
    return out


class Square(torch.autograd.Function):
    factor = 2.0

    @classmethod
    def apply_to(cls, x):
        return cls.apply(x)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _square(x, x, 2.0, backward=False)

    @staticmethod
    def backward(ctx, grad):
        return _square(ctx.saved_tensors[0], grad, 2.0, backward=True)


class SquareWrong(Square):
    @staticmethod
    def backward(ctx, grad):
        return _square(ctx.saved_tensors[0], grad, 1.0, backward=True)  # the factor 2 is lost


@triton.jit
def dequantise_kernel(q_ptr, scale_ptr, out_ptr, n, q_step, s_step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(q_ptr + at * q_step, mask=at < n)
    scale = tl.load(scale_ptr + at * s_step, mask=at < n)
    tl.store(out_ptr + at, q.to(tl.float32) * scale, mask=at < n)


def dequantise(q, scale):
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(q.numel(), BLOCK),)
    dequantise_kernel[grid](q, scale, out, q.numel(), q.stride(0), scale.stride(0), BLOCK=BLOCK)
    return out


@triton.jit
def positive_kernel(x_ptr, out_ptr, n, x_step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n)
    tl.store(out_ptr + at, x > 0, mask=at < n)


def positive(x):
    out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    positive_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), x.stride(0), BLOCK=BLOCK)
    return out


def add_reference(x, y):
    return x + y


def sigmoid_reference(x):
    return torch.sigmoid(x)


controls = [
    elementwise("add", add, add_reference, "control", two, ("fp32", "fp16", "bf16")),
    elementwise("relu", relu, torch.relu, "control"),
    elementwise("sigmoid", sigmoid, sigmoid_reference, "control", dtypes=("fp32", "fp16")),
    elementwise("scale_in_place", scale_in_place, lambda x: x * 2, "control", modifies=[0]),
    elementwise("square", Square.apply_to, lambda x: x * x, "control", dtypes=("fp32",), backward=True),
    elementwise(
        "dequantise",
        dequantise,
        lambda q, scale: q * scale,
        "control",
        lambda make, p: [make.integers((p.n,), -128, 128, "int8"), make.uniform((p.n,), "fp32", low=0.01, high=0.1)],
        ("fp32",),
    ),
    elementwise("positive", positive, lambda x: x > 0, "control", dtypes=("fp32",)),
    Case(
        name="add_nothing",
        run=add,
        reference=add_reference,
        inputs=two,
        interpret=[{"n": 0, "dtype": "fp32"}],
        tags=["control"],
    ),
]

bugs = [
    elementwise("tail_mask_one_too_many", add_past_end, add_reference, "bug", two),
    elementwise("grid_rounded_down", add_no_tail, add_reference, "bug", two),
    elementwise("grid_rounded_down_onto_zeros", add_no_tail_zeros, add_reference, "bug", two),
    elementwise("assumes_contiguous", add_assumes_contiguous, add_reference, "bug", two),
    elementwise("never_launched", add_never_launched, add_reference, "bug", two),
    elementwise("cached_answer", add_cached, add_reference, "bug", two),
    elementwise("swallows_nan", relu_swallows_nan, torch.relu, "bug"),
    elementwise("overflows", sigmoid_overflows, sigmoid_reference, "bug"),
    elementwise("input_modified", scale_and_keep, lambda x: x * 2, "bug"),
    elementwise("gradient_factor_lost", SquareWrong.apply_to, lambda x: x * x, "bug", dtypes=("fp32",), backward=True),
]
