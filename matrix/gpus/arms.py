"""An arm of a timing: the seam between the order of a measurement and what is measured.

On a host with a GPU an arm is a resident worker (:class:`WorkerArm`). The tests of :mod:`matrix.gpus.timing` drive
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
    """An arm that is ready, with what its first call showed. ``places`` is how many sets of buffers its
    share of the memory affords.
    """

    places: int
    capturable: bool
    kernels: tuple[Mapping[str, Any], ...] = ()
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first_call_seconds: float = 0.0
    warmup_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """Device memory that one arm's worker lends to the others, so that all measure in the same place."""

    name: str
    path: str  # of the socket that its file descriptor is had from
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a call takes, by cache."""

    call_us: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What an arm is asked for in one round. ``replayed`` calls come from a CUDA graph.

    Cold samples take the arm's places in turn; warm ones stay at ``place``, whose buffers are what is warm.
    """

    samples: int
    cache: str
    calls: int
    place: int
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One arm's turn in one round: raw samples in us, and whether they may be used."""

    samples_us: tuple[float, ...]
    queue_full: bool = True
    clock_mhz: float | None = None
    busy_us: float = 0.0
    warmup_us: float = 0.0  # GPU time of what was called again before it, on fresh places
    worker_us: float = 0.0  # how long the worker was at it, reading what was measured included
    began: float = 0.0  # of time.perf_counter, which all processes of a host share
    ended: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """An arm's part of a block: the numbers of its turns in the order of all arms' turns.

    ``baton`` is the file of a :class:`matrix.baton.Baton`. The layout that begins with place ``first`` is used;
    ``ahead`` is the first place of the layout to prepare meanwhile, ``places`` how many each has.
    """

    turns: tuple[int, ...]
    baton: str
    first: int
    places: int
    ahead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What an arm measured in its turns, by number; turns that did not come are not in it.

    ``offsets`` are those of the inputs in the layout that was prepared, as of :meth:`Arm.place`.
    """

    rounds: Mapping[int, Round]
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Competition:
    """A case's competitor on this host: name, version and cold samples in us."""

    name: str
    version: str
    samples_us: tuple[float, ...]


class ArmFailed(Exception):
    """An arm could not be opened or timed; carries the arm's name and the cell's outcome."""

    def __init__(self, outcome: Outcome, reason: str, *, arm: str = "", detail: str = "") -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = reason
        self.arm = arm
        self.detail = detail


class Arm(Protocol):
    """One environment's kernel, resident on the GPU. Every method may raise :class:`ArmFailed`.

    ``lend`` and ``borrow`` come first; what they cannot do they say by None and False. ``borrow``, ``open``,
    ``place`` and ``rounds`` may be called of all arms at the same time, everything else of one at a time.
    """

    @property
    def name(self) -> str: ...

    def lend(self) -> Slab | None: ...

    def borrow(self, slab: Slab) -> bool: ...

    def open(self, places: int, share: float, *, shared: bool) -> Opened: ...

    def place(self, first: int, places: int, *, shared: bool, fill: bool) -> tuple[int, ...]: ...

    def fill(self, first: int) -> None: ...

    def estimate(self) -> Estimate: ...

    def rounds(self, turn: Turn, relay: Relay) -> Rounds: ...

    def overhead(self, calls: int) -> tuple[float, ...]: ...


def _asked(turn: Turn) -> dict[str, Any]:
    names = ("samples", "cache", "calls", "place", "replayed")
    return {name: getattr(turn, name) for name in names}


def _round(figures: Mapping[str, Any]) -> Round:
    return Round(
        samples_us=tuple(figures["samples_us"]),
        queue_full=figures["queue_full"],
        clock_mhz=figures["clock_mhz"],
        busy_us=figures["busy_us"],
        warmup_us=figures["warmup_us"],
        worker_us=1e6 * figures["worker_s"],
        began=figures["began"],
        ended=figures["ended"],
    )


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

    def lend(self) -> Slab | None:
        """Memory of this arm's worker that the others may use; None where it has none to share."""
        part = self._ask({"op": "slab_lend"})
        if part["outcome"] != Outcome.PASSED:
            return None
        return Slab(name=part["slab"], path=part["path"], size=part["bytes"])

    def borrow(self, slab: Slab) -> bool:
        """Whether this arm's worker has the slab mapped."""
        part = self._ask({"op": "slab_borrow", "slab": slab.name, "path": slab.path, "bytes": slab.size})
        return bool(part["outcome"] == Outcome.PASSED)

    def open(self, places: int, share: float, *, shared: bool) -> Opened:
        part = self._part({"op": "arm_open", **self._cell, "places": places, "share": share, "shared": shared})
        return Opened(
            places=part["places"],
            capturable=part["capturable"],
            kernels=tuple(part["kernels"]),
            configurations=part["configurations"],
            first_call_seconds=part["first_call_seconds"],
            warmup_us=1e3 * part.get("warmup_ms", 0.0),
        )

    def place(self, first: int, places: int, *, shared: bool, fill: bool) -> tuple[int, ...]:
        """Give the arm a fresh layout; where in the slab its inputs lie, nowhere where they do not (all) lie there.

        Of arms that share, one is to ``fill`` the inputs in.
        """
        request = {"op": "arm_place", "first": first, "places": places, "shared": shared, "fill": fill}
        return tuple(self._part(request)["offsets"])

    def fill(self, first: int) -> None:
        """Write the inputs into the layout that was prepared, for all arms that share it."""
        self._part({"op": "arm_fill", "first": first})

    def estimate(self) -> Estimate:
        return Estimate(call_us=self._part({"op": "arm_estimate"})["estimate_us"])

    def rounds(self, turn: Turn, relay: Relay) -> Rounds:
        request = {"op": "arm_rounds", **_asked(turn), "turns": relay.turns, "baton": relay.baton, "first": relay.first}
        if relay.ahead is not None:
            ahead = {"first": relay.ahead, "places": relay.places, "place": turn.place + 1, "shared": True}
            request["ahead"] = ahead
        part = self._part(request)
        return Rounds(
            rounds={each["turn"]: _round(each) for each in part["rounds"]},
            offsets=tuple(part["offsets"]),
        )

    def overhead(self, calls: int) -> tuple[float, ...]:
        return tuple(self._part({"op": "overhead", "calls": calls})["host_us"])

    def competitor(self) -> Competition | None:
        """The case's competitor, timed in this worker; None where it has none."""
        part = self._ask({"op": "competitor"})
        if part["outcome"] != Outcome.PASSED:
            return None
        return Competition(name=part["name"], version=part["torch"], samples_us=tuple(part["samples_us"]))

    def traffic(self) -> dict[str, float | None]:
        """Bytes moved and operations of one call, as the case states them."""
        part = self._part({"op": "arm_traffic"})
        return {name: part[name] for name in ("bytes_moved", "flops")}

    def dismiss(self) -> None:
        """Free the arm's memory, whatever state the worker is in: it is replaced if it has to be."""
        self._ask({"op": "arm_close"})

    def _part(self, request: dict[str, Any]) -> dict[str, Any]:
        part = self._ask(request)
        if part["outcome"] != Outcome.PASSED:
            outcome, detail = Outcome(part["outcome"]), part.get("detail", "")
            raise ArmFailed(outcome, part.get("reason", ""), arm=self.name, detail=detail)
        return part
