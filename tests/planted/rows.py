"""Row-wise kernels: right ones (tag ``control``) and ones with a planted bug (tag ``bug``)."""

import torch
import triton
import triton.language as tl

from matrix import Case, Tolerance

POINTS = [{"rows": 8, "cols": 128}, {"rows": 5, "cols": 257}, {"rows": 1, "cols": 1}]


def row_inputs(make, p):
    return [make.normal((p.rows, p.cols), p.dtype)]


def rowwise(name, run, reference, tag, inputs=row_inputs, dtypes=("fp32", "fp16"), points=(), **fields):
    chosen = points or POINTS
    own = [{**point, "dtype": dtype} for point in chosen[:2] for dtype in dtypes]
    own += [{**point, "dtype": dtypes[0]} for point in chosen[2:]]
    return Case(name=name, run=run, reference=reference, inputs=inputs, interpret=own, tags=[tag], **fields)


def launch(kernel, x, width, dtype=None, **constants):
    """``kernel`` with one program a row; ``width`` outputs a row (0: one number, not a row of one)."""
    rows, cols = x.shape
    shape = (rows, width) if width else (rows,)
    out = torch.empty(shape, dtype=dtype or x.dtype, device=x.device)
    kernel[(rows,)](x, out, cols, x.stride(0), x.stride(1), BLOCK=triton.next_power_of_2(cols), **constants)
    return out


@triton.jit
def max_kernel(x_ptr, out_ptr, cols, row_step, col_step, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    if OTHER:
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=float("-inf"))
    else:
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols)
    tl.store(out_ptr + row, tl.max(x, 0))


def row_max(x):
    return launch(max_kernel, x, 0, OTHER=True)


def row_max_without_other(x):
    return launch(max_kernel, x, 0, OTHER=False)


@triton.jit
def sum_kernel(x_ptr, out_ptr, cols, row_step, col_step, OTHER: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    if OTHER:
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=0.0)
    else:
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols)
    if WIDE:
        x = x.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, 0))


def row_sum(x):
    return launch(sum_kernel, x, 0, OTHER=True, WIDE=True)


def row_sum_without_other(x):
    return launch(sum_kernel, x, 0, OTHER=False, WIDE=True)


@triton.jit
def running_sum_kernel(x_ptr, out_ptr, cols, row_step, col_step, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if NARROW:  # noqa: SIM108 - a compile-time branch
        total = tl.zeros((1,), dtype=tl.float16)
    else:
        total = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, cols, 64):
        col = start + tl.arange(0, 64)
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=0.0)
        total += tl.sum(x.to(tl.float32), 0).to(total.dtype)
    tl.store(out_ptr + row + tl.arange(0, 1), total)


def hill_inputs(make, p):
    """Rows whose running sum climbs far above where it ends."""
    up = make.uniform((p.rows, p.cols // 2), p.dtype)
    return [torch.cat([up, -up, make.normal((p.rows, p.cols % 2 + 1), p.dtype)], 1)]


def running_sum(x):
    return launch(running_sum_kernel, x, 0, NARROW=False)


def running_sum_in_fp16(x):
    return launch(running_sum_kernel, x, 0, NARROW=True)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, row_step, col_step, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=float("-inf")).to(tl.float32)
    if SHIFT:
        x = x - tl.max(x, 0)
    e = tl.exp(x)
    tl.store(out_ptr + row * cols + col, e / tl.sum(e, 0), mask=col < cols)


def softmax(x):
    return launch(softmax_kernel, x, x.shape[1], SHIFT=True)


def softmax_without_shift(x):
    return launch(softmax_kernel, x, x.shape[1], SHIFT=False)


@triton.jit
def norm_kernel(
    x_ptr, out_ptr, cols, row_step, col_step, ONE_PASS: tl.constexpr, FIXED: tl.constexpr, BLOCK: tl.constexpr
):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=0.0).to(tl.float32)
    count = FIXED or cols
    mean = tl.sum(x, 0) / count
    if ONE_PASS:
        variance = tl.sum(x * x, 0) / count - mean * mean  # cancels where the mean is large
    else:
        centred = tl.where(col < cols, x - mean, 0.0)
        variance = tl.sum(centred * centred, 0) / count
    tl.store(out_ptr + row * cols + col, (x - mean) / tl.sqrt(variance + 1e-5), mask=col < cols)


def norm(x):
    return launch(norm_kernel, x, x.shape[1], ONE_PASS=False, FIXED=0)


def norm_one_pass(x):
    return launch(norm_kernel, x, x.shape[1], ONE_PASS=True, FIXED=0)


def norm_fixed_count(x):
    return launch(norm_kernel, x, x.shape[1], ONE_PASS=False, FIXED=128)


def norm_reference(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def offset_inputs(make, p):
    return [make.normal((p.rows, p.cols), p.dtype, mean=p.mean)]


OFFSETS = [{"rows": 8, "cols": 128, "mean": 0.0}, {"rows": 4, "cols": 257, "mean": 300.0}]


@triton.jit
def copy_halves_kernel(x_ptr, out_ptr, cols, row_step, col_step, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols if WHOLE else 128, 64):
        col = start + tl.arange(0, 64)
        x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols)
        tl.store(out_ptr + row * cols + col, x, mask=col < cols)


