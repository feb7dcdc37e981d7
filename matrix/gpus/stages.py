"""The stages that need a GPU, for all GPUs of this host: correctness, then timing of what is right."""

from __future__ import annotations

import dataclasses
import datetime
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from matrix.gpus.correctness import Checked, Desk, check, dimension_records
from matrix.gpus.fuzzing import fuzz
from matrix.gpus.interleaving import Spot, Timed, spots_of, time_all
from matrix.gpus.stations import CONTROL, stations
from matrix.gpus.timing import TimingPlan
from matrix.gpus.timing_records import TimingClerk, Timings
from matrix.judging import statistics
from matrix.model import Stage
from matrix.records import ArmRecord, CellRecord, DimensionRecord, Role, RoundRecord, Tuning
from matrix.storage.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from matrix.gpus.nvml import Gpu, Nvml
    from matrix.gpus.stations import Station
    from matrix.running.execute import Measured
    from matrix.running.plan import PlannedCell
    from matrix.running.progress import Board
    from matrix.running.recording import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHost:
    """The GPUs of this host that take part, and the library that names and reads them."""

    gpus: tuple[Gpu, ...] = ()
    nvml: Nvml | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(sorted({gpu.target for gpu in self.gpus}))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuResults:
    """Everything that the GPU stages found. ``gpus`` is what run.json says of each GPU."""

    checked: tuple[Measured, ...] = ()
    dimensions: tuple[DimensionRecord, ...] = ()
    timings: Timings = field(default_factory=Timings)
    gpus: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStages:
    """The GPU stages of one run."""

    desk: Desk
    host: GpuHost
    baseline: str
    environments: Mapping[str, Arm]
    run_id: str
    host_name: str
    logs: Path
    plan: TimingPlan
    timeout_s: float
    jobs: int
    board: Board
    fuzz_seconds: float = 0.0
    lock_mhz: int = 0

    def execute(self, planned: Sequence[PlannedCell]) -> GpuResults:
        cells = [cell for cell in planned if cell.stage in (Stage.CORRECTNESS, Stage.TIMING)]
        if not cells:
            return GpuResults()
        with self.opened() as found:
            return self.at(found, cells)

    def opened(self) -> AbstractContextManager[list[Station]]:
        """The stations of this host's GPUs, each held until the end."""
        say, homes = self.board.say, self.desk.homes
        return stations(self.host.gpus, self.host.nvml, homes, self.baseline, self.logs, say, self.lock_mhz)

    def at(self, found: Sequence[Station], cells: Sequence[PlannedCell]) -> GpuResults:
        """Correctness and timing of these cells, at stations that are open."""
        say = self.board.say
        started = time.monotonic()
        right = [cell for cell in cells if cell.stage is Stage.CORRECTNESS]
        tick = self.board.task("correctness", len(right))
        with ThreadPoolExecutor(max_workers=len(found) + 1) as starting:
            # Timing alone asks the control and takes intervals: they get ready while the others check.
            if len(right) < len(cells):
                starting.submit(statistics.prepare)
                starting.map(lambda station: station.crew.start(CONTROL), found)
            checked = check(self.desk, found, right, tick, timeout_s=self.timeout_s, jobs=self.jobs)
        checked += self._fuzz(found, right)
        began = time.monotonic()
        say(f"correctness: {len(right)} cells on {len(found)} GPU(s) in {began - started:.0f} s")
        timings = self._time(found, cells, checked)
        say(f"timing: {len(timings.cells)} cells in {time.monotonic() - began:.0f} s")
        return self._results(found, checked, timings)

    def fuzzed(self, found: Sequence[Station], cells: Sequence[PlannedCell]) -> GpuResults:
        """What the fuzz budget alone finds beside these cells."""
        right = [cell for cell in cells if cell.stage is Stage.CORRECTNESS]
        return self._results(found, self._fuzz(found, right), Timings())

    def _results(self, found: Sequence[Station], checked: Sequence[Checked], timings: Timings) -> GpuResults:
        return GpuResults(
            checked=tuple(each.measured for each in checked),
            dimensions=tuple(dimension_records(checked, run_id=self.run_id, host=self.host_name)),
            timings=timings,
            gpus=tuple(described(station) | worked(station.gpu.uuid, timings.arms) for station in found),
        )

    def _fuzz(self, found: Sequence[Station], cells: Sequence[PlannedCell]) -> list[Checked]:
        if not self.fuzz_seconds:
            return []
        fuzzed = fuzz(self.desk, found, cells, self.baseline, seconds=self.fuzz_seconds, timeout_s=self.timeout_s)
        self.board.say(f"fuzz: {fuzzed.tried} points in {self.fuzz_seconds:g} s")
        return list(fuzzed.checked)

    def _time(self, found: Sequence[Station], cells: Iterable[PlannedCell], checked: Sequence[Checked]) -> Timings:
        clerk = TimingClerk(
            run_id=self.run_id,
            host=self.host_name,
            baseline=self.baseline,
            environments=self.environments,
            figures={station.gpu.uuid: station.figures for station in found},
            rule=self.plan.rule,
        )
        rows: list[Timings] = []
        spots = spots_of(cells, self.baseline)
        tick, lock = self.board.task("timing", len(spots)), threading.Lock()
        waiting = []
        for spot in spots:
            known = self.desk.cache.get(self._spot_key(spot))
            if known is None:
                waiting.append(spot)
            else:
                rows.append(_revived(known, self.run_id))
                tick()

        def keep(timed: list[Timed]) -> None:
            fresh = together([clerk.rows(each) for each in timed])
            with lock:
                self.desk.cache.put(self._spot_key(timed[0].spot), _flat(fresh))
                rows.append(fresh)

        seen = {each.measured.planned.cell.id: each for each in checked}
        time_all(self.desk, found, waiting, seen, self.baseline, self.plan, keep, tick)
        return together(rows)

    def _spot_key(self, spot: Spot) -> str:
        return key_of({"timed": {name: self.desk.key(cell) for name, cell in spot.cells.items()}})


