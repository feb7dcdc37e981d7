"""Proving the instrument on a GPU: what the workers are asked, in which order.

``ask`` sends one request to a worker and returns the reply's part, as :meth:`matrix.gpus.crew.Crew.ask` does.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matrix.gpus import instrument
from matrix.gpus.arms import ArmFailed, WorkerArm
from matrix.gpus.timing import TimingPlan, measure
from matrix.judging.statistics import block_values, midmean
from matrix.resources import worker_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matrix.gpus.instrument import Proof
    from matrix.gpus.nvml import Reading
    from matrix.gpus.timing import TimingRecord
    from matrix.judging.statistics import StoppingRule

    Ask = Callable[[dict[str, Any]], dict[str, Any]]

CASES = worker_file("planted.py")
ARMS = ("baseline", "candidate", "control")
_SPINS_NS = (20_000, 100_000, 1_000_000, 10_000_000)
_SHORT_SPINS_NS = _SPINS_NS[:3]
_SPIN_SAMPLES = 30
_SHORT_SPIN_SAMPLES = 20
_GAP_NS = 5_000
_EXTRAS = (1, 2, 5)
_STREAM: Mapping[str, Any] = {"n": 1 << 26}
_FMA: Mapping[str, Any] = {"n": 1 << 21, "steps": 2000}
# Compiled for nothing else in the same worker.
_FRESH: Mapping[str, Any] = {**_FMA, "block": 256}
_FIRST_CALLS = 20
_EVERY, _HELD_SAMPLES = 20, 200
_TRAP_SAMPLES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The workers of one GPU: ``asks`` by the names in :data:`ARMS`, and a reading of its clocks and counters."""

    asks: Mapping[str, Ask]
    read: Callable[[], Reading] | None
    plan: TimingPlan = field(default_factory=TimingPlan)


def short(ask: Ask, measured: Mapping[str, Any] | None = None) -> list[Proof]:
    """What every timing run begins with: three spins and the ceilings. A second or two.

    ``measured`` are the ceilings where they are known already.
    """
    found = [_spin(ask, duration, _SHORT_SPIN_SAMPLES) for duration in _SHORT_SPINS_NS]
    part = {"outcome": "passed", **measured} if measured else ask({"op": "ceilings"})
    return [*found, instrument.ceilings(part)]


def prove(subject: Subject, say: Callable[[str], None]) -> Iterator[Proof]:
    """Every proof, each as soon as it is there."""
    ask = subject.asks[ARMS[0]]
    say("first calls")
    yield _first_call(ask)  # before anything else compiles in this worker
    say("kernels of known duration")
    for duration in _SPINS_NS:
        yield _spin(ask, duration, _SPIN_SAMPLES)
    yield _gaps(ask)
    yield from _launch_only(ask)
    yield _warm(ask)
    yield _mean(ask)
    ask({"op": "arm_close"})
    for name, base in (("stream", _STREAM), ("fma", _FMA)):
        for extra in (0, *_EXTRAS):
            say(f"{name} with {extra} % more work")
            yield _compared(subject, name, base, extra)
    yield instrument.ceilings(ask({"op": "ceilings"}))


def _spin(ask: Ask, duration_ns: int, samples: int) -> Proof:
    return instrument.spin(ask({"op": "spin", "duration_ns": duration_ns, "samples": samples}), duration_ns)


def _gaps(ask: Ask) -> Proof:
    """The proof of the full queue: a kernel of 5 us, with and without it."""
    name, duration = "launch gaps", {"duration_ns": _GAP_NS, "samples": _TRAP_SAMPLES}
    full, empty = ask({"op": "spin", **duration}), ask({"op": "gaps", **duration})
    for part in (full, empty):
        if part["outcome"] != "passed":
            return instrument.failed(f"trap: {name}", part)
    guarded = statistics.median(full["spin"]["samples_us"])
    return instrument.trap(name, statistics.median(empty["samples_us"]), guarded, "a queue that runs empty")


