"""What a timer reports without one of our precautions: each answers with raw samples, for comparison.

The launch alone is timed by :meth:`matrix.worker.timing.Timer.overhead`, a warm L2 by a warm round.
"""

from __future__ import annotations

import itertools

import torch

from matrix.case import Params
from matrix.worker import cases
from matrix.worker.instruments import Spin
from matrix.worker.replies import passed
from matrix.worker.seeds import inputs_of
from matrix.worker.timing import COLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from matrix.worker.arms import Arms
    from matrix.worker.timing import Timer

# Of torch.cuda._sleep: about a millisecond.
_HELD_CYCLES = 2_000_000


class Traps:
    """The timer with a precaution left out."""

    def __init__(self, timer: Timer, arms: Arms) -> None:
        self._timer = timer
        self._arms = arms

    def answers(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {"unwarmed": self.unwarmed, "gaps": self.gaps, "disturbed": self.disturbed}

    def unwarmed(self, request: dict[str, Any]) -> dict[str, Any]:
        """A case's first calls, compilation and all: ``path, case, params, samples``."""
        self._arms.close()
        case, params = cases.find(request["path"], request["case"]), Params(request["params"])
        inputs = inputs_of(case, params, device=self._timer.device)
        samples = self._timer.unguarded(lambda: cases.call(case.run, inputs, params), int(request["samples"]))
        return passed({"samples_us": samples})

    def gaps(self, request: dict[str, Any]) -> dict[str, Any]:
        """A kernel of known duration in a queue that is empty at each call: ``duration_ns, samples``."""
        samples = int(request["samples"])
        spin = Spin(self._timer.device, int(request["duration_ns"]), samples)
        self._timer.warm_up(spin, 5.0)
        spin.restart()
        return passed({"samples_us": self._timer.unguarded(spin, samples), "marks_ns": spin.marks()})

    def disturbed(self, request: dict[str, Any]) -> dict[str, Any]:
        """The open arm, where every so-many-th call is held up by about 1 ms: ``every, samples``."""
        every, samples = int(request["every"]), int(request["samples"])
        place = self._arms.current.layout.places[0]
        self._timer.forget()
        turns = itertools.count(1)

        def call() -> None:
            if next(turns) % every == 0:
                torch.cuda._sleep(_HELD_CYCLES)
            place.call()

        # A repeated round goes on counting: of its samples as many are held up.
        result = self._timer.round(call, samples, cache=COLD)
        self._timer.forget()
        return passed({"samples_us": result.samples_us, "queue_full": result.queue_full})
