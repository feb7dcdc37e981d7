"""One worker process and the socket to it. The parent survives whatever happens on the other side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.running.child import Ends, Started, WorkerSpec, readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.running.child import Child

__all__ = ["Died", "TimedOut", "Worker", "WorkerSpec"]

_TAIL_BYTES = 4096
_LOG_LIMIT_BYTES = 8 << 20
START_TIMEOUT_S = 180.0


class Died(Exception):
    """The worker's process ended in the middle of a request; the text says how."""


class TimedOut(Exception):
    """The worker did not answer in time and was killed."""


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
        self._channel, self._theirs = socket.socketpair()
        self._child: Child | None = None

    def start(self) -> dict[str, Any]:
        """Start the process and wait for its first message; ``{"ready": True, ...}`` when it is fit."""
        started = time.monotonic()
        child = self._born()
        try:
            self._write({**self._spec.start, "parent": child.parent})
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

    def hand(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        """Send a request together with file descriptors; returns its one reply. Raises as :meth:`ask` does."""
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode() + b"\n"], descriptors)
        except OSError:
            raise Died(self._ending()) from None
        return self._read(time.monotonic() + START_TIMEOUT_S)

    def kill(self) -> None:
        """End the worker and everything it started. Safe from any thread and more than once."""
        self._killed = True
        if self._child is not None:
            self._child.kill()
        elif self._spec.parent is not None:
            self._spec.parent.interrupt()

    def close(self) -> None:
        """End the worker, politely where it is idle, and remove its log."""
        self._theirs.close()
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        if self._child is not None:
            self._child.wait(0 if self._killed else 5)
            self._child.close()
        self._channel.close()
        self._log.unlink(missing_ok=True)

    def _born(self) -> Child:
        """The process: forked where there is a warm parent, else started."""
        with self._theirs, self._log.open("ab") as log:
            ends = Ends(channel=self._theirs, log=log.fileno(), folder=self._log.parent)
            warm = self._spec.parent.fork(self._spec, ends) if self._spec.parent else None
            self._child = child = warm or Started(self._spec, ends)
        if self._killed:
            self.kill()
        return child

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
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
        if not readable(self._channel, deadline - time.monotonic()):
            self.kill()
            raise TimedOut
        try:
            return self._channel.recv(1 << 16)
        except ConnectionResetError:  # it ended with a request unread
            return b""

    def _ending(self) -> str:
        """How the process ended, in words."""
        assert self._child is not None
        code = self._child.wait(10)
        if code is None:
            self.kill()
            return "the worker closed its socket and did not end"
        if code < 0:
            name = signal.Signals(-code).name
            hint = ", perhaps out of memory" if -code == signal.SIGKILL and not self._killed else ""
            return f"the process died of {name}{hint}"
        return f"the process exited with code {code} in mid-request"

    def _trim_log(self) -> None:
        # The child appends, so that cutting the file short here is safe.
        if self._log.stat().st_size > _LOG_LIMIT_BYTES:
            os.truncate(self._log, 0)
