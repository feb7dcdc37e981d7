"""A run, from request to report: the program's whole story in one list of steps."""

from __future__ import annotations

import dataclasses
import datetime
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.code import disassembler
from matrix.errors import ExitCode, StorageError
from matrix.gpus.correctness import Desk
from matrix.gpus.counting import count_red
from matrix.gpus.stages import GpuHost, GpuResults, GpuStages
from matrix.gpus.timing import TimingPlan
from matrix.hypotheses import trials
from matrix.hypotheses.ledger import ledger_of
from matrix.hypotheses.ledger import write_copy as write_ledger
from matrix.judging.decision import exit_code
from matrix.judging.expectations import read_expectations
from matrix.judging.judge import judge
from matrix.judging.releases import release_expectations
from matrix.judging.waivers import waive
from matrix.model import Outcome, Stage
from matrix.nights.history import write_copy
from matrix.provisioning.provision import Provision, provide
from matrix.reporting import junit
from matrix.reporting.report import write_report
from matrix.reporting.signoff import write_signoff
from matrix.reporting.summary import summary_markdown
from matrix.running.execute import Bench, Timeouts, collect, measure
from matrix.running.facts import facts_of
from matrix.running.host import Host, this_host
from matrix.running.pending import pending
from matrix.running.plan import (
    GPU_STAGES,
    Collected,
    PlannedCell,
    Request,
    cells_of,
    check_names,
    not_run,
    selected_names,
)
from matrix.running.profiles import with_unjudged
from matrix.running.reassembly import reassemble
from matrix.running.recording import Arm, Clerk, expectations_of
from matrix.running.workers import WorkerHome, homes_of, memory_share
from matrix.storage import store
from matrix.storage.cache import Cache, key_of
from matrix.storage.runfolder import load
from matrix.storage.runs import Home, write_meta
from matrix.storage.seal import seal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.case import Expect
    from matrix.judging.waivers import Waiver
    from matrix.nights.history import History
    from matrix.records import AssemblyRecord, CellRecord, CounterRecord, KernelRecord, VerdictRecord
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
    run_id: str = ""
    started: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    folder: Path = Path()
    host: Host = field(default_factory=this_host)
    provisions: dict[str, Provision] = field(default_factory=dict)

    def execute(self) -> Finished:
        """Every step in order. What is measured is in the cache the moment it is known."""
        ledger_of(self.home).rows()  # nothing is added to a broken chain: better known before than after
        self.run_id, self.started, self.folder = self.home.begin()
        write_meta(self.folder, self._meta("running"))
        with self.home.scratch() as scratch, self.board.live():
            bench = bench_for(self.configuration, self.home, scratch, jobs=self.jobs, board=self.board)
            if self.apart:
                bench = dataclasses.replace(bench, cache=Cache(scratch / "cache"))
            self.provisions = provide(self.request.environments, self.configuration, self.home.root, self.board)
            homes = self._homes(bench)
            locks = {name: p.built.digest for name, p in self.provisions.items() if p.built}
            files = self.request.case_files
            tick = self.board.task("import", len(homes) * len(files))
            collected = [*collect(bench, homes, locks, files, tick), *self._unbuilt()]
            check_names(collected)
            names = selected_names(collected, self.request)
            planned = self._plan(collected)
            on_host = [cell for cell in planned if cell.stage not in GPU_STAGES]
            tick = self.board.task("compile and interpret", len(on_host))
            measured = measure(bench, homes, locks, on_host, tick)
            kernels = sum(len(part["kernels"]) for item in measured for part in item.parts)
            facts = facts_of(bench, measured, self.board.task("read the code", kernels))
            clerk = self._clerk(collected)
            gpu = self._on_gpus(bench, homes, locks, clerk, planned)
            cells = clerk.cells(collected, [*measured, *gpu.checked], names, timed=gpu.timings.cells)
            evidence = clerk.kernels(measured, facts)
            bench.artifacts.give({d for row in evidence for d in row.artifacts.values()}, self.folder / "artifacts")
            verdicts = self._verdicts(cells, evidence, gpu, clerk)
            store.write_counters(self.folder, self._counters(verdicts, gpu, planned, homes))
            store.write_assemblies(self.folder, self._assemblies(bench, homes, locks, verdicts, evidence))
        return self._conclude(cells, evidence, gpu, verdicts, collected)

    def _on_gpus(
        self,
        bench: Bench,
        homes: Mapping[str, WorkerHome],
        locks: Mapping[str, str],
        clerk: Clerk,
        planned: Sequence[PlannedCell],
    ) -> GpuResults:
        """Correctness and timing on this host's GPUs; nothing where it has none."""
        if not self.gpu_host.gpus:
            return GpuResults()
        request = {"cells": [f"{cell.stage} {cell.cell.id}" for cell in planned], "locks": dict(locks)}
        under_way = pending(self.home.cache, key_of(request))
        stages = GpuStages(
            desk=Desk(cache=bench.cache, homes=homes, locks=locks, token=under_way.token),
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
        results = stages.execute(planned)
        under_way.settle()
        return results

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
        return waive(complete, self.waivers)

    def _counters(
        self,
        verdicts: Sequence[VerdictRecord],
        gpu: GpuResults,
        planned: Sequence[PlannedCell],
        homes: Mapping[str, WorkerHome],
    ) -> list[CounterRecord]:
        """What the hardware counts in the cells that turned out red."""
        if Stage.COUNTERS not in self.request.stages:
            return []
        return count_red(verdicts, gpu.timings.arms, planned, homes, self.gpu_host.gpus, self.board.say)

    def _assemblies(
        self,
        bench: Bench,
        homes: Mapping[str, WorkerHome],
        locks: Mapping[str, str],
        verdicts: Sequence[VerdictRecord],
        evidence: Sequence[KernelRecord],
    ) -> list[AssemblyRecord]:
        """Each side's PTX with the other's ptxas, of what is in question, where that was asked for."""
        if not self.cross_ptxas:
            return []
        done = reassemble(bench, homes, locks, verdicts, evidence, self.configuration.thresholds)
        bench.artifacts.give({digest for row in done for digest in row.artifacts.values()}, self.folder / "artifacts")
        return done

    def _conclude(
        self,
        cells: list[CellRecord],
        evidence: list[KernelRecord],
        gpu: GpuResults,
        verdicts: list[VerdictRecord],
        collected: Sequence[Collected],
    ) -> Finished:
        """Write every file, and point ``latest`` here."""
        code = exit_code(verdicts)
        store.write_cells(self.folder, cells)
        store.write_evidence(self.folder, evidence)
        store.write_verdicts(self.folder, verdicts)
        if gpu.gpus:
            store.write_dimensions(self.folder, gpu.dimensions)
            store.write_timings(self.folder, gpu.timings.arms)
            store.write_rounds(self.folder, gpu.timings.rounds)
        finished = {"exit_code": int(code), "cases": _cases_meta(collected), "not_run": not_run(self.request)}
        write_meta(self.folder, self._meta("complete") | finished | {"gpus": list(gpu.gpus)})
        run = load(self.folder)
        self._fill_ledger(run)
        lost = not self._add_to_history(run)
        write_text = (self.folder / "summary.md").write_text
        write_text(summary_markdown(run), encoding="utf-8")
        (self.folder / junit.NAME).write_text(junit.junit_xml(run), encoding="utf-8")
        write_report(self.folder)
        seal(self.folder)
        if self.profile and self.profile.every_cell:
            write_signoff(self.folder)
        if not self.apart:
            self.home.point_latest(self.folder)
        # Everything is written, and the night is still not what was asked for.
        ended = ExitCode.INCOMPLETE if lost and code is ExitCode.CLEAN else code
        return Finished(run_id=self.run_id, folder=self.folder, exit_code=ended)

    def _add_to_history(self, run: RunFolder) -> bool:
        """The run into the history, and what its report needs of it. What goes wrong is said and costs no result."""
        if self.history is not None:
            try:
                self.history.append(run)
                write_copy(self.folder, self.history.recent(run))
            except StorageError as error:
                self.board.say(f"error: {error}\nhint: {error.hint}")
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
        write_ledger(self.folder, rows)

    def interrupted(self) -> None:
        """Leave word in the run folder that the run did not end."""
        if self.run_id:
            write_meta(self.folder, self._meta("interrupted"))

    def _homes(self, bench: Bench) -> dict[str, WorkerHome]:
        memory = memory_share(self.host, self.jobs)
        return homes_of(self.provisions, self.configuration.pythonpath, bench.scratch, memory)

    def _unbuilt(self) -> list[Collected]:
        """Environments that could not be built: every case file fails there, for that reason."""
        return [
            Collected(
                environment=name,
                path=path,
                outcome=Outcome.ENVIRONMENT_ERROR,
                reason=provision.problem.splitlines()[0],
                detail=provision.problem,
                seconds=0.0,
                cases=(),
            )
            for name, provision in self.provisions.items()
            if provision.built is None
            for path in self.request.case_files
        ]

    def _plan(self, collected: Sequence[Collected]) -> list[PlannedCell]:
        return [
            cell
            for name, provision in self.provisions.items()
            for cell in cells_of(
                name, provision.triton_version, [c for c in collected if c.environment == name], self.request
            )
        ]

    def _clerk(self, collected: Sequence[Collected]) -> Clerk:
        arms = {
            name: Arm(environment=name, triton_version=provision.triton_version, torch_version=provision.torch_version)
            for name, provision in self.provisions.items()
        }
        # Who asks about a cell wants to know of it, foreseen or not.
        expectations = {} if self.apart else _expectations(collected)
        return Clerk(run_id=self.run_id, host=self.host.name, arms=arms, expectations=expectations)

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
                "kernels": [str(path) for path in request.case_files],
                "lock_clocks_mhz": self.lock_mhz or None,
                "profile": self.profile.name if self.profile else "",
            },
            "waivers": [dataclasses.asdict(waiver) for waiver in self.waivers],
            "host": dataclasses.asdict(self.host),
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


def bench_for(configuration: Configuration, home: Home, scratch: Path, *, jobs: int, board: Board) -> Bench:
    """A bench in ``scratch`` that keeps what it finds in the project's own folder."""
    timeouts = configuration.timeouts_s
    return Bench.make(
        scratch,
        store=home.path,
        slots=jobs,
        timeouts=Timeouts(
            collect=timeouts[Stage.IMPORT],
            compile=timeouts[Stage.COMPILE],
            interpret=timeouts[Stage.INTERPRET],
        ),
        say=board.say,
    )


def default_jobs() -> int:
    """As many workers as this process may use cores."""
    return len(os.sched_getaffinity(0))
