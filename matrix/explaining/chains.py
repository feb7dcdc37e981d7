"""The chains of a run's findings: what the tables hold of both sides, put before :mod:`matrix.explaining.chain`."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from matrix.explaining.chain import Chain
from matrix.explaining.confounders import differences
from matrix.explaining.owner import Beside
from matrix.explaining.sides import Sides
from matrix.judging.cellnames import plain_params
from matrix.judging.groups import Section
from matrix.judging.kernel_pairs import matched
from matrix.model import CPU, Stage
from matrix.records import Tuning
from matrix.storage.rows import chosen
from matrix.storage.store import read_assemblies, read_counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.judging.arm_pairs import ArmPair
    from matrix.judging.groups import Group, Sighting
    from matrix.records import AssemblyRecord, CounterRecord, KernelRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder

_TOLD = (Section.FINDING, Section.WAIVED, Section.IMPROVEMENT, Section.KNOWN)
CHAINED = (Stage.COMPILE, Stage.CORRECTNESS, Stage.TIMING)


@functools.lru_cache(maxsize=8)
def chains_of(run: RunFolder) -> Chains:
    """The run's, whoever asks: its tables are indexed once."""
    return Chains(run)


class Chains:
    """Chains between cells of one run. ``whole`` is all of it where ``run`` holds no more than what is asked about."""

    def __init__(self, run: RunFolder, whole: RunFolder | None = None) -> None:
        self._run, self._whole = run, whole or run
        self._kernels = run.kernels_by_cell
        self._configured: dict[tuple[str, str, str, str], list[KernelRecord]] = defaultdict(list)
        self._rows: dict[tuple[str, str, str, str, str, str], VerdictRecord] = {}
        self._counters: dict[str, list[CounterRecord]] = defaultdict(list)
        self._beside: dict[tuple[str, str], list[Beside]] = {}
        self._sources = sources_of(run)
        for kernel in chosen(run.kernels, "config", bool):
            params = kernel.params.removesuffix(f"config={kernel.config}").rstrip(",")
            self._configured[kernel.environment, kernel.target, kernel.case, params].append(kernel)
        for row in run.verdicts:
            self._rows[_place(row, row.params, row.stage)] = row
        self._assembled: dict[tuple[str, str, str], list[AssemblyRecord]] = defaultdict(list)
        for assembled in read_assemblies(run.path):
            self._assembled[assembled.finding_id, assembled.candidate, assembled.target].append(assembled)
        for counted in read_counters(run.path):
            self._counters[counted.cell_id].append(counted)

    def of(self, row: VerdictRecord, kernel: str = "") -> Chain:
        """The chain behind a verdict; of one ``kernel`` alone where it is named and the verdict is about code."""
        if row.stage not in CHAINED or row.target == CPU:
            return Chain()
        timed = self._timed(row)
        arms = self._pair(timed) if timed else None
        before, after = self._code(row, arms)
        if kernel and row.stage == Stage.COMPILE:
            before, after = ([one for one in side if one.kernel == kernel] for side in (before, after))
        pairs, unmatched = matched(before, after)
        digests = self._sources.get(row.case, {})
        sides = (row.baseline, row.candidate)
        return Chain(
            Sides(
                row=row,
                pairs=pairs,
                unmatched=[one.kernel for one in unmatched],
                sources=(digests.get(sides[0], ""), digests.get(sides[1], "")),
                own_files=self._files(row.case),
                arms=arms,
                timed=timed,
                coded=self._rows.get(_place(row, plain_params(row.params), Stage.COMPILE)),
                counters=self._counts(timed),
                beside=functools.partial(self._differences, row),
                assembled=self._assembled.get((row.finding_id, row.candidate, row.target), ()),
            )
        )

    def _timed(self, row: VerdictRecord) -> VerdictRecord | None:
        """The verdict on time of the same cell; of a kernel that tunes itself with the baseline's configuration."""
        if row.stage == Stage.TIMING:
            return row
        params = plain_params(row.params)
        for name in (params, f"{params},tuning={Tuning.PINNED}".lstrip(",")):
            if found := self._rows.get(_place(row, name, Stage.TIMING)):
                return found
        return None

    def _pair(self, row: VerdictRecord) -> ArmPair | None:
        where = {"case": row.case, "target": row.target, "params": row.params}
        return self._run.pairs.find(row.baseline, row.candidate, **where)

    def _code(self, row: VerdictRecord, arms: ArmPair | None) -> tuple[Sequence[KernelRecord], Sequence[KernelRecord]]:
        """The kernels of both sides: those of the very cell, or of the configuration that was launched in it."""
        if row.stage == Stage.COMPILE:
            return self._kernels.get(row.baseline_cell_id, ()), self._kernels.get(row.candidate_cell_id, ())
        params, found = plain_params(row.params), []
        for environment in (row.baseline, row.candidate):
            own = self._kernels.get(f"{environment}/{row.target}/{row.case}:{params}".rstrip(":"), ())
            # Of a kernel that was tuned anew the baseline's choice: what the tuner did has a reason of its own.
            chosen = dict(arms.baseline.configurations) if arms else {}
            tuned = self._configured.get((environment, row.target, row.case, params), [])
            found.append([*own, *(one for one in tuned if _launched(one, chosen.get(one.kernel)))])
        return found[0], found[1]

    def _counts(self, timed: VerdictRecord | None) -> tuple[Sequence[CounterRecord], Sequence[CounterRecord]]:
        if timed is None:
            return (), ()
        return self._counters.get(timed.baseline_cell_id, ()), self._counters.get(timed.candidate_cell_id, ())

    def _files(self, case: str) -> frozenset[str]:
        entries = (entry for entry in self._run.meta.get("cases", ()) if entry["name"] == case)
        return frozenset(name for entry in entries for name in (str(entry["file"]), *entry.get("files", {})))

    def _differences(self, row: VerdictRecord) -> list[Beside]:
        pair = row.baseline, row.candidate
        if pair not in self._beside:
            found = differences([self._whole], *pair)
            self._beside[pair] = [Beside(one.owner, one.said) for one in found if one.owner is not None]
        return self._beside[pair]


