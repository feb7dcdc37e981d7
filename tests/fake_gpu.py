"""A worker with a fake GPU: ``torch.cuda`` answered by a clock of ours, kernels run by the interpreter.

Started in place of the worker's ``__main__`` (with ``TRITON_INTERPRET=1``). Shows that requests are answered
and that the queue's state is judged; no figure of it means anything. Every recorded event takes 20 us of
the fake GPU's time after all that was queued before it.
"""

import contextlib
import gc
import importlib.util
import pathlib
import sys
import time
import types
from typing import ClassVar

gc.disable()  # while torch is imported, as in a warm parent: a worker with a fake GPU has none
import torch  # noqa: E402

gc.enable()

EVENT_S = 20e-6


class Clock:
    ahead = 0.0  # when the fake GPU will have done all that was enqueued, by the host's clock

    @classmethod
    def enqueue(cls, seconds):
        cls.ahead = max(cls.ahead, time.perf_counter()) + seconds
        return cls.ahead

    @classmethod
    def wait(cls):
        time.sleep(max(0.0, cls.ahead - time.perf_counter()))


class Event:
    by_handle: ClassVar = {}

    def __init__(self, *, enable_timing):
        self.at, self.cuda_event = 0.0, 0

    def record(self):
        self.cuda_event = id(self)
        self.by_handle[id(self)] = self
        self.at = Clock.enqueue(EVENT_S)

    def query(self):
        return time.perf_counter() >= self.at

    def synchronize(self):
        time.sleep(max(0.0, self.at - time.perf_counter()))

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3


class Graph:
    """Replays the events that were recorded while it captured, and nothing else."""

    capturing = None

    def capture_begin(self, capture_error_mode, pool=None):
        self.events, Graph.capturing = [], self

    def capture_end(self):
        Graph.capturing = None

    def replay(self):
        for event in self.events:
            event.record()


def driver_call(name, event, stream, flags):
    """In place of the driver: an event becomes a node of the graph that is being captured."""
    assert name == "cuEventRecordWithFlags"
    assert flags.value == 1
    Graph.capturing.events.append(Event.by_handle[event.value])


class Stream:
    cuda_stream = 0

    def wait_stream(self, other):
        pass


def stand_in():
    properties = types.SimpleNamespace(
        name="fake", major=9, minor=0, multi_processor_count=4, total_memory=1 << 30, L2_cache_size=1 << 20
    )
    answers = {
        "init": lambda: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "synchronize": lambda device=None: Clock.wait(),
        "_sleep": lambda cycles: Clock.enqueue(cycles / 2.2e9),
        "empty_cache": lambda: None,
        "memory_allocated": lambda: 0,
        "max_memory_allocated": lambda: 1 << 16,
        "reset_peak_memory_stats": lambda: None,
        "mem_get_info": lambda device=None: (1 << 24, 1 << 24),
        "Event": Event,
        "CUDAGraph": Graph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "cudart": lambda: types.SimpleNamespace(cudaProfilerStart=lambda: 0, cudaProfilerStop=lambda: 0),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


if __name__ == "__main__":
    worker = pathlib.Path(__file__).resolve().parent.parent / "matrix" / "worker" / "__main__.py"
    spec = importlib.util.spec_from_file_location("matrix_worker_main", worker)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._load_package(worker.parent.parent)
    stand_in()
    from matrix.worker import cuda, driver

    driver.checked = driver_call
    cuda.current_device = lambda: torch.device("cpu")
    if len(sys.argv) > 1:
        from matrix.worker.once import main as once

        sys.exit(once(sys.argv[1]))
    from matrix.worker.loop import main

    sys.exit(main())
