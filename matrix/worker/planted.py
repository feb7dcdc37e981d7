"""The instrument's own cases: work that can be made a little slower, by ``extra`` per cent. For timing only.

Loaded by path like any case file. *Stream* moves so many per cent more bytes, *fma* does so many per cent more
arithmetic; neither changes anything else about the launch but the number of programs or of steps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from matrix import Case

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from matrix.case import Params

_STREAM_BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def stream_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def fma_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = x
    for _ in range(steps):
        y = y * 0.999 + x
    tl.store(out_ptr + at, y)


def stream(x: torch.Tensor, *, block: int = _STREAM_BLOCK) -> torch.Tensor:
    out = torch.empty_like(x)
    stream_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


def fma(x: torch.Tensor, *, steps: int, extra: float = 0, block: int = 1024) -> torch.Tensor:
    out = torch.empty_like(x)
    fma_kernel[(x.numel() // block,)](x, out, round(steps * (1 + extra / 100)), BLOCK=block)
    return out


def _stream_inputs(make: Any, p: Params) -> list[Any]:
    block = p.get("block", _STREAM_BLOCK)
    return [make.zeros((round(p.n * (1 + p.get("extra", 0) / 100)) // block * block,), "fp32") + 1.5]


cases = [
    Case(
        name="planted_stream",
        run=stream,
        inputs=_stream_inputs,
        timing=[{"n": 1 << 26, "extra": extra} for extra in (0, 1, 2, 5)],
        bytes_moved=lambda p: 8 * p.n * (1 + p.get("extra", 0) / 100),
    ),
    Case(
        name="planted_fma",
        run=fma,
        inputs=lambda make, p: [make.zeros((p.n,), "fp32") + 1.5],
        timing=[{"n": 1 << 21, "steps": 2000, "extra": extra} for extra in (0, 1, 2, 5)],
    ),
]
