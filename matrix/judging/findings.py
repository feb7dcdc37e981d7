"""Verdict rows grouped by cause: the same regression on three targets and ten shapes is one finding.

Rows of one candidate, case and stage that point the same way are gathered around their gravest common change,
so that a kernel which spills on two targets and loses occupancy on one of them stays together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from matrix.judging.accuracy import AccuracyReason, accuracy_titles
from matrix.judging.changes import Change, Direction, code_titles, decode
from matrix.judging.kinds import Kind, kind_of
from matrix.judging.outcomes import FAILING_IN_BOTH, outcome_titles
from matrix.judging.speed import SpeedReason, speed_titles
from matrix.model import CPU, Outcome, Stage, Target
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.records import VerdictRecord

    Places = Mapping[tuple[str, str, str], Sequence[VerdictRecord]]  # candidate, case, stage

# Worst first; a finding takes the first of its rows' verdicts. Verdicts that are not here make no finding:
# most releases change most code, and what is equal or unsupported in both is the matrix picture's to show.
_ORDER = (
    Verdict.REGRESSED,
    Verdict.CODE_RISK,
    Verdict.MIXED,
    Verdict.INCOMPLETE,
    Verdict.UNEXPECTED_PASS,
    Verdict.EQUAL,
    Verdict.CHANGED,
    Verdict.KNOWN,
    Verdict.IMPROVED,
)
REGRESSIONS = frozenset((Verdict.REGRESSED, Verdict.CODE_RISK, Verdict.MIXED))
_TITLES = {
    **speed_titles(),
    **accuracy_titles(),
    **outcome_titles(),
    **code_titles(),
    "evidence_missing": "compiled, but its code was not recorded",
    "nothing_run": "nothing was run",
    "stage_not_judged": "a stage without a verdict, where every cell is wanted",
    "nothing_judged": "nothing was built or run of what was asked for",
    "waiver_unused": "a waiver covers nothing that decides",
    "unexpected_pass": "passes, though it was expected to fail",
}
# Changes that most releases bring to most cells: the timing section and the matrix picture show them.
_NO_FINDING = frozenset(
    (
        "code_changed",
        AccuracyReason.VALUES_CHANGED,
        SpeedReason.SLOWER_WITHIN_THRESHOLD,
        SpeedReason.FASTER_WITHIN_THRESHOLD,
        SpeedReason.NOT_SLOWER,
    )
)
_QUIET_WORDS = {
    Verdict.IDENTICAL: "same code",
    Verdict.EQUAL: "flat",
    Verdict.CHANGED: "flat",
    Verdict.IMPROVED: "improved",
    Verdict.UNSUPPORTED: "unsupported",
    Verdict.KNOWN: "known",
    Verdict.UNEXPECTED_PASS: "unexpected pass",
}
_OTHER_FINDING = "another finding"


class QuietTarget(NamedTuple):
    """A target where the same case was judged and did not show the finding, and what it showed instead."""

    target: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, with everywhere it shows. ``severity`` orders findings of one verdict, higher is worse.

    ``word`` says which way it points: ``mixed`` where cells of the same case and kind did the opposite.
    """

    finding_id: str
    verdict: Verdict
    kind: Kind
    word: str
    reason_code: str
    severity: int
    baseline: str
    candidate: str
    cases: tuple[str, ...]
    kernel: str
    stage: str
    targets: tuple[str, ...]
    params: tuple[str, ...]
    quiet: tuple[QuietTarget, ...]
    title: str
    text: str
    known: str
    link: str
    rows: tuple[VerdictRecord, ...]

    @property
    def regressed(self) -> bool:
        return self.verdict in REGRESSIONS

    @property
    def waived(self) -> str:
        """The waivers that cover all of it; empty where one row is left to decide."""
        texts = list(dict.fromkeys(row.waived for row in self.rows))
        return "; ".join(text for text in texts if text) if all(texts) else ""


