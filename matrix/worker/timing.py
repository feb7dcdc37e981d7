"""The timer: CUDA events around each call, in a queue that is never empty. The same in every environment.

How launch gaps stay out. Where the calls can be captured, a turn of samples is one CUDA graph, events and flushes
included (:mod:`graphs`). Where they cannot, a blocker (a device-side spin) is enqueued first; while it runs, the
host gets ahead of the GPU. After a sample's last event is enqueued, the timer asks whether the GPU has already
passed the sample's first event: as long as it has not, everything in the window was queued before the
window began, and no wait for the host can lie in it. A sample that fails this is *late*; the round is
then repeated behind a longer blocker, and a round that stays late is handed back with ``queue_full``
false, never silently.

*Cold* samples each follow a write of at least twice the device's L2; *warm* ones do not. Calls under 10 us are many
to a sample (``calls``), in a captured turn only.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch

from matrix.worker import cuda
from matrix.worker.graphs import CapturedTurn
from matrix.worker.instruments import Stamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

COLD, WARM = "cold", "warm"
WARMUP_CALLS = 20
FLUSH_FACTOR = 2
_ATTEMPTS = 4
_DIGITS = 4  # of a sample in us; events are no finer than that
# torch.cuda._sleep counts cycles; at more MHz than any GPU runs, a blocker is only ever longer than asked.
_BLOCKER_MHZ = 2200
_LONGEST_BLOCKER_US = 200_000.0
# The first launches of a round take the host longer than those that follow.
_BLOCKER_MARGIN_US = 200.0
_LARGEST_MARGIN_US = 3_000.0
_HELD_BACK_A_CALL_US = 60.0


@dataclass(frozen=True)
class Round:
    """One arm's turn: raw samples in us (of one call each), and what shows that they may be used."""

    samples_us: list[float]
    calls: int  # calls in each sample's window; over 1 in a captured turn only
    cache: str
    queue_full: bool
    busy_us: float  # GPU time from the end of the blocker to the end of the last sample
    clock_mhz: float | None
    warmup_us: float = 0.0  # GPU time of what was replayed and is no sample


@dataclass
class _Pace:
    """How fast host and GPU get through a sample; decides how long the next blocker has to be."""

    enqueue_us: float = 100.0
    busy_us: float = 0.0
    margin_us: float = _BLOCKER_MARGIN_US

    def blocker_us(self, samples: int) -> float:
        """Long enough that the host stays ahead: the worst lag over the samples, doubled, and a margin."""
        gain = self.busy_us - self.enqueue_us
        lag = self.enqueue_us - min(0.0, gain) * (samples - 1)
        return min(2.0 * lag + self.margin_us, _LONGEST_BLOCKER_US)


@dataclass
class _Turn:
    """What one attempt at a round recorded."""

    starts: list[torch.cuda.Event]
    ends: list[torch.cuda.Event]
    released: torch.cuda.Event
    finished: torch.cuda.Event
    late: int = 0
    enqueue_us: float = 0.0
    samples_us: list[float] = field(default_factory=list)


