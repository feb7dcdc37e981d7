"""The import stage: does a case file import here, and what does it hold?"""

from __future__ import annotations

import time

from matrix.model import Outcome
from matrix.worker import cases, failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Collector:
    """Answers collect requests: one case file each."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        import torch
        import triton

        # Imported here, so that a broken environment is told apart from a broken case file.
        assert torch and triton
        from matrix.worker.target import stand_by

        stand_by(torch_too=True)
        self._send = send

    def answer(self, request: dict[str, Any]) -> None:
        started = time.perf_counter()
        try:
            found = cases.describe(request["path"])
            result = {"outcome": Outcome.PASSED, "reason": "", "detail": "", **found}
        except (Exception, SystemExit) as error:
            result = {
                "outcome": Outcome.IMPORT_ERROR,
                "reason": failures.import_reason(error, request["path"]),
                "detail": failures.detail(error),
                "cases": [],
                "files": {},
            }
        seconds = time.perf_counter() - started
        self._send({"id": request["id"], "part": {**result, "config": "", "seconds": seconds}})
        self._send({"id": request["id"], "done": True})
