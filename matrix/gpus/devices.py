"""The GPUs of this host that a run may measure on, each held by one run at a time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from matrix.errors import UsageError
from matrix.gpus.nvml import Nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.gpus.nvml import Gpu

_PATIENCE_S = 3.0


def open_nvml() -> Nvml | None:
    """The driver's library; None on a host without one, or without a GPU that it knows."""
    import pynvml  # noqa: PLC0415 - only where somebody asks for GPUs

    try:
        return Nvml()
    except pynvml.NVMLError:
        return None


def require_gpu() -> None:
    """Raise :class:`UsageError`, with what is in the way, where this process has no GPU to measure on."""
    nvml = open_nvml()
    if nvml is None:
        hint = (
            "without one `triton-matrix doctor` says what can be run; a container needs `--gpus all` to see its host's"
        )
        raise UsageError("this host has no NVIDIA GPU with a driver: NVML does not open", hint=hint)
    with nvml:
        gpus = nvml.gpus()
    if not visible_gpus(gpus):
        left = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')} leaves this process none of them"
        told = f"this host has {len(gpus)} GPUs, and {left}" if gpus else "NVML opens and knows no GPU"
        raise UsageError(told, hint="`nvidia-smi -L` lists them")


def usable(gpus: Sequence[Gpu], targets: Sequence[str], visible: str | None = None) -> list[Gpu]:
    """The GPUs of one of ``targets`` that ``CUDA_VISIBLE_DEVICES`` leaves to us."""
    return [gpu for gpu in visible_gpus(gpus, visible) if gpu.target in targets]


def visible_gpus(gpus: Sequence[Gpu], visible: str | None = None) -> list[Gpu]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves to us."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    return [gpu for gpu in gpus if _visible(gpu, visible)]


def _visible(gpu: Gpu, visible: str | None) -> bool:
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)


@contextlib.contextmanager
def held(gpu: Gpu, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the GPU for this process; whoever comes second waits, and is told for what."""
    lock = filelock.FileLock(Path(tempfile.gettempdir()) / f"triton-matrix-{gpu.uuid}.lock", mode=0o666)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except filelock.Timeout:
        say(f"{gpu.name} {gpu.uuid} is being measured on by another run; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
