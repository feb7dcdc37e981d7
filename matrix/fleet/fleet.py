"""A run's work done by a cluster: ordered, taken in, recorded, and laid together as one host would have left it."""

from __future__ import annotations

import collections
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.fleet import hosts
from matrix.fleet.dispatch import Dispatch, Missing
from matrix.fleet.journal import Journal
from matrix.fleet.orders import Answer, Order, Question
from matrix.fleet.pools import apart, gpu_pool, host_pool, offered
from matrix.fleet.project import Roots, pack
from matrix.fleet.units import fuzz_unit, on_gpu, target_of, units_of
from matrix.gpus.stages import GpuResults, together, worked
from matrix.model import Outcome, Stage
from matrix.running.plan import selected_names
from matrix.running.ready import arms_of, planned_of
from matrix.running.reassembly import in_question
from matrix.running.recording import Clerk
from matrix.running.run import Found
from matrix.storage.cache import key_of
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.fleet.cluster import Cluster
    from matrix.fleet.orders import Survey
    from matrix.fleet.pools import Pool
    from matrix.records import AssemblyRecord, CellRecord, KernelRecord, VerdictRecord
    from matrix.running.execute import Bench
    from matrix.running.plan import PlannedCell, Request
    from matrix.running.run import Run

_HOLD_S = 20.0
_NO_COUNTERS = "a fleet reads none: `triton-matrix run` on a host with the GPU does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The hosts of a cluster in place of this one. ``work`` is what they do with a slice."""

    cluster: Cluster
    work: Callable[..., Iterator[Answer]] = hosts.work

    def find(self, run: Run, bench: Bench) -> Found:
        """All that the fleet can find out. Raises :class:`UsageError` where no host can do anything."""
        run.board.say(f"run {run.run_id}")
        order = _order(run)
        self.cluster.share(pack(run.home.root, run.configuration, run.request.case_files))
        with Journal(_journal(run), _head(order)) as journal:
            order = _taken_up(run, order, journal)
            dispatch = Dispatch(cluster=self.cluster, order=order, work=self.work, say=run.board.say)
            pools, absent = self._pools(run)
            survey = dispatch.survey(pools[0])
            run.provisions = survey.provisions
            units = units_of(planned_of(survey.provisions, survey.collected, run.request))
            units |= {unit: [] for unit in _fuzz_units(run, units)}
            ticks = _ticks(run, pools, units, journal)
            seen: set[str] = set()
            missing = {unit: absent[_pool_of(unit)] for unit in units if _pool_of(unit) in absent}
            for phase in self._phases(run, pools, [u for u in units if u not in journal.answers and u not in missing]):
                for answer in dispatch.answers(phase):
                    if isinstance(answer, Missing):
                        missing |= dict.fromkeys(answer.units, answer.reason)
                    elif answer.problem:
                        missing[answer.unit] = answer.problem  # to be asked again where the run is taken up
                    elif _keep(answer, journal, bench):
                        ticks[_pool_of(answer.unit)]()
                        if answer.host.name not in seen:
                            seen.add(answer.host.name)
                            run.board.say(f"host {answer.host.name} takes part")
            answers = [journal.answers[unit] for unit in units if unit in journal.answers]
        for answer in answers:
            run.provisions = {**run.provisions, **answer.provisions}
        return _found(run, survey, units, answers, missing)

    def reassemble(
        self, run: Run, bench: Bench, verdicts: Sequence[VerdictRecord], kernels: Sequence[KernelRecord]
    ) -> list[AssemblyRecord]:
        """Findings in the code assembled again, by a host: it has the environments. Raises :class:`FleetError`."""
        rows = [row for row, _ in in_question(verdicts, kernels)]
        if not rows:
            return []
        cells = {cell for row in rows for cell in (row.baseline_cell_id, row.candidate_cell_id)}
        own = [kernel for kernel in kernels if kernel.cell_id in cells]
        # All of it: who assembles it need not be who made it, and reading it asks for more than the PTX.
        digests = {digest for kernel in own for digest in kernel.artifacts.values()}
        artifacts = {digest: bench.artifacts.packed(digest) for digest in digests}
        question = Question(verdicts=rows, kernels=own, artifacts=artifacts)
        dispatch = Dispatch(cluster=self.cluster, order=_order(run), work=self.work, say=run.board.say)
        crossed = dispatch.cross(host_pool(self.cluster.nodes()), question)
        for digest, data in crossed.artifacts.items():
            bench.artifacts.receive(digest, data)
        return list(crossed.assemblies)

    def settle(self, run: Run) -> None:
        """The run is written: nobody needs to take it up again. A journal that will not go costs no result."""
        try:
            for path in (_journal(run), _journal(run).with_suffix(".lock")):
                path.unlink(missing_ok=True)
        except OSError as error:
            run.board.say(f"the run is whole, and its journal {error.filename} may go, but: {error.strerror}")

    def _pools(self, run: Run) -> tuple[list[Pool], dict[str, str]]:
        """The hosts for the stages without a GPU, then those for each target; why there are none for the others."""
        nodes = self.cluster.nodes()
        pools, absent = [host_pool(nodes)], {}
        if not pools[0].workers:
            raise UsageError(f"no host of the cluster has a CPU for us ({offered(nodes)})")
        for target in run.request.gpu_targets:
            if pool := gpu_pool(nodes, target):
                pools.append(pool)
            else:
                absent[target] = f"no host of the cluster has a GPU of {target} ({offered(nodes)})"
        return pools, absent

    def _phases(self, run: Run, pools: Sequence[Pool], units: Sequence[str]) -> Iterator[dict[Pool, list[str]]]:
        """What is done at once: everything where the targets' hosts are others, else one after the other.

        Nothing is compiled beside a timing. A target's host is held whole, so Ray finds other hosts for the rest.
        """
        wanted = {pool: [unit for unit in units if _pool_of(unit) == pool.target] for pool in pools}
        on_hosts = {pool: found for pool, found in wanted.items() if not pool.target and found}
        on_gpus = {pool: found for pool, found in wanted.items() if pool.target and found}
        side_by_side = apart(self.cluster.nodes(), list(on_gpus))
        if not side_by_side:
            yield on_hosts
        for pool in on_gpus:
            if not self.cluster.hold(pool, _HOLD_S):
                run.board.say(f"every host with a GPU of {pool.target} is taken; waiting for one")
        yield on_gpus | on_hosts if side_by_side else on_gpus


