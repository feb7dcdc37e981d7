"""The warm parent: it imports what is slow to import, and from then on forks a worker at each request.

A request is a JSON line with three descriptors: the worker's socket, its log, and its *lease*. At a word on
the lease, or when it is closed, the worker's whole process group is ended; how the worker ended is written
to it. The parent has a single thread, loads no case file and touches no GPU, so that a fork of it is as good
as a fresh process. When the control process is gone, all workers are ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matrix.worker.channel import Channel


def serve(channel: Channel, imports: Sequence[str]) -> int:
    """Import the modules, say so, and fork until the channel ends. Returns the exit code where an import fails.

    ``package.module:function`` is imported and the function called.
    """
    from matrix.worker.loop import die_with

    gc.disable()  # what is imported stays: looking through it again and again takes a fifth of the imports' time
    try:
        for name in imports:
            module, _, function = name.partition(":")
            loaded = importlib.import_module(module)
            if function:
                getattr(loaded, function)()
    except Exception as error:  # a fresh worker will run into it too, and tell of it as an outcome
        channel.send({"ready": False, "outcome": "", "reason": str(error)})
        return 1
    # What is here by now stays: collections in the workers need neither look at it nor copy its pages.
    gc.freeze()
    gc.enable()
    # The thread that started this process may end; from here on the end of the channel says that all is over.
    die_with(0)
    channel.send({"ready": True, "pid": os.getpid()})
    Parent(channel).serve()
    # The control process waits for this one's end, and nothing here is worth taking torch down module by module.
    sys.stderr.flush()
    os._exit(0)


class Parent:
    """Forks workers and ends them; knows each by its lease."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._requests = channel.socket()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._requests, selectors.EVENT_READ, None)
        self._pids: dict[socket.socket, int] = {}
        self._ends: dict[socket.socket, int] = {}
        self._parents: set[socket.socket] = set()

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._look_after(key.fileobj, key.data)
                elif not self._answer():
                    self._end()
                    return

    def _end(self) -> None:
        for lease in self._pids.keys() - self._parents:
            self._kill(lease)

    def _answer(self) -> bool:
        """Fork a worker for the next request; False where there is none any more."""
        line, descriptors, _, _ = socket.recv_fds(self._requests, 1 << 20, 3)
        if not line:
            return False
        sys.stderr.flush()
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            self._become(request, descriptors)
        channel, log, lease = descriptors
        os.close(channel)
        os.close(log)
        self._adopt(pid, socket.socket(fileno=lease), is_parent=request["parent"])
        self._channel.send({"pid": pid})
        return True

    def _adopt(self, pid: int, lease: socket.socket, *, is_parent: bool) -> None:
        if is_parent:
            self._parents.add(lease)
        self._pids[lease] = pid
        self._ends[lease] = os.pidfd_open(pid)
        self._selector.register(lease, selectors.EVENT_READ, lease)
        self._selector.register(self._ends[lease], selectors.EVENT_READ, lease)

    def _look_after(self, source: Any, lease: socket.socket) -> None:
        if lease not in self._pids:  # both of its descriptors were ready
            return
        if source is lease:
            # A parent that was forked from this one sees the end itself, and has workers of its own to end.
            if _word(lease) or lease not in self._parents:
                self._kill(lease)
            self._selector.unregister(lease)
        else:
            self._bury(lease)

    def _kill(self, lease: socket.socket) -> None:
        # Until it is reaped nobody else can have its number.
        for kill in (os.killpg, os.kill):  # it may not lead its group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self._pids[lease], signal.SIGKILL)

    def _bury(self, lease: socket.socket) -> None:
        # A compiler that the worker started may outlive it; its group goes with it.
        self._kill(lease)
        _, status = os.waitpid(self._pids.pop(lease), 0)
        end = self._ends.pop(lease)
        self._parents.discard(lease)
        with contextlib.suppress(KeyError):
            self._selector.unregister(lease)
        self._selector.unregister(end)
        os.close(end)
        with contextlib.suppress(OSError), lease:
            lease.sendall(str(os.waitstatus_to_exitcode(status)).encode())

    def _become(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Turn this fork into a worker, as if it had just been started. Never returns."""
        code = 1
        try:
            os.setsid()
            self._forget()
            channel, log, lease = descriptors
            for theirs, ours in ((channel, 0), (channel, 1), (log, 2)):
                os.dup2(theirs, ours)
            for descriptor in (channel, log, lease):
                os.close(descriptor)
            os.chdir(request["folder"])
            os.environ.update(request["variables"])
            from matrix.worker.loop import main

            code = main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _forget(self) -> None:
        """Close what is the parent's: a copy of a lease here would keep its end from being seen there."""
        for lease, end in self._ends.items():
            lease.close()
            os.close(end)
        self._selector.close()
        self._requests.close()
        self._channel.close()


def _word(lease: socket.socket) -> bytes:
    try:
        return lease.recv(1)
    except OSError:
        return b""
