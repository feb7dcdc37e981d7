"""The decision that the verdicts add up to: a sentence for a person, an exit code for a CI job.

| rows | sentence | exit code |
| --- | --- | --- |
| any regressed | Do not upgrade. | 1 |
| else any code risk or mixed | Measure before upgrading. | 1 |
| else the timings contradict themselves (matrix.judging.distrust) | The timings cannot be trusted. | 3 |
| else any incomplete or unexpected pass, or no row at all | Incomplete: ... | 3 |
| else | Nothing regressed. | 0 |

Known differences, improvements and failures on both sides never decide, nor does what is waived
(matrix.judging.waivers), nor a cell of identical code that was timed as slower or faster; where those are
too many, no timing of that comparison decides (matrix.judging.distrust).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrix.errors import ExitCode
from matrix.judging.distrust import CALLED, NONE_QUIET, TESTED, Quiet, believed, contradictions, distrust
from matrix.judging.findings import REGRESSIONS, findings
from matrix.judging.outcomes import fails_in_both
from matrix.model import Stage
from matrix.records import Verdict
from matrix.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.judging.distrust import Comparison
    from matrix.judging.findings import Finding
    from matrix.records import VerdictRecord

_UNDECIDED = frozenset((Verdict.INCOMPLETE, Verdict.UNEXPECTED_PASS))
_NO_WORSE = frozenset((Verdict.EQUAL, Verdict.CHANGED, Verdict.IMPROVED))
_NAMED = 3  # findings that fit one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``sentence`` decides, ``text`` says why in one line; ``counts`` are rows by verdict, zeros left out."""

    sentence: str
    text: str
    exit_code: ExitCode
    counts: Mapping[Verdict, int]
    findings: int


def summarise(rows: Sequence[VerdictRecord]) -> Summary:
    """The decision over numbered rows: of a whole run, or of one candidate's rows."""
    counts = Counter(row.verdict for row in rows)
    found = findings(rows)
    doubt = distrust(_standing(rows))
    return Summary(
        sentence=_sentence(Counter(row.verdict for row in deciding(rows)), len(rows), doubt),
        text=". ".join(filter(None, (doubt, contradictions(_standing(rows)), _text(counts, rows, found)))),
        exit_code=exit_code(rows),
        counts=dict(counts),
        findings=sum(finding.regressed and not finding.waived for finding in found),
    )


def by_candidate(rows: Sequence[VerdictRecord]) -> dict[str, Summary]:
    """One summary per candidate, in the order of the rows."""
    names = dict.fromkeys(row.candidate for row in rows)
    return {name: summarise([row for row in rows if row.candidate == name]) for name in names}


def exit_code(rows: Sequence[VerdictRecord]) -> ExitCode:
    loud, quiet = _apart(rows) if isinstance(rows, Rows) else (rows, NONE_QUIET)
    standing = _standing(loud)
    left = believed(standing, quiet)
    verdicts = {row.verdict for row in left}
    if verdicts & REGRESSIONS:
        return ExitCode.REGRESSED
    if len(left) < len(standing):
        return ExitCode.INCOMPLETE
    return ExitCode.INCOMPLETE if not rows or verdicts & _UNDECIDED else ExitCode.CLEAN


def _apart(rows: Rows[VerdictRecord]) -> tuple[list[VerdictRecord], dict[Comparison, Quiet]]:
    """Of a night's many rows those that may decide, by their verdicts or as contradicted controls; how many others
    were timed.
    """
    table = rows.table
    loud = pc.or_(
        pc.is_in(table["verdict"], pa.array(map(str, REGRESSIONS | _UNDECIDED))),
        pc.is_in(table["speed"], pa.array(map(str, CALLED))),
    )
    timed = pc.and_(pc.equal(table["stage"], str(Stage.TIMING)), pc.is_in(table["speed"], pa.array(map(str, TESTED))))
    keys = ["run_id", "baseline", "candidate", "negative_control"]
    counted = table.filter(pc.and_not(timed, loud)).group_by(keys).aggregate([([], "count_all")])
    quiet: dict[Comparison, Quiet] = defaultdict(Quiet)
    for *comparison, own, count in zip(*(counted[name].to_pylist() for name in (*keys, "count_all")), strict=True):
        name: Comparison = tuple(comparison)
        known = quiet[name]
        quiet[name] = known._replace(**{"controls" if own else "others": count})
    return rows.taken(np.flatnonzero(loud.to_numpy()).tolist()), quiet


def _standing(rows: Sequence[VerdictRecord]) -> Sequence[VerdictRecord]:
    """What no waiver covers."""
    return [row for row in rows if not row.waived]


def deciding(rows: Sequence[VerdictRecord]) -> Sequence[VerdictRecord]:
    """The rows that may decide: not the waived, those of the timing stage only where nothing speaks against them."""
    return believed(_standing(rows))


def _sentence(counts: Mapping[Verdict, int], total: int, doubt: str) -> str:
    if counts.get(Verdict.REGRESSED):
        return "Do not upgrade."
    if any(counts.get(verdict) for verdict in REGRESSIONS):
        return "Measure before upgrading."  # read off the code: a reason to measure, not a measurement
    if doubt:
        return "The timings cannot be trusted."
    if not total:
        return "Incomplete: nothing was judged."
    gaps, passes = counts.get(Verdict.INCOMPLETE, 0), counts.get(Verdict.UNEXPECTED_PASS, 0)
    open_points = [f"{gaps} of {_counted(total, 'cell')} could not be judged"] if gaps else []
    open_points += [f"{_counted(passes, 'expected failure')} did not happen"] if passes else []
    return f"Incomplete: {'; '.join(open_points)}." if open_points else "Nothing regressed."


def _text(counts: Mapping[Verdict, int], rows: Sequence[VerdictRecord], found: Sequence[Finding]) -> str:
    regressed = [finding for finding in found if finding.regressed and not finding.waived]
    parts = [_headline(regressed)] if regressed else []
    gaps = counts.get(Verdict.INCOMPLETE, 0)
    parts.append(f"{len(rows) - gaps} of {_counted(len(rows), 'cell')} judged")
    both = failing_in_both(rows)
    named = [
        (counts.get(Verdict.IMPROVED, 0), "improved"),
        (counts.get(Verdict.KNOWN, 0), "as expected"),
        (both, "failing in both"),
        (sum(bool(row.waived) for row in rows), "waived"),
    ]
    return "; ".join([*parts, *(f"{count} {word}" for count, word in named if count)]) + "."


def failing_in_both(rows: Sequence[VerdictRecord]) -> int:
    """How many rows are of kernels that work in neither environment, and got no worse: nothing to rely on."""
    return sum(row.verdict in _NO_WORSE and fails_in_both(row.reason_code) for row in rows)


def _headline(regressed: Sequence[Finding]) -> str:
    named = ", ".join(finding.title for finding in regressed[:_NAMED])
    more = f" and {len(regressed) - _NAMED} more" if len(regressed) > _NAMED else ""
    return f"{_counted(len(regressed), 'finding')}: {named}{more}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
