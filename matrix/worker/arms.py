"""An arm of a measurement: one case at one point, resident on the GPU, ready to be timed.

Opened anew for every block of rounds, with its buffers somewhere else each time (``placement``), because
where buffers lie changes the time of a kernel by more than what is to be told apart.
"""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import asdict, dataclass, field

import torch

from matrix.case import Params
from matrix.model import Outcome
from matrix.worker import cases, observe
from matrix.worker.cuda import is_cuda_error
from matrix.worker.seeds import inputs_of
from matrix.worker.timing import COLD, WARM, Timer, capture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from matrix.case import Case

FIRST_WARMUP_MS = 50.0
NEXT_WARMUP_MS = 5.0
ESTIMATE_SAMPLES = 10
# Buffers move by odd multiples of a large page, so that sets, channels and slices all change.
_PAD_BYTES = 2 << 20
_PLACES = 61


@dataclass
class Arm:
    """What stays on the GPU between rounds."""

    case: Case
    params: Params
    inputs: list[Any]
    pad: torch.Tensor | None
    scope: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    replays: dict[int, Callable[[], object]] = field(default_factory=dict)

    def call(self) -> object:
        return cases.call(self.case.run, self.inputs, self.params)

    def calls(self, number: int) -> Callable[[], object]:
        """Something that makes ``number`` calls: the call itself, or the replay of a graph of so many."""
        if number == 1:
            return self.call
        if number not in self.replays:
            self.replays[number] = capture(self.call, number).replay
            self.replays[number]()
        return self.replays[number]


class Arms:
    """The open arm of this worker, if any, and the inputs that its next opening will need again."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._masters: tuple[Any, list[Any]] | None = None
        self._arm: Arm | None = None

    @property
    def current(self) -> Arm:
        if self._arm is None:
            raise LookupError("no arm is open")
        return self._arm

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build the inputs, make the first call, warm up and estimate. Returns the reply's figures."""
        self.close()
        params = Params(request["params"])
        case = cases.find(request["path"], request["case"])
        again = self._keep_masters(case, params, request)
        placement = int(request.get("placement", 0))
        pad = self._pad(placement)
        inputs = [item.clone() if isinstance(item, torch.Tensor) else item for item in self._masters_list()]
        arm = Arm(case, params, inputs, pad)
        first = self._first_call(arm, request.get("pinned", {}))
        if not first["kernels"]:
            arm.scope.close()
            return {"outcome": Outcome.NOT_LAUNCHED, "reason": "run() launched no Triton kernel", **first}
        self._arm = arm
        calls, spent = self._timer.warm_up(arm.call, NEXT_WARMUP_MS if again else FIRST_WARMUP_MS)
        wanted = (COLD, WARM) if request.get("estimate", True) else ()
        return {
            "outcome": Outcome.PASSED,
            "reason": "",
            **first,
            "placement": placement,
            "warmup_calls": calls,
            "warmup_ms": spent,
            "estimate_us": {cache: self._estimate(arm, cache) for cache in wanted},
            "flush_bytes": self._timer.flush_bytes,
            "l2_bytes": self._timer.l2_bytes,
        }

    def round(self, request: dict[str, Any]) -> dict[str, Any]:
        calls = int(request.get("calls", 1))
        try:
            call = self.current.calls(calls)
        except RuntimeError as error:
            if is_cuda_error(error) or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            reason = f"too short for one call a sample, and it cannot be captured: {error}"
            return {"outcome": Outcome.TOO_SHORT, "reason": reason}
        cache = request.get("cache", COLD)
        result = self._timer.round(call, int(request.get("samples", 10)), cache=cache, calls=calls)
        return {"outcome": Outcome.PASSED, "reason": "", **asdict(result)}

    def overhead(self, request: dict[str, Any]) -> dict[str, Any]:
        times = self._timer.overhead(self.current.call, int(request.get("calls", 100)))
        return {"outcome": Outcome.PASSED, "reason": "", "host_us": times}

    def naive(self, request: dict[str, Any]) -> dict[str, Any]:
        """The windows that a timer without a full queue and without a flush reports."""
        times = self._timer.unguarded(self.current.call, int(request.get("samples", 10)))
        return {"outcome": Outcome.PASSED, "reason": "", "samples_us": times}

    def close(self, *, forget: bool = False) -> None:
        """Free the arm's memory; with ``forget`` its masters too (the cell is done)."""
        if self._arm is not None:
            self._arm.scope.close()
            self._arm = None
        if forget:
            self._masters = None
            self._timer.forget()
            gc.collect()
        torch.cuda.empty_cache()

    def _keep_masters(self, case: Case, params: Params, request: dict[str, Any]) -> bool:
        key = (request["path"], case.name, tuple(params.items()))
        if self._masters is not None and self._masters[0] == key:
            return True
        self._masters = None
        self._timer.forget()
        self._masters = (key, inputs_of(case, params, device=self._timer.device))
        return False

    def _masters_list(self) -> list[Any]:
        assert self._masters is not None
        return self._masters[1]

    def _pad(self, placement: int) -> torch.Tensor | None:
        size = (placement * 37 % _PLACES) * _PAD_BYTES
        return torch.empty(size, dtype=torch.uint8, device=self._timer.device) if size else None

    def _first_call(self, arm: Arm, pinned: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        with observe.tuned(pinned) as chosen, observe.launches() as launched:
            arm.call()
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        if pinned:
            arm.scope.enter_context(observe.tuned(pinned))
        return {
            "kernels": observe.describe(launched),
            "configurations": chosen,
            "first_call_seconds": seconds,
        }

    def _estimate(self, arm: Arm, cache: str) -> float:
        samples = sorted(self._timer.round(arm.call, ESTIMATE_SAMPLES, cache=cache).samples_us)
        return samples[len(samples) // 2]
