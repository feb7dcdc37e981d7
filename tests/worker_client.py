"""A worker process of an environment, asked one request at a time, without a pool around it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "matrix" / "worker" / "__main__.py"
FAKE_GPU = ROOT / "tests" / "fake_gpu.py"


class Client:
    """``with Client(interpreter, "interpret") as ask: part = ask("interpret", path=..., ...)``"""

    def __init__(self, interpreter: Path, kind: str, *, main: Path = WORKER, interpreted: bool = True) -> None:
        self.kind = kind
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRITON", "MATRIX"))}
        kept["OMP_NUM_THREADS"] = "1"
        if interpreted:
            kept["TRITON_INTERPRET"] = "1"
        self.process = subprocess.Popen(
            [str(interpreter), "-I", str(main)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=kept,
        )

    def __enter__(self) -> Self:
        ready = self._tell({"kind": self.kind, "parent": os.getpid()})
        assert ready["ready"], ready
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def __call__(self, op: str, **request: Any) -> dict[str, Any]:
        message = self._tell({"id": 1, "op": op, **request})
        part: dict[str, Any] = message["part"]
        assert self._read() == {"id": 1, "done": True}
        return part

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """In the form that an arm wants it."""
        return self(**request)

    def _tell(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message
