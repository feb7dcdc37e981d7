"""The worker of the stages that need a GPU: correctness and timing, one environment and one GPU each.

Requests (all answered by ``{"id", "part": {outcome, reason, ...}}`` and ``{"id", "done": true}``):

==============  =====================================================================================
op              what it does
==============  =====================================================================================
``device``      name, capability, multiprocessors, memory and L2 of the GPU
``correctness``  ``path, case, params[, dimensions, seed]``: see :mod:`matrix.worker.check`
``slab_lend``   make memory that other workers may map; how to
``slab_borrow``  ``slab, path, bytes``: map it
``arm_open``    ``path, case, params[, places, share, shared, pinned]``: inputs, first call, places, warm-up
``arm_place``   ``first, places[, shared, fill]``: a fresh layout
``arm_fill``    ``first``: the inputs of the layout that was prepared
``arm_estimate``  what a call takes
``arm_round``   ``samples, cache, calls, place, replayed``: raw samples of the open arm
``arm_rounds``  the same and ``turns, baton, first[, ahead]``: of several turns, as the baton comes
``arm_traffic``  bytes moved and operations of the open arm's call
``arm_close``   free the arm's memory
``competitor``  ``samples``: the open arm's competitor, timed likewise
``overhead``    ``calls``: host time of each call of the open arm
``naive``       ``samples``: the open arm by a timer with none of the precautions
``ceilings``    copy bandwidth and matrix rate
``spin``        ``duration_ns, samples``: a kernel of known duration, by the timer and by the GPU's clock
``unwarmed``, ``gaps``, ``disturbed``  a timer with one precaution left out: :mod:`matrix.worker.traps`
==============  =====================================================================================

After a CUDA error the context is poisoned: the reply says ``restart`` and the process ends.
"""

from __future__ import annotations

import gc
import time

import torch

from matrix.worker import ceilings, failures
from matrix.worker.arms import Arms
from matrix.worker.check import Checker
from matrix.worker.cuda import is_cuda_error, outcome_of
from matrix.worker.instruments import Spin
from matrix.worker.replies import passed
from matrix.worker.timing import WARM, Timer
from matrix.worker.traps import Traps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The exit code that says "start me anew, this was no crash of the protocol".
POISONED = 75


class GpuWorker:
    """Answers requests for the GPU that the process was given (``CUDA_VISIBLE_DEVICES``)."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        torch.cuda.init()
        # What is imported stays: collecting garbage between cells need not look at it again.
        gc.freeze()
        self._timer = Timer()
        self._arms = Arms(self._timer)
        self._checker = Checker(self._timer.device)
        self._answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "device": self._device,
            "correctness": self._checker.check,
            "slab_lend": self._arms.lend,
            "slab_borrow": self._arms.borrow,
            "arm_open": self._arms.open,
            "arm_place": self._arms.place,
            "arm_estimate": self._arms.estimate,
            "arm_fill": self._arms.fill,
            "arm_round": self._arms.round,
            "arm_rounds": self._arms.rounds,
            "arm_traffic": self._arms.traffic,
            "competitor": self._arms.competitor,
            "arm_close": self._close,
            "overhead": self._arms.overhead,
            "naive": self._arms.naive,
            "ceilings": lambda request: passed(ceilings.measure(self._timer)),
            "spin": self._spin,
            **Traps(self._timer, self._arms).answers(),
        }

    def answer(self, request: dict[str, Any]) -> None:
        started = time.perf_counter()
        restart = False
        try:
            result = self._answers[request["op"]](request)
            restart = bool(result.get("restart"))
        except Exception as error:
            restart = is_cuda_error(error)
            result = {
                "outcome": outcome_of(error),
                "reason": failures.reason(error),
                "detail": failures.detail(error),
                "restart": restart,
            }
        part = {"config": "", "detail": "", "kernels": [], **result, "seconds": time.perf_counter() - started}
        self._send({"id": request["id"], "part": part})
        self._send({"id": request["id"], "done": True})
        if restart:
            raise SystemExit(POISONED)

    def _close(self, _: dict[str, Any]) -> dict[str, Any]:
        self._arms.close()
        return passed({})

    def _device(self, request: dict[str, Any]) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self._timer.device)
        return passed(
            {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "capability": [properties.major, properties.minor],
                "multiprocessors": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
                "l2_bytes": self._timer.l2_bytes,
                "flush_bytes": self._timer.flush_bytes,
                "cuda": torch.version.cuda,
            }
        )

    def _spin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Windows of the spin and of one of no duration (what a window costs by itself), each with the
        GPU's own ``[start, end]`` in ns.
        """
        samples = int(request.get("samples", 20))
        figures = {}
        for name, duration in (("spin", int(request["duration_ns"])), ("empty", 0)):
            spin = Spin(self._timer.device, duration, samples)
            self._timer.warm_up(spin, 5.0)
            self._timer.forget()
            spin.restart()
            # A repeated round would go over the marks again; the last one's stay.
            result = self._timer.round(lambda spin=spin: spin(), samples, cache=WARM)  # type: ignore[misc]
            marks = spin.marks()
            figures[name] = {"samples_us": result.samples_us, "marks_ns": marks, "queue_full": result.queue_full}
        return passed(figures)
