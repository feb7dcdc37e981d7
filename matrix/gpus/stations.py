"""A GPU of this host with the workers that measure on it; all GPUs work at the same time."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from matrix.gpus.crew import Crew
from matrix.gpus.devices import held
from matrix.gpus.proving import short
from matrix.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.gpus.nvml import Gpu, Nvml, Reading
    from matrix.running.workers import WorkerHome

CONTROL = "control"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One GPU, held, with its crew: a worker for each environment and the baseline's control."""

    gpu: Gpu
    crew: Crew
    read: Callable[[], Reading]
    figures: Mapping[str, Any]  # what the GPU measured for itself; empty where its baseline does not start
    proofs: tuple[Mapping[str, Any], ...] = ()  # of the instrument, in short


@contextlib.contextmanager
def stations(
    gpus: Sequence[Gpu],
    nvml: Nvml | None,
    homes: Mapping[str, WorkerHome],
    baseline: str,
    logs: Path,
    say: Callable[[str], None],
    lock_mhz: int = 0,
) -> Iterator[list[Station]]:
    """A station for each GPU, its lock held until the end; with its SM clock held at ``lock_mhz`` where given.

    Raises :class:`UsageError` where this user may not lock clocks, or the GPU does not keep to the lock.
    """
    with contextlib.ExitStack() as stack:
        found = []
        for gpu in gpus:
            assert nvml is not None  # it was NVML that named the GPU
            stack.enter_context(held(gpu, say))
            specs = {name: home.spec("gpu", gpu=gpu.uuid) for name, home in homes.items()}
            if baseline in homes:
                specs[CONTROL] = homes[baseline].spec("gpu", gpu=gpu.uuid)
            crew = stack.enter_context(Crew(specs, logs))
            if lock_mhz and baseline in homes:
                stack.enter_context(nvml.locked_clocks(gpu.uuid, lock_mhz, functools.partial(_work, crew, baseline)))
            figures = _figures(crew, baseline) if baseline in homes else {}
            read = lambda uuid=gpu.uuid: nvml.reading(uuid)  # noqa: E731
            proofs = _proofs(crew, baseline, figures) if figures else ()
            found.append(Station(gpu=gpu, crew=crew, read=read, figures=figures, proofs=proofs))
        yield found


def _work(crew: Crew, name: str) -> None:
    """Keep the GPU working for a while: an idle one shows no clock that is worth reading back."""
    crew.ask(name, {"op": "ceilings"})


def _figures(crew: Crew, baseline: str) -> dict[str, Any]:
    """The device as the baseline's torch sees it, and what it reaches: copy bandwidth, matrix rate."""
    device = crew.ask(baseline, {"op": "device"})
    ceilings = crew.ask(baseline, {"op": "ceilings"})
    wanted = ("multiprocessors", "l2_bytes", "flush_bytes", "cuda", "copy_gb_s", "matmul_bf16_tflop_s")
    return {
        name: part[name]
        for part in (device, ceilings)
        if part["outcome"] == Outcome.PASSED
        for name in wanted
        if name in part
    }


def _proofs(crew: Crew, baseline: str, figures: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The instrument's short proofs: that it reads kernels of known duration."""
    known = figures if {"copy_gb_s", "matmul_bf16_tflop_s"} <= figures.keys() else None
    return tuple(proof.data() for proof in short(functools.partial(crew.ask, baseline), known))


def drained(waiting: queue.SimpleQueue[_T] | None) -> Iterator[_T]:
    """What waits, one after the other; several threads may share it out among them."""
    while waiting is not None:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def at_once(items: Sequence[_T], work: Callable[[_T], None]) -> None:
    """Do ``work`` on all items at the same time, a thread each. The first error is raised once all have ended."""
    errors: list[BaseException] = []

    def guarded(item: _T) -> None:
        try:
            work(item)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(item,), daemon=True) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
