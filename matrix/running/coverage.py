"""What no run judged, of several that are laid into one matrix: cells known from another target, and not from this."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from matrix.gpus.fuzz import FUZZ
from matrix.judging.cellnames import plain_params
from matrix.model import CPU
from matrix.running.profiles import UNJUDGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder


class Place(NamedTuple):
    """A stage on a target, in one comparison."""

    baseline: str
    candidate: str
    target: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """``judged`` are the places that some run has rows of; ``lacking`` the cells that each of them has no row of."""

    judged: frozenset[Place]
    lacking: Mapping[Place, Sequence[str]]

    def fills(self, row: VerdictRecord) -> bool:
        """Whether what the row says is missing was judged in another run, every cell of it."""
        place = _place(row)
        return row.reason_code == UNJUDGED and place in self.judged and place not in self.lacking

    @property
    def by_target(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """The lacking cells by target and stage, whatever the candidate."""
        found: dict[tuple[str, str], dict[str, None]] = {}
        for place, cells in self.lacking.items():
            found.setdefault((place.target, place.stage), {}).update(dict.fromkeys(cells))
        return {key: list(cells) for key, cells in found.items()}


def coverage_of(runs: Sequence[RunFolder]) -> Coverage:
    """Of all runs together. A cell that was judged at a stage on one target is asked for on each that has the stage.

    Not where the case is not for the target, nor what a fuzz budget made up.
    """
    only = {str(case["name"]): set(case.get("targets") or ()) for run in runs for case in run.meta["cases"]}
    judged: dict[Place, set[tuple[str, str]]] = collections.defaultdict(set)
    for run in runs:
        for row in run.verdicts:
            if row.case and f"{FUZZ}=" not in row.params:
                # Which of a cell's own variants a row is about need not be the same on every target.
                judged[_place(row)].add((row.case, plain_params(row.params)))
    asked: dict[Place, set[tuple[str, str]]] = collections.defaultdict(set)
    for place, cells in judged.items():
        asked[place._replace(target="")] |= cells
    lacking: dict[Place, list[str]] = {}
    for place, cells in judged.items():
        absent = sorted(asked[place._replace(target="")] - cells)
        told = [
            f"{case}:{params}".removesuffix(":") for case, params in absent if _is_for(place.target, only.get(case))
        ]
        if told:
            lacking[place] = told
    return Coverage(judged=frozenset(judged), lacking=lacking)


def _place(row: VerdictRecord) -> Place:
    return Place(baseline=row.baseline, candidate=row.candidate, target=row.target, stage=str(row.stage))


def _is_for(target: str, targets: set[str] | None) -> bool:
    return not targets or target == CPU or target in targets
