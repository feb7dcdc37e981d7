"""Slices to hosts, answers from hosts: every unit is answered once, or named as missing with the reason."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.errors import FleetError, UsageError
from matrix.fleet.cluster import Lost
from matrix.fleet.orders import Answer, Crossed, Survey
from matrix.fleet.pools import offered
from matrix.fleet.units import slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matrix.fleet.cluster import Cluster
    from matrix.fleet.orders import Order, Question
    from matrix.fleet.pools import Node, Pool

# How long hosts of a kind may all be gone before the rest of their work is given up. Hosts that restart come back.
PATIENCE_S = 20.0
_LOOK_S = 2.0
# Of one pool, tasks at a time for each of its workers: the next one waits at the cluster while one is under way.
_AHEAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Units that no host answered, and why."""

    units: Sequence[str]
    reason: str


@dataclass(slots=True)
class _Lane:
    """What one pool still has to do."""

    pool: Pool
    waiting: list[tuple[str, ...]]
    running: dict[int, list[str]] = field(default_factory=dict)  # a task's units that are not answered
    hostless_since: float | None = None

    @property
    def open(self) -> bool:
        return bool(self.waiting or self.running)

    def drop(self) -> list[str]:
        """Everything that is left, forgotten here."""
        left = [unit for units in (*self.running.values(), *self.waiting) for unit in units]
        self.waiting.clear()
        self.running.clear()
        return left


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One run's work at one cluster."""

    cluster: Cluster
    order: Order
    work: Callable[..., Iterator[Answer]]
    say: Callable[[str], None]
    patience_s: float = PATIENCE_S

    def survey(self, pool: Pool) -> Survey:
        """What the first host tells. Raises :class:`UsageError` where none can get ready."""
        if self.cluster.free_cpus() < 1:
            self.say("every CPU of the cluster is taken; waiting for one")
        told = self._alone(pool, self.cluster.survey(pool, self.order))
        if isinstance(told, Survey):
            return told
        hint = "every host needs the same triton-matrix, Python and Ray as the driver"
        raise UsageError(f"no host could get ready: {told}", hint=hint)

    def cross(self, pool: Pool, question: Question) -> Crossed:
        """Findings in the code, assembled again by one host. Raises :class:`FleetError` where none can."""
        told = self._alone(pool, self.cluster.cross(pool, self.order, question))
        if isinstance(told, Crossed):
            return told
        raise FleetError(f"no host could assemble the findings' PTX: {told}")

    def _alone(self, pool: Pool, task: int) -> Survey | Crossed | str:
        """What a task with one answer tells, or why there is none."""
        lane = _Lane(pool=pool, waiting=[], running={task: ["its answer"]})
        while True:
            for _, told in self.cluster.take([task], _LOOK_S):
                if isinstance(told, Survey | Crossed):
                    return told
                return told.reason if isinstance(told, Lost) else "it had no answer"
            for missing in self._look([lane], self.cluster.nodes()):
                return missing.reason

    def answers(self, units: Mapping[Pool, Sequence[str]]) -> Iterator[Answer | Missing]:
        """Answers as they come, from all pools at once; at the end every unit was answered or is missing."""
        lanes = [_Lane(pool=pool, waiting=slices(wanted, pool.workers)) for pool, wanted in units.items()]
        looked = time.monotonic()
        try:
            while lanes:
                for lane in lanes:
                    self._fill(lane)
                yield from self._take(lanes)
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    yield from self._look(lanes, self.cluster.nodes())
                lanes = self._open(lanes)
        finally:
            for task in [task for lane in lanes for task in lane.running]:
                self.cluster.cancel(task)

    def _open(self, lanes: Sequence[_Lane]) -> list[_Lane]:
        """The lanes that have something left; what held hosts for the others is given back."""
        for lane in lanes:
            if not lane.open:
                self.cluster.release(lane.pool)
        return [lane for lane in lanes if lane.open]

    def _fill(self, lane: _Lane) -> None:
        while lane.waiting and len(lane.running) < _AHEAD * lane.pool.workers:
            units = lane.waiting.pop(0)
            task = self.cluster.ask(lane.pool, self.order, units, self.work)
            lane.running[task] = list(units)

    def _take(self, lanes: Sequence[_Lane]) -> Iterator[Answer | Missing]:
        owners = {task: lane for lane in lanes for task in lane.running}
        for task, answer in self.cluster.take(list(owners), _LOOK_S):
            running = owners[task].running
            if not isinstance(answer, Answer):
                left = running.pop(task)
                reason = answer.reason if isinstance(answer, Lost) else "its host answered for less than it was asked"
                if left:
                    self.say(f"given up: {len(left)} units: {reason}")
                    yield Missing(units=left, reason=reason)
                continue
            running[task].remove(answer.unit)
            yield answer

    def _look(self, lanes: Sequence[_Lane], nodes: Sequence[Node]) -> Iterator[Missing]:
        """Give up what no host is left for."""
        now = time.monotonic()
        for lane in lanes:
            if not lane.open or any(lane.pool.fits(node) for node in nodes):
                lane.hostless_since = None
                continue
            lane.hostless_since = lane.hostless_since or now
            if now - lane.hostless_since >= self.patience_s:
                for task in list(lane.running):
                    self.cluster.cancel(task)
                kind = f"with a GPU of {lane.pool.target} " if lane.pool.target else ""
                reason = f"no host {kind}is left in the cluster ({offered(nodes)})"
                self.say(reason)
                yield Missing(units=lane.drop(), reason=reason)
