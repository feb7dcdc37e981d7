"""Memory traffic by source line, baseline and candidate side by side, the source beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.wording import NOTHING, change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.records import KernelRecord
    from matrix.storage.runfolder import RunFolder

    Line = Mapping[str, float | int | str]
    Key = tuple[str, int, str]

# Lines whose cost moved least are left out of a page.
_SHOWN = 12
_FIGURES = ("wavefronts", "sectors")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRow:
    """One line of the source and one kind of access; figures a block, as text."""

    place: str
    source: str
    kind: str
    what: str  # wavefronts or sectors
    baseline: str
    candidate: str
    change: str
    moved: bool


def line_rows(run: RunFolder, baseline: KernelRecord, candidate: KernelRecord) -> list[LineRow]:
    """The lines that moved most first; none where a side was not evaluated."""
    before, after = _by_line(baseline), _by_line(candidate)
    if before is None or after is None:
        return []
    found = [(key, *cost) for key in {**before, **after} for cost in _costs(before, after, key)]
    found.sort(key=lambda item: (-abs(item[3] - item[2]), -item[3], item[0]))
    text = _source(run, candidate)
    return [_row(key, what, old, new, text) for key, what, old, new in found[:_SHOWN]]


def _by_line(kernel: KernelRecord) -> dict[Key, dict[str, float]] | None:
    if kernel.facts.memory_lines is None:
        return None
    found: dict[Key, dict[str, float]] = {}
    for line in kernel.facts.memory_lines:
        key = (str(line["file"]), int(line["line"]), str(line["kind"]))
        row = found.setdefault(key, dict.fromkeys(_FIGURES, 0.0))
        for name in _FIGURES:
            row[name] += float(line[name])
    return found


def _costs(
    before: Mapping[Key, Mapping[str, float]], after: Mapping[Key, Mapping[str, float]], key: Key
) -> Iterator[tuple[str, float, float]]:
    for what in _FIGURES:
        old, new = before.get(key, {}).get(what, 0.0), after.get(key, {}).get(what, 0.0)
        if old or new:
            yield what, old, new


def _row(key: Key, what: str, before: float, after: float, text: Sequence[str]) -> LineRow:
    file, number, kind = key
    known = 0 < number <= len(text)
    return LineRow(
        place=f"{file}:{number}" if file else NOTHING,
        source=text[number - 1].strip() if known else "",
        kind=kind.replace("_", " "),
        what=what,
        baseline=f"{before:,.0f}",
        candidate=f"{after:,.0f}",
        change=change(round(before), round(after)),
        moved=round(before) != round(after),
    )


def _source(run: RunFolder, kernel: KernelRecord) -> list[str]:
    """The case file's lines, if it is still the file that ran."""
    for case in run.meta.get("cases", ()):
        if case["name"] == kernel.case and case["file"] == kernel.source_file:
            return _unchanged(Path(str(case["file"])), str(case.get("digest", "")))
    return []


def _unchanged(path: Path, digest: str) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError:
        return []
    return content.decode("utf-8", "replace").splitlines() if hashlib.sha256(content).hexdigest() == digest else []
