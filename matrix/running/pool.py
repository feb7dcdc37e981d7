"""A pool of resident workers: as many at a time as there are slots, each serving one lane.

A *lane* is the work of one (environment, target, kind). A slot takes the lane with the fewest workers and
the most work left, starts a worker there and stays until the lane is empty, so that importing torch and
triton is paid once a lane and slots share fairly. A worker that crashes, hangs or runs out of memory ends
alone: its request gets an outcome, a fresh worker takes the rest.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matrix.model import Outcome
from matrix.running.process import Died, TimedOut, Worker, WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# A configuration whose compilation kills the worker is skipped and the rest tried again, so many times.
_MAX_RESTARTS_A_TASK = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One request to a worker; ``key`` is the caller's name for it, ``takes_s`` about how long it will take."""

    key: str
    request: dict[str, Any]
    timeout_s: float
    takes_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything a task came to: one part, or one an autotune configuration."""

    task: Task
    spec: WorkerSpec
    parts: tuple[dict[str, Any], ...]


@dataclass(slots=True)
class Lane:
    """The tasks of one worker specification, in order."""

    spec: WorkerSpec
    tasks: deque[Task]
    workers: int = 0
    # Seconds that workers took to start, kept apart from the work.
    start_seconds: list[float] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return sum(task.takes_s for task in self.tasks)


class Pool:
    """Runs lanes on ``slots`` workers and yields results as they come."""

    def __init__(self, *, slots: int, logs: Path) -> None:
        self._slots = slots
        self._logs = logs
        self._lock = threading.Lock()
        self._results: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._workers: set[Worker] = set()

    def run(self, lanes: Sequence[Lane]) -> Iterator[Result]:
        """Yield a result for every task. Closing the iterator (or an error in it) ends all workers."""
        lanes = [lane for lane in lanes if lane.tasks]
        count = min(self._slots, sum(len(lane.tasks) for lane in lanes))
        threads = [threading.Thread(target=self._slot, args=(lanes,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            running = len(threads)
            while running:
                item = self._results.get()
                if item is None:
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            self._stop.set()
            with self._lock:
                for worker in self._workers:
                    worker.kill()
            for thread in threads:
                thread.join(timeout=10)

    def _slot(self, lanes: Sequence[Lane]) -> None:
        try:
            while not self._stop.is_set() and (lane := self._take(lanes)) is not None:
                try:
                    self._serve(lane)
                finally:
                    with self._lock:
                        lane.workers -= 1
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            self._results.put(error)
        finally:
            self._results.put(None)

    def _take(self, lanes: Sequence[Lane]) -> Lane | None:
        with self._lock:
            waiting = [lane for lane in lanes if lane.tasks]
            if not waiting:
                return None
            lane = min(waiting, key=lambda lane: (lane.workers, -lane.left_s))
            lane.workers += 1
            return lane

    def _pop(self, lane: Lane) -> Task | None:
        with self._lock:
            return lane.tasks.popleft() if lane.tasks else None

    def _serve(self, lane: Lane) -> None:
        """One worker after another until the lane is empty."""
        while not self._stop.is_set() and lane.tasks:
            worker = Worker(lane.spec, self._logs)
            with self._lock:
                self._workers.add(worker)
            try:
                ready = worker.start()
                if not ready.get("ready"):
                    self._give_up(lane, ready)
                    return
                lane.start_seconds.append(worker.start_seconds)
                self._work(lane, worker)
            finally:
                with self._lock:
                    self._workers.discard(worker)
                worker.close()

    def _give_up(self, lane: Lane, ready: dict[str, Any]) -> None:
        """The environment does not start: every task of the lane has that outcome."""
        part = {"config": "", "kernels": [], "seconds": 0.0, **{k: v for k, v in ready.items() if k != "ready"}}
        while (task := self._pop(lane)) is not None:
            self._results.put(Result(task=task, spec=lane.spec, parts=(part,)))

    def _work(self, lane: Lane, worker: Worker) -> None:
        """Tasks on one worker until the lane is empty or the worker is lost."""
        while not self._stop.is_set() and (task := self._pop(lane)) is not None:
            parts, alive = self._ask(lane.spec, worker, task)
            if self._stop.is_set():
                return
            self._results.put(Result(task=task, spec=lane.spec, parts=tuple(parts)))
            if not alive:
                return

    def _ask(self, spec: WorkerSpec, worker: Worker, task: Task) -> tuple[list[dict[str, Any]], bool]:
        """The task's parts, and whether ``worker`` can go on."""
        parts: list[dict[str, Any]] = []
        skip: list[str] = []
        current, alive = worker, True
        for _ in range(_MAX_RESTARTS_A_TASK):
            failed = _collect(current, task, skip, parts)
            if failed is None:
                break
            alive = False
            parts.append(failed)
            # Only a configuration of an autotuned kernel leaves something worth another try.
            if not failed["config"] or self._stop.is_set():
                break
            skip = [part["config"] for part in parts if part["config"]]
            current = self._replacement(spec, current, worker)
            if not current.start().get("ready"):
                parts.append(_given_up(failed, "no worker starts any more"))
                break
        else:
            parts.append(_given_up(parts[-1], f"{_MAX_RESTARTS_A_TASK} workers were lost"))
        if current is not worker:
            self._retire(current)
        return parts, alive

    def _replacement(self, spec: WorkerSpec, lost: Worker, first: Worker) -> Worker:
        if lost is not first:
            self._retire(lost)
        fresh = Worker(spec, self._logs)
        with self._lock:
            self._workers.add(fresh)
        return fresh

    def _retire(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()


def _collect(worker: Worker, task: Task, skip: list[str], parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Add the task's parts as they come; where the worker is lost, the part that tells of it."""
    label, place = "", "start"
    try:
        for message in worker.ask({**task.request, "skip": skip}, timeout_s=task.timeout_s):
            if "begin" in message:
                label = message["begin"]
            elif "at" in message:
                place = message["at"]
            elif "part" in message:
                parts.append(message["part"])
    except TimedOut:
        reason = f"no answer in {task.timeout_s:g} s (in {place}); the worker was killed"
        return _lost(label, Outcome.TIMEOUT, reason, worker.log_tail())
    except Died as death:
        outcome = Outcome.COMPILER_ABORT if place == "compile" else Outcome.CRASH
        return _lost(label, outcome, f"{death} (in {place})", worker.log_tail())
    return None


def _given_up(last: dict[str, Any], why: str) -> dict[str, Any]:
    """What becomes of the configurations that were not come to."""
    return {**last, "config": "", "reason": f"{why}, the last by {last['config']}: {last['reason']}"}


def _lost(label: str, outcome: Outcome, reason: str, detail: str) -> dict[str, Any]:
    return {
        "config": label,
        "outcome": outcome,
        "reason": reason,
        "detail": detail,
        "seconds": 0.0,
        "kernels": [],
    }
