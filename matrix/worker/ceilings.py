"""What this GPU can do, measured by itself: the copy bandwidth and the bf16 matrix rate."""

from __future__ import annotations

import statistics

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from matrix.worker.timing import Timer

_COPY_BYTES = 4 << 30
_SIDE = 8192
_SAMPLES = 10


def measure(timer: Timer) -> dict[str, Any]:
    """GB/s of a device-to-device copy (read and written both counted), TFLOP/s of a bf16 product."""
    return {"copy_gb_s": _copy(timer), "matmul_bf16_tflop_s": _matmul(timer)}


def _copy(timer: Timer) -> float:
    free, _ = torch.cuda.mem_get_info()
    size = min(_COPY_BYTES, free // 4)
    source = torch.empty(size, dtype=torch.uint8, device=timer.device).fill_(1)
    target = torch.empty_like(source)
    timer.warm_up(lambda: target.copy_(source), 20.0)
    microseconds = statistics.median(timer.round(lambda: target.copy_(source), _SAMPLES).samples_us)
    return 2e-3 * size / microseconds


def _matmul(timer: Timer) -> float:
    generator = torch.Generator(device=timer.device).manual_seed(0)
    shape = (_SIDE, _SIDE)
    a, b = (torch.randn(shape, dtype=torch.bfloat16, device=timer.device, generator=generator) for _ in range(2))
    out = torch.empty_like(a)
    timer.warm_up(lambda: torch.mm(a, b, out=out), 50.0)
    samples = timer.round(lambda: torch.mm(a, b, out=out), _SAMPLES).samples_us
    return 2e-6 * _SIDE**3 / statistics.median(samples)
