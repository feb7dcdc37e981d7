"""Column maxima of tiles, loaded through a TMA descriptor and, as its twin, through pointers.

Each program loads one [BLOCK_M, BLOCK_N] tile, takes the maximum over its rows and stores BLOCK_N results.
With descriptors this is the kernel of https://github.com/triton-lang/triton/issues/9703: 3.1 times slower
in 3.6.0 than in 3.5.1 on an H200, while the pointer twin stayed equal.
"""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def column_max_tma_kernel(x_ptr, out_ptr, rows, cols, EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1)
    x = tl.make_tensor_descriptor(x_ptr, shape=[rows, cols], strides=[cols, 1], block_shape=[BLOCK_M, BLOCK_N])
    tile = x.load([m * BLOCK_M, n * BLOCK_N]).to(tl.float32)
    if not EVEN:  # the descriptor fills what lies outside with zeros
        row = m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        tile = tl.where(row < rows, tile, float("-inf"))
    col = n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(out_ptr + m * cols + col, tl.max(tile, 0), mask=col < cols)


@triton.jit
def column_max_pointer_kernel(
    x_ptr, out_ptr, rows, cols, EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    m, n = tl.program_id(0), tl.program_id(1)
    row = m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = n * BLOCK_N + tl.arange(0, BLOCK_N)
    pointers = x_ptr + row * cols + col[None, :]
    if EVEN:
        tile = tl.load(pointers).to(tl.float32)
    else:
        mask = (row < rows) & (col[None, :] < cols)
        tile = tl.load(pointers, mask=mask, other=float("-inf")).to(tl.float32)
    tl.store(out_ptr + m * cols + col, tl.max(tile, 0), mask=col < cols)


def column_max_tma(x, *, block_m, block_n):
    if x.stride(0) * x.element_size() % 16:
        raise ValueError("a descriptor's rows begin at multiples of 16 bytes")
    # The descriptor is made on the device, in memory that Triton asks for here.
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=x.device))
    return launch(column_max_tma_kernel, x, block_m, block_n)


def column_max_pointer(x, *, block_m, block_n):
    return launch(column_max_pointer_kernel, x, block_m, block_n)


def launch(kernel, x, block_m, block_n):
    rows, cols = x.shape
    grid = (triton.cdiv(rows, block_m), triton.cdiv(cols, block_n))
    out = torch.empty((grid[0], cols), dtype=torch.float32, device=x.device)
    even = rows % block_m == 0 and cols % block_n == 0
    kernel[grid](x, out, rows, cols, EVEN=even, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4)
    return out


def reference(x, *, block_m):
    return torch.stack([tile.amax(0) for tile in x.split(block_m)])


def inputs(make, p):
    return [make.uniform((p.rows, p.cols), p.dtype, low=-3, high=-1)]


def point(rows, cols, dtype, block_m, block_n=128):
    return {"rows": rows, "cols": cols, "dtype": dtype, "block_m": block_m, "block_n": block_n}


# Rows of a descriptor are multiples of 16 bytes; the interpreters of 3.4 and 3.5 want 16 elements.
BOUNDARY = [point(1, 16, "fp16", 16), point(17, 144, "fp16", 16), point(127, 272, "bf16", 64)]
TIMING = [point(8192, 8192, "fp16", 16), point(8192, 8192, "fp16", 64), point(8192, 8192, "bf16", 32)]
COMMON = {
    "reference": reference,
    "inputs": inputs,
    "interpret": BOUNDARY,
    "correctness": [*BOUNDARY, point(4097, 4096, "fp16", 16), point(4099, 4104, "bf16", 64), *TIMING],
    "compile": TIMING[:1],
    "timing": TIMING,
    "bytes_moved": lambda p: p.rows * p.cols * (BYTES[p.dtype] + 4 / p.block_m),
    "competitor": lambda x, *, block_m: x.view(-1, block_m, x.shape[1]).amax(1),
    "without": {"special_values": "tl.max drops a NaN that torch keeps", "strided": "takes contiguous inputs"},
    "tags": ["builtin", "memory-bound"],
}

WITHOUT = {**COMMON["without"], "misaligned": "a descriptor's memory begins at a multiple of 16 bytes"}
tma = Case(name="column_max_tma", run=column_max_tma, triton=">=3.4", **{**COMMON, "without": WITHOUT})
LARGE = point(4097, 4096, "fp16", 256, block_n=4096)  # tiles as large as may be: the interpreter is slow per program
pointer = Case(name="column_max_pointer", run=column_max_pointer, **{**COMMON, "interpret": [*BOUNDARY, LARGE]})
