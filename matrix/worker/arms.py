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
from matrix.worker.driver import DriverError
from matrix.worker.graphs import CapturedTurn, capture
from matrix.worker.places import PAD_BYTES, PADS, Cycle, Place, pad_bytes, place
from matrix.worker.replies import passed
from matrix.worker.seeds import inputs_of
from matrix.worker.slab import Lender, Slab, allocating
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
# What torch's allocator takes beyond what was asked for: segments of 2 and of 20 MB for small tensors.
_SEGMENTS_BYTES = 64 << 20
# To capture a call takes the host some 30 us: what is captured once is replayed until the turn has its samples.
_MOST_CALLS_CAPTURED = 200
_FEWEST_WINDOWS = 10


@dataclass
class Arm:
    """What stays on the GPU between rounds."""

    case: Case
    params: Params
    masters: list[Any]
    places: list[Place]
    fresh: bool = True  # until the places were first called
    pool: Any = None  # that what the places hold lies in; None for this worker's own memory
    turns: dict[tuple[str, int, int], CapturedTurn] = field(default_factory=dict)
    scope: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def tensors(self) -> list[torch.Tensor]:
        """The inputs of all places, in order."""
        return [item for each in self.places for item in each.inputs if isinstance(item, torch.Tensor)]

    def calls(self, cache: str, place: int) -> list[Callable[[], object]]:
        """What to call in turn: all places, or the one whose buffers are what is warm."""
        if cache == WARM:
            return [self.places[place % len(self.places)].call]
        return [each.call for each in self.places]

    def clear(self) -> None:
        """Let go of all that the places hold: the pool after what lies in it, or torch ends the process."""
        self.turns.clear()
        self.places.clear()
        self.pool, self.fresh = None, True


