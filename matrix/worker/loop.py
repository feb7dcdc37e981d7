"""The worker's request loop. The first message says what the worker is for; it then serves until EOF."""

from __future__ import annotations

import os
import sys
import tempfile
import time

from matrix.model import Outcome
from matrix.worker.reads import Reads, telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from matrix.worker.channel import Channel


def main() -> int:
    """Serve requests from stdin until it ends. Returns the exit code."""
    from matrix.worker.channel import Channel

    channel = Channel()
    requests = channel.requests()
    start = next(requests, None)
    if start is None:
        return 0
    die_with(start["parent"])
    if start["kind"] == "parent":
        from matrix.worker.parent import serve

        return serve(channel, start["imports"])
    _limit_memory(start.get("memory_bytes"))
    sys.path.extend(start.get("pythonpath", ()))
    with tempfile.TemporaryDirectory(prefix="matrix-worker-", dir=start.get("scratch")) as folder:
        # A worker's Triton cache is its own, or shared with its environment's other workers of this run: what is
        # cached between runs is ours to decide.
        os.environ["TRITON_CACHE_DIR"] = start.get("cache") or folder
        return _serve(channel, requests, start)


def _serve(channel: Channel, requests: Iterator[dict[str, Any]], start: dict[str, Any]) -> int:
    started = time.perf_counter()
    reads = Reads(start.get("pythonpath", ()))
    send: Callable[[dict[str, Any]], None] = channel.send
    # What a GPU answers is kept for no other run, and there every call is timed.
    if start["kind"] != "gpu":
        reads.watch()
        send = telling(send, reads)
    try:
        answer = _answerer(start, send)
    except Exception as error:  # an environment that does not import is an outcome, not our crash
        from matrix.worker import failures

        result = {"outcome": Outcome.IMPORT_ERROR, "reason": failures.reason(error)}
        channel.send({"ready": False, **result, "detail": failures.detail(error)})
        return 1
    channel.send({"ready": True, "seconds": time.perf_counter() - started, "versions": _versions()})
    for request in requests:
        reads.begin(request.get("path", ""))
        answer(request)
    return 0


def _answerer(start: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    kind = start["kind"]
    if kind == "compile":
        from matrix.worker.compile import Compiler
        from matrix.worker.target import Profile, stand_in

        profile = Profile(**start["profile"])
        stand_in(profile)
        return Compiler(profile, send).answer
    if kind == "interpret":
        from matrix.worker.interpret import Interpreter
        from matrix.worker.target import stand_by

        stand_by()
        return Interpreter(send).answer
    if kind == "gpu":
        from matrix.worker.gpu import GpuWorker

        return GpuWorker(send).answer
    if kind == "collect":
        from matrix.worker.collect import Collector

        return Collector(send).answer
    raise ValueError(f"unknown kind of worker: {kind!r}")


def _versions() -> dict[str, str]:
    import numpy
    import torch
    import triton

    return {
        "triton": triton.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent dies, however that dies; Linux only. 0: not any more.

    What counts is the parent's thread that started this process.
    """
    import ctypes
    import signal

    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL if parent else 0)
        if parent and os.getppid() != parent:  # it died before we asked
            sys.exit(1)


def _limit_memory(limit: int | None) -> None:
    """Let a runaway allocation fail here as MemoryError before it takes the host down."""
    if limit:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
