"""From planned work to parts: what the cache holds is taken from it, the pool does the rest.

Every result goes into the cache before anything else is done with it.
"""

from __future__ import annotations

import datetime
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.loading import digest
from matrix.model import CPU, Outcome, Stage
from matrix.running.importable import importable
from matrix.running.plan import CaseInfo, Collected, PlannedCell
from matrix.running.pool import Lane, Pool, Result, Task
from matrix.running.workers import worker_variables
from matrix.storage.artifacts import Artifacts
from matrix.storage.cache import Cache, key_of, lasting, worker_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from matrix.running.process import WorkerSpec
    from matrix.running.progress import Board
    from matrix.running.workers import WorkerHome
    from matrix.settings.config import Configuration
    from matrix.storage.runs import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that a worker may stay silent on one request before it is killed."""

    collect: float = 120.0
    compile: float = 120.0
    interpret: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one planned cell came to: parts (one, or one an autotune configuration), and when."""

    planned: PlannedCell
    parts: tuple[dict[str, Any], ...]
    started_at: datetime.datetime
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where work is done: the pool's size, the cache, the artefact store, folders, limits."""

    slots: int
    cache: Cache
    artifacts: Artifacts
    scratch: Path
    timeouts: Timeouts
    # Start-up seconds of workers end up here, for the benchmark and the run's own account.
    start_seconds: list[float]
    say: Callable[[str], None]

    @classmethod
    def make(
        cls,
        scratch: Path,
        *,
        store: Path,
        slots: int,
        timeouts: Timeouts | None = None,
        say: Callable[[str], None] = print,
        fresh: bool = False,
    ) -> Bench:
        """A bench in the folder ``scratch``; what it finds is kept in ``store``, and read there unless ``fresh``."""
        (scratch / "spool").mkdir()
        return cls(
            slots=slots,
            cache=Cache(store / "cache", fresh=fresh),
            artifacts=Artifacts(store / "artifacts"),
            scratch=scratch,
            timeouts=timeouts or Timeouts(),
            start_seconds=[],
            say=say,
        )

    @property
    def spool(self) -> Path:
        return self.scratch / "spool"


def bench_for(
    configuration: Configuration, home: Home, scratch: Path, *, jobs: int, board: Board, fresh: bool = False
) -> Bench:
    """A bench in ``scratch`` that keeps what it finds in the project's own folder; a ``fresh`` one reuses nothing."""
    timeouts = timeouts_of(configuration)
    return Bench.make(scratch, store=home.path, slots=jobs, timeouts=timeouts, say=board.say, fresh=fresh)


def timeouts_of(configuration: Configuration) -> Timeouts:
    seconds = configuration.timeouts_s
    return Timeouts(collect=seconds[Stage.IMPORT], compile=seconds[Stage.COMPILE], interpret=seconds[Stage.INTERPRET])


def collect(
    bench: Bench,
    homes: Mapping[str, WorkerHome],
    locks: Mapping[str, str],
    files: Sequence[Path],
    tick: Callable[[], None],
    only: Collection[tuple[str, Path]] | None = None,
) -> list[Collected]:
    """Every case file in every environment, or of these pairs those in ``only``; in the order given."""
    pairs = [(name, path) for name in homes for path in files if only is None or (name, path) in only]
    found: dict[tuple[str, Path], dict[str, Any]] = {}
    lanes: list[Lane] = []
    # Homes have one pythonpath as a rule, and its folders may be large.
    beside = {paths: importable(paths) for paths in {tuple(home.pythonpath) for home in homes.values()}}
    keys = {name: (locks[name], beside[tuple(home.pythonpath)]) for name, home in homes.items()}
    for environment, home in homes.items():
        lane = Lane(spec=home.spec("collect"), tasks=deque())
        for path in (path for name, path in pairs if name == environment):
            known = _known_collection(bench.cache, keys[environment], path, dict(lane.spec.variables))
            if known is not None:
                found[environment, path] = known
                tick()
            else:
                request = {"op": "collect", "path": str(path)}
                lane.tasks.append(Task(key=str(path), request=request, timeout_s=bench.timeouts.collect))
        lanes.append(lane)
    for result in Pool(slots=bench.slots, logs=bench.scratch).run(lanes):
        path, part = Path(result.task.key), dict(result.parts[-1])
        read = _read([part], part.get("files", {}), dict(result.spec.variables))
        part |= {"files": {**read["files"], **part.get("files", {})}, "variables": read["variables"]}
        found[result.spec.environment, path] = part
        # A failed import may be mended by something that is not in the file: look again next time.
        if part["outcome"] == Outcome.PASSED:
            bench.cache.put(_collect_key(keys[result.spec.environment], path), part)
        tick()
    return [_collected(name, path, found[name, path]) for name, path in pairs]