def number(rows: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    """The rows in their order, each that belongs to a finding with that finding's id.

    The id is a hash of the cause alone: it is the same in the next run, and on another set of targets.
    """
    buckets: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for position, row in enumerate(rows):
        if _makes_finding(row):
            buckets[_bucket(row)].append(position)
    numbered = list(rows)
    for bucket, positions in buckets.items():
        for cause, members in _clusters([(p, _causes(rows[p])) for p in positions]):
            finding_id = hashlib.sha256("\0".join((*bucket, *cause)).encode()).hexdigest()[:10]
            for position in members:
                numbered[position] = replace(rows[position], finding_id=finding_id)
    return numbered


def findings(rows: Sequence[VerdictRecord]) -> list[Finding]:
    """The findings of numbered rows, worst first."""
    groups: dict[str, list[VerdictRecord]] = defaultdict(list)
    places: dict[tuple[str, str, str], list[VerdictRecord]] = defaultdict(list)
    for row in rows:
        places[row.candidate, row.case, row.stage].append(row)
        if row.finding_id:
            groups[row.finding_id].append(row)
    found = [_finding(members, places) for members in groups.values()]
    return sorted(found, key=_worst_first)


def _makes_finding(row: VerdictRecord) -> bool:
    match row.verdict:
        case Verdict.EQUAL:
            return row.reason_code == FAILING_IN_BOTH
        case Verdict.CHANGED:
            return row.reason_code not in _NO_FINDING
        case Verdict.IDENTICAL | Verdict.UNSUPPORTED:
            return False
        case _:
            return True


# What a release does not take at all it takes at no stage.
_AT_ANY_STAGE = frozenset((Outcome.UNSUPPORTED, Outcome.REFUSED))


def _bucket(row: VerdictRecord) -> tuple[str, ...]:
    """What rows must share before their causes are compared. A gap or a failed import spans cases."""
    first = next(iter(decode(row.detail)), None)
    stage = (first.stage if first else "") or row.stage
    group = "regression" if row.verdict in REGRESSIONS else str(row.verdict)
    spans = row.verdict is Verdict.INCOMPLETE or (stage == Stage.IMPORT and first is not None and first.cause)
    case = "" if spans else row.case
    return (
        row.baseline,
        row.candidate,
        group,
        case,
        "" if row.verdict is Verdict.INCOMPLETE or row.reason_code in _AT_ANY_STAGE else stage,
        row.known,
    )


class _Cause(NamedTuple):
    kernel: str
    reason_code: str
    said: str


def _causes(row: VerdictRecord) -> dict[_Cause, int]:
    """The changes that decide the row's verdict, with their severities."""
    changes = decode(row.detail)
    wanted = Direction.BETTER if row.verdict is Verdict.IMPROVED else Direction.WORSE
    deciding = [change for change in changes if change.direction is wanted] or changes[:1]
    if row.verdict in (Verdict.KNOWN, Verdict.UNEXPECTED_PASS):
        deciding = changes[:1]
    causes = {_cause(change): change.severity for change in deciding}
    return causes or {_Cause(row.kernel, row.reason_code, ""): row.severity}


def _cause(change: Change) -> _Cause:
    return _Cause(change.kernel, str(change.reason_code), normalised(change.cause))


def normalised(message: str) -> str:
    """An error message without what differs between targets, shapes and runs: numbers, addresses, paths."""
    text = re.sub(r"\S*/\S+", "<path>", message)
    text = re.sub(r"\bsm_\w+", "<target>", text)
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", text)


def _clusters(rows: Iterable[tuple[int, dict[_Cause, int]]]) -> list[tuple[_Cause, list[int]]]:
    """Rows around their gravest cause: the gravest of all takes every row that has it, then the next."""
    left = dict(rows)
    clusters = []
    while left:
        severities = {cause: severity for causes in left.values() for cause, severity in causes.items()}
        head = min(severities, key=lambda cause: (-severities[cause], cause))
        members = [position for position, causes in left.items() if head in causes]
        clusters.append((head, members))
        left = {position: causes for position, causes in left.items() if position not in members}
    return clusters


def _finding(rows: Sequence[VerdictRecord], places: Places) -> Finding:
    change, row = _shown(rows)
    targets = _targets(rows)
    cases = tuple(sorted({member.case for member in rows}))
    quiet = _quiet(rows, places, targets) if len(cases) == 1 else ()
    beside = _beside(rows, places) if len(cases) == 1 else []
    stage = change.stage or row.stage
    verdict = min((member.verdict for member in rows), key=_ORDER.index)
    kind = kind_of(str(change.reason_code), stage)
    return Finding(
        finding_id=row.finding_id,
        verdict=verdict,
        kind=kind,
        word=_pointing(verdict, kind, beside),
        reason_code=str(change.reason_code),
        severity=max(member.severity for member in rows),
        baseline=row.baseline,
        candidate=row.candidate,
        cases=cases,
        kernel=change.kernel,
        stage=stage,
        targets=targets,
        params=tuple(dict.fromkeys(member.params for member in rows if member.params)),
        quiet=quiet,
        title=_title(cases, change, row),
        text=_text(change, row, rows, targets, quiet, [other for other in beside if other.target in targets]),
        known=row.known,
        link=row.link,
        rows=tuple(rows),
    )


def _shown(rows: Sequence[VerdictRecord]) -> tuple[Change, VerdictRecord]:
    """The cause that all rows share, from the row where it moved most."""
    shared = set.intersection(*(set(_causes(row)) for row in rows))
    candidates = [(change, row) for row in rows for change in decode(row.detail) if _cause(change) in shared]
    if not candidates:  # a row that was written without its changes
        row = rows[0]
        bare = Change(
            reason_code=row.reason_code,
            direction=Direction.NEUTRAL,
            severity=abs(row.severity),
            text=row.change,
        )
        return bare, row
    return max(candidates, key=lambda pair: (pair[0].severity, pair[0].factor))


def _title(cases: Sequence[str], change: Change, row: VerdictRecord) -> str:
    subject = cases[0] if len(cases) == 1 else f"{len(cases)} cases"
    if not subject:
        subject = row.candidate
    said = _TITLES.get(str(change.reason_code), str(change.reason_code).replace("_", " "))
    if row.verdict is Verdict.KNOWN:
        said += " (known)"
    return f"{subject}: {said}"


def _text(
    change: Change,
    row: VerdictRecord,
    rows: Sequence[VerdictRecord],
    targets: Sequence[str],
    quiet: Sequence[QuietTarget],
    beside: Sequence[VerdictRecord],
) -> str:
    """One sentence: what, where, where not, and what is known about it. ``beside``: other cells of these targets."""
    subject = f"{change.kernel}: " if change.kernel and change.kernel != row.case else ""
    where = "" if tuple(targets) == (CPU,) else f" on {_listed(targets)}"
    cells = f" ({len(rows)} cells)" if len(rows) > len(targets) else ""
    if beside:
        others = Counter(_word([other]) for other in beside)
        said = ", ".join(f"{count} {word}" for word, count in others.items())
        cells = f" ({len(rows)} of {len(rows) + len(beside)} cells; the others: {said})"
    without = "; not on " + ", ".join(f"{q.target} ({q.word})" for q in quiet) if quiet else ""
    known = f"; known: {row.known}" if row.known else ""
    return f"{subject}{change.said}{where}{cells}{without}{_also(change, rows)}{known}."


def _also(shown: Change, rows: Sequence[VerdictRecord]) -> str:
    """Of what other kinds the same cells got worse: a slower kernel may be slower to launch as well."""
    own = kind_of(str(shown.reason_code), shown.stage or rows[0].stage)
    found: dict[Kind, set[str]] = defaultdict(set)
    for row in rows:
        for change in decode(row.detail):
            kind = kind_of(str(change.reason_code), change.stage or row.stage)
            if change.direction is Direction.WORSE and kind is not own:
                found[kind].add(row.candidate_cell_id + row.params)
    told = [f"{kind} in {len(cells)} of them" if len(rows) > 1 else str(kind) for kind, cells in found.items()]
    return f"; worse too: {', '.join(told)}" if told else ""


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _targets(rows: Iterable[VerdictRecord]) -> tuple[str, ...]:
    """In the order of the architectures. The CPU only where nothing else is: an import spans all targets."""
    seen = {row.target for row in rows}
    return tuple(sorted(seen - {CPU} or seen, key=_target_order))


def _target_order(target: str) -> tuple[int, str]:
    order = [str(member) for member in Target]
    return (order.index(target) if target in order else len(order)), target


def _quiet(
    rows: Sequence[VerdictRecord],
    places: Places,
    targets: Sequence[str],
) -> tuple[QuietTarget, ...]:
    """Targets of the same case and stage, at any params, that were judged and are not in the finding."""
    if rows[0].verdict is Verdict.INCOMPLETE:
        return ()
    others: dict[str, list[VerdictRecord]] = defaultdict(list)
    for place in {(row.candidate, row.case, row.stage) for row in rows}:
        for row in places[place]:
            if row.target not in targets and row.target != CPU and row.verdict is not Verdict.INCOMPLETE:
                others[row.target].append(row)
    return tuple(QuietTarget(target, _word(others[target])) for target in sorted(others, key=_target_order))


def _beside(rows: Sequence[VerdictRecord], places: Places) -> list[VerdictRecord]:
    """The judged rows of the same case and stage that are not in the finding, on any target."""
    own = {(row.run_id, row.target, row.params) for row in rows}
    found = {(row.candidate, row.case, row.stage) for row in rows}
    return [
        row
        for place in found
        for row in places[place]
        if row.verdict is not Verdict.INCOMPLETE and (row.run_id, row.target, row.params) not in own
    ]


def _pointing(verdict: Verdict, kind: Kind, beside: Iterable[VerdictRecord]) -> str:
    """Regressed, improved or mixed, by what other cells of the case did in the same respect; else the verdict."""
    worse, better = verdict in REGRESSIONS, verdict is Verdict.IMPROVED
    for row in beside:
        against = row.verdict is Verdict.IMPROVED if worse else row.verdict in REGRESSIONS
        if (worse or better) and against and kind_of(row.reason_code, row.stage) is kind:
            return str(Verdict.MIXED)
    return str(verdict)


def _word(rows: Sequence[VerdictRecord]) -> str:
    """What a quiet target showed instead; the word least like silence where its cells differ."""
    if any(row.verdict in REGRESSIONS for row in rows):
        return _OTHER_FINDING
    order = list(_QUIET_WORDS)
    worst = max((row.verdict for row in rows if row.verdict in _QUIET_WORDS), key=order.index)
    if worst is Verdict.EQUAL and any(row.reason_code == FAILING_IN_BOTH for row in rows):
        return "fails in both"
    return _QUIET_WORDS[worst]


def _worst_first(finding: Finding) -> tuple[int, int, str, tuple[str, ...], str]:
    # Failures and risks are one list by severity; a regression of any kind comes before what is undecided.
    tier = 0 if finding.regressed else _ORDER.index(finding.verdict)
    grave = -abs(finding.severity)
    return tier, grave, finding.candidate, finding.cases, finding.finding_id
