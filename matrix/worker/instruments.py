"""Our own small kernels on the GPU: a spin of known duration, and stamps of the GPU's own clocks.

They tell the timer's readings apart from the GPU's (``%globaltimer``, nanoseconds) and count the cycles of
each multiprocessor (``%clock64``). Nothing that is judged passes through code that the Triton under test
generated: events, the flush and the blocker are PyTorch's own.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# More blocks than multiprocessors, so that (nearly) each of those is stamped at least once.
_BLOCKS_PER_MULTIPROCESSOR = 4


@triton.jit
def spin_kernel(out_ptr, duration_ns):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    start = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now = start
    while now - start < duration_ns:
        now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out_ptr, start)
    tl.store(out_ptr + 1, now)


@triton.jit
def stamp_kernel(out_ptr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    multiprocessor = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    base = out_ptr + tl.program_id(0) * 3
    tl.store(base, multiprocessor.to(tl.int64))
    tl.store(base + 1, cycles)
    tl.store(base + 2, now)


class Stamps:
    """Pairs of stamps around a stretch of work: together they give the clock that it ran at."""

    def __init__(self, device: torch.device, multiprocessors: int) -> None:
        self._grid = (multiprocessors * _BLOCKS_PER_MULTIPROCESSOR,)
        self._pair = torch.zeros(2, self._grid[0], 3, dtype=torch.int64, device=device)
        self._halves = (self._pair[0], self._pair[1])
        self._seen = torch.zeros(self._pair.shape, dtype=torch.int64, pin_memory=device.type == "cuda")

    def put(self, which: int) -> None:
        """Enqueue stamp 0 (before) or 1 (after)."""
        stamp_kernel[self._grid](self._halves[which], num_warps=1)

    def fetch(self) -> None:
        """Enqueue the way of both stamps to the host."""
        self._seen.copy_(self._pair, non_blocking=True)

    def clock_mhz(self) -> float | None:
        """The mean SM clock between the two stamps; to be called once what was enqueued has been executed."""
        before, after = self._seen.numpy()
        return clock_mhz(before, after)


def clock_mhz(before: np.ndarray, after: np.ndarray) -> float | None:
    """Cycles over time, the median of the multiprocessors seen in both stamps; None where there is none.

    Rows are a multiprocessor, its cycles and the time in ns; of several of one multiprocessor, the last counts.
    """
    size = 1 + int(max(before[:, 0].max(), after[:, 0].max()))
    marks: np.ndarray = np.zeros((2, size, 2), dtype=np.int64)
    for mark, rows in zip(marks, (before, after)):
        mark[rows[:, 0]] = rows[:, 1:]
    first, second = marks
    seen = (first[:, 1] > 0) & (second[:, 1] > first[:, 1])
    if not seen.any():
        return None
    cycles, nanoseconds = (second[seen] - first[seen]).T
    return float(np.median(1e3 * cycles / nanoseconds))


class Spin:
    """Calls of a kernel that runs for a known time by the GPU's own timer."""

    def __init__(self, device: torch.device, duration_ns: int, calls: int) -> None:
        self._duration_ns = duration_ns
        self._marks = torch.zeros(calls, 2, dtype=torch.int64, device=device)
        self._next = 0

    def __call__(self) -> None:
        spin_kernel[(1,)](self._marks[self._next % len(self._marks)], self._duration_ns, num_warps=1)
        self._next += 1

    def restart(self) -> None:
        self._next = 0

    def marks(self) -> list[Any]:
        """``[start, end]`` in ns of each call since :meth:`restart`, in order."""
        return self._marks[: self._next].tolist()
