"""The matrix picture: cases by targets, one panel for each candidate, worst verdict in every cell."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from matrix.judging.groups import Sighting
from matrix.judging.outcomes import FAILING_IN_BOTH
from matrix.model import CPU, Stage
from matrix.records import Verdict
from matrix.running.shards import missing_targets
from matrix.wording import LOOKS, RANK, Look, listing, phrase, place, plural, target_key, unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.judging.groups import Group
    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder

    Anchors = Mapping[str, str]  # by finding

_LABEL_CHARACTERS = 22
_ON_A_GPU = (Stage.CORRECTNESS, Stage.TIMING)
# Verdicts whose reason says more than their name.
_UNMOVED = {Verdict.EQUAL, Verdict.CHANGED}
_REASONED = {Verdict.REGRESSED, Verdict.CODE_RISK, Verdict.MIXED, Verdict.IMPROVED}
_STANDING = Look(
    word="fails in both",
    glyph="\N{CIRCLED DIVISION SLASH}",
    tone="known",
    meaning="fails in the baseline as well",
)
_NO_ROW = Look(word="none", glyph="·", tone="blank", meaning="the case does not run here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A target as one run saw it; ``note`` says how it was judged and, with several runs, on which host."""

    run: RunFolder
    target: str
    note: str
    stages: frozenset[str] = frozenset()
    empty: bool = False  # no run has anything of it

    @property
    def on_a_gpu(self) -> bool:
        return bool(self.stages & frozenset(map(str, _ON_A_GPU)))

    @property
    def name(self) -> str:
        return place(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One cell of the picture."""

    look: Look
    label: str
    title: str
    anchor: str = ""
    also: str = ""  # glyph of an improvement beside something worse


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    case: str
    squares: Sequence[Square]
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGroup:
    """The cases of one folder."""

    name: str
    rows: Sequence[CaseRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    baseline: str
    candidate: str
    columns: Sequence[Column]
    groups: Sequence[CaseGroup]

    @property
    def not_on_a_gpu(self) -> str:
        """Targets that no GPU stage reached, in a run that had a GPU of another: their cells say less."""
        missing = unique(column.name for column in self.columns if column.target != CPU and not column.on_a_gpu)
        reached = unique(column.name for column in self.columns if column.on_a_gpu)
        if not reached or not missing:
            return ""
        return f"Only {listing(reached)} ran on a GPU. Correctness and timing were not run for {listing(missing)}."


def panels(runs: Sequence[RunFolder], groups: Sequence[Group]) -> list[Panel]:
    anchors = {group.finding.finding_id: group.anchor for group in groups}
    return [_panel(runs, pair, rows, anchors) for pair, rows in by_pair(runs).items()]


def unique_pairs(runs: Sequence[RunFolder]) -> list[tuple[str, str]]:
    """Every (baseline, candidate) that was judged, in the order of the runs' requests."""
    return list(by_pair(runs))


def by_pair(runs: Sequence[RunFolder]) -> dict[tuple[str, str], list[Sighting]]:
    """The rows of each (baseline, candidate), in that order."""
    found: dict[tuple[str, str], list[Sighting]] = collections.defaultdict(list)
    for run in runs:
        for row in run.verdicts:
            found[row.baseline, row.candidate].append(Sighting(run, row))
    return found


def legend(shown: Sequence[Panel]) -> list[Look]:
    """The looks that the panels use, worst first."""
    used = {s.look.glyph + s.look.word for p in shown for g in p.groups for row in g.rows for s in row.squares}
    return [look for look in (*LOOKS.values(), _STANDING, _NO_ROW) if look.glyph + look.word in used]


def _panel(runs: Sequence[RunFolder], pair: tuple[str, str], own: Sequence[Sighting], anchors: Anchors) -> Panel:
    found: dict[tuple[str, str, str], list[VerdictRecord]] = collections.defaultdict(list)
    # A row of no case (a stage that a sign-off lacks, an idle waiver) is told among the gaps.
    for run, verdict in [each for each in own if each.verdict.case] or own:
        found[verdict.case, run.run_id, verdict.target].append(verdict)
    columns = sorted([*_columns(runs, found), *_empty_columns(runs)], key=lambda column: target_key(column.target))
    cases = unique(case for case, _, _ in found)
    rows = [_row(case, [_verdicts(found, case, column) for column in columns], anchors) for case in cases]
    return Panel(baseline=pair[0], candidate=pair[1], columns=columns, groups=_by_folder(runs, rows))


def _verdicts(
    found: Mapping[tuple[str, str, str], Sequence[VerdictRecord]], case: str, column: Column
) -> Sequence[VerdictRecord]:
    return () if column.empty else found.get((case, column.run.run_id, column.target), ())


def _columns(runs: Sequence[RunFolder], found: Mapping[tuple[str, str, str], Sequence[VerdictRecord]]) -> list[Column]:
    columns = []
    for run in runs:
        stages: dict[str, list[str]] = collections.defaultdict(list)
        for (_, run_id, target), verdicts in found.items():
            if run_id == run.run_id:
                stages[target] += [verdict.stage for verdict in verdicts]
        for target in sorted(stages, key=target_key):
            notes = [*unique(stages[target]), *([run.host] if len(runs) > 1 else [])]
            seen = frozenset(stages[target])
            columns.append(Column(run=run, target=target, note=", ".join(notes), stages=seen))
    return sorted(columns, key=lambda column: target_key(column.target))


def _empty_columns(runs: Sequence[RunFolder]) -> list[Column]:
    """In one matrix of several hosts: a target that none of them has is a column that nobody filled."""
    if len(runs) < 2:
        return []
    return [
        Column(run=runs[0], target=t, note="correctness, timing: no host", empty=True) for t in missing_targets(runs)
    ]


def _by_folder(runs: Sequence[RunFolder], rows: Iterable[CaseRow]) -> list[CaseGroup]:
    """The cases in the order of the run's own list, so that two reports can be laid side by side."""
    folders: dict[str, str] = {}
    for run in runs:
        for entry in run.meta.get("cases", ()):
            folders.setdefault(str(entry["name"]), PurePosixPath(str(entry.get("file", ""))).parent.name)
    order = {name: place for place, name in enumerate(folders)}
    grouped: dict[str, list[CaseRow]] = {}
    for row in sorted(rows, key=lambda row: order.get(row.case, len(order))):
        grouped.setdefault(folders.get(row.case, ""), []).append(row)
    return [CaseGroup(name=phrase(name), rows=members) for name, members in grouped.items()]


def _row(case: str, cells: Sequence[Sequence[VerdictRecord]], anchors: Anchors) -> CaseRow:
    moved = any(v.finding_id in anchors and v.verdict not in _UNMOVED for cell in cells for v in cell)
    return CaseRow(case=case, squares=[_square(cell, anchors) for cell in cells], moved=moved)


def _square(verdicts: Sequence[VerdictRecord], anchors: Anchors) -> Square:
    if not verdicts:
        return Square(look=_NO_ROW, label="", title=_NO_ROW.meaning)
    worst = min(verdicts, key=_worst_first)
    look = _look(worst)
    better = worst.verdict != Verdict.IMPROVED and any(v.verdict == Verdict.IMPROVED for v in verdicts)
    return Square(
        look=look,
        label=_label(worst, look),
        title=_title(verdicts, worst),
        anchor=anchors.get(worst.finding_id, ""),
        also=LOOKS[Verdict.IMPROVED].glyph if better else "",
    )


def _look(verdict: VerdictRecord) -> Look:
    """How the verdict is drawn; what fails on both sides is equal and still no good news."""
    standing = verdict.verdict == Verdict.EQUAL and verdict.reason_code == FAILING_IN_BOTH
    return _STANDING if standing else LOOKS[verdict.verdict]


def _worst_first(verdict: VerdictRecord) -> tuple[int, int]:
    standing = _look(verdict) is _STANDING
    return (RANK[Verdict.KNOWN] if standing else RANK[verdict.verdict], -abs(verdict.severity))


def _label(worst: VerdictRecord, look: Look) -> str:
    if worst.verdict not in _REASONED:
        return look.word
    text = phrase(worst.reason_code) or look.word
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"


def _title(verdicts: Sequence[VerdictRecord], worst: VerdictRecord) -> str:
    counts = collections.Counter(_look(verdict).word for verdict in verdicts)
    words = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    where = f" at {worst.params}" if worst.params else ""
    change = f"; worst: {worst.change}{where}" if worst.change else ""
    return f"{plural(len(verdicts), 'verdict')}: {words}{change}"
