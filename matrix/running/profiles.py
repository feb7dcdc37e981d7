"""Profiles: what ``--profile`` stands for, as data; and what a sign-off still lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import tomllib

from matrix.judging.findings import number
from matrix.judging.lacks import lack
from matrix.model import CPU, Stage
from matrix.records import VerdictRecord
from matrix.resources import data_file
from matrix.running.plan import GPU_STAGES, HOST_STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DATA = data_file("profiles.toml")
UNJUDGED = "stage_not_judged"


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
) -> list[VerdictRecord]:
    """The rows, and where the profile wants every cell judged an incomplete one for each stage that no row judges.

    Counters are read of red cells alone: none of them is no gap.
    """
    if profile is None or not profile.every_cell:
        return list(rows)
    judged = {(row.candidate, row.target, row.stage) for row in rows}
    lacking = [
        _unjudged(run_id, baseline, candidate, target, stage)
        for candidate in candidates
        for stage, target in _wanted(profile, targets)
        if (candidate, target, stage) not in judged
    ]
    return number([*rows, *lacking]) if lacking else list(rows)


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
