"""Starts command lines as forks: what every one of them imports before it begins is imported here, once.

Each is a process of its own all the same: it has its own arguments, environment, folder and streams, and it ends by the
interpreter's ordinary way out. A request is one line of JSON, with the two streams as descriptors; the answers are the
process id and, at its end, the exit status.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys

IMPORTED = ("matrix.commands.main", "matrix.running.run", "matrix.reporting.show", "matrix.causes.reproducer")


def serve(channel: socket.socket) -> bool:
    """Fork at each request. True in a fork, which is to run the command line; False where the requests end."""
    while True:
        line, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if not line:
            return False
        pid = os.fork()
        if pid == 0:
            channel.close()
            become(json.loads(line), descriptors)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        channel.sendall(f"{pid}\n".encode())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):  # nobody waited so long
            channel.sendall(f"{status}\n".encode())


def become(request: dict, descriptors: list[int]) -> None:
    for theirs, ours in ((os.open(os.devnull, os.O_RDONLY), 0), *zip(descriptors, (1, 2), strict=True)):
        os.dup2(theirs, ours)
        os.close(theirs)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    sys.argv = ["triton-matrix", *request["arguments"]]


if __name__ == "__main__":
    for module in IMPORTED:
        __import__(module)
    gc.freeze()
    if serve(socket.socket(fileno=os.dup(0))):
        from matrix.__main__ import main

        main()
