"""One worker process and the pipe to it. The parent survives whatever happens on the other side."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAIN = Path(__file__).parent / "worker" / "__main__.py"
_TAIL_BYTES = 4096
_LOG_LIMIT_BYTES = 8 << 20
START_TIMEOUT_S = 180.0


class Died(Exception):
    """The worker's process ended in the middle of a request; the text says how."""


class TimedOut(Exception):
    """The worker did not answer in time and was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker is for. ``start`` is the first message: kind, profile, limits."""

    environment: str
    target: str
    interpreter: Path
    variables: tuple[tuple[str, str], ...]
    start: dict[str, Any]
    main: Path = _MAIN


class Worker:
    """A child process that answers requests in JSON lines."""

    def __init__(self, spec: WorkerSpec, logs: Path) -> None:
        self._spec = spec
        self._id = 0
        self._buffer = b""
        self._killed = False
        self.start_seconds = 0.0
        descriptor, name = tempfile.mkstemp(prefix="worker-", suffix=".log", dir=logs)
        os.close(descriptor)
        self._log = Path(name)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start the process and wait for its first message; ``{"ready": True, ...}`` when it is fit."""
        started = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # -I implies -P and -E: nothing of the caller's becomes importable in the worker.
                [str(self._spec.interpreter), "-I", str(self._spec.main)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(self._spec.variables),
                cwd=self._log.parent,
                start_new_session=True,
            )
        if self._killed:
            self.kill()
        try:
            self._write({**self._spec.start, "parent": os.getpid()})
            message = self._read(time.monotonic() + START_TIMEOUT_S)
        except TimedOut:
            reason = f"the worker did not start in {START_TIMEOUT_S:g} s"
            return {"ready": False, "outcome": "timeout", "reason": reason, "detail": self.log_tail()}
        except Died as death:
            return {"ready": False, "outcome": "crash", "reason": f"{death} (at import)", "detail": self.log_tail()}
        self.start_seconds = time.monotonic() - started
        return message

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Send a request and yield messages until it is done. The clock restarts at every message."""
        self._id += 1
        self._trim_log()
        self._write({**request, "id": self._id})
        while True:
            message = self._read(time.monotonic() + timeout_s)
            if message.get("id") != self._id:
                continue
            if message.get("done"):
                return
            yield message

    def log_tail(self) -> str:
        """The last of what the worker and its compilers printed."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace")
        return ""

    def kill(self) -> None:
        """End the worker and everything it started. Safe from any thread and more than once."""
        self._killed = True
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the worker, politely where it is idle, and remove its log."""
        process = self._process
        if process is not None:
            if process.stdin:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            try:
                process.wait(timeout=0 if self._killed else 5)
            except subprocess.TimeoutExpired:
                self.kill()
                process.wait()
            # A compiler that the worker started may outlive it; its group goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdout:
                process.stdout.close()
        self._log.unlink(missing_ok=True)

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            raise Died(self._ending()) from None

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            chunk = self._chunk(deadline)
            if not chunk:
                raise Died(self._ending())
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _chunk(self, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise TimedOut
        return os.read(descriptor, 1 << 16)

    def _ending(self) -> str:
        """How the process ended, in words."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the worker closed its pipe and did not end"
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", perhaps out of memory" if -code == signal.SIGKILL and not self._killed else ""
            return f"the process died of {name}{hint}"
        return f"the process exited with code {code} in mid-request"

    def _trim_log(self) -> None:
        # The child appends, so that cutting the file short here is safe.
        if self._log.stat().st_size > _LOG_LIMIT_BYTES:
            os.truncate(self._log, 0)
