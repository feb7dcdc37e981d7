"""CUDA graphs: a call captured, and a whole turn of samples captured with the windows around them.

How launch gaps stay out of a captured turn: between a window's two events lies nothing that the host has a part
in. Flush, first event, calls and second event are nodes of one graph, so that the GPU has all of them before it
begins with the first. And what a launch itself costs is averaged over: on an H200 it differs by 0.1 to 0.5 us
with where the launch lies in memory, by process and from turn to turn, and in a captured turn every sample's
launch lies elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes

import torch

from matrix.worker.driver import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

# Of cuda.h: CU_EVENT_RECORD_EXTERNAL, a node of the graph and not an edge in it.
_EXTERNAL = 1


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[torch.cuda.Stream]:
    """What is called meanwhile becomes nodes of ``graph``; what it allocates lies in ``pool``, or in the graph's own.

    Raises ``RuntimeError`` where something cannot be captured. By hand and not through ``torch.cuda.graph``, which
    collects garbage and empties the cache each time.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        where = {} if pool is None else {"pool": pool.id}
        graph.capture_begin(capture_error_mode="thread_local", **where)
        try:
            yield stream
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the capture is broken already, and the cause is raised
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)


def capture(call: Callable[[], object]) -> Callable[[], object]:
    """The replay of a call. Raises ``RuntimeError`` where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        call()
    return graph.replay


class CapturedTurn:
    """A graph of samples: before each a flush where there is one, and in each as many calls as told.

    ``places`` are the callables to go round in. The results of each are kept until its next call, so that they
    have outputs of their own. ``around`` are called before the first sample and after the last. The first two of
    ``events`` mark the beginning and the end of all, every further two a window.
    """

    def __init__(
        self,
        places: Sequence[Callable[[], object]],
        events: Sequence[torch.cuda.Event],
        *,
        calls: int,
        flush: Callable[[], object] | None,
        around: tuple[Callable[[], object], Callable[[], object]],
        pool: Any = None,
    ) -> None:
        self._whole, *self._windows = list(zip(events[::2], events[1::2]))
        self.windows = len(self._windows)
        self._graph = torch.cuda.CUDAGraph()
        for event in events:
            if not event.cuda_event:  # torch makes an event when it is first recorded
                event.record()
        results: dict[int, object] = {}
        before, after = around
        with capturing(self._graph, pool) as stream:
            before()
            _record(self._whole[0], stream)
            for number, (start, end) in enumerate(self._windows):
                if flush is not None:
                    flush()
                _record(start, stream)
                for _ in range(calls):
                    results[number % len(places)] = None
                    results[number % len(places)] = places[number % len(places)]()
                _record(end, stream)
            _record(self._whole[1], stream)
            after()
        self.replay = self._graph.replay
        self.fresh = True  # until it was first replayed

    def busy_us(self) -> float:
        """From the beginning of the last replay to the end of its last window, once it has ended."""
        return 1e3 * self._whole[0].elapsed_time(self._whole[1])

    def samples_us(self) -> list[float]:
        """The windows of the last replay, once it has ended."""
        return [1e3 * start.elapsed_time(end) for start, end in self._windows]


def _record(event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
    handles = ctypes.c_void_p(event.cuda_event), ctypes.c_void_p(stream.cuda_stream)
    checked("cuEventRecordWithFlags", *handles, ctypes.c_uint(_EXTERNAL))
