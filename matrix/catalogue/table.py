"""The catalogue for people: recall row by row in a terminal, and the page of the documentation.

``python -P -m matrix.catalogue.table > docs/catalogue.md`` writes that page from the data.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from matrix.catalogue.recall import RowResult, Standing
from matrix.catalogue.rows import OLDEST, Catalogue, Row, read_catalogue
from matrix.resources import catalogue_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PAGE = """\
# The catalogue of documented regressions

Each row is a regression that somebody reported of a released Triton, with a kernel written afresh from its
description: a case file under `kernels/regressions/`, whose constants are the row. *Figure* is what our own run
shows on the good and on the bad side. *Flagged as* is the reason code that the ordinary rules give the bad side
when the good side is the baseline, without the expectations that the case states; a test holds both to the data.

    nox -s matrix -- --catalogue                        # every row on its good and its bad side: recall
    nox -s matrix -- --catalogue --cases 'triton_9*'    # some rows
    nox -s matrix -- --cases 'regression*'              # the cases in an ordinary comparison

This page is generated from the data (`python -P -m matrix.catalogue.table > docs/catalogue.md`).
"""


def recall(results: Sequence[RowResult]) -> tuple[int, int]:
    """How many rows were flagged, and how many were reproduced on both sides."""
    counts = Counter(result.standing for result in results)
    return counts[Standing.FLAGGED], counts[Standing.FLAGGED] + counts[Standing.MISSED]


def results_text(results: Sequence[RowResult], catalogue: Catalogue) -> str:
    """A line a row, then the totals."""
    lines = [_line(result) for result in results]
    flagged, reproduced = recall(results)
    counts = Counter(result.standing for result in results)
    others = ", ".join(f"{count} {standing}" for standing, count in counts.items() if standing not in _RECALLED)
    share = f" ({flagged / reproduced:.0%})" if reproduced else ""
    lines += ["", f"flagged {flagged} of {reproduced} reproduced{share}" + (f"; {others}" if others else "")]
    if catalogue.absent:
        lines.append(f"{len(catalogue.absent)} documented regressions are no cases: docs/catalogue.md says why")
    return "\n".join(lines) + "\n"


_RECALLED = (Standing.FLAGGED, Standing.MISSED)


def _line(result: RowResult) -> str:
    row = result.row
    what = {
        Standing.NEEDS_GPU: f"run --cases 'regression*' --kernels {row.path.name} on a host with an {row.good.target}",
        Standing.NOT_REPRODUCED: _figures(result.seen),
        Standing.ONE_SIDE: _figures(result.seen),
    }.get(result.standing, f"{result.flag}: {result.change}" if result.flag else result.change)
    return f"{result.standing:<23}  {row.report:<16}  {row.good} → {row.bad}  {what}".rstrip()


def results_data(results: Sequence[RowResult]) -> dict[str, Any]:
    flagged, reproduced = recall(results)
    rows = [
        {
            "report": result.row.report,
            "case_file": result.row.path.name,
            "good": str(result.row.good),
            "bad": str(result.row.bad),
            "standing": str(result.standing),
            "seen": {name: list(pair) for name, pair in result.seen.items()},
            "reason_code": result.flag,
            "change": result.change,
            "as_stated": result.as_stated,
        }
        for result in results
    ]
    return {"flagged": flagged, "reproduced": reproduced, "rows": rows}


def catalogue_page(catalogue: Catalogue) -> str:
    """``docs/catalogue.md``: rows by how far they are shown here, and what is no case with the reason."""
    both = [row for row in catalogue.rows if row.comparable]
    flagged = sum(bool(row.flag) for row in both)
    lines = [_PAGE, f"{flagged} of {len(both)} rows that show on both sides without a GPU are flagged.", ""]
    lines += _table("Shown without a GPU", both)
    one = [row for row in catalogue.rows if not row.comparable and not row.on_a_gpu]
    lines += _table(f"One side only: the other lies before {OLDEST} or in no release", one)
    lines += _table("Shown by a GPU alone (figures as reported)", [row for row in catalogue.rows if row.on_a_gpu])
    if catalogue.absent:
        lines += ["## No case", "", "| report | what | why not, and what was tried |", "| --- | --- | --- |"]
        lines += [
            f"| [{each.report}]({each.link}) | {each.title} | {_sentences(each.why, each.tried)} |"
            for each in catalogue.absent
        ]
    return "\n".join(lines).rstrip() + "\n"


def _table(heading: str, rows: Sequence[Row]) -> Iterator[str]:
    yield from (f"## {heading}", "", "| report | what | good → bad | stage | figure | flagged as |")
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        report = f"[{row.report}]({row.link})" if row.link else row.report
        flag = f"`{row.flag}`" if row.flag else ("not flagged" if row.comparable else "")
        yield f"| {report} | {row.title} | {row.good} → {row.bad} | {row.stage} | {_figures(row.figure)} | {flag} |"
    yield ""


def _figures(figures: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{name} {_shown(good)} → {_shown(bad)}" for name, (good, bad) in figures.items())


def _shown(value: Any) -> str:
    match value:
        case None | "":
            return "none"
        case dict():
            return ", ".join(f"{count} {key}" for key, count in value.items()) or "none"
        case list():
            return ", ".join(map(str, value)) or "none"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)


def _sentences(*texts: str) -> str:
    return " ".join(text.rstrip(".") + "." for text in texts if text)


if __name__ == "__main__":
    sys.stdout.write(catalogue_page(read_catalogue(catalogue_folder())))
