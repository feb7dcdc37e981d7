"""The run in a few lines: Markdown for a pull request and a CI job's page, plain text for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.explaining.chains import chained
from matrix.explaining.confounders import confounders_of
from matrix.judging.groups import Section, group
from matrix.reporting.gaps import gaps
from matrix.reporting.headline import decisions, figures, reach, title
from matrix.reporting.said import said
from matrix.wording import LOOKS, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.explaining.confounders import OneChange
    from matrix.judging.groups import Group
    from matrix.reporting.gaps import Gap
    from matrix.reporting.headline import Decision
    from matrix.storage.runfolder import RunFolder

_ROWS = 20
_CHAINED = 200  # findings whose chains are looked at for what is broken
# GitHub takes 65,536 characters in a comment (and a mebibyte in a step's summary).
_MOST = 60_000
_MOST_A_LINE = 1000
_MOST_OF_A_REASON = 200
_HALF = "\\&"  # a cut must not fall into an escape
# By this a bot finds its own comment, to edit it instead of adding another.
MARKER = "<!-- triton-matrix -->"
_TOLD = frozenset((Section.FINDING, Section.WAIVED, Section.UNDECIDED, Section.IMPROVEMENT, Section.STANDING))
_COLOURS = {"bad": "31;1", "missing": "31", "risk": "33", "odd": "34", "good": "32"}


def summary_markdown(run: RunFolder) -> str:
    """``summary.md``: the decision, the findings as a table, what was not tested."""
    groups = group([run])
    lines = [MARKER, f"# {_plain(title([run]))}", "", *_confounded(run)]
    for decision in decisions([run], groups):
        lines += [f"**{decision.word}** {_named(decision, groups)}{_plain(decision.sentence)}", ""]
    lines += [reach([run]), ""]
    lines += ["| " + " | ".join(f"{figure.label}" for figure in figures([run], groups)) + " |"]
    lines += ["|" + " --- |" * len(figures([run], groups))]
    lines += ["| " + " | ".join(figure.value for figure in figures([run], groups)) + " |", ""]
    lines += _table("Findings", [found for found in groups if found.section is Section.FINDING])
    lines += _table("Waived", [found for found in groups if found.section is Section.WAIVED])
    lines += _table("Without a verdict", [found for found in groups if found.section is Section.UNDECIDED])
    lines += _table("Fails in both", [found for found in groups if found.section is Section.STANDING])
    lines += _table("Improvements", [found for found in groups if found.section is Section.IMPROVEMENT])
    lines += _table("Known differences", [found for found in groups if found.section is Section.KNOWN])
    lines += _broken(groups)
    lines += _not_tested(gaps([run]))
    return _fitting(lines)


def _confounded(run: RunFolder) -> list[str]:
    """What differs beside the kernels, before any number; where causes cannot be told apart, the runs that would."""
    lines = []
    for found in confounders_of([run]):
        lines += [f"{_plain(found.candidate)}: {_plain(found.text)}", ""]
        lines += [f"- {each.cause} alone: `{_line(each.command)}`{_declaring(each)}" for each in found.runs]
        lines += [""] if found.runs else []
    return lines


def _declaring(each: OneChange) -> str:
    return f" with, in matrix.toml: `{_line(each.needs)}`" if each.needs else ""


def _broken(groups: Sequence[Group]) -> list[str]:
    """Links that the one before them does not explain."""
    found = [
        f"- {_plain(group.title)} on {sighting.verdict.target}: {_plain(text)}"
        for group, sighting, chain in chained(groups[:_CHAINED])
        for text in chain.broken
    ]
    return ["## To be explained", "", *found[:_ROWS], ""] if found else []


def _fitting(lines: Sequence[str]) -> str:
    """The lines up to what a comment holds, whole but for overlong ones; what is cut off is said."""
    kept: list[str] = []
    left = _MOST
    for line in lines:
        short = line if len(line) <= _MOST_A_LINE else f"{line[:_MOST_A_LINE].rstrip(_HALF)}…"
        left -= len(short) + 1
        if left < 0:
            kept += ["", f"Cut at {_MOST:,} characters: report.html holds the rest."]
            break
        kept.append(short)
    return "\n".join(kept).rstrip() + "\n"


def summary_text(run: RunFolder, *, colour: bool = False) -> str:
    """What a terminal shows at the end of a run."""
    groups = group([run])
    return "\n".join(_text_lines(run, groups, colour=colour)) + "\n"


def _text_lines(run: RunFolder, groups: Sequence[Group], *, colour: bool) -> Iterator[str]:
    for beside in confounders_of([run]):
        yield f"{beside.candidate}: {_line(beside.text)}"
        for each in beside.runs:
            yield f"  {each.cause} alone: {_line(each.command)}{_declaring(each).replace('`', '')}"
    for decision in decisions([run], groups):
        pair = f"{decision.baseline} → {decision.candidate}"
        yield f"{_paint(decision.word, decision.tone, colour=colour)} {pair}"
        yield f"  {decision.sentence}"
        own = [found for found in groups if found.pair == (decision.baseline, decision.candidate)]
        told = [g for g in own if g.section in _TOLD]
        for found in told[:_ROWS]:
            look = LOOKS[found.finding.verdict]
            word = _paint(f"{look.glyph} {look.word:<10}", look.tone, colour=colour)
            waived = f"  waived: {_line(found.finding.waived)}" if found.finding.waived else ""
            yield f"  {word}  {_line(found.title)}  [{found.where}]{waived}"
            for told_too in filter(None, (said(found), _whose(found))):
                yield f"  {'':<12}  {_cut(_line(told_too))}"
        if len(told) > _ROWS:
            yield f"  and {len(told) - _ROWS} more in the report"
    yield reach([run])


def _paint(text: str, tone: str, *, colour: bool) -> str:
    code = _COLOURS.get(tone, "")
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def _named(decision: Decision, groups: Sequence[Group]) -> str:
    several = len({found.pair for found in groups}) > 1
    return f"{_plain(decision.candidate)}: " if several else ""


def _table(heading: str, groups: Sequence[Group]) -> list[str]:
    if not groups:
        return []
    lines = [f"## {heading}", "", "| | what | targets | candidate |", "| --- | --- | --- | --- |"]
    for found in groups[:_ROWS]:
        look = LOOKS[found.finding.verdict]
        gap = found.finding.text if found.section is Section.UNDECIDED else ""
        waived = f"waived: {found.finding.waived}" if found.finding.waived else ""
        told = "" if found.finding.known or said(found) in gap else _cut(said(found))
        notes = (found.finding.known or gap, waived, told, _whose(found))
        why = "".join(f"<br>{_plain(note)}" for note in notes if note)
        cells = (
            f"{look.glyph} {look.word}",
            f"{_plain(found.title)}{why}",
            found.where,
            _plain(found.finding.candidate),
        )
        lines.append(f"| {' | '.join(cells)} |")
    if len(groups) > _ROWS:
        lines.append(f"| | and {len(groups) - _ROWS} more in the report | | |")
    return [*lines, ""]


def _whose(found: Group) -> str:
    """Whose change a finding is, on its worst target."""
    return next((chain.said for _, _, chain in chained([found]) if chain.links), "")


def _not_tested(found: Sequence[Gap]) -> list[str]:
    if not found:
        return []
    lines = ["## Not tested", ""]
    for gap in found[:_ROWS]:
        cells = f" ({plural(len(gap.cells), 'cell')})" if gap.cells else ""
        lines.append(f"- {_plain(gap.what)}{cells}: {_plain(gap.why)}")
    return [*lines, f"- and {len(found) - _ROWS} more in the report"] if len(found) > _ROWS else lines


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_OF_A_REASON else f"{text[:_MOST_OF_A_REASON]}…"


def _line(text: str) -> str:
    """One line without control characters: a case's name must not steer the terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)


def _plain(text: str) -> str:
    """Text that Markdown and the HTML in it show as it stands."""
    escaped = _line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", escaped)
