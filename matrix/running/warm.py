"""Warm parents: a process of an environment that has torch imported and forks its workers from there.

Importing torch and triton takes seconds of a core, and a run starts a dozen workers; one whose compiler
aborted is replaced by the next. A fork takes milliseconds. Workers for a GPU have no warm parent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import weakref
from typing import TYPE_CHECKING

from matrix.running.child import Forked
from matrix.running.process import Died, TimedOut, Worker

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.running.child import Ends, WorkerSpec


class WarmParent:
    """Forks workers; started when the first is wanted, again when it has died, and ended with this object."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._variables = dict(spec.variables)
        self._lock = threading.Lock()
        self._process: Worker | None = None
        self._pid = 0
        # Forking is sure to work on Linux alone.
        self._fit = sys.platform == "linux" and hasattr(os, "pidfd_open")

    def fork(self, spec: WorkerSpec, ends: Ends) -> Forked | None:
        """A fresh process with ``ends``, or None where this environment has no warm parent.

        So it is where its imports fail, which the worker itself then tells of.
        """
        with self._lock:
            for _ in range(2):  # it may have been killed since the last time, for want of memory say
                process = self._ready(ends.folder)
                if process is None:
                    return None
                try:
                    return self._fork(process, spec, ends)
                except (Died, TimedOut):
                    self._drop()
        return None

    def interrupt(self) -> None:
        """End a process that is still importing, so that nobody waits for it. Safe from any thread."""
        process = self._process
        if process is not None and not self._pid:
            process.kill()

    def close(self) -> None:
        """End the process; its workers end with it."""
        with self._lock:
            self._drop()

    def _ready(self, folder: Path) -> Worker | None:
        if self._fit and self._process is None:
            self._pid, self._process = 0, Worker(self._spec, folder)
            weakref.finalize(self, self._process.close)
            ready = self._process.start()
            self._fit = bool(ready.get("ready"))
            self._pid = ready.get("pid", 0)
            if not self._fit:
                self._drop()
        return self._process

    def _fork(self, process: Worker, spec: WorkerSpec, ends: Ends) -> Forked:
        more = {name: value for name, value in spec.variables if self._variables.get(name) != value}
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.enter_context(ours)
            with theirs:
                is_parent = spec.start["kind"] == "parent"
                request = {"folder": str(ends.folder), "variables": more, "parent": is_parent}
                process.hand(request, [ends.channel.fileno(), ends.log, theirs.fileno()])
            undo.pop_all()
        return Forked(self._pid, ours)

    def _drop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
