"""One finding as the report shows it: evidence side by side, the chain of links, code, how to reproduce."""

from __future__ import annotations

import functools
import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.code.diffs import CodeDiff, code_diff
from matrix.errors import StorageError
from matrix.explaining.chains import chains_of
from matrix.judging.changes import Change, decode
from matrix.model import Outcome, Stage, safe
from matrix.reporting.arm_table import arm_notes, arm_rows
from matrix.reporting.dimension_table import dimension_rows, dimensions_equal
from matrix.reporting.evidence_table import FactRow, fact_rows
from matrix.reporting.memory_lines import LineRow, line_rows
from matrix.reporting.resampled import resampled
from matrix.reporting.said import cell_of
from matrix.reporting.strips import Strips, strips
from matrix.resources import kernels_folder, sample_folder
from matrix.wording import by_target, unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.explaining.chain import Chain
    from matrix.judging.arm_pairs import ArmPair
    from matrix.judging.groups import Group, Sighting
    from matrix.records import CellRecord, DimensionRecord, KernelRecord, RoundRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder

# The worst findings get code differences; a page with hundreds of them would not open on a phone.
WITH_CODE = 20
# The worst of a section get a card with their evidence; the others are rows of one table.
WITH_CARD = 60
_DETAIL_CHARACTERS = 1600
_NAMED_CASES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one side said when it failed."""

    side: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The worst cell of a finding on one target (and host): what each side shows."""

    target: str
    host: str
    params: str
    kernel: str
    rows: Sequence[FactRow]
    equal: Sequence[str]
    chain: Chain
    changes: Sequence[Change]
    messages: Sequence[Message]
    lines: Sequence[LineRow] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    group: Group
    evidence: Sequence[Evidence]
    diffs: Sequence[CodeDiff]
    show: str
    rerun: str
    strips: Strips | None = None
    resampled: str = ""


def line(group: Group) -> Card:
    """What a row of a table tells: no evidence."""
    return Card(group=group, evidence=(), diffs=(), show=_show(group), rerun=_rerun(group))


def card(group: Group, *, code: bool) -> Card:
    """``code``: whether to read the artifacts or the raw samples, and show how they differ."""
    leads = group.leads
    pair = _kernels(leads[0], group.finding.kernel)
    rounds = _rounds(leads[0]) if code else []
    names = {"baseline": group.worst.baseline, "candidate": group.worst.candidate}
    return Card(
        group=group,
        evidence=[_evidence(sighting, group.finding.kernel) for sighting in leads],
        diffs=_diffs(leads[0].run, pair) if code and pair else (),
        show=_show(group),
        rerun=_rerun(group),
        strips=strips(rounds, **names) if rounds else None,
        resampled=resampled(rounds, **names) if rounds else "",
    )


def _show(group: Group) -> str:
    sample = ["--sample"] if group.leads[0].run.path == sample_folder() else []
    return _command("triton-matrix", "show", group.worst.candidate_cell_id, *sample)


def _rounds(lead: Sighting) -> Sequence[RoundRecord]:
    """The raw samples behind a finding about time."""
    run, verdict = lead
    if verdict.stage != Stage.TIMING or not run.timings:
        return ()
    return run.rounds({verdict.baseline_cell_id, verdict.candidate_cell_id})


def _evidence(sighting: Sighting, kernel: str) -> Evidence:
    run, verdict = sighting
    cells = tuple(cell_of(run, cell_id, verdict.stage) for cell_id in _cell_ids(sighting))
    pair = _kernels(sighting, kernel)
    changes = decode(verdict.detail)
    reasons = {change.reason_code: str(change.direction) for change in changes}
    rows, equal = fact_rows(verdict, reasons, (cells[0], cells[1]), pair)
    notes: list[str] = []
    arms = _arms(run, verdict)
    if arms is not None:
        rows, notes = arm_rows(verdict, arms), list(arm_notes(verdict, arms))
    if verdict.stage == Stage.CORRECTNESS:
        before, after = (_dimensions(run, cell_id) for cell_id in _cell_ids(sighting))
        rows = dimension_rows(before, after) or rows
        equal = dimensions_equal(before, after)
    return Evidence(
        target=verdict.target,
        host=run.host,
        params=verdict.params,
        kernel=pair[1].kernel if pair else verdict.kernel,
        rows=rows,
        equal=equal,
        chain=chains_of(run).of(verdict, kernel),
        changes=changes,
        messages=_messages(cells),
        lines=line_rows(run, *pair) if pair and any("traffic" in reason for reason in reasons) else (),
        notes=notes,
    )