def fit_request(request: Request, offer: str, say: Callable[[str], None]) -> Request:
    """The request as a fleet takes it, and a word on what it is less than what was asked for.

    Counters are left out: they are read on the GPU that a cell was timed on, which Ray does not give twice.
    """
    lacking = [target for target in request.targets if target not in request.gpu_targets]
    if lacking:
        say(f"no host of the cluster has a GPU of {listing(lacking)}: compiled for, not run ({offer})")
    if Stage.COUNTERS in request.stages:
        say(f"counters are not read: {_NO_COUNTERS}")
    stages = tuple(stage for stage in request.stages if stage is not Stage.COUNTERS)
    return dataclasses.replace(request, stages=stages)


def _journal(run: Run) -> Path:
    return run.home.path / "fleet" / f"{run.run_id}.journal"


def _order(run: Run) -> Order:
    return Order(
        run_id=run.run_id,
        request=run.request,
        config=run.configuration.sources[-1] if len(run.configuration.sources) > 1 else None,
        requires=run.configuration.requires,
        roots=Roots.here(run.home.root.resolve()),
        code=hosts.code_digest(),
        lock_mhz=run.lock_mhz,
        fuzz_seconds=run.fuzz_seconds,
    )


def _head(order: Order) -> str:
    """What must be the same for a run to be taken up again; which GPUs there are may differ by then."""
    request = dataclasses.replace(order.request, gpu_targets=())
    return key_of({"request": repr(request), "requires": order.requires, "code": order.code})


def _taken_up(run: Run, order: Order, journal: Journal) -> Order:
    """The order with what the journal has: targets whose hosts have gone since are still part of the run."""
    if not journal.answers:
        return order
    run.board.say(f"{len(journal.answers)} units were answered before")
    before = {target_of(unit) for unit in journal.answers if on_gpu(unit)}
    targets = tuple(target for target in run.request.targets if target in before | {*run.request.gpu_targets})
    run.request = dataclasses.replace(run.request, gpu_targets=targets)
    return dataclasses.replace(order, request=run.request)


