"""A run, from request to report: the program's whole story in one list of steps."""

from __future__ import annotations

import dataclasses
import datetime
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.code import disassembler
from matrix.errors import ExitCode, MatrixError, StorageError
from matrix.explaining.verdict_columns import with_owners
from matrix.gpus.correctness import Desk
from matrix.gpus.counting import count_red
from matrix.gpus.stages import GpuHost, GpuResults, GpuStages
from matrix.gpus.timing import TimingPlan
from matrix.hypotheses import trials
from matrix.hypotheses.ledger import COPY as LEDGER_COPY
from matrix.hypotheses.ledger import ledger_of
from matrix.hypotheses.ledger import write_copy as write_ledger
from matrix.judging.decision import exit_code
from matrix.judging.expectations import read_expectations
from matrix.judging.judge_tables import judge
from matrix.judging.releases import release_expectations
from matrix.judging.waivers import waive
from matrix.model import Stage
from matrix.nights.history import write_copy
from matrix.reporting import junit
from matrix.reporting.report import write_page
from matrix.reporting.signoff import write_signoff
from matrix.reporting.summary import summary_markdown
from matrix.running.execute import bench_for, measure
from matrix.running.facts import facts_of
from matrix.running.host import Host, this_host
from matrix.running.pending import Pending, pending
from matrix.running.plan import GPU_STAGES, Collected, Request, not_run, selected_names
from matrix.running.profiles import with_nothing_judged, with_unjudged
from matrix.running.ready import Ready, arms_of, get_ready
from matrix.running.reassembly import reassemble
from matrix.running.recording import Clerk, expectations_of
from matrix.settings.environments import kept_out
from matrix.storage import store
from matrix.storage.atomic import write_atomically
from matrix.storage.cache import Cache, key_of
from matrix.storage.runfolder import load
from matrix.storage.runs import Home, mark_ended, write_meta
from matrix.storage.seal import seal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matrix.case import Expect
    from matrix.fleet.fleet import Fleet
    from matrix.judging.waivers import Waiver
    from matrix.nights.history import History
    from matrix.provisioning.provision import Provision
    from matrix.records import AssemblyRecord, CellRecord, CounterRecord, KernelRecord, VerdictRecord
    from matrix.running.execute import Bench
    from matrix.running.profiles import Profile
    from matrix.running.progress import Board
    from matrix.settings.config import Configuration
    from matrix.storage.runfolder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that ended: its folder and the exit code of its verdicts."""

    run_id: str
    folder: Path
    exit_code: ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything that was found out before anything is judged.

    ``rows`` are those of the stages after import, ``told`` and ``not_run`` go into run.json; ``ready`` is missing
    where other hosts did the work.
    """

    collected: Sequence[Collected]
    names: Collection[str]
    rows: Sequence[CellRecord]
    kernels: list[KernelRecord]
    gpu: GpuResults
    ready: Ready | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    not_run: Sequence[Mapping[str, str]] = ()


