"""The worker's only way to speak: JSON lines over what was its stdout.

Kernels, compilers and case files print. So the real stdout is duplicated for the protocol and file
descriptor 1 is pointed at stderr, which the pool sends to a log.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Channel:
    """Requests in, replies out, one JSON object a line."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._in = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self._lock = threading.Lock()
        os.dup2(2, 1)
        # A case that reads stdin must not eat requests.
        with pathlib.Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        sys.stdout = sys.stderr

    def requests(self) -> Iterator[dict[str, Any]]:
        for line in self._in:
            yield json.loads(line)

    def socket(self) -> socket.socket:
        """The requests' end as a socket, for who is sent file descriptors too."""
        return socket.socket(fileno=os.dup(self._in.fileno()))

    def close(self) -> None:
        self._in.close()
        self._out.close()

    def send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
