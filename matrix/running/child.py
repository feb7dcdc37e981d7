"""A worker's process as the control process holds it: one that was started, or one that a warm parent forked.

Both speak over one socket, both lead a process group of their own, and of both the exit code is known.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from matrix.resources import worker_file

if TYPE_CHECKING:
    import socket

    from matrix.running.warm import WarmParent

_MAIN = worker_file("__main__.py")
# How long a process that was sent SIGKILL may take to be gone.
_GONE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker is for. ``start`` is the first message: kind, profile, limits.

    Where there is a ``parent`` the worker is forked from it, having imported already what it has.
    """

    environment: str
    target: str
    interpreter: Path
    variables: tuple[tuple[str, str], ...]
    start: dict[str, Any]
    main: Path = _MAIN
    parent: WarmParent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What a new worker gets: its end of the socket, the log for what it prints, the folder to work in."""

    channel: socket.socket
    log: int
    folder: Path


class Child(Protocol):
    """A worker's process."""

    @property
    def parent(self) -> int:
        """The id of the process with which this one dies."""

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, of a signal its negative; None where the process lives on for ``timeout_s``."""

    def kill(self) -> None:
        """End the process and everything it started. Safe from any thread and more than once."""

    def close(self) -> None:
        """As :meth:`kill`, and wait until it is gone."""


class Started:
    """A process of its own, started by this one."""

    def __init__(self, spec: WorkerSpec, ends: Ends) -> None:
        self.parent = os.getpid()
        self._process = subprocess.Popen(
            # -I implies -P and -E: nothing of the caller's becomes importable in the worker.
            [str(spec.interpreter), "-I", str(spec.main)],
            stdin=ends.channel.fileno(),
            stdout=ends.channel.fileno(),
            stderr=ends.log,
            env=dict(spec.variables),
            cwd=ends.folder,
            start_new_session=True,
        )

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        if self._process.poll() is None:
            self._kill_group()

    def close(self) -> None:
        self.kill()
        self._process.wait()
        # A compiler that the worker started may outlive it; its group goes with it.
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Forked:
    """A process that a warm parent forked, held by its *lease*.

    The lease is a socket to the parent, which ends the process and its group at a word on it or when it is
    closed, and says the exit code on it. So only the parent, which reaps it, ever signals by process id.
    """

    def __init__(self, parent: int, lease: socket.socket) -> None:
        self.parent = parent
        self._lease = lease
        self._code: int | None = None

    def wait(self, timeout_s: float) -> int | None:
        if self._code is None and readable(self._lease, timeout_s):
            try:
                told = self._lease.recv(16)
            except OSError:
                told = b""
            # Where its parent is gone, and with it the code, SIGKILL is what the kernel sent it.
            self._code = int(told) if told else -signal.SIGKILL
        return self._code

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._lease.send(b"k")

    def close(self) -> None:
        if self._code is None:
            self.kill()
            self.wait(_GONE_S)
        self._lease.close()


def readable(source: socket.socket, timeout_s: float) -> bool:
    """Whether there is something to read, or the end, within ``timeout_s``."""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        return bool(selector.select(max(0.0, timeout_s)))
