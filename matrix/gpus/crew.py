"""The resident workers of one GPU: one for each environment, and the control beside the baseline's.

A worker that dies, hangs or poisons its CUDA context is replaced when it is next asked for something.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from matrix.model import Outcome
from matrix.running.process import Died, TimedOut, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.running.process import WorkerSpec

REQUEST_TIMEOUT_S = 180.0
_MOST_WORKERS = 64


class Crew:
    """Workers by name; more *hands* of one name may be asked where many can work at once.

    Each worker may be asked from one thread at a time.
    """

    def __init__(self, specs: Mapping[str, WorkerSpec], logs: Path) -> None:
        self._specs, self._logs = specs, logs
        self._workers: dict[tuple[str, int], Worker] = {}
        # A worker ends with the thread that started it (that is what Linux takes for its parent), so the
        # threads that start workers live as long as the crew, whoever asks.
        self._starters = ThreadPoolExecutor(max_workers=_MOST_WORKERS)
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Interrupted, other threads may still be asking: what they start from now on they close themselves.
        with self._lock:
            self._over, workers = True, list(self._workers.values())
            self._workers.clear()
        for worker in workers:
            worker.kill()
            worker.close()
        self._starters.shutdown()

    def start(self, name: str) -> None:
        """Have the worker called ``name`` ready; why one is not, it says when it is asked."""
        self._ready(name, 0)

    def ask(
        self, name: str, request: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S, *, hand: int = 0
    ) -> dict[str, Any]:
        """The part that the worker called ``name`` replies with; a worker that is lost replies by its outcome."""
        worker, problem = self._ready(name, hand)
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
            self._dismiss(name, hand)
        return part

    def one_hand_each(self) -> None:
        """End all but each name's first worker: nothing else may use the GPU while something is timed."""
        for name, hand in [key for key in self._workers if key[1]]:
            self._dismiss(name, hand)

    def _ready(self, name: str, hand: int) -> tuple[Worker | None, dict[str, Any]]:
        if (name, hand) in self._workers:
            return self._workers[name, hand], {}
        worker = Worker(self._specs[name], self._logs)
        ready = self._starters.submit(worker.start).result()
        if not ready.get("ready"):
            worker.close()
            return None, {"detail": "", **ready}
        with self._lock:
            if not self._over:
                self._workers[name, hand] = worker
                return worker, {}
        worker.close()
        return None, {"outcome": Outcome.NOT_RUN, "reason": "interrupted", "detail": ""}

    def _dismiss(self, name: str, hand: int) -> None:
        with self._lock:
            worker = self._workers.pop((name, hand), None)
        if worker is not None:
            worker.close()


def _lost(outcome: Outcome, reason: str, worker: Worker) -> dict[str, Any]:
    return {"outcome": outcome, "reason": reason, "detail": worker.log_tail(), "restart": True}
