"""An arm of a measurement: one case at one point, resident on the GPU in several places, ready to be timed.

Its places are laid out anew for every block of rounds (:mod:`layout`). Where the slab has room for two layouts, the
next one is prepared while other arms have their turns: all but the inputs, which are written between two blocks, by
one worker for all.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from dataclasses import asdict, dataclass, field

import torch

from matrix.baton import Baton
from matrix.case import Params
from matrix.model import Outcome
from matrix.worker import cases, observe
from matrix.worker.cuda import is_cuda_error
from matrix.worker.driver import DriverError
from matrix.worker.graphs import CapturedTurn, capture
from matrix.worker.layout import Layout, affordable, lay_out
from matrix.worker.places import Cycle, Place
from matrix.worker.replies import passed
from matrix.worker.seeds import inputs_of
from matrix.worker.slab import Lender, Slab, allocating
from matrix.worker.timing import COLD, WARM, Timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matrix.case import Case

FIRST_WARMUP_MS = 50.0
NEXT_WARMUP_MS = 2.0
FEW_CALLS = 3  # on a fresh place of an arm that has just been running
ESTIMATE_SAMPLES = 5
COMPETITOR_SAMPLES = 20
# To capture a call takes the host some 30 us: what is captured once is replayed until the turn has its samples.
_MOST_CALLS_CAPTURED = 200
_FEWEST_WINDOWS = 10
# Of waiting for a turn while no other arm gets on with its own; less than a request may take.
_PATIENCE_S = 120.0


@dataclass
class Arm:
    """What stays on the GPU between rounds."""

    case: Case
    params: Params
    masters: list[Any]
    layout: Layout
    ahead: Layout | None = None  # that of the next block
    scope: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def layouts(self) -> list[Layout]:
        return [self.layout, *([self.ahead] if self.ahead else [])]

    def clear(self) -> None:
        for each in self.layouts():
            each.clear()
        self.ahead = None


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
        """Build the inputs, make the first call, warm up. Returns the reply's figures."""
        self.close()
        params = Params(request["params"])
        case = cases.find(request["path"], request["case"])
        self._timer.forget()
        masters = inputs_of(case, params, device=self._timer.device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        arm = Arm(case, params, masters, lay_out(case, params, masters, self._timer, 0, 1, None))
        arm.layout.fill(masters)
        first = self._first_call(arm, request.get("pinned", {}))
        if not first["kernels"]:
            arm.scope.close()
            return {"outcome": Outcome.NOT_LAUNCHED, "reason": "run() launched no Triton kernel", **first}
        self._arm = arm
        self._timer.flush_with(arm.layout.flush)
        calls, spent = self._timer.warm_up(self._direct(), FIRST_WARMUP_MS)
        needed = torch.cuda.max_memory_allocated() - before - self._timer.flush_bytes
        why_not = self._not_capturable(arm.layout.places[0])
        slab = self._slab if request.get("shared") else None
        wanted = int(request.get("places", 1))
        return {
            "outcome": Outcome.PASSED,
            "reason": "",
            **first,
            "places": affordable(wanted, needed, self._timer, slab, request.get("share", 1.0)),
            "capturable": not why_not,
            "not_capturable": why_not,
            "warmup_calls": calls,
            "warmup_ms": spent,
        }

    def place(self, request: dict[str, Any]) -> dict[str, Any]:
        """Give the arm a fresh layout, its places numbered from ``first`` on.

        No kernel of the case runs: all arms may be placed at the same time. In the slab where it is ``shared``, and
        there only the one that is asked to ``fill`` writes the inputs. In memory of this worker's own otherwise,
        which is given back to the driver first, so that what is allocated next may lie elsewhere. The reply says
        where in the slab the inputs lie: nowhere, where not all fits into it, or where a case that changes its
        inputs would change those of the other arms.
        """
        arm = self.current
        slab = self._shared(request)
        self._clear(arm)
        if slab is None:
            torch.cuda.empty_cache()
        arm.layout = self._laid_out(request, slab)
        self._timer.flush_with(arm.layout.flush)
        if slab is None or request.get("fill"):
            arm.layout.fill(arm.masters)
        return passed({"offsets": arm.layout.offsets})

    def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the inputs into the layout that was prepared, for all arms that share it."""
        arm = self.current
        if arm.ahead is None or arm.ahead.first != request["first"]:
            raise LookupError(f"no layout from place {request['first']} on is prepared")
        arm.ahead.fill(arm.masters)
        return passed({})

    def estimate(self, _: dict[str, Any]) -> dict[str, Any]:
        """What a call takes, cold and warm."""
        found = {cache: self._timer.round(self._direct(), ESTIMATE_SAMPLES, cache=cache) for cache in (COLD, WARM)}
        return passed({"estimate_us": {cache: _median(result.samples_us) for cache, result in found.items()}})

    def round(self, request: dict[str, Any]) -> dict[str, Any]:
        """One turn, at once."""
        if (reason := self._too_short(request)) is not None:
            return {"outcome": Outcome.TOO_SHORT, "reason": reason}
        return passed(self._round(request, lambda: None))

    def rounds(self, request: dict[str, Any]) -> dict[str, Any]:
        """The turns of these numbers, each when the baton comes to it, in the layout from place ``first`` on.

        The next block's layout is prepared meanwhile, where one is asked for (``ahead``): in the longest wait.
        Fewer rounds than turns say that the baton did not come any more.
        """
        if (reason := self._too_short(request)) is not None:
            return {"outcome": Outcome.TOO_SHORT, "reason": reason}
        turns, ahead = request["turns"], request.get("ahead")
        found: list[dict[str, Any]] = []
        offsets: tuple[int, ...] = ()
        with Baton(request["baton"]) as baton:
            try:
                past = self._move_to(int(request["first"]))
                if request["replayed"]:
                    self._captured(self.current.layout, request)
                for number, turn in enumerate(turns):
                    # Not before the first turn, which others may be waiting for.
                    if past is not None and (number or len(turns) == 1):
                        past.clear()
                        past = None
                    if ahead and number == _longest_wait(turns):
                        offsets = self._prepare({**request, **ahead})
                    if not baton.wait(turn, _PATIENCE_S):
                        break
                    found.append(self._taken(request, baton, turn))
            except BaseException:
                baton.abandon()
                raise
        return passed({"rounds": found, "offsets": offsets})

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
        inputs, run = arm.layout.places[0].inputs, arm.case.competitor

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
            self._clear(self._arm)
            self._arm = None
            gc.collect()
            torch.cuda.empty_cache()
            self._timer.flush_with(self._timer.flush_buffer())

    def _clear(self, arm: Arm) -> None:
        """Let go of the arm's layouts; what the flush writes to lies in one of them."""
        self._timer.flush_with(torch.empty(0, dtype=torch.uint8, device=self._timer.device))
        arm.clear()

    def _let_go(self) -> None:
        if self._slab is not None:
            self._slab.close()
            self._slab = self._lender = None

    def _direct(self) -> Callable[[], object]:
        return self.current.layout.places[0].call

    def _shared(self, request: dict[str, Any]) -> Slab | None:
        return self._slab if request.get("shared") and not self.current.case.modifies else None

    def _laid_out(self, request: dict[str, Any], slab: Slab | None) -> Layout:
        arm = self.current
        first, number = int(request["first"]), int(request["places"])
        return lay_out(arm.case, arm.params, arm.masters, self._timer, first, number, slab)

    def _prepare(self, request: dict[str, Any]) -> tuple[int, ...]:
        """The next block's layout, inputs not filled in; where these lie in the slab."""
        layout = self._laid_out(request, self._shared(request))
        self.current.ahead = layout
        if request["replayed"]:
            self._captured(layout, request)
        return layout.offsets

    def _move_to(self, first: int) -> Layout | None:
        """Go over to the prepared layout, if it is that one. The one left behind is to be cleared."""
        arm = self.current
        if arm.ahead is None or arm.ahead.first != first:
            return None
        past, arm.layout, arm.ahead = arm.layout, arm.ahead, None
        self._timer.flush_with(arm.layout.flush)
        return past

    def _taken(self, request: dict[str, Any], baton: Baton, turn: int) -> dict[str, Any]:
        """A turn, timed: the baton goes on as soon as the GPU is free."""
        began, times = time.perf_counter(), []

        def done() -> None:
            times.append(time.perf_counter())
            baton.pass_on(turn)

        figures = self._round(request, done)
        if not times:
            done()
        return {"turn": turn, "began": began, "ended": times[0], "worker_s": time.perf_counter() - began, **figures}

    def _round(self, request: dict[str, Any], done: Callable[[], None]) -> dict[str, Any]:
        layout, cache = self.current.layout, request.get("cache", COLD)
        samples, calls = int(request.get("samples", 10)), int(request.get("calls", 1))
        if request.get("replayed"):
            turn = self._captured(layout, request)
            return asdict(self._timer.replay(turn, samples, cache=cache, calls=calls, done=done))
        with allocating(layout.pool):
            places = layout.calls(cache, int(request.get("place", 0)))
            if layout.fresh:
                for each in places:
                    for _ in range(FEW_CALLS):
                        each()
            layout.fresh = False
            return asdict(self._timer.round(Cycle(places), samples, cache=cache))

    def _too_short(self, request: dict[str, Any]) -> str | None:
        if int(request.get("calls", 1)) > 1 and not request.get("replayed"):
            return "too short for one call a sample, and its calls cannot be captured"
        return None

    def _captured(self, layout: Layout, request: dict[str, Any]) -> CapturedTurn:
        """The turn's graph in this layout."""
        cache, calls = request.get("cache", COLD), int(request.get("calls", 1))
        samples = min(int(request.get("samples", 10)), max(_FEWEST_WINDOWS, _MOST_CALLS_CAPTURED // calls))
        key = cache, calls, samples
        if key not in layout.turns:
            places = layout.calls(cache, int(request.get("place", 0)))
            flush = layout.flush if cache == COLD else None
            layout.turns[key] = self._timer.capture(places, samples, calls=calls, flush=flush, pool=layout.pool)
        return layout.turns[key]

    def _first_call(self, arm: Arm, pinned: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        with observe.tuned(pinned) as chosen, observe.launches() as launched:
            arm.layout.places[0].call()
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


def _longest_wait(turns: Sequence[int]) -> int:
    """Before which of its turns an arm waits longest: the last of those."""
    waits = [after - before for before, after in itertools.pairwise(turns)]
    return max(range(1, len(turns)), key=lambda number: (waits[number - 1], number)) if waits else 0


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]
