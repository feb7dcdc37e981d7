"""What runs on a host of the fleet: the ordinary steps of a run, for the units of one slice."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.commands.workplace import gpu_host
from matrix.errors import UsageError
from matrix.fleet.orders import Answer, Crossed, Survey
from matrix.fleet.project import Roots
from matrix.fleet.units import batches, is_fuzz, on_gpu, target_of, units_of
from matrix.gpus.correctness import Desk
from matrix.gpus.devices import usable
from matrix.gpus.stages import GpuHost, GpuStages
from matrix.gpus.timing import TimingPlan
from matrix.gpus.timing_records import Timings
from matrix.model import Stage
from matrix.resources import package_folder
from matrix.running.execute import Bench, bench_for, measure
from matrix.running.facts import facts_of
from matrix.running.host import Host, this_host
from matrix.running.progress import Board
from matrix.running.ready import Ready, arms_of, get_ready
from matrix.running.reassembly import reassemble
from matrix.running.recording import Clerk
from matrix.settings import config
from matrix.storage.cache import digest_of
from matrix.storage.runs import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matrix.fleet.orders import Order, Question
    from matrix.fleet.project import Project
    from matrix.gpus.stations import Station
    from matrix.running.plan import PlannedCell
    from matrix.settings.config import Configuration

FOLDER = "MATRIX_FLEET_FOLDER"
# Units that are worked on together: workers start once for them, and their answers go out as one batch ends.
_ON_HOST, _ON_GPU = 8, 4
_TUNING = re.compile(r"[:,]tuning=\w+$")


@functools.cache
def code_digest() -> str:
    """The digest of this package: driver and hosts must have the same."""
    root = package_folder()
    return digest_of(sorted(root.rglob("*.py")))


def host_folder() -> Path:
    """Where this host keeps environments, results and unpacked projects between runs."""
    if told := os.environ.get(FOLDER):
        return Path(told)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "triton-matrix" / "fleet" / socket.gethostname()  # homes may be shared by hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Bay:
    """A host with everything ready for a slice."""

    order: Order
    host: Host
    roots: Roots
    configuration: Configuration
    bench: Bench
    ready: Ready
    board: Board
    jobs: int

    @property
    def clerk(self) -> Clerk:
        # What a case expects is looked up by the driver, once for all hosts.
        return Clerk(
            run_id=self.order.run_id, host=self.host.name, arms=arms_of(self.ready.provisions), expectations={}
        )


def survey(order: Order, project: Project, *, name: str, jobs: int) -> Survey:
    """Get this host ready and say what its environments are and which cases they hold."""
    bay = _bay_of_this_process(order, project, name, jobs)
    collected = bay.roots.retold(list(bay.ready.collected), order.roots)
    return Survey(host=bay.host, provisions=dict(bay.ready.provisions), collected=collected)


def work(
    order: Order,
    units: Sequence[str],
    project: Project,
    *,
    name: str,
    jobs: int,
    gpus: Callable[[], GpuHost] = gpu_host,
    plan: TimingPlan | None = None,
) -> Iterator[Answer]:
    """An answer for each unit, in this order: Ray takes the n-th of another attempt for the n-th of this one."""
    bay = _bay_of_this_process(order, project, name, jobs)
    planned = units_of(bay.ready.planned)
    if on_gpu(units[0]):
        yield from _on_gpu(bay, units, planned, gpus(), plan or TimingPlan())
    else:
        yield from _on_host(bay, units, planned)


def cross(order: Order, question: Question, project: Project, *, name: str, jobs: int) -> Crossed:
    """Each side's PTX with the other's assembler, which hosts have and the driver need not."""
    bay = _bay_of_this_process(order, project, name, jobs)
    bench, ready, thresholds = bay.bench, bay.ready, bay.configuration.thresholds
    for digest, data in question.artifacts.items():
        bench.artifacts.receive(digest, data)
    done = reassemble(bench, ready.homes, ready.locks, question.verdicts, question.kernels, thresholds)
    digests = {digest for row in done for digest in row.artifacts.values()}
    artifacts = {digest: bench.artifacts.packed(digest) for digest in digests}
    return Crossed(assemblies=bay.roots.retold(done, order.roots), artifacts=artifacts)


# Ray gives a process one slice after another, all of one run: what it is ready with, warm parents among it, it keeps.
_KEPT: list[tuple[str, Bay, contextlib.ExitStack]] = []


def _bay_of_this_process(order: Order, project: Project, name: str, jobs: int) -> Bay:
    key = f"{order.run_id} {jobs}"
    if _KEPT and _KEPT[0][0] != key:
        _KEPT.pop()[2].close()
    if not _KEPT:
        stack = contextlib.ExitStack()
        _KEPT.append((key, stack.enter_context(_bay(order, project, name, jobs)), stack))
        atexit.register(stack.close)
    return _KEPT[0][1]


@contextlib.contextmanager
def _bay(order: Order, project: Project, name: str, jobs: int) -> Iterator[Bay]:
    host = this_host()
    host = dataclasses.replace(host, name=name or host.name)
    if order.code != code_digest():
        raise UsageError(f"host {host.name} has another triton-matrix than the driver", hint="install the same on all")
    folder = host_folder()
    roots = Roots.here(project.unpack(folder))
    configuration = _configuration(order, roots)
    request = dataclasses.replace(
        order.request, case_files=tuple(order.roots.moved(path, roots) for path in order.request.case_files)
    )
    board = Board(quiet=True)
    with Home(root=folder).scratch() as scratch:
        bench = bench_for(configuration, Home(root=folder), scratch, jobs=jobs, board=board)
        ready = get_ready(request, configuration, folder, bench, board, host=host, jobs=host.cores)
        try:
            yield Bay(
                order=order,
                host=host,
                roots=roots,
                configuration=configuration,
                bench=bench,
                ready=ready,
                board=board,
                jobs=jobs,
            )
        finally:
            for home in ready.homes.values():
                home.close()


def _configuration(order: Order, roots: Roots) -> Configuration:
    file = order.roots.moved(order.config, roots) if order.config else None
    return dataclasses.replace(config.load(roots.project, file=file), requires=order.requires)


def _on_host(bay: Bay, units: Sequence[str], planned: Mapping[str, list[PlannedCell]]) -> Iterator[Answer]:
    bench, ready, clerk = bay.bench, bay.ready, bay.clerk
    for batch in batches(units, _ON_HOST):
        cells = [cell for unit in batch for cell in planned.get(unit, ())]
        measured = measure(bench, ready.homes, ready.locks, cells, lambda: None)
        facts = facts_of(bench, measured, lambda _count: None)
        results = iter(measured)  # in the order planned
        for unit in batch:
            items = list(itertools.islice(results, len(planned.get(unit, ()))))
            kernels = clerk.kernels(items, facts)
            digests = {digest for row in kernels for digest in row.artifacts.values()}
            yield _answer(
                bay,
                unit,
                cells=clerk.rows(items),
                kernels=kernels,
                artifacts={digest: bench.artifacts.packed(digest) for digest in digests},
            )


def _on_gpu(
    bay: Bay, units: Sequence[str], planned: Mapping[str, list[PlannedCell]], host: GpuHost, plan: TimingPlan
) -> Iterator[Answer]:
    target = target_of(units[0])
    gpus = usable(host.gpus, [target])
    if not gpus:
        seen = ", ".join(f"{gpu.name} ({gpu.target})" for gpu in host.gpus) or "none"
        problem = f"host {bay.host.name} was declared to have a GPU of {target}; it has {seen}"
        yield from (_answer(bay, unit, problem=problem) for unit in units)
        return
    stages = _stages(bay, dataclasses.replace(host, gpus=tuple(gpus)), plan)
    fuzz = [unit for unit in units if is_fuzz(unit)]  # the last ones of their target
    with stages.opened() as found:
        for batch in batches([unit for unit in units if unit not in fuzz], _ON_GPU):
            yield from _measured_on_gpu(bay, stages, found, batch, planned)
        for unit in fuzz:
            yield _fuzzed(bay, stages, found, unit, planned)


def _stages(bay: Bay, host: GpuHost, plan: TimingPlan) -> GpuStages:
    order, ready = bay.order, bay.ready
    return GpuStages(
        # Another attempt at a slice of this run finds here what this one measured, and no other run does.
        desk=Desk(cache=bay.bench.cache, homes=ready.homes, locks=ready.locks, token=f"fleet {order.run_id}"),
        host=host,
        baseline=order.request.baseline,
        environments=bay.clerk.arms,
        run_id=order.run_id,
        host_name=bay.host.name,
        logs=bay.bench.scratch,
        plan=plan,
        timeout_s=bay.configuration.timeouts_s[Stage.INTERPRET],
        jobs=bay.jobs,
        board=bay.board,
        lock_mhz=order.lock_mhz,
    )


def _measured_on_gpu(
    bay: Bay,
    stages: GpuStages,
    found: Sequence[Station],
    batch: Sequence[str],
    planned: Mapping[str, list[PlannedCell]],
) -> Iterator[Answer]:
    results = stages.at(found, [cell for unit in batch for cell in planned.get(unit, ())])
    rows, timed = bay.clerk.rows(results.checked), results.timings
    for unit in batch:
        yield _answer(
            bay,
            unit,
            cells=[row for row in rows if _unit(row.cell_id) == unit],
            dimensions=[row for row in results.dimensions if _unit(row.cell_id) == unit],
            timings=Timings(
                cells=tuple(row for row in timed.cells if _unit(row.cell_id) == unit),
                arms=tuple(row for row in timed.arms if _unit(row.cell_id) == unit),
                rounds=tuple(row for row in timed.rounds if _unit(row.cell_id) == unit),
            ),
            gpus=results.gpus,
            provisions=dict(bay.ready.provisions),
        )


def _fuzzed(
    bay: Bay, stages: GpuStages, found: Sequence[Station], unit: str, planned: Mapping[str, list[PlannedCell]]
) -> Answer:
    cells = [cell for each, inside in planned.items() if on_gpu(each) for cell in inside]
    own = [cell for cell in cells if cell.cell.target == target_of(unit)]
    results = dataclasses.replace(stages, fuzz_seconds=bay.order.fuzz_seconds).fuzzed(found, own)
    return _answer(
        bay,
        unit,
        cells=bay.clerk.rows(results.checked),
        dimensions=results.dimensions,
        gpus=results.gpus,
        provisions=dict(bay.ready.provisions),
    )


def _unit(cell_id: str) -> str:
    """The unit of a row off a GPU; how an autotuned kernel was tuned is no part of it."""
    _, target, point = cell_id.split("/", 2)
    return f"gpu {target} {_TUNING.sub('', point)}"


def _answer(bay: Bay, unit: str, **rows: object) -> Answer:
    told = {name: bay.roots.retold(value, bay.order.roots) if name in _TOLD else value for name, value in rows.items()}
    return Answer(unit=unit, host=bay.host, locks=dict(bay.ready.locks), **told)  # type: ignore[arg-type]


# What may name files of the host.
_TOLD = frozenset({"cells", "kernels"})
