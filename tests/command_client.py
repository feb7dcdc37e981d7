"""Command lines as ``python -P -m matrix`` would run them, from a server that has imported already what they import."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

SERVER = Path(__file__).with_name("command_server.py")


class Server:
    """One process, and one command line at a time."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen([sys.executable, "-P", str(SERVER)], stdin=theirs)
        atexit.register(self.close)

    def run(
        self, *arguments: str, folder: Path, environ: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        request = {"arguments": arguments, "folder": str(folder), "environ": dict(environ)}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._channel, [json.dumps(request).encode() + b"\n"], [out.fileno(), err.fileno()])
            with self._channel.makefile("r") as answers:
                pid = int(answers.readline())
                self._channel.settimeout(timeout_s)
                try:
                    status = int(answers.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    self.close()
                    server.cache_clear()
                    raise
                self._channel.settimeout(None)
            texts = [_text(file) for file in (out, err)]
        return subprocess.CompletedProcess(["triton-matrix", *arguments], status, *texts)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        self._process.wait()


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


@functools.cache
def server() -> Server:
    """This test process's own; it ends with it."""
    return Server()
