"""An arm of a measurement: one case at one point, resident on the GPU in several places, ready to be timed."""

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
from matrix.worker.places import Cycle, Place, place
from matrix.worker.replies import passed
from matrix.worker.seeds import inputs_of
from matrix.worker.timing import COLD, WARM, Timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from matrix.case import Case

FIRST_WARMUP_MS = 50.0
NEXT_WARMUP_MS = 2.0
FEW_CALLS = 3  # on a fresh place of an arm that has just been running
ESTIMATE_SAMPLES = 10
COMPETITOR_SAMPLES = 50


@dataclass
class Arm:
    """What stays on the GPU between rounds."""

    case: Case
    params: Params
    masters: list[Any]
    places: list[Place]
    scope: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class Arms:
    """The open arm of this worker, if any."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._arm: Arm | None = None

    @property
    def current(self) -> Arm:
        if self._arm is None:
            raise LookupError("no arm is open")
        return self._arm

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build the inputs, make the first call, fill the places, warm up. Returns the reply's figures."""
        self.close()
        params = Params(request["params"])
        case = cases.find(request["path"], request["case"])
        self._timer.forget()
        arm = Arm(case, params, inputs_of(case, params, device=self._timer.device), [])
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        arm.places.append(place(case, params, arm.masters, 0, self._timer.device))
        first = self._first_call(arm, request.get("pinned", {}))
        if not first["kernels"]:
            arm.scope.close()
            return {"outcome": Outcome.NOT_LAUNCHED, "reason": "run() launched no Triton kernel", **first}
        self._arm = arm
        calls, spent = self._timer.warm_up(arm.places[0].call, FIRST_WARMUP_MS)
        needed = torch.cuda.max_memory_allocated() - before
        why_not = self._not_capturable(arm.places[0])
        free, _ = torch.cuda.mem_get_info()
        return {
            "outcome": Outcome.PASSED,
            "reason": "",
            **first,
            "places": _affordable(int(request.get("places", 1)), needed, free, request.get("share", 1.0)),
            "capturable": not why_not,
            "not_capturable": why_not,
            "warmup_calls": calls,
            "warmup_ms": spent,
        }

    def place(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give the arm fresh places of its own, numbered from ``first`` on, ready for ``calls`` calls."""
        arm = self.current
        arm.places.clear()
        # Given back to the driver, so that what is allocated next may lie elsewhere in the memory itself: on an
        # H200 that moves a memory-bound kernel by up to a per cent. The flush leaves its traces in the L2 too.
        torch.cuda.empty_cache()
        self._timer.renew()
        for number in range(int(request["first"]), int(request["first"]) + int(request["places"])):
            arm.places.append(place(arm.case, arm.params, arm.masters, number, self._timer.device))
        self._ready(arm, int(request["calls"]), replayed=bool(request["replayed"]))
        return passed({})

    def estimate(self, _: dict[str, Any]) -> dict[str, Any]:
        """What a call takes, cold and warm, and whether the host keeps ahead of it."""
        found = {cache: self._timer.round(self._direct(0), ESTIMATE_SAMPLES, cache=cache) for cache in (COLD, WARM)}
        return passed(
            {
                "estimate_us": {cache: _median(result.samples_us) for cache, result in found.items()},
                "enqueue_us": found[COLD].enqueue_us,
                "busy_us": found[COLD].busy_us / ESTIMATE_SAMPLES,
                "flush_bytes": self._timer.flush_bytes,
                "l2_bytes": self._timer.l2_bytes,
            }
        )

    def round(self, request: dict[str, Any]) -> dict[str, Any]:
        calls, cache = int(request.get("calls", 1)), request.get("cache", COLD)
        places = self.current.places
        if cache == WARM:  # what is warm is one place's buffers
            places = [places[int(request.get("place", 0)) % len(places)]]
        try:
            each = [one.calls(calls, replayed=bool(request.get("replayed"))) for one in places]
        except RuntimeError as error:
            if is_cuda_error(error) or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            reason = f"too short for one call a sample, and it cannot be captured: {error}"
            return {"outcome": Outcome.TOO_SHORT, "reason": reason}
        result = self._timer.round(Cycle(each), int(request.get("samples", 10)), cache=cache, calls=calls)
        return passed(asdict(result))

    def overhead(self, request: dict[str, Any]) -> dict[str, Any]:
        return passed({"host_us": self._timer.overhead(self._direct(0), int(request.get("calls", 100)))})

    def naive(self, request: dict[str, Any]) -> dict[str, Any]:
        """The windows that a timer without a full queue and without a flush reports."""
        return passed({"samples_us": self._timer.unguarded(self._direct(0), int(request.get("samples", 10)))})

    def competitor(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a user would run instead: cold samples of single calls, behind a full queue."""
        arm = self.current
        if arm.case.competitor is None:
            return {"outcome": Outcome.NOT_RUN, "reason": "the case names no competitor"}
        inputs, run = arm.places[0].inputs, arm.case.competitor

        def call() -> object:
            return cases.call(run, inputs, arm.params)

        self._timer.warm_up(call, NEXT_WARMUP_MS)
        result = self._timer.round(call, int(request.get("samples", COMPETITOR_SAMPLES)), cache=COLD)
        name = f"{getattr(run, '__module__', '')}.{getattr(run, '__qualname__', repr(run))}"
        return passed({"name": name, "torch": torch.__version__, **asdict(result)})

    def traffic(self, _: dict[str, Any]) -> dict[str, Any]:
        """Bytes moved and operations of one call, as the case states them."""
        case, params = self.current.case, self.current.params
        return passed(
            {
                "bytes_moved": float(case.bytes_moved(params)) if case.bytes_moved else None,
                "flops": float(case.flops(params)) if case.flops else None,
            }
        )

    def close(self) -> None:
        """Free the arm's memory."""
        if self._arm is not None:
            self._arm.scope.close()
            self._arm = None
            self._timer.forget()
            gc.collect()
            torch.cuda.empty_cache()

    def _direct(self, number: int) -> Callable[[], object]:
        return self.current.places[number].call

    def _ready(self, arm: Arm, calls: int, *, replayed: bool) -> None:
        for each in arm.places:
            call = each.calls(calls, replayed=replayed)
            for _ in range(FEW_CALLS):
                call()
        torch.cuda.synchronize()

    def _first_call(self, arm: Arm, pinned: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        with observe.tuned(pinned) as chosen, observe.launches() as launched:
            arm.places[0].call()
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        if pinned:
            arm.scope.enter_context(observe.tuned(pinned))
        return {
            "kernels": observe.describe(launched),
            "configurations": chosen,
            "first_call_seconds": seconds,
        }

    def _not_capturable(self, first: Place) -> str:
        """Why the call cannot be captured ("" where it can)."""
        try:
            first.calls(1, replayed=True)
        except RuntimeError as error:
            if is_cuda_error(error) or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            return str(error)
        return ""


def _affordable(wanted: int, each_bytes: int, free_bytes: int, share: float) -> int:
    """How many places fit into this arm's share of the free memory, the first one among them."""
    if each_bytes <= 0:
        return wanted
    return max(1, min(wanted, 1 + int(share * free_bytes / each_bytes)))


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]