def copy_rows(x):
    return launch(copy_halves_kernel, x, x.shape[1], WHOLE=True)


def copy_rows_half_written(x):
    return launch(copy_halves_kernel, x, x.shape[1], WHOLE=False)


@triton.jit
def argmax_kernel(x_ptr, out_ptr, cols, row_step, col_step, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=float("-inf"))
    index = tl.argmax(x, 0)
    if NARROW:
        index = index.to(tl.int8)  # enough for 128 columns
    tl.store(out_ptr + row, index.to(tl.int32))


def argmax(x):
    return launch(argmax_kernel, x, 0, torch.int32, NARROW=False)


def argmax_in_int8(x):
    return launch(argmax_kernel, x, 0, torch.int32, NARROW=True)


def peaked_inputs(make, p):
    x = make.normal((p.rows, p.cols), p.dtype)
    x[:, -1] = 10.0  # the peak, far out
    return [x]


@triton.jit
def scan_kernel(x_ptr, out_ptr, cols, row_step, col_step, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + col * col_step, mask=col < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * cols + col, tl.cumsum(x, 0), mask=col < cols)


def scan(x):
    return launch(scan_kernel, x, x.shape[1])


def cancelling_inputs(make, p):
    """Rows whose large values cancel, to a hundredth of a thousandth of their size."""
    half = make.normal((p.rows, p.cols), p.dtype, std=100)
    return [torch.cat([half, -half + make.normal((p.rows, p.cols), p.dtype, std=0.1)], 1)]


@triton.jit
def both_kernel(x_ptr, low_ptr, high_ptr, cols, row_step, col_step, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    at = x_ptr + row * row_step + col * col_step
    tl.store(low_ptr + row, tl.min(tl.load(at, mask=col < cols, other=float("inf")), 0))
    tl.store(high_ptr + row, tl.max(tl.load(at, mask=col < cols, other=float("-inf")), 0))


def extremes(x):
    rows, cols = x.shape
    low, high = (torch.empty((rows,), dtype=x.dtype, device=x.device) for _ in range(2))
    both_kernel[(rows,)](x, low, high, cols, x.stride(0), x.stride(1), BLOCK=triton.next_power_of_2(cols))
    return low, high


NAN = {"special_values": "the maximum of a row with a NaN in it is left open"}
# torch's own cumsum on a CPU accumulates in double: no yardstick for one that accumulates in fp32.
SCAN = {"fp32": Tolerance(atol=5e-5, rtol=1e-5), "bf16": Tolerance(atol=1e-2, rtol=1e-2)}
LONG = [{"rows": 8, "cols": 128}, {"rows": 2, "cols": 1025}]

controls = [
    rowwise("row_max", row_max, lambda x: x.amax(-1), "control", without=NAN),
    rowwise("row_sum", row_sum, lambda x: x.sum(-1), "control", dtypes=("fp32", "fp16", "bf16")),
    rowwise("running_sum", running_sum, lambda x: x.sum(-1), "control", hill_inputs, ("fp16",), LONG),
    rowwise("softmax", softmax, lambda x: torch.softmax(x, -1), "control", dtypes=("fp32", "fp16", "bf16")),
    rowwise("norm", norm, norm_reference, "control"),
    rowwise("norm_of_offset", norm, norm_reference, "control", offset_inputs, ("fp32",), OFFSETS),
    rowwise("copy_rows", copy_rows, lambda x: x.clone(), "control", dtypes=("fp32", "bf16")),
    rowwise("argmax", argmax, lambda x: x.argmax(-1).to(torch.int32), "control", peaked_inputs, ("fp32",), without=NAN),
    rowwise("scan", scan, lambda x: x.cumsum(-1), "control", dtypes=("fp32", "bf16"), tolerance=SCAN),
    rowwise("cancelling_sum", row_sum, lambda x: x.sum(-1), "control", cancelling_inputs, ("fp32",)),
    rowwise("extremes", extremes, lambda x: (x.amin(-1), x.amax(-1)), "control", without=NAN),
]

bugs = [
    rowwise("max_without_other", row_max_without_other, lambda x: x.amax(-1), "bug", without=NAN),
    rowwise("sum_without_other", row_sum_without_other, lambda x: x.sum(-1), "bug"),
    rowwise("accumulates_in_fp16", running_sum_in_fp16, lambda x: x.sum(-1), "bug", hill_inputs, ("fp16",), LONG),
    rowwise("softmax_without_shift", softmax_without_shift, lambda x: torch.softmax(x, -1), "bug"),
    rowwise("variance_cancels", norm_one_pass, norm_reference, "bug", offset_inputs, ("fp32",), OFFSETS),
    rowwise("fixed_count", norm_fixed_count, norm_reference, "bug"),
    rowwise("half_written", copy_rows_half_written, lambda x: x.clone(), "bug"),
    rowwise(
        "narrow_index",
        argmax_in_int8,
        lambda x: x.argmax(-1).to(torch.int32),
        "bug",
        peaked_inputs,
        ("fp32",),
        without=NAN,
    ),
]