def known_collections(
    cache: Cache, environment: str, key: tuple[str, str], variables: Mapping[str, str], files: Sequence[Path]
) -> list[Collected]:
    """What is known of the case files in an environment without starting anything.

    ``key``: its lock, and what is :func:`importable`; ``variables``: those of its processes.
    """
    variables = worker_variables(variables, "collect")
    found = ((path, _known_collection(cache, key, path, variables)) for path in files)
    return [_collected(environment, path, part) for path, part in found if part is not None]


def _known_collection(
    cache: Cache, key: tuple[str, str], path: Path, variables: Mapping[str, str]
) -> dict[str, Any] | None:
    part: dict[str, Any] | None = cache.get(_collect_key(key, path))
    return part if part is not None and _unchanged(part, variables) else None


def _collect_key(key: tuple[str, str], path: Path) -> str:
    """Of a case file by a lock and by what is :func:`importable` beside it."""
    lock, beside = key
    digest = key_of({"path": str(path), "text": path.read_text(errors="replace")})
    return key_of({"collect": digest, "lock": lock, "importable": beside, "worker": worker_digest()})


def _read(parts: Iterable[dict[str, Any]], sources: Collection[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """What these parts' code read: files with their digests, variables with their values. Taken out of the parts."""
    files: dict[str, str] = {}
    names: set[str] = set()
    for part in parts:
        for reader, read in part.pop("reads", {}).items():
            # What a module read serves every case that imports it; what was read now may be any code's.
            if not reader or reader in sources:
                names.update(read["variables"])
                files = {**read["files"], **files}
    return {"files": files, "variables": {name: _value(variables, name) for name in sorted(names)}}


def _value(variables: Mapping[str, str], name: str) -> str | None:
    return key_of(dict(variables)) if name == "*" else variables.get(name)


def _unchanged(read: Mapping[str, Any], variables: Mapping[str, str]) -> bool:
    same = all(_value(variables, name) == value for name, value in read["variables"].items())
    return same and all(digest(name) == held for name, held in read["files"].items())


def _collected(environment: str, path: Path, part: dict[str, Any]) -> Collected:
    cases = tuple(
        CaseInfo(
            name=case["name"],
            path=path,
            points=case["points"],
            targets=tuple(case["targets"]),
            triton=case["triton"],
            tags=tuple(case["tags"]),
            expectations=tuple(case["expectations"]),
            files=part["files"],
            variables=part["variables"],
        )
        for case in part.get("cases", ())
    )
    return Collected(
        environment=environment,
        path=path,
        outcome=part["outcome"],
        reason=part["reason"],
        detail=part["detail"],
        seconds=part["seconds"],
        cases=cases,
    )


def measure(
    bench: Bench,
    homes: Mapping[str, WorkerHome],
    locks: Mapping[str, str],
    planned: Iterable[PlannedCell],
    tick: Callable[[], None],
) -> list[Measured]:
    """Every planned cell, in the order planned."""
    order = list(planned)
    done: dict[str, Measured] = {}
    lanes: dict[WorkerKey, Lane] = {}
    waiting: dict[str, tuple[PlannedCell, str]] = {}
    for cell in order:
        name = _name(cell)
        key = cell_key(cell, locks[cell.cell.environment], homes[cell.cell.environment])
        if cell.outcome:
            done[name] = known(cell)
        elif (measured := _from_cache(bench, cell, key, _variables(homes[cell.cell.environment], cell))) is not None:
            done[name] = measured
        else:
            waiting[name] = (cell, key)
            lane_key = WorkerKey(cell.cell.environment, str(cell.stage), cell.cell.target)
            lane = lanes.setdefault(lane_key, _lane(homes[cell.cell.environment], lane_key))
            lane.tasks.append(_task(bench, name, cell))
            continue
        tick()
    for result in Pool(slots=bench.slots, logs=bench.scratch).run(list(lanes.values())):
        cell, key = waiting[result.task.key]
        done[result.task.key] = _take(bench, cell, key, result)
        tick()
    for lane in lanes.values():
        bench.start_seconds.extend(lane.start_seconds)
    return [done[_name(cell)] for cell in order]


@dataclass(frozen=True)
class WorkerKey:
    """What tells lanes apart."""

    environment: str
    stage: str
    target: str


def _lane(home: WorkerHome, key: WorkerKey) -> Lane:
    spec: WorkerSpec = home.spec(key.stage, "" if key.target == CPU else key.target)
    return Lane(spec=spec, tasks=deque())


def _name(planned: PlannedCell) -> str:
    return f"{planned.stage} {planned.cell.id}"


def _task(bench: Bench, name: str, planned: PlannedCell) -> Task:
    request = {
        "op": str(planned.stage),
        "path": str(planned.case.path),
        "case": planned.case.name,
        "params": dict(planned.params),
        "spool": str(bench.spool),
        "configs": planned.configs,
    }
    limit = bench.timeouts.compile if planned.stage is Stage.COMPILE else bench.timeouts.interpret
    if planned.limit_s:  # it is known to take all of that: begun last, it would be waited for alone
        return Task(key=name, request=request, timeout_s=planned.limit_s, takes_s=planned.limit_s)
    return Task(key=name, request=request, timeout_s=limit)


def cell_key(planned: PlannedCell, lock: str, home: WorkerHome) -> str:
    """What the result depends on: the lock (ptxas included), all sources, the point, the target, our worker.

    The variables that an environment declares are in its lock's digest. Of the caller's own those are part of it that
    the import read; those that steer Triton or Python never reach a worker.
    """
    return key_of(
        {
            "stage": planned.stage,
            "lock": lock,
            # Code that a traceback or a line table names lies where it lies: the paths are part of it.
            "files": dict(planned.case.files),
            "variables": dict(planned.case.variables),
            "case": planned.case.name,
            "params": dict(planned.params),
            "configs": planned.configs,
            "start": home.spec(str(planned.stage), _target(planned)).start.get("profile"),
            "worker": worker_digest(),
        }
    )


def _target(planned: PlannedCell) -> str:
    return "" if planned.cell.target == CPU else planned.cell.target


def known(planned: PlannedCell) -> Measured:
    """A cell whose outcome is known without running anything."""
    part = {"config": "", "outcome": planned.outcome, "reason": planned.reason, "detail": "", "seconds": 0.0}
    now = datetime.datetime.now(datetime.UTC)
    return Measured(planned=planned, parts=({**part, "kernels": []},), started_at=now, cached=False)


def _variables(home: WorkerHome, planned: PlannedCell) -> dict[str, str]:
    return worker_variables(home.variables, str(planned.stage))


def _from_cache(bench: Bench, planned: PlannedCell, key: str, variables: Mapping[str, str]) -> Measured | None:
    entry = bench.cache.get(key)
    # What a call reads is known once it was made.
    if entry is None or not _unchanged(entry["read"], variables) or not bench.artifacts.holds(_digests(entry["parts"])):
        return None
    started = datetime.datetime.fromisoformat(entry["started_at"])
    return Measured(planned=planned, parts=tuple(entry["parts"]), started_at=started, cached=True)


def _take(bench: Bench, planned: PlannedCell, key: str, result: Result) -> Measured:
    """Keep a fresh result: artefacts first, so that a cached entry never points at nothing."""
    parts = [dict(part) for part in result.parts]
    read = _read(parts, planned.case.files, dict(result.spec.variables))
    bench.artifacts.take(bench.spool, _digests(parts))
    seconds = sum(part["seconds"] for part in parts)
    started = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    if lasting(parts):
        bench.cache.put(key, {"started_at": started.isoformat(), "parts": parts, "read": read})
    return Measured(planned=planned, parts=tuple(parts), started_at=started, cached=False)


def _digests(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    found = (kernel["artifacts"].values() for part in parts for kernel in part["kernels"])
    return sorted({digest for digests in found for digest in digests})