class Timer:
    """Times calls on the current device."""

    def __init__(self) -> None:
        self.device = cuda.current_device()
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = int(properties.L2_cache_size)
        self.flush_bytes = max(FLUSH_FACTOR * self.l2_bytes, 16 << 20)
        self._flush = self.flush_buffer()
        self._stamps = _working_stamps(self.device, properties.multi_processor_count)
        self._events: list[torch.cuda.Event] = []
        self._paces: dict[str, _Pace] = {}

    def forget(self) -> None:
        """Start with fresh estimates: another kernel follows."""
        self._paces.clear()

    def flush_buffer(self) -> torch.Tensor:
        """Memory for a flush to write to: twice the L2."""
        return torch.empty(self.flush_bytes, dtype=torch.uint8, device=self.device)

    def flush_with(self, buffer: torch.Tensor) -> None:
        """Have the flush write there: what it leaves in the L2 is part of every cold sample."""
        self._flush = buffer

    def flush(self) -> None:
        """Enqueue a write of twice the L2."""
        self._flush.zero_()

    def capture(
        self,
        places: Sequence[Callable[[], object]],
        samples: int,
        *,
        calls: int,
        flush: torch.Tensor | None,
        pool: Any = None,
    ) -> CapturedTurn:
        """A turn of ``samples`` windows, a write of ``flush`` before each where it is given.

        Raises ``RuntimeError`` where it cannot be captured.
        """
        events = self._some_events(2 * samples + 4)[2:]
        around = functools.partial(self._stamp, 0), functools.partial(self._stamp, 1)
        flushing = None if flush is None else flush.zero_
        return CapturedTurn(places, events, calls=calls, flush=flushing, around=around, pool=pool)

    def replay(
        self, turn: CapturedTurn, samples: int, *, cache: str, calls: int, done: Callable[[], None] = lambda: None
    ) -> Round:
        """At least ``samples`` windows of a captured turn, by as many replays as that takes.

        The first replay of all is a warm-up. ``done`` is called once the GPU has nothing more to do; what it
        measured is read after that. The clock is the median of the replays'.
        """
        found: list[float] = []
        clocks: list[float] = []
        first, last = self._some_events(2)
        warm, turn.fresh = turn.fresh, False
        busy_us = warmup_us = 0.0
        torch.cuda.synchronize(self.device)
        while len(found) < samples:
            if warm and not found:
                first.record()
                turn.replay()
                last.record()
            turn.replay()
            torch.cuda.synchronize(self.device)
            if len(found) + turn.windows >= samples:
                done()
            if warm and not found:
                warmup_us = 1e3 * first.elapsed_time(last)
            busy_us += turn.busy_us()
            found += turn.samples_us()
            clocks += [clock] if (clock := self._clock_mhz()) else []
        return Round(
            samples_us=[round(us / calls, _DIGITS) for us in found],
            calls=calls,
            cache=cache,
            queue_full=True,
            busy_us=busy_us,
            warmup_us=warmup_us,
            clock_mhz=statistics.median(clocks) if clocks else None,
        )

    def _clock_mhz(self) -> float | None:
        return self._stamps.clock_mhz() if self._stamps else None

    def _stamp(self, which: int) -> None:
        if self._stamps:
            self._stamps.put(which)
            if which:
                self._stamps.fetch()

    def round(self, call: Callable[[], object], samples: int, *, cache: str = COLD) -> Round:
        """Time ``samples`` windows of ``call``."""
        pace = self._paces.setdefault(cache, _Pace())
        blocker_us, attempt = pace.blocker_us(samples), 0
        while True:
            attempt += 1
            turn = self._turn(call, samples, cache == COLD, blocker_us)
            busy_us = turn.released.elapsed_time(turn.finished) * 1e3
            pace.enqueue_us, pace.busy_us = turn.enqueue_us / samples, busy_us / samples
            if not turn.late or attempt == _ATTEMPTS:
                break
            # What was too short a start once will be again: the rounds to come begin with more.
            pace.margin_us = min(2.0 * pace.margin_us, _LARGEST_MARGIN_US)
            blocker_us = min(max(3.0 * blocker_us, pace.blocker_us(samples)), _LONGEST_BLOCKER_US)
        return Round(
            samples_us=turn.samples_us,
            calls=1,
            cache=cache,
            queue_full=turn.late == 0,
            busy_us=busy_us,
            clock_mhz=self._clock_mhz(),
        )

    def _turn(self, call: Callable[[], object], samples: int, cold: bool, blocker_us: float) -> _Turn:
        turn = self._take_events(samples)
        torch.cuda.synchronize(self.device)
        if blocker_us:
            torch.cuda._sleep(int(blocker_us * _BLOCKER_MHZ))
        turn.released.record()
        self._stamp(0)
        began = time.perf_counter_ns()
        for start, end in zip(turn.starts, turn.ends):
            if cold:
                self._flush.zero_()
            start.record()
            call()
            end.record()
            # Passed already: the GPU may have waited for the host inside this window.
            turn.late += start.query()
        turn.enqueue_us = (time.perf_counter_ns() - began) / 1e3
        self._stamp(1)
        turn.finished.record()
        turn.finished.synchronize()
        turn.samples_us = [round(1e3 * start.elapsed_time(end), _DIGITS) for start, end in zip(turn.starts, turn.ends)]
        return turn

    def _take_events(self, samples: int) -> _Turn:
        first, last, *others = self._some_events(2 * samples + 2)
        return _Turn(others[::2], others[1::2], first, last)

    def _some_events(self, number: int) -> list[torch.cuda.Event]:
        while len(self._events) < number:
            self._events.append(torch.cuda.Event(enable_timing=True))
        return self._events[:number]

    def unguarded(self, call: Callable[[], object], samples: int) -> list[float]:
        """Windows in us with no blocker and the queue drained before each: what a naive timer reports."""
        turn = self._take_events(samples)
        for start, end in zip(turn.starts, turn.ends):
            torch.cuda.synchronize(self.device)
            start.record()
            call()
            end.record()
        torch.cuda.synchronize(self.device)
        return [1e3 * start.elapsed_time(end) for start, end in zip(turn.starts, turn.ends)]

    def overhead(self, call: Callable[[], object], calls: int) -> list[float]:
        """Host time of each call in us, the GPU held back so that it never slows the host down."""
        times = []
        torch.cuda.synchronize(self.device)
        torch.cuda._sleep(int(min(_HELD_BACK_A_CALL_US * calls, _LONGEST_BLOCKER_US) * _BLOCKER_MHZ))
        for _ in range(calls):
            began = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - began) / 1e3)
        torch.cuda.synchronize(self.device)
        return times

    def warm_up(self, call: Callable[[], object], milliseconds: float) -> tuple[int, float]:
        """Call at least :data:`WARMUP_CALLS` times and for at least so long. Returns calls and milliseconds."""
        began, calls = time.perf_counter(), 0
        while True:
            call()
            calls += 1
            if calls % 10 == 0:
                torch.cuda.synchronize(self.device)
                spent = 1e3 * (time.perf_counter() - began)
                if calls >= WARMUP_CALLS and spent >= milliseconds:
                    return calls, spent


def _working_stamps(device: torch.device, multiprocessors: int) -> Stamps | None:
    """Stamps, compiled; None where the Triton under test cannot compile them: times stand without cycles."""
    stamps = Stamps(device, multiprocessors)
    try:
        stamps.put(0)
        stamps.put(1)
        torch.cuda.synchronize(device)
    except Exception as error:  # whatever a release's compiler raises
        sys.stderr.write(f"clock stamps do not work here: {error!r}\n")
        return None
    return stamps
