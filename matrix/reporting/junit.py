"""JUnit XML, which any CI shows: a test per compared cell and stage.

| row | test |
| --- | --- |
| regressed, code risk, mixed | failure, with the finding |
| incomplete because a side was not run | skipped; so is each stage that the run left out |
| incomplete otherwise, unexpected pass | error |
| a timing that would fail and is not believed (matrix.judging.distrust) | error: it decides nothing |
| unsupported in both, failing in both | skipped: no regression, and nothing to rely on |
| waived | skipped, with the waiver and the finding |
| everything else | passed |

A failure stands for exit code 1; the exit code itself stays the decision.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never
from xml.etree import ElementTree as ET

from matrix.judging.decision import deciding
from matrix.judging.distrust import distrust
from matrix.judging.findings import findings
from matrix.judging.outcomes import fails_in_both
from matrix.model import Outcome
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.judging.findings import Finding
    from matrix.records import CellRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder

NAME = "junit.xml"
_CONTRADICTED = "timed as different on the same machine code: not believed"
_TAIL = 20  # lines of what a failing cell said
# What XML 1.0 cannot hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Result(enum.StrEnum):
    """How a test ended, by the name of its element."""

    PASSED = ""
    FAILURE = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One ``testcase``. ``kind`` is a reason code, ``message`` one line, ``text`` all there is to say."""

    group: str
    name: str
    result: Result
    kind: str = ""
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def junit_xml(run: RunFolder) -> str:
    """The run's verdicts, a test suite per candidate."""
    doubt = distrust([row for row in run.verdicts if not row.waived])
    left = frozenset(deciding(run.verdicts))
    found = {finding.finding_id: finding for finding in findings(run.verdicts)}
    cells = {(cell.cell_id, cell.stage): cell for cell in run.cells}
    by_pair: dict[tuple[str, str], list[Test]] = defaultdict(list)
    for row in run.verdicts:
        why = "" if row.waived or row in left else doubt or _CONTRADICTED
        by_pair[row.baseline, row.candidate].append(_test(row, found, cells, doubt=why))
    suites = [_suite(run, pair, [*tests, *_beside(run, doubt)]) for pair, tests in by_pair.items()]
    root = ET.Element("testsuites", {"name": "triton-matrix", **_sums(suites)})
    root.extend(suites)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def result_of(row: VerdictRecord, *, doubt: str = "") -> Result:
    """How the row's test ends; ``doubt`` is why it is not believed."""
    match row.verdict:
        case Verdict.REGRESSED | Verdict.CODE_RISK | Verdict.MIXED:
            return Result.ERROR if doubt else Result.FAILURE
        case Verdict.INCOMPLETE:
            return Result.SKIPPED if row.reason_code == Outcome.NOT_RUN else Result.ERROR
        case Verdict.UNEXPECTED_PASS:
            return Result.ERROR
        case Verdict.UNSUPPORTED:
            return Result.SKIPPED
        case Verdict.EQUAL | Verdict.IMPROVED | Verdict.CHANGED:
            return Result.SKIPPED if fails_in_both(row.reason_code) else Result.PASSED
        case Verdict.IDENTICAL | Verdict.KNOWN:
            return Result.PASSED
        case _:
            assert_never(row.verdict)


def _test(
    row: VerdictRecord,
    found: Mapping[str, Finding],
    cells: Mapping[tuple[str, str], CellRecord],
    *,
    doubt: str,
) -> Test:
    cell = cells.get((row.candidate_cell_id, row.stage))
    return Test(
        group=f"{row.stage or 'run'}.{row.case or row.candidate}",
        name=row.candidate_cell_id or row.baseline_cell_id or row.candidate,
        result=Result.SKIPPED if row.waived else result_of(row, doubt=doubt),
        kind=row.reason_code,
        message=f"{row.verdict}: {row.change}" + (f"; waived: {row.waived}" if row.waived else ""),
        text="\n".join(_told(row, found.get(row.finding_id), cell, doubt)),
        seconds=cell.seconds if cell else 0.0,
    )


def _told(row: VerdictRecord, finding: Finding | None, cell: CellRecord | None, doubt: str) -> Iterator[str]:
    """The finding, the row's own figures, and the tail of what the candidate's cell said."""
    if finding is not None:
        yield f"{finding.title}\n{finding.text}"
        yield f"finding {finding.finding_id}: {finding.baseline} -> {finding.candidate}"
    if row.known:
        yield f"known: {row.known} {row.link}".rstrip()
    if doubt:
        yield f"{doubt}."
    if row.baseline_value is not None and row.candidate_value is not None:
        yield f"{row.kernel}: {row.baseline_value:g} -> {row.candidate_value:g}".removeprefix(": ")
    if cell is not None and cell.outcome != Outcome.PASSED:
        yield f"{cell.outcome}: {cell.reason}".removesuffix(": ")
        yield from cell.detail.rstrip().splitlines()[-_TAIL:]


def _beside(run: RunFolder, doubt: str) -> Iterator[Test]:
    """What concerns the run and no cell of it."""
    if doubt:
        yield Test(group="run", name="timings", result=Result.ERROR, kind="distrust", message=doubt)
    for entry in run.meta.get("not_run", ()):
        what, why = str(entry["what"]), str(entry["why"])
        yield Test(group="run", name=what, result=Result.SKIPPED, kind=str(Outcome.NOT_RUN), message=f"not run: {why}")


def _suite(run: RunFolder, pair: tuple[str, str], tests: Sequence[Test]) -> ET.Element:
    counts = {result: sum(test.result is result for test in tests) for result in Result}
    suite = ET.Element(
        "testsuite",
        {
            "name": _clean(f"{pair[1]} against {pair[0]}"),
            "tests": str(len(tests)),
            "failures": str(counts[Result.FAILURE]),
            "errors": str(counts[Result.ERROR]),
            "skipped": str(counts[Result.SKIPPED]),
            "time": f"{sum(test.seconds for test in tests):.3f}",
            # JUnit's readers take local times without an offset: this one is UTC.
            "timestamp": str(run.meta.get("started_at", ""))[:19],
            "hostname": _clean(run.host),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in {"run": run.run_id, "baseline": pair[0], "candidate": pair[1]}.items():
        ET.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    suite.extend(map(_element, tests))
    return suite


def _element(test: Test) -> ET.Element:
    named = {"classname": _clean(test.group), "name": _clean(test.name), "time": f"{test.seconds:.3f}"}
    case = ET.Element("testcase", named)
    if test.result is Result.PASSED:
        ET.SubElement(case, "system-out").text = _clean("\n".join(filter(None, (test.message, test.text))))
    else:
        ended = ET.SubElement(case, test.result, {"type": _clean(test.kind), "message": _clean(test.message)})
        ended.text = _clean(test.text)
    return case


def _sums(suites: Sequence[ET.Element]) -> dict[str, str]:
    counts = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in ("tests", "failures", "errors")}
    return {**counts, "time": f"{sum(float(suite.attrib['time']) for suite in suites):.3f}"}


def _clean(text: str) -> str:
    """Without control characters; the writer escapes the rest."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