def _first_call(ask: Ask) -> Proof:
    name = "first call included"
    request = {"path": str(CASES), "case": "planted_fma", "params": dict(_FRESH)}
    raw = ask({"op": "unwarmed", **request, "samples": _FIRST_CALLS})
    timed = _opened(ask, "planted_fma", _FRESH)
    for part in (raw, timed):
        if part["outcome"] != "passed":
            return instrument.failed(f"trap: {name}", part)
    how = f"the mean of {_FIRST_CALLS} calls from the first on"
    return instrument.trap(name, statistics.fmean(raw["samples_us"]), statistics.median(timed["samples_us"]), how)


def _launch_only(ask: Ask) -> Iterator[Proof]:
    name = "timing the launch only"
    timed = _opened(ask, "planted_stream", {"n": 1 << 28})
    launches = ask({"op": "overhead", "calls": _TRAP_SAMPLES}) if timed["outcome"] == "passed" else timed
    if launches["outcome"] != "passed":
        yield instrument.failed(f"trap: {name}", launches)
        return
    true = statistics.median(timed["samples_us"])
    yield instrument.trap(
        name, statistics.median(launches["host_us"]), true, "the host's clock, not waiting for the GPU"
    )


def _warm(ask: Ask) -> Proof:
    """Half of the L2 read and written: in a loop without a flush it is all found there."""
    name = "warm L2"
    device = ask({"op": "device"})
    if device["outcome"] != "passed":
        return instrument.failed(f"trap: {name}", device)
    cold = _opened(ask, "planted_stream", {"n": int(device["l2_bytes"]) // 16 // 2048 * 2048})
    warm = _round(ask, "warm") if cold["outcome"] == "passed" else cold
    if warm["outcome"] != "passed":
        return instrument.failed(f"trap: {name}", warm)
    figures = [statistics.median(part["samples_us"]) for part in (warm, cold)]
    return instrument.trap(name, figures[0], figures[1], "a loop without a flush")


def _mean(ask: Ask) -> Proof:
    """One call in twenty held up, as by another process: what the mean makes of it, and what the median."""
    name = "mean instead of median"
    timed = _opened(ask, "planted_fma", _FMA)
    request = {"op": "disturbed", "every": _EVERY, "samples": _HELD_SAMPLES}
    held = ask(request) if timed["outcome"] == "passed" else timed
    if held["outcome"] != "passed":
        return instrument.failed(f"trap: {name}", held)
    how = f"the mean, one call in {_EVERY} held up by about 1 ms,"
    proof = instrument.trap(name, statistics.fmean(held["samples_us"]), statistics.median(timed["samples_us"]), how)
    return instrument.unmoved(proof, statistics.median(held["samples_us"]), midmean(held["samples_us"]))


def _opened(ask: Ask, case: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Open the case and time it, cold and behind a full queue."""
    part = ask({"op": "arm_open", "path": str(CASES), "case": case, "params": dict(params)})
    return _round(ask, "cold") if part["outcome"] == "passed" else part


def _round(ask: Ask, cache: str) -> dict[str, Any]:
    return ask({"op": "arm_round", "samples": _TRAP_SAMPLES, "cache": cache})


def _compared(subject: Subject, name: str, base: Mapping[str, Any], extra: float) -> Proof:
    extras = dict.fromkeys(ARMS, 0.0) | {ARMS[1]: extra}
    arms = [
        WorkerArm(
            arm,
            subject.asks[arm],
            path=str(CASES),
            case=f"planted_{name}",
            params={**base, "extra": extras[arm]},
        )
        for arm in ARMS
    ]
    title = f"planted {extra:g} % in {name}" if extra else f"A/A {name}"
    try:
        record = measure(arms[0], [arms[1]], arms[2], plan=subject.plan, read=subject.read)
    except ArmFailed as failure:
        return instrument.failed(title, {"outcome": failure.outcome, "reason": failure.reason})
    finally:
        for arm in arms:
            arm.dismiss()
    return _judged(name, extra, record, subject.plan.rule)


def _judged(name: str, extra: float, record: TimingRecord, rule: StoppingRule) -> Proof:
    blocks = record.log_ratios(ARMS[1])
    ratio, decision = math.exp(float(block_values(blocks).mean())), str(record.decisions[ARMS[1]])
    if extra:
        return instrument.planted(name, extra, ratio, decision, record.problems[ARMS[1]])
    return instrument.agreement(name, ratio, decision, rule.smallest_detectable(blocks, record.log_ratios(ARMS[2])))
