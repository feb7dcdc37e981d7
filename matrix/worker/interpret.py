"""The interpret stage: a case under Triton's interpreter, checked as on a GPU (:mod:`matrix.worker.check`).

Unless the request asks for more ``dimensions``, only those of a single run are looked at: the interpreter
is slow, and where NaN or rounding is concerned it is not the hardware.
"""

from __future__ import annotations

import time

from matrix.model import FIRST_DIMENSIONS
from matrix.worker.check import Checker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Interpreter:
    """Answers interpret requests. Triton must have been imported with ``TRITON_INTERPRET=1``."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._checker = Checker("cpu", repeats=1)

    def answer(self, request: dict[str, Any]) -> None:
        started = time.perf_counter()
        result = self._checker.check({"dimensions": FIRST_DIMENSIONS, **request})
        seconds = time.perf_counter() - started
        part = {"config": "", "kernels": [], "detail": "", **result, "seconds": seconds}
        self._send({"id": request["id"], "part": part})
        self._send({"id": request["id"], "done": True})
