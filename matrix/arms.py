"""An arm of a timing: the seam between the order of a measurement and what is measured.

On a host with a GPU an arm is a resident worker (:class:`WorkerArm`). The tests of :mod:`matrix.timing` drive
it with arms made of numbers, so that nothing there needs a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from matrix.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COLD, WARM = "cold", "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An arm that is ready, with what its first calls showed."""

    estimate_us: Mapping[str, float]
    kernels: tuple[Mapping[str, Any], ...] = ()
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first_call_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One arm's turn in one round: raw samples in us, and whether they may be used."""

    samples_us: tuple[float, ...]
    queue_full: bool = True
    clock_mhz: float | None = None
    busy_us: float = 0.0
    attempts: int = 1


class ArmFailed(Exception):
    """An arm could not be opened or timed; carries the cell's outcome."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = reason


class Arm(Protocol):
    """One environment's kernel, resident on the GPU. Every method may raise :class:`ArmFailed`."""

    @property
    def name(self) -> str: ...

    def open(self, placement: int, *, estimate: bool) -> Opened: ...

    def round(self, samples: int, cache: str, calls: int) -> Round: ...

    def close(self, *, forget: bool) -> None: ...


class WorkerArm:
    """An arm served by a resident worker. ``ask`` sends one request and returns the reply's part."""

    def __init__(
        self,
        name: str,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        path: str,
        case: str,
        params: Mapping[str, Any],
        pinned: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self._ask = ask
        self._cell = {"path": path, "case": case, "params": dict(params), "pinned": dict(pinned or {})}

    def open(self, placement: int, *, estimate: bool) -> Opened:
        part = self._part({"op": "arm_open", **self._cell, "placement": placement, "estimate": estimate})
        return Opened(
            estimate_us=part["estimate_us"],
            kernels=tuple(part["kernels"]),
            configurations=part["configurations"],
            first_call_seconds=part["first_call_seconds"],
        )

    def round(self, samples: int, cache: str, calls: int) -> Round:
        part = self._part({"op": "arm_round", "samples": samples, "cache": cache, "calls": calls})
        return Round(
            samples_us=tuple(part["samples_us"]),
            queue_full=part["queue_full"],
            clock_mhz=part["clock_mhz"],
            busy_us=part["busy_us"],
            attempts=part["attempts"],
        )

    def close(self, *, forget: bool) -> None:
        self._part({"op": "arm_close", "forget": forget})

    def _part(self, request: dict[str, Any]) -> dict[str, Any]:
        part = self._ask(request)
        if part["outcome"] != Outcome.PASSED:
            raise ArmFailed(Outcome(part["outcome"]), part.get("reason", ""))
        return part
