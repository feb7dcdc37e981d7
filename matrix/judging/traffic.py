"""What moved in a kernel's memory traffic, in words, and whether two evaluations can be compared at all.

The figures come from :mod:`matrix.memory`; which of them is a risk is decided in :mod:`matrix.judging.code_risk`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from matrix.memory.cost import busy_by_ptx, estimate_us

if TYPE_CHECKING:
    from matrix.judging.thresholds import Thresholds
    from matrix.records import KernelFacts


class Resource(enum.StrEnum):
    """What a launch may be bound by, as a finding tells it."""

    SHARED = "shared"
    GLOBAL = "global"
    EXECUTION = "execution"
    SPILLS = "spills"
    WAITING = "waiting"


_RESOURCES = {
    "shared": Resource.SHARED,
    "l2": Resource.GLOBAL,
    "dram": Resource.GLOBAL,
    "local": Resource.SPILLS,
    "latency": Resource.WAITING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Two launches side by side: estimates in microseconds, and what moved most with its two figures."""

    estimates: tuple[float, float]
    resource: Resource
    values: tuple[float, float]
    text: str


def compared(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> Traffic | None:
    """None where either side was not evaluated, or too much of its traffic is unknown."""
    if not (_known(baseline, thresholds) and _known(candidate, thresholds)):
        return None
    weighed = baseline.machine_instructions is not None and candidate.machine_instructions is not None
    before, after = (_busy(facts, weighed=weighed) for facts in (baseline, candidate))
    moved = {name: abs(after.get(name, 0.0) ** 2 - before.get(name, 0.0) ** 2) for name in {**before, **after}}
    most = max(moved, key=lambda name: moved[name])
    resource = _RESOURCES.get(most, Resource.EXECUTION)
    values = _figure(baseline, resource, weighed=weighed), _figure(candidate, resource, weighed=weighed)
    return Traffic(
        estimates=(estimate_us(before), estimate_us(after)),
        resource=resource,
        values=values,
        text=_text(baseline, candidate, resource, values),
    )


def _known(facts: KernelFacts, thresholds: Thresholds) -> bool:
    known = facts.busy_us and facts.memory_unknown is not None and not (facts.memory_note or "").startswith("cut")
    return bool(known) and (facts.memory_unknown or 0.0) <= thresholds.unknown_share


def _busy(facts: KernelFacts, *, weighed: bool) -> dict[str, float]:
    """A launch's busy times; by the PTX's instructions where one side's machine code could not be weighed."""
    busy = facts.busy_us or {}
    if weighed:
        return dict(busy)
    return busy_by_ptx(busy, facts.executed_instructions or 0.0, facts.machine_instructions)


def _figure(facts: KernelFacts, resource: Resource, *, weighed: bool) -> float:
    match resource:
        case Resource.SHARED:
            return facts.shared_wavefronts or 0.0
        case Resource.GLOBAL:
            return (facts.global_load_sectors or 0.0) + (facts.global_store_sectors or 0.0)
        case Resource.EXECUTION:
            return (facts.machine_instructions if weighed else facts.executed_instructions) or 0.0
        case Resource.SPILLS:
            return facts.local_sectors or 0.0
        case Resource.WAITING:
            return facts.warp_clocks or 0.0
        case _:
            assert_never(resource)


def _text(baseline: KernelFacts, candidate: KernelFacts, resource: Resource, values: tuple[float, float]) -> str:
    step = f"{values[0]:.0f} to {values[1]:.0f} a block"
    worse = candidate if values[1] >= values[0] else baseline
    match resource:
        case Resource.SHARED:
            ideal = worse.shared_wavefronts_ideal or 0.0
            return f"shared memory wavefronts {step}{_why(worse, max(values), ideal, 'wavefronts', 'bank conflicts')}"
        case Resource.GLOBAL:
            ideal = worse.global_sectors_ideal or 0.0
            return f"global memory sectors {step}{_why(worse, max(values), ideal, 'sectors', 'accesses apart')}"
        case Resource.EXECUTION:
            return f"warp instructions executed {step}"
        case Resource.SPILLS:
            return f"sectors that spilled registers move {step}"
        case Resource.WAITING:
            return f"one warp alone takes {values[0]:.0f} to {values[1]:.0f} clocks"
        case _:
            assert_never(resource)


_NOTABLE = 1.25  # times the ideal; below it there is more to do, not worse done


def _why(worse: KernelFacts, value: float, ideal: float, name: str, reason: str) -> str:
    """Where the excess over the ideal is, if it is what there is more of."""
    if not ideal or value < ideal * _NOTABLE:
        return ""
    lines = worse.memory_lines or []
    line = max(lines, key=lambda row: float(row[name]) - float(row[f"{name}_ideal"]), default=None)
    place = f" at {line['file']}:{line['line']}" if line and line["file"] else ""
    return f" ({ideal:.0f} would do): {reason}{place}"
