"""The findings of one run or several, each with the section of the report that tells it."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from matrix.judging.accuracy import accuracy_titles
from matrix.judging.findings import findings
from matrix.records import Verdict
from matrix.wording import RANK, by_target, listing, place, target_key, unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.judging.findings import Finding
    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder


class Section(enum.StrEnum):
    """Where in the report a finding is told."""

    FINDING = "finding"
    IMPROVEMENT = "improvement"
    KNOWN = "known"
    NOTED = "noted"  # changed, and no failure before or after: accuracy within budget, a drifting reference
    STANDING = "standing"  # it fails in the baseline as well, perhaps in another way
    UNDECIDED = "undecided"
    WAIVED = "waived"  # somebody answers for it until a day (matrix.judging.waivers)


_NOTED = frozenset(accuracy_titles())


def section(verdict: Verdict, reason_code: str = "") -> Section:
    match verdict:
        case Verdict.REGRESSED | Verdict.CODE_RISK | Verdict.MIXED | Verdict.UNEXPECTED_PASS:
            return Section.FINDING
        case Verdict.IMPROVED:
            return Section.IMPROVEMENT
        case Verdict.KNOWN:
            return Section.KNOWN
        case Verdict.INCOMPLETE:
            return Section.UNDECIDED
        case Verdict.CHANGED if reason_code in _NOTED:
            return Section.NOTED
        case Verdict.EQUAL | Verdict.CHANGED | Verdict.IDENTICAL | Verdict.UNSUPPORTED:
            return Section.STANDING
        case _:
            assert_never(verdict)


class Sighting(NamedTuple):
    """A verdict, and the run that it was seen in."""

    run: RunFolder
    verdict: VerdictRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A finding as the report tells it; ``sightings`` are its rows, worst first, with their runs."""

    anchor: str
    section: Section
    finding: Finding
    sightings: Sequence[Sighting]

    @property
    def worst(self) -> VerdictRecord:
        return self.sightings[0].verdict

    @property
    def pair(self) -> tuple[str, str]:
        return self.finding.baseline, self.finding.candidate

    @property
    def title(self) -> str:
        return self.finding.title

    @property
    def targets(self) -> list[str]:
        return by_target(sighting.verdict.target for sighting in self.sightings)

    @property
    def leads(self) -> list[Sighting]:
        """The worst sighting on each target and host, worst first."""
        leads: dict[tuple[str, str], Sighting] = {}
        for sighting in self.sightings:
            leads.setdefault((sighting.run.run_id, sighting.verdict.target), sighting)
        return list(leads.values())

    @property
    def hosts(self) -> list[str]:
        return unique(sighting.run.host for sighting in self.sightings)

    @property
    def where(self) -> str:
        return listing(map(place, self.finding.targets))


def group(runs: Sequence[RunFolder]) -> list[Group]:
    """All that the report tells of, worst first; what several runs saw alike is one group."""
    by_id = {run.run_id: run for run in runs}
    rows = [row for run in runs for row in run.verdicts]
    return [_group(finding, by_id) for finding in findings(rows)]


def _group(finding: Finding, runs: Mapping[str, RunFolder]) -> Group:
    sightings = [Sighting(runs[row.run_id], row) for row in finding.rows]
    return Group(
        anchor=_anchor(finding),
        section=Section.WAIVED if finding.waived else section(finding.verdict, finding.reason_code),
        finding=finding,
        sightings=sorted(sightings, key=lambda sighting: _worst_first(sighting.verdict)),
    )


def _worst_first(row: VerdictRecord) -> tuple[int, int, tuple[int, int, str]]:
    return (RANK[row.verdict], -abs(row.severity), target_key(row.target))


def _anchor(finding: Finding) -> str:
    """An id that survives a re-run (as the finding's does), so that a link into the report can be kept."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{finding.cases[0]} {finding.reason_code}".lower()).strip("-")
    return f"finding-{name[:48]}-{re.sub(r'[^A-Za-z0-9]+', '-', finding.finding_id)}"