def sources_of(run: RunFolder) -> dict[str, dict[str, str]]:
    """Digests of cases' files by case and environment: one for all of a run, each run's own where several are one."""
    known = run.meta.get("sources")
    if known:
        return {case: dict(by_environment) for case, by_environment in known.items()}
    names = list(run.environments)
    return {str(case["name"]): dict.fromkeys(names, str(case.get("digest", ""))) for case in run.meta.get("cases", ())}


def chained(groups: Iterable[Group]) -> Iterator[tuple[Group, Sighting, Chain]]:
    """Every finding that is told, with the worst sighting on each target and host, and its chain."""
    for group in groups:
        if group.section not in _TOLD:
            continue
        for sighting in group.leads:
            yield group, sighting, chains_of(sighting.run).of(sighting.verdict, group.finding.kernel)


def as_data(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Chains of findings as JSON has them."""
    return [
        {
            "finding_id": group.finding.finding_id,
            "title": group.title,
            "host": sighting.run.host,
            "target": sighting.verdict.target,
            "baseline_cell_id": sighting.verdict.baseline_cell_id,
            "candidate_cell_id": sighting.verdict.candidate_cell_id,
            "stage": sighting.verdict.stage,
            **as_dict(chain),
        }
        for group, sighting, chain in chained(groups)
        if chain.links
    ]


def as_dict(chain: Chain) -> dict[str, Any]:
    return {
        "first_change": str(chain.first.step) if chain.first else None,
        "links": tuple(map(asdict, chain.links)),
        "owner": chain.owner,
        "why": chain.why,
        "broken": chain.broken,
    }


def _place(row: VerdictRecord, params: str, stage: str) -> tuple[str, str, str, str, str, str]:
    return row.baseline, row.candidate, row.target, row.case, params, stage


def _launched(kernel: KernelRecord, chosen: Any) -> bool:
    """Whether this is the configuration that an arm launched: every part of its label is among the chosen values."""
    if not isinstance(chosen, dict):
        return False
    names: Mapping[str, str] = {"num_warps": "warps", "num_stages": "stages"}
    said = {f"{names.get(name, name)}{value}" for name, value in chosen.items()}
    return set(kernel.config.split(".")) <= said