def _fuzz_units(run: Run, units: Iterable[str]) -> Iterator[str]:
    """One for each target of which a GPU checks anything, after all others: on one GPU, as in a run on one host."""
    if run.fuzz_seconds:
        yield from (fuzz_unit(t, run.fuzz_seconds) for t in {target_of(unit): None for unit in units if on_gpu(unit)})


def _keep(answer: Answer, journal: Journal, bench: Bench) -> bool:
    """Record an answer, artefacts first, so that no row points at nothing; False where it was recorded before."""
    for digest, data in answer.artifacts.items():
        bench.artifacts.receive(digest, data)
    return journal.keep(dataclasses.replace(answer, artifacts={}))


def _pool_of(unit: str) -> str:
    return target_of(unit) if on_gpu(unit) else ""


def _ticks(run: Run, pools: Sequence[Pool], units: Mapping[str, object], journal: Journal) -> dict[str, Any]:
    """A line of progress for each kind of host."""
    ticks = {}
    for pool in pools:
        own = [unit for unit in units if _pool_of(unit) == pool.target]
        name = f"correctness and timing on {pool.target}" if pool.target else "compile and interpret"
        ticks[pool.target] = run.board.task(name, len(own))
        ticks[pool.target](sum(unit in journal.answers for unit in own))
    return ticks


def _found(
    run: Run,
    survey: Survey,
    units: Mapping[str, Sequence[PlannedCell]],
    answers: Sequence[Answer],
    missing: Mapping[str, str],
) -> Found:
    """One host's results, made of many hosts' rows. What has no row gets one that says why."""
    timings = together(answer.timings for answer in answers)
    rows = [row for answer in answers for row in answer.cells]
    gaps = list(_gaps(run, units, answers, missing))
    gpus = _gpus(answers)
    return Found(
        collected=survey.collected,
        names=selected_names(survey.collected, run.request),
        rows=[*rows, *timings.cells, *gaps],
        kernels=[row for answer in answers for row in answer.kernels],
        gpu=GpuResults(
            dimensions=tuple(row for answer in answers for row in answer.dimensions),
            timings=timings,
            gpus=tuple({**gpu, **worked(gpu["uuid"], timings.arms)} for gpu in gpus),
        ),
        told={"hosts": _hosts(survey, answers)},
        not_run=[
            {"what": str(Stage.COUNTERS), "why": _NO_COUNTERS},
            *({"what": f"{count} units", "why": why} for why, count in collections.Counter(missing.values()).items()),
        ],
    )


def _gaps(
    run: Run, units: Mapping[str, Sequence[PlannedCell]], answers: Sequence[Answer], missing: Mapping[str, str]
) -> Iterator[CellRecord]:
    """A row for every planned cell that nobody sent one of."""
    arms, by_unit = arms_of(run.provisions), {answer.unit: answer for answer in answers}
    for unit, cells in units.items():
        answer = by_unit.get(unit)
        rows = [*answer.cells, *answer.timings.cells] if answer else []
        seen = {(row.stage, row.environment) for row in rows}
        host = answer.host.name if answer else ""
        told = missing.get(unit) or f"host {host} has no such cell, or no such environment"
        clerk = Clerk(run_id=run.run_id, host=host, arms=arms, expectations={})
        for planned in cells:
            if (str(planned.stage), planned.cell.environment) not in seen:
                yield clerk.row(planned.cell, planned.stage, Outcome.NOT_RUN, reason=told)


def _gpus(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Every GPU once, with its host, the proofs of all tasks that it served, and its latest own figures."""
    found: dict[str, dict[str, Any]] = {}
    for answer in answers:
        for gpu in answer.gpus:
            known = found.get(gpu["uuid"], {"proofs": []})
            proofs = [*known["proofs"], *(proof for proof in gpu["proofs"] if proof not in known["proofs"])]
            found[gpu["uuid"]] = {**known, **gpu, "host": answer.host.name, "proofs": proofs}
    return list(found.values())


def _hosts(survey: Survey, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Every host that took part, with how much it did and the digests of its environments."""
    units = collections.Counter(answer.host.name for answer in answers)
    known = {survey.host.name: (survey.host, {n: p.built.digest for n, p in survey.provisions.items() if p.built})}
    known |= {answer.host.name: (answer.host, dict(answer.locks)) for answer in answers}
    return [
        {**dataclasses.asdict(host), "units": units[name], "environments": locks}
        for name, (host, locks) in sorted(known.items())
    ]