class Arms:
    """The open arm of this worker, if any."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._arm: Arm | None = None
        self._slab: Slab | None = None
        self._lender: Lender | None = None

    @property
    def current(self) -> Arm:
        if self._arm is None:
            raise LookupError("no arm is open")
        return self._arm

    def lend(self, _: dict[str, Any]) -> dict[str, Any]:
        """Make a slab, once, for this worker and those that are told where it is served."""
        self.close()
        try:
            if self._lender is None:
                self._let_go()
                self._slab = Slab.make(self._timer.device)
                self._lender = Lender(self._slab)
        except DriverError as error:
            return {"outcome": Outcome.NOT_RUN, "reason": str(error)}
        assert self._slab is not None
        return passed({"slab": self._slab.name, "path": self._lender.path, "bytes": self._slab.size})

    def borrow(self, request: dict[str, Any]) -> dict[str, Any]:
        """Map the slab that another worker lends, unless it is mapped already."""
        self.close()
        if self._slab is not None and self._slab.name == request["slab"]:
            return passed({})
        try:
            self._let_go()
            self._slab = Slab.join(request["path"], int(request["bytes"]), request["slab"], self._timer.device)
        except DriverError as error:
            return {"outcome": Outcome.NOT_RUN, "reason": str(error)}
        return passed({})

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
        affordable = self._affordable(int(request.get("places", 1)), needed, request)
        return {
            "outcome": Outcome.PASSED,
            "reason": "",
            **first,
            "places": affordable,
            "capturable": not why_not,
            "not_capturable": why_not,
            "warmup_calls": calls,
            "warmup_ms": spent,
        }

    def place(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give the arm fresh places, numbered from ``first`` on, ready for the turn to come.

        No kernel of the case runs: arms that share memory may be placed at the same time. In the slab where it is
        ``shared``; in memory of this worker's own otherwise, which is given back to the driver first, so that what
        is allocated next may lie elsewhere. The flush, which leaves its traces in the L2, moves along. The reply
        says where in the slab the inputs lie: nowhere, where not all fits into it, or where a case that changes its
        inputs would change those of the other arms.
        """
        arm, first = self.current, int(request["first"])
        slab = self._slab if request.get("shared") and not arm.case.modifies else None
        self._timer.release()
        arm.clear()
        if slab is not None:
            slab.restart(pad_bytes(first))
            arm.pool = slab.pool()
        else:
            torch.cuda.empty_cache()
        self._timer.renew(arm.pool)
        with allocating(arm.pool):
            for number in range(first, first + int(request["places"])):
                padding = 0 if slab is not None else pad_bytes(number)
                arm.places.append(place(arm.case, arm.params, arm.masters, padding, self._timer.device))
        if request["replayed"]:
            self._captured(request)
        inside = slab is not None and not slab.overflowed
        return passed({"offsets": [slab.offset(each) for each in arm.tensors()] if slab and inside else []})

    def estimate(self, _: dict[str, Any]) -> dict[str, Any]:
        """What a call takes, cold and warm."""
        found = {cache: self._timer.round(self._direct(), ESTIMATE_SAMPLES, cache=cache) for cache in (COLD, WARM)}
        return passed({"estimate_us": {cache: _median(result.samples_us) for cache, result in found.items()}})

    def round(self, request: dict[str, Any]) -> dict[str, Any]:
        arm, cache = self.current, request.get("cache", COLD)
        samples, calls = int(request.get("samples", 10)), int(request.get("calls", 1))
        if request.get("replayed"):
            turn = self._captured(request)
            return passed(asdict(self._timer.replay(turn, samples, cache=cache, calls=calls)))
        if calls > 1:
            reason = "too short for one call a sample, and its calls cannot be captured"
            return {"outcome": Outcome.TOO_SHORT, "reason": reason}
        with allocating(arm.pool):
            places = arm.calls(cache, int(request.get("place", 0)))
            if arm.fresh:
                for each in places:
                    for _ in range(FEW_CALLS):
                        each()
            arm.fresh = False
            return passed(asdict(self._timer.round(Cycle(places), samples, cache=cache)))

    def overhead(self, request: dict[str, Any]) -> dict[str, Any]:
        return passed({"host_us": self._timer.overhead(self._direct(), int(request.get("calls", 100)))})

    def naive(self, request: dict[str, Any]) -> dict[str, Any]:
        """The windows that a timer without a full queue and without a flush reports."""
        return passed({"samples_us": self._timer.unguarded(self._direct(), int(request.get("samples", 10)))})

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
            self._timer.forget()
            self._timer.release()
            self._arm.clear()
            self._arm = None
            gc.collect()
            torch.cuda.empty_cache()
            self._timer.renew()

    def _let_go(self) -> None:
        if self._slab is not None:
            self._slab.close()
            self._slab = self._lender = None

    def _affordable(self, wanted: int, each_bytes: int, request: dict[str, Any]) -> int:
        """How many places fit into the slab, or else into this arm's share of the free memory, the first included."""
        if each_bytes <= 0:
            return wanted
        if request.get("shared") and self._slab is not None:
            room = self._slab.size - self._timer.flush_bytes - PADS * PAD_BYTES
            return max(1, min(wanted, int(room / (each_bytes + _SEGMENTS_BYTES))))
        free, _ = torch.cuda.mem_get_info()
        return max(1, min(wanted, 1 + int(request.get("share", 1.0) * free / each_bytes)))

    def _direct(self) -> Callable[[], object]:
        return self.current.places[0].call

    def _captured(self, request: dict[str, Any]) -> CapturedTurn:
        """The turn's graph, at these places."""
        arm, cache, calls = self.current, request.get("cache", COLD), int(request.get("calls", 1))
        samples = min(int(request.get("samples", 10)), max(_FEWEST_WINDOWS, _MOST_CALLS_CAPTURED // calls))
        key = cache, calls, samples
        if key not in arm.turns:
            places = arm.calls(cache, int(request.get("place", 0)))
            arm.turns[key] = self._timer.capture(places, samples, cache=cache, calls=calls, pool=arm.pool)
        return arm.turns[key]

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
            capture(first.call)()
        except RuntimeError as error:
            if is_cuda_error(error) or isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            return str(error)
        return ""


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]
