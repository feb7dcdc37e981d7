"""The correctness stage: every planned cell on a GPU of its target, environments side by side."""

from __future__ import annotations

import datetime
import queue
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.gpus.fuzz import FUZZ
from matrix.gpus.stations import at_once, drained
from matrix.model import Stage
from matrix.records import DimensionRecord
from matrix.running.execute import Measured, cell_key, known
from matrix.running.recording import names_of
from matrix.storage.cache import key_of, lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matrix.gpus.stations import Station
    from matrix.running.plan import PlannedCell
    from matrix.running.workers import WorkerHome
    from matrix.storage.cache import Cache

# What one more worker may take of a GPU's memory beside its tensors: the context, code, libraries.
_MEMORY_A_HAND_BYTES = 12 << 30
# At the points that are timed, what is timed must be right; the dimensions proper have points of their own.
_AT_TIMING_POINTS = ("values",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the GPU stages of one run have in common."""

    cache: Cache
    homes: Mapping[str, WorkerHome]
    locks: Mapping[str, str]
    token: str

    def key(self, planned: PlannedCell) -> str:
        """Of a result that only the resumption of this very measurement may take."""
        return key_of({"cell": self.lasting_key(planned), "pending": self.token})

    def lasting_key(self, planned: PlannedCell) -> str:
        environment = planned.cell.environment
        return cell_key(planned, self.locks[environment], self.homes[environment])


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A cell's correctness, and the GPU that it was seen on."""

    measured: Measured
    gpu_uuid: str


def check(
    desk: Desk,
    found: Sequence[Station],
    planned: Iterable[PlannedCell],
    tick: Callable[[], None],
    *,
    timeout_s: float,
    jobs: int,
) -> list[Checked]:
    """Every planned cell, in the order planned. Each environment's cells are shared out over its target's GPUs,
    and there over several workers: most of the time goes into compiling and into references, not into kernels.
    """
    order = [cell for cell in planned if cell.stage is Stage.CORRECTNESS]
    done: dict[str, Checked] = {}
    waiting: dict[tuple[str, str], queue.SimpleQueue[PlannedCell]] = {}
    for cell in order:
        if cell.outcome:
            done[cell.cell.id] = Checked(measured=known(cell), gpu_uuid="")
        elif (entry := desk.cache.get(desk.key(cell))) is not None:
            done[cell.cell.id] = _cached(cell, entry)
        else:
            waiting.setdefault((cell.cell.target, cell.cell.environment), queue.SimpleQueue()).put(cell)
            continue
        tick()

    def serve(station: Station, environment: str, hand: int) -> None:
        for cell in drained(waiting.get((station.gpu.target, environment))):
            done[cell.cell.id] = check_one(desk, station, cell, timeout_s, hand)
            tick()

    pairs = [(station, name) for station in found for target, name in waiting if target == station.gpu.target]
    places = [(*pair, hand) for pair in pairs for hand in range(_hands(pair[0], len(pairs), jobs))]
    at_once(places, lambda place: serve(*place))
    for station in found:
        station.crew.one_hand_each()
    return [done[cell.cell.id] for cell in order]


def _hands(station: Station, pairs: int, jobs: int) -> int:
    """How many workers of one environment fit on a GPU and on the host's cores."""
    return max(1, min(jobs // pairs, station.gpu.memory_bytes // (_MEMORY_A_HAND_BYTES * pairs)))


def check_one(desk: Desk, station: Station, planned: PlannedCell, timeout_s: float, hand: int = 0) -> Checked:
    """One cell, now, by one worker of its environment. A fuzzed point's seed is no param of the case."""
    request: dict[str, Any] = {
        "op": "correctness",
        "path": str(planned.case.path),
        "case": planned.case.name,
        "params": {name: value for name, value in planned.params.items() if name != FUZZ},
        "seed": planned.params.get(FUZZ, ""),
        "configs": planned.configs,
    }
    if FUZZ not in planned.params and not _has_dimensions(planned):
        request["dimensions"] = list(_AT_TIMING_POINTS)
    started = datetime.datetime.now(datetime.UTC)
    answer = station.crew.ask(planned.cell.environment, request, timeout_s, hand=hand)
    part = {"config": "", "kernels": [], "figures": {}, "dimensions": [], "digests": {}, "seconds": 0.0, **answer}
    if lasting([part]):
        entry = {"started_at": started.isoformat(), "part": part, "gpu_uuid": station.gpu.uuid}
        desk.cache.put(desk.key(planned), entry)
    measured = Measured(planned=planned, parts=(part,), started_at=started, cached=False)
    return Checked(measured=measured, gpu_uuid=station.gpu.uuid)


def _has_dimensions(planned: PlannedCell) -> bool:
    return any(dict(point) == dict(planned.params) for point in planned.case.points[Stage.CORRECTNESS])


def _cached(planned: PlannedCell, entry: Mapping[str, Any]) -> Checked:
    started = datetime.datetime.fromisoformat(entry["started_at"])
    measured = Measured(planned=planned, parts=(entry["part"],), started_at=started, cached=True)
    return Checked(measured=measured, gpu_uuid=entry["gpu_uuid"])


def dimension_records(checked: Iterable[Checked], *, run_id: str, host: str) -> list[DimensionRecord]:
    """A row for every dimension of every cell."""
    return [row for each in checked for part in each.measured.parts for row in _rows(each, part, run_id, host)]


def _rows(checked: Checked, part: Mapping[str, Any], run_id: str, host: str) -> list[DimensionRecord]:
    cell, digests = checked.measured.planned.cell, part.get("digests") or {}
    return [
        DimensionRecord(
            **names_of(cell),
            run_id=run_id,
            host=host,
            gpu_uuid=checked.gpu_uuid,
            dimension=one["name"],
            outcome=one["outcome"],
            reason=one["reason"],
            worst=one["figures"].get("worst"),
            largest_error=one["figures"].get("largest_error"),
            budget=one["figures"].get("budget", ""),
            output_digest=_joined(digests.get("outputs")) if one["name"] == "values" else "",
            reference_digest=_joined(digests.get("reference")) if one["name"] == "values" else "",
        )
        for one in part.get("dimensions", ())
    ]


def _joined(digests: Sequence[str] | None) -> str:
    """One digest of several outputs."""
    return key_of({"digests": list(digests)}) if digests else ""
