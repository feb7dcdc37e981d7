"""Calls captured as a CUDA graph: many to a sample, or one at a fraction of the host's time."""

from __future__ import annotations

import contextlib

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def capture(call: Callable[[], object], calls: int) -> Callable[[], object]:
    """The replay of ``calls`` calls. Raises ``RuntimeError`` where they cannot be captured.

    By hand and not through ``torch.cuda.graph``, which collects garbage and empties the cache each time.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(calls):
                call()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the capture is broken already, and the cause is raised
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph.replay
