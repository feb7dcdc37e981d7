"""Waivers: findings that somebody answers for until a day, from a TOML file::

    [[waivers]]
    cells = ["triton3.9.0-*/sm_90/column_max_tma:*"]   # globs over ids, as everywhere
    stages = ["timing"]                                # optional: of these stages alone
    reasons = ["slower"]                               # optional: of these reason codes alone
    reason = "replaced by the pointer twin in 1.8"
    owner = "kernels@example.org"
    link = "https://example.org/issues/12"
    expires = 2026-12-31                               # the last day on which it holds, UTC

A waived row keeps its verdict and is shown, and decides nothing. A waiver that has expired, or that nothing
needs, is an error: the first before anything runs, the second as an incomplete row.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matrix.errors import ConfigurationError
from matrix.judging.cellnames import matches
from matrix.judging.findings import REGRESSIONS, number
from matrix.judging.lacks import lack
from matrix.model import CPU, Stage
from matrix.records import Verdict, VerdictRecord
from matrix.settings.tomlfile import TomlFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from matrix.settings.tomlfile import Table

WAIVABLE = REGRESSIONS | {Verdict.INCOMPLETE, Verdict.UNEXPECTED_PASS}
UNUSED = "waiver_unused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One waiver; ``place`` is where it stands, ``expires`` an ISO date. Empty stages and reasons mean all."""

    cells: tuple[str, ...]
    stages: tuple[str, ...]
    reasons: tuple[str, ...]
    reason: str
    owner: str
    link: str
    expires: str
    place: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.owner}, until {self.expires}, {self.link})"

    def covers(self, row: VerdictRecord) -> bool:
        """Whether it speaks about this row, which decides something."""
        return (
            row.verdict in WAIVABLE
            and (not self.stages or row.stage in self.stages)
            and (not self.reasons or row.reason_code in self.reasons)
            and matches(row, self.cells)
        )


def read_waivers(path: Path, *, today: dt.date) -> tuple[Waiver, ...]:
    """The waivers of a file. Raises :class:`ConfigurationError` with everything that is wrong, expiry included."""
    file = TomlFile.read(path)
    top = file.table()
    found = [_waiver(table, today) for table in top.tables("waivers")]
    top.finish()
    if file.problems:
        hint = "a waiver has cells, reason, owner, link and expires; stages and reasons narrow it. Nothing was run"
        raise ConfigurationError(file.sorted_problems(), hint=hint)
    return tuple(found)


def waive(rows: Sequence[VerdictRecord], waivers: Iterable[Waiver]) -> list[VerdictRecord]:
    """The rows, those that a waiver covers with its text, and an incomplete row for each waiver that covers none."""
    given = tuple(waivers)
    if not given:
        return list(rows)
    waived = [_waived(row, given) for row in rows]
    idle = [waiver for waiver in given if not any(map(waiver.covers, rows))]
    return number([*waived, *(_unused(rows, waiver) for waiver in idle)]) if idle else waived


def _waived(row: VerdictRecord, waivers: Sequence[Waiver]) -> VerdictRecord:
    waiver = next((waiver for waiver in waivers if waiver.covers(row)), None)
    return replace(row, waived=str(waiver)) if waiver else row


def _waiver(table: Table, today: dt.date) -> Waiver:
    waiver = Waiver(
        cells=table.texts("cells"),
        stages=table.words("stages", [str(stage) for stage in Stage]),
        reasons=table.texts("reasons"),
        reason=table.text("reason"),
        owner=table.text("owner"),
        link=table.text("link"),
        expires=table.day("expires"),
        place=f"{table.file.path.name}:{table.file.line(table.where)}",
    )
    for problem in _problems(table, waiver, today):
        table.problem(*problem)
    table.finish()
    return waiver


def _problems(table: Table, waiver: Waiver, today: dt.date) -> Iterator[tuple[str, str]]:
    examples = {"reason": "why this may pass", "owner": "who answers for it", "link": "where it is followed up"}
    for key, example in examples.items():
        if key not in table:
            yield key, f"missing: {example}"
        elif not str(table.values[key]).strip():
            yield key, f"is empty: {example}"
    if "cells" not in table or ("cells" in table and table.values["cells"] in ([], "")):
        yield "cells", 'missing: globs over cell ids, such as "*/sm_90/softmax:*"'
    if "expires" not in table:
        yield "expires", f"missing: the last day on which it holds, such as {today + dt.timedelta(days=30)}"
    elif waiver.expires and dt.date.fromisoformat(waiver.expires) < today:
        yield "expires", f"expired on {waiver.expires}: remove it, or decide anew and give it another day"


def _unused(rows: Sequence[VerdictRecord], waiver: Waiver) -> VerdictRecord:
    """A row of the first comparison: the waiver is the run's, whichever candidate it was for."""
    first = rows[0]
    return lack(
        UNUSED,
        "a waiver covers nothing that decides: remove it, or correct its globs",
        f"{waiver.reason} ({waiver.place})",
        run_id=first.run_id,
        baseline=first.baseline,
        candidate=first.candidate,
        target=CPU,
        stage=Stage.IMPORT,  # of no cell, like everything that is wrong before a cell is reached
        candidate_cell_id=waiver.place,
    )