def _arms(run: RunFolder, verdict: VerdictRecord) -> ArmPair | None:
    if verdict.stage != Stage.TIMING or not run.timings:
        return None
    place = {"case": verdict.case, "target": verdict.target, "params": verdict.params}
    return run.pairs.find(verdict.baseline, verdict.candidate, **place)


def _dimensions(run: RunFolder, cell_id: str) -> list[DimensionRecord]:
    return list(run.dimensions_by_cell.get(cell_id, ()))


def _cell_ids(sighting: Sighting) -> tuple[str, str]:
    return sighting.verdict.baseline_cell_id, sighting.verdict.candidate_cell_id


def _messages(cells: Sequence[CellRecord | None]) -> list[Message]:
    """What each side said; a message that both gave word for word says nothing about the change, nor do the times of
    cells that were timed: the table has them.
    """
    texts = [cell.detail.strip() if cell else "" for cell in cells]
    timed = all(cell and cell.stage == Stage.TIMING and cell.outcome == Outcome.PASSED for cell in cells)
    if timed or texts[0] == texts[1]:
        return []
    sides = zip(("baseline", "candidate"), texts, strict=True)
    return [Message(side=side, text=_tail(text)) for side, text in sides if text]


def _tail(text: str) -> str:
    """The end of a long message: compilers put what matters last."""
    return text if len(text) <= _DETAIL_CHARACTERS else f"… {text[-_DETAIL_CHARACTERS:]}"


def _kernels(sighting: Sighting, kernel: str) -> tuple[KernelRecord, KernelRecord] | None:
    """The kernel of both sides that the finding is about; where it names none, the first that differs."""
    run, verdict = sighting
    if verdict.stage != Stage.COMPILE:
        return None
    before, after = (_of_cell(run, cell_id, kernel) for cell_id in _cell_ids(sighting))
    pairs = [(before[key], after[key]) for key in before if key in after]
    moved = [pair for pair in pairs if pair[0].facts.sass_hash != pair[1].facts.sass_hash]
    return next(iter(moved or pairs), None)


def _of_cell(run: RunFolder, cell_id: str, kernel: str) -> dict[tuple[str, str, int], KernelRecord]:
    return {
        (record.kernel, record.config, record.index): record
        for record in run.kernels_by_cell.get(cell_id, ())
        if kernel in {"", record.kernel}
    }


def _diffs(run: RunFolder, pair: tuple[KernelRecord, KernelRecord]) -> list[CodeDiff]:
    kinds = ["ttgir", "ptx", "sass"]
    if pair[0].facts.ttir_hash != pair[1].facts.ttir_hash:
        kinds.insert(0, "ttir")
    return [_diff(run, kind, pair[0].artifacts.get(kind, ""), pair[1].artifacts.get(kind, "")) for kind in kinds]


def _diff(run: RunFolder, kind: str, baseline: str, candidate: str) -> CodeDiff:
    if not baseline or not candidate:
        side = "baseline" if not baseline else "candidate"
        return CodeDiff(
            kind=kind, baseline_digest=baseline, candidate_digest=candidate, problem=f"the {side} stored none"
        )
    try:
        return code_diff(kind, (baseline, candidate), (run.artifact(baseline), run.artifact(candidate)))
    except StorageError as error:
        problem = str(error) if run.has_artifacts else "the code itself was left out of this run's folder"
        return CodeDiff(kind=kind, baseline_digest=baseline, candidate_digest=candidate, problem=problem)


def _rerun(group: Group) -> str:
    worst, run = group.worst, group.sightings[0].run
    targets = by_target(target for target in group.targets if target.startswith("sm_"))
    words = ["triton-matrix", "run", "--baseline", worst.baseline, "--candidate", worst.candidate]
    words += ["--targets", ",".join(targets)] if targets else []
    cases = set(filter(None, group.finding.cases))
    for file in unique(str(c["file"]) for c in run.meta.get("cases", ()) if c["name"] in cases and not _ours(c)):
        words += ["--kernels", file]
    # A finding of a whole environment lists every case: then the run as it was is what repeats it.
    words += ["--cases", ",".join(map(safe, sorted(cases)))] if 0 < len(cases) <= _NAMED_CASES else []
    return _command(*words)


def _ours(case: Mapping[str, object]) -> bool:
    """Whether the case is built in, on whichever machine it ran: then it needs no ``--kernels``."""
    tags = case.get("tags")
    return (isinstance(tags, list) and "builtin" in tags) or case.get("digest") in _built_in_digests()


@functools.cache
def _built_in_digests() -> frozenset[str]:
    files = kernels_folder().rglob("*.py")
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def _command(*words: str) -> str:
    return shlex.join(words)