def described(station: Station) -> dict[str, Any]:
    """One GPU as run.json tells of it."""
    gpu = station.gpu
    return {
        **{k: v for k, v in dataclasses.asdict(gpu).items() if k != "capability"},
        "target": gpu.target,
        **station.figures,
        "proofs": list(station.proofs),
    }


def worked(uuid: str, arms: Iterable[ArmRecord]) -> dict[str, float]:
    """How much of the timing's wall time a GPU worked for the arms, in seconds."""
    # The figures of a whole cell stand in each of its arms' rows: once a cell.
    cells = [arm for arm in arms if arm.gpu_uuid == uuid and arm.role is Role.BASELINE]
    return {
        "timing_wall_s": sum(arm.wall_seconds for arm in cells),
        "arms_gpu_s": sum(arm.arms_us for arm in cells) / 1e6,
        "flushes_gpu_s": sum(arm.gpu_us - arm.arms_us for arm in cells) / 1e6,
        "warmups_gpu_s": sum(arm.warmup_us or 0.0 for arm in cells) / 1e6,
        "setup_s": sum(arm.setup_seconds for arm in cells),
    }


def together(parts: Iterable[Timings]) -> Timings:
    """All rows of several."""
    parts = list(parts)
    return Timings(
        cells=tuple(row for part in parts for row in part.cells),
        arms=tuple(row for part in parts for row in part.arms),
        rounds=tuple(row for part in parts for row in part.rounds),
    )


def _flat(timings: Timings) -> dict[str, Any]:
    found: dict[str, Any] = dataclasses.asdict(timings)
    for cell in found["cells"]:
        cell["started_at"] = cell["started_at"].isoformat()
    return found


def _revived(known: Mapping[str, Any], run_id: str) -> Timings:
    """Rows that an interrupted run had measured, as this run's."""
    own: dict[str, Any] = {"run_id": run_id}
    return Timings(
        cells=tuple(_cell(row | own) for row in known["cells"]),
        arms=tuple(_typed(ArmRecord(**row | own)) for row in known["arms"]),
        rounds=tuple(_typed(RoundRecord(**row | own)) for row in known["rounds"]),
    )


def _cell(row: dict[str, Any]) -> CellRecord:
    return CellRecord(**row | {"started_at": datetime.datetime.fromisoformat(row["started_at"]), "cached": True})


def _typed(row: Any) -> Any:
    return replace(row, role=Role(row.role), tuning=Tuning(row.tuning))