@dataclass(slots=True)
class Run:
    """One run's state, filled step by step."""

    request: Request
    configuration: Configuration
    home: Home
    board: Board
    jobs: int
    gpu_host: GpuHost = field(default_factory=GpuHost)
    timing_plan: TimingPlan = field(default_factory=TimingPlan)
    fuzz_seconds: float = 0.0
    lock_mhz: int = 0
    profile: Profile | None = None
    waivers: tuple[Waiver, ...] = ()
    history: History | None = None
    # Asked for one cell's sake: measured anew, fills no hypothesis, and is not the latest run.
    apart: bool = False
    # Whether findings in the code are assembled again, each side's PTX with the other's ptxas.
    cross_ptxas: bool = False
    # Whether nothing that was found before is reused. What is found is kept.
    fresh: bool = False
    run_id: str = ""
    started: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    folder: Path = Path()
    host: Host = field(default_factory=this_host)
    provisions: Mapping[str, Provision] = field(default_factory=dict)
    # The hosts of a Ray cluster that do the work in place of this one.
    fleet: Fleet | None = None
    # What was measured on GPUs is this run's until its tables are written: then the next one measures anew.
    under_way: Pending | None = None

    def execute(self) -> Finished:
        """Every step in order. What is measured is in the cache the moment it is known.

        A run that does not come to its end says so, and why, in its run.json.
        """
        ledger_of(self.home).rows()  # nothing is added to a broken chain: better known before than after
        self.run_id, self.started, self.folder = self.home.resume(self.run_id) if self.run_id else self.home.begin()
        self._say_what_is_kept_out()
        try:
            write_meta(self.folder, self._meta("running"))
            return self._execute()
        except KeyboardInterrupt:
            mark_ended(self.folder, "interrupted")
            raise
        except BaseException as error:
            told = str(error) if isinstance(error, MatrixError) else f"{type(error).__name__}: {error}"
            mark_ended(self.folder, "failed", told)
            raise

    def _say_what_is_kept_out(self) -> None:
        if (names := kept_out()) and not self.apart:
            hint = "to compare with them, declare them as an environment's variables in matrix.toml"
            self.board.say(f"set in this shell and kept out of every environment: {', '.join(names)}; {hint}")

    def _execute(self) -> Finished:
        with self.home.scratch() as scratch, self.board.live():
            bench = bench_for(
                self.configuration, self.home, scratch, jobs=self.jobs, board=self.board, fresh=self.fresh
            )
            if self.apart:
                bench = dataclasses.replace(bench, cache=Cache(scratch / "cache"))
            found = self.fleet.find(self, bench) if self.fleet else self._find(bench)
            clerk = self._clerk(found.collected)
            cells = clerk.cells(found.collected, (), found.names, found.rows)
            evidence = found.kernels
            bench.artifacts.give({d for row in evidence for d in row.artifacts.values()}, self.folder / "artifacts")
            verdicts = self._verdicts(cells, evidence, found.gpu, clerk)
            store.write_counters(self.folder, self._counters(verdicts, found))
            store.write_assemblies(self.folder, self._assemblies(bench, found, verdicts))
        finished = self._conclude(cells, found, verdicts)
        if self.under_way:
            self.under_way.settle()
        if self.fleet:
            self.fleet.settle(self)
        return finished

    def _find(self, bench: Bench) -> Found:
        """All that this host can find out."""
        ready = get_ready(
            self.request, self.configuration, self.home.root, bench, self.board, host=self.host, jobs=self.jobs
        )
        self.provisions = ready.provisions
        names = selected_names(ready.collected, self.request)
        on_host = [cell for cell in ready.planned if cell.stage not in GPU_STAGES]
        tick = self.board.task("compile and interpret", len(on_host))
        measured = measure(bench, ready.homes, ready.locks, on_host, tick)
        kernels = sum(len(part["kernels"]) for item in measured for part in item.parts)
        facts = facts_of(bench, measured, self.board.task("read the code", kernels))
        clerk = self._clerk(ready.collected)
        gpu = self._on_gpus(bench, ready, clerk)
        return Found(
            collected=ready.collected,
            names=names,
            rows=[*clerk.rows([*measured, *gpu.checked]), *gpu.timings.cells],
            kernels=clerk.kernels(measured, facts),
            gpu=gpu,
            ready=ready,
        )

    def _on_gpus(self, bench: Bench, ready: Ready, clerk: Clerk) -> GpuResults:
        """Correctness and timing on this host's GPUs; nothing where it has none."""
        if not self.gpu_host.gpus:
            return GpuResults()
        request = {"cells": [f"{cell.stage} {cell.cell.id}" for cell in ready.planned], "locks": dict(ready.locks)}
        self.under_way = pending(self.home.cache, key_of(request))
        stages = GpuStages(
            desk=Desk(cache=bench.cache, homes=ready.homes, locks=ready.locks, token=self.under_way.token),
            host=self.gpu_host,
            baseline=self.request.baseline,
            environments=clerk.arms,
            run_id=self.run_id,
            host_name=self.host.name,
            logs=bench.scratch,
            plan=self.timing_plan,
            timeout_s=self.configuration.timeouts_s[Stage.INTERPRET],
            jobs=self.jobs,
            board=self.board,
            fuzz_seconds=self.fuzz_seconds,
            lock_mhz=self.lock_mhz,
        )
        return stages.execute(ready.planned)

    def _verdicts(
        self, cells: list[CellRecord], evidence: list[KernelRecord], gpu: GpuResults, clerk: Clerk
    ) -> list[VerdictRecord]:
        rows = judge(
            cells,
            evidence,
            timings=gpu.timings.arms,
            dimensions=gpu.dimensions,
            run_id=self.run_id,
            baseline=self.request.baseline,
            candidates=self.request.candidates,
            expectations=clerk.expectations,
            thresholds=self.configuration.thresholds,
            all_configurations=not self.request.configs,
        )
        request = self.request
        complete = with_unjudged(
            rows,
            self.profile,
            run_id=self.run_id,
            baseline=request.baseline,
            candidates=request.candidates,
            targets=request.targets,
        )
        told = with_nothing_judged(
            complete, request.stages, run_id=self.run_id, baseline=request.baseline, candidates=request.candidates
        )
        return waive(told, self.waivers)

    def _counters(self, verdicts: Sequence[VerdictRecord], found: Found) -> list[CounterRecord]:
        """What the hardware counts in the cells that turned out red."""
        if Stage.COUNTERS not in self.request.stages or not found.ready:
            return []
        ready, arms = found.ready, found.gpu.timings.arms
        return count_red(verdicts, arms, ready.planned, ready.homes, self.gpu_host.gpus, self.board.say)

    def _assemblies(self, bench: Bench, found: Found, verdicts: Sequence[VerdictRecord]) -> list[AssemblyRecord]:
        """Each side's PTX with the other's ptxas, of what is in question, where that was asked for."""
        if not self.cross_ptxas:
            return []
        if found.ready:
            homes, locks, thresholds = found.ready.homes, found.ready.locks, self.configuration.thresholds
            done = reassemble(bench, homes, locks, verdicts, found.kernels, thresholds)
        else:
            done = self.fleet.reassemble(self, bench, verdicts, found.kernels) if self.fleet else []
        bench.artifacts.give({digest for row in done for digest in row.artifacts.values()}, self.folder / "artifacts")
        return done

    def _conclude(self, cells: list[CellRecord], found: Found, verdicts: list[VerdictRecord]) -> Finished:
        """Write every file, and point ``latest`` here.

        run.json says that the run is complete when all but its seal is there; the seal covers it.
        """
        code, gpu = exit_code(verdicts), found.gpu
        store.write_cells(self.folder, cells)
        store.write_evidence(self.folder, found.kernels)
        if gpu.gpus:
            store.write_dimensions(self.folder, gpu.dimensions)
            store.write_timings(self.folder, gpu.timings.arms)
            store.write_rounds(self.folder, gpu.timings.rounds)
        told: dict[str, Any] = {"cases": _cases_meta(found.collected), "gpus": list(gpu.gpus)}
        known = {row["what"] for row in found.not_run}
        absent = [
            row for row in not_run(self.request, "the fleet" if self.fleet else "this host") if row["what"] not in known
        ] + [*found.not_run]
        told |= {"not_run": absent, **found.told}
        write_meta(self.folder, self._meta("running") | told)
        judged = dataclasses.replace(load(self.folder, judged=False), verdicts=verdicts)
        run = dataclasses.replace(judged, verdicts=with_owners(judged))
        store.write_verdicts(self.folder, run.verdicts)
        self._fill_ledger(run)
        lost = not self._add_to_history(run)
        # Everything is written, and the night may still not be what was asked for.
        ended = ExitCode.INCOMPLETE if lost and code is ExitCode.CLEAN else code
        meta = self._meta("complete") | told | {"exit_code": int(ended)}
        run = dataclasses.replace(run, meta=meta)
        write_atomically(self.folder / "summary.md", summary_markdown(run).encode())
        write_atomically(self.folder / junit.NAME, junit.junit_xml(run).encode())
        write_page(dataclasses.replace(load(self.folder), meta=meta))
        write_meta(self.folder, meta)
        seal(self.folder)
        if self.profile and self.profile.every_cell:
            write_signoff(self.folder)
        if not self.apart:
            self.home.point_latest(self.folder)
        return Finished(run_id=self.run_id, folder=self.folder, exit_code=ended)

    def _add_to_history(self, run: RunFolder) -> bool:
        """The run into the history, and what its report needs of it. What goes wrong is said and costs no result."""
        if self.history is not None:
            try:
                self.history.append(run)
                write_copy(self.folder, self.history.recent(run))
            except StorageError as error:
                self.board.say(error.told())
                return False
        return True

    def _fill_ledger(self, run: RunFolder) -> None:
        """What this run says about the open hypotheses, and the ledger's copy beside the results."""
        if self.apart:
            return
        ledger = ledger_of(self.home)
        rows = ledger.rows()
        if filled := trials.results(run, rows, trials.revision_of(self.home.root)):
            rows += ledger.append(filled)
        (self.folder / LEDGER_COPY).unlink(missing_ok=True)  # of a run taken up again: as it was when that stopped
        write_ledger(self.folder, rows)

    def _clerk(self, collected: Sequence[Collected]) -> Clerk:
        # Who asks about a cell wants to know of it, foreseen or not.
        expectations = {} if self.apart else _expectations(collected)
        return Clerk(run_id=self.run_id, host=self.host.name, arms=arms_of(self.provisions), expectations=expectations)

    def _meta(self, state: str) -> dict[str, Any]:
        request = self.request
        return {
            "schema": 1,
            "run_id": self.run_id,
            "state": state,
            "started_at": self.started.isoformat(),
            "finished_at": datetime.datetime.now(datetime.UTC).isoformat(),
            "request": {
                "baseline": request.baseline,
                "candidates": list(request.candidates),
                "targets": list(request.targets),
                "cases": list(request.cases),
                "stages": [str(stage) for stage in request.stages],
                "configs": request.configs,
                "kernels": [str(path) for path in request.case_files],
                "lock_clocks_mhz": self.lock_mhz or None,
                "profile": self.profile.name if self.profile else "",
            },
            "waivers": [dataclasses.asdict(waiver) for waiver in self.waivers],
            "host": dataclasses.asdict(self.host),
            "variables_kept_out": kept_out(),
            "environments": [provision.meta() for provision in self.provisions.values()],
            "thresholds": dataclasses.asdict(self.configuration.thresholds),
            "tools": {"nvdisasm": disassembler.version()},
            "gpus": [],
            "cases": [],
            "not_run": [],
            "exit_code": None,
        }


def _expectations(collected: Sequence[Collected]) -> dict[str, tuple[Expect, ...]]:
    """What each case expects, and what is known of releases whatever the case."""
    known = release_expectations()
    return {
        name: (*read_expectations(case.expectations, case=name), *known)
        for name, case in expectations_of(collected).items()
    }


def _cases_meta(collected: Sequence[Collected]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": case.name,
            "file": str(case.path),
            "digest": case.files.get(str(case.path), ""),
            "tags": list(case.tags),
            "targets": list(case.targets),
            "expectations": list(case.expectations),
        }
        for case in expectations_of(collected).values()
    ]


def default_jobs() -> int:
    """As many workers as this process may use cores."""
    return len(os.sched_getaffinity(0))
