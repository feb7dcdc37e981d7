"""Profiles: what ``--profile`` stands for, as data; and what a sign-off still lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tomllib

from matrix.judging.findings import REGRESSIONS, number
from matrix.judging.lacks import lack
from matrix.model import CPU, Stage
from matrix.records import Verdict, VerdictRecord
from matrix.resources import data_file
from matrix.running.plan import GPU_STAGES, HOST_STAGES
from matrix.storage.rows import distinct
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATA = data_file("profiles.toml")
UNJUDGED = "stage_not_judged"
NOTHING = "nothing_judged"
_TELLING = REGRESSIONS | {Verdict.INCOMPLETE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One table of ``data/profiles.toml``, which says what each field means."""

    name: str
    about: str
    stages: tuple[Stage, ...]
    targets: tuple[str, ...]
    fuzz_seconds: float
    every_cell: bool

    def stages_here(self, *, gpu: bool) -> tuple[Stage, ...]:
        """Those that a host with or without a GPU can run."""
        return tuple(stage for stage in self.stages if gpu or stage in HOST_STAGES)


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles, by name."""
    with DATA.open("rb") as file:
        tables = tomllib.load(file)
    return {
        name: Profile(
            name=name,
            about=table["about"],
            stages=tuple(Stage(stage) for stage in table["stages"]),
            targets=tuple(table["targets"]),
            fuzz_seconds=float(table["fuzz_seconds"]),
            every_cell=table["every_cell"],
        )
        for name, table in tables.items()
    }


def with_unjudged(
    rows: Sequence[VerdictRecord],
    profile: Profile | None,
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
    targets: Sequence[str],
) -> Sequence[VerdictRecord]:
    """The rows, and where the profile wants every cell judged an incomplete one for each stage that no row judges.

    Counters are read of red cells alone: none of them is no gap.
    """
    if profile is None or not profile.every_cell:
        return rows
    judged = distinct(rows, "candidate", "target", "stage")
    lacking = [
        _unjudged(run_id, baseline, candidate, target, stage)
        for candidate in candidates
        for stage, target in _wanted(profile, targets)
        if (candidate, target, stage) not in judged
    ]
    return number([*rows, *lacking]) if lacking else rows


def with_nothing_judged(
    rows: Sequence[VerdictRecord],
    stages: Sequence[str],
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
) -> Sequence[VerdictRecord]:
    """The rows, and an incomplete one for each candidate of which no row is of a stage that was asked for.

    What neither side takes is no such row. Not where only the import was asked for, nor where a case did not come so
    far: that is said already.
    """
    wanted = [stage for stage in stages if stage not in (Stage.IMPORT, Stage.COUNTERS)]
    seen = distinct(rows, "candidate", "stage", "verdict")
    told = {
        candidate
        for candidate, stage, verdict in seen
        if verdict in _TELLING or (stage in wanted and verdict != Verdict.UNSUPPORTED)
    }
    lacking = [
        lack(
            NOTHING,
            "nothing was built or run: no case has a cell at the stages and on the targets that were asked for",
            listing(list(map(str, wanted))),
            run_id=run_id,
            baseline=baseline,
            candidate=candidate,
            target=CPU,
            stage=wanted[0],
            baseline_cell_id=f"{baseline}/*",
            candidate_cell_id=f"{candidate}/*",
        )
        for candidate in candidates
        if wanted and candidate not in told
    ]
    return number([*rows, *lacking]) if lacking else rows


def completed(
    rows: Sequence[VerdictRecord], requests: Sequence[Mapping[str, Any]], **names: Any
) -> Sequence[VerdictRecord]:
    """The rows of runs judged anew, and what these lack as they were asked for: by the requests of their run.json."""
    named = (profiles().get(request.get("profile") or "") for request in requests)
    profile = next((each for each in named if each and each.every_cell), None)
    targets, stages = (
        tuple(dict.fromkeys(word for request in requests for word in request.get(key, ())))
        for key in ("targets", "stages")
    )
    return with_nothing_judged(with_unjudged(rows, profile, targets=targets, **names), stages, **names)


def _wanted(profile: Profile, targets: Sequence[str]) -> Iterator[tuple[Stage, str]]:
    for stage in profile.stages:
        if stage in (Stage.IMPORT, Stage.INTERPRET):
            yield stage, CPU
        elif stage is not Stage.COUNTERS:
            yield from ((stage, target) for target in targets)


def _unjudged(run_id: str, baseline: str, candidate: str, target: str, stage: Stage) -> VerdictRecord:
    needs = ", which needs a GPU of that target" if stage in GPU_STAGES else ""
    return lack(
        UNJUDGED,
        "this profile wants every cell judged, and no cell was judged at one stage",
        f"{stage}{needs}",
        run_id=run_id,
        baseline=baseline,
        candidate=candidate,
        target=target,
        stage=stage,
        baseline_cell_id=f"{baseline}/{target}/*",
        candidate_cell_id=f"{candidate}/{target}/*",
    )
