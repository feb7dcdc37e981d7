"""The resident workers of one GPU: one for each environment, and the control beside the baseline's.

A worker that dies, hangs or poisons its CUDA context is replaced when it is next asked for something.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from matrix.model import Outcome
from matrix.process import Died, TimedOut, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.process import WorkerSpec

REQUEST_TIMEOUT_S = 180.0


class Crew:
    """Workers by name. Each may be asked from one thread at a time; several at the same time."""

    def __init__(self, specs: Mapping[str, WorkerSpec], logs: Path) -> None:
        self._specs, self._logs = specs, logs
        self._workers: dict[str, Worker] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.close()
        self._workers.clear()

    def ask(self, name: str, request: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
        """The part that the worker called ``name`` replies with; a worker that is lost replies by its outcome."""
        worker, problem = self._ready(name)
        if worker is None:
            return problem
        part: dict[str, Any] = {}
        try:
            for message in worker.ask(request, timeout_s=timeout_s):
                part = message.get("part", part)
        except TimedOut:
            part = _lost(Outcome.TIMEOUT, f"no answer in {timeout_s:g} s; the worker was killed", worker)
        except Died as death:
            part = _lost(Outcome.CRASH, str(death), worker)
        if part.get("restart"):
            self._dismiss(name)
        return part

    def _ready(self, name: str) -> tuple[Worker | None, dict[str, Any]]:
        if name in self._workers:
            return self._workers[name], {}
        worker = Worker(self._specs[name], self._logs)
        ready = worker.start()
        if not ready.get("ready"):
            worker.close()
            return None, {"detail": "", **ready}
        with self._lock:
            self._workers[name] = worker
        return worker, {}

    def _dismiss(self, name: str) -> None:
        with self._lock:
            worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()


def _lost(outcome: Outcome, reason: str, worker: Worker) -> dict[str, Any]:
    return {"outcome": outcome, "reason": reason, "detail": worker.log_tail(), "restart": True}
