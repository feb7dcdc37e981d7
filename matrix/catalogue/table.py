"""The catalogue for people: recall row by row in a terminal, and the page of the documentation.

``python -P -m matrix.catalogue.table > docs/catalogue.md`` writes that page from the data.
"""

from __future__ import annotations

import datetime
import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from matrix.catalogue.neighbours import neighbours_section
from matrix.catalogue.results import RowResult, Standing
from matrix.catalogue.rows import OLDEST, Catalogue, Row, read_catalogue
from matrix.resources import catalogue_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.catalogue.recall import Recalled

_PAGE = """\
# The catalogue of documented regressions

Each row is a regression that somebody reported of a released Triton, with a kernel written afresh from its
description: a case file under `kernels/regressions/`, whose constants are the row. *Figure* is what our own run
shows on the good and on the bad side. *Flagged as* is the reason code that the ordinary rules give the bad side
when the good side is the baseline, without the expectations that the case states; a test holds both to the data.

    nox -s matrix -- --catalogue                        # every row on its good and its bad side: recall
    nox -s matrix -- --catalogue --cases 'triton_9*'    # some rows
    nox -s matrix -- --cases 'regression*'              # the cases in an ordinary comparison
    nox -s matrix -- --catalogue --stages correctness,timing --candidate host,3.5.1@host --json

The last one, on a host with a GPU, runs the rows that a GPU shows in environments that are chosen: a row whose releases
are not among them is said to be `release not here`. Of these rows the figure is as *reported*, and what was seen
stands beside it (`on_gpus.json`, which is what that command prints): an outcome is the same or not, a ratio of times
is reproduced where at least half of it shows, in logarithms.

This page is generated from the data (`python -P -m matrix.catalogue.table > docs/catalogue.md`).
"""


def recall(results: Iterable[RowResult]) -> tuple[int, int]:
    """How many rows were flagged, and how many were reproduced on both sides."""
    counts = Counter(result.standing for result in results)
    return counts[Standing.FLAGGED], counts[Standing.FLAGGED] + counts[Standing.MISSED]


def results_text(results: Sequence[RowResult], catalogue: Catalogue) -> str:
    """A line a row, then the totals: of the rows that need no GPU, and of those that ran on one."""
    here = [result for result in results if not result.row.on_a_gpu]
    on_gpus = [result for result in results if result.row.on_a_gpu]
    lines = [_line(result) for result in results]
    lines += ["", *([_total(here)] if here else []), *([f"on a GPU: {_total(on_gpus)}"] if on_gpus else [])]
    if catalogue.absent:
        lines.append(f"{len(catalogue.absent)} documented regressions are no cases: docs/catalogue.md says why")
    return "\n".join(lines) + "\n"


def _total(results: Sequence[RowResult]) -> str:
    flagged, reproduced = recall(results)
    counts = Counter(result.standing for result in results)
    others = ", ".join(f"{count} {standing}" for standing, count in counts.items() if standing not in _RECALLED)
    share = f" ({flagged / reproduced:.0%})" if reproduced else ""
    return f"flagged {flagged} of {reproduced} reproduced{share}" + (f"; {others}" if others else "")


_RECALLED = (Standing.FLAGGED, Standing.MISSED)


def _line(result: RowResult) -> str:
    row = result.row
    what = {
        Standing.NEEDS_GPU: f"run --catalogue on a host with an {row.good.target}",
        Standing.NOT_REPRODUCED: "; ".join(filter(None, (_figures(result.seen), result.change))),
        Standing.ONE_SIDE: _figures(result.seen) or result.change,
    }.get(result.standing, f"{result.flag}: {result.change}" if result.flag else result.change)
    return f"{result.standing:<23}  {row.report:<16}  {row.good} → {row.bad}  {what}".rstrip()


def results_data(recalled: Recalled) -> dict[str, Any]:
    """As JSON. Kept as ``on_gpus.json`` beside the case files, it is what the page says was seen on a GPU."""
    flagged, reproduced = recall(result for result in recalled.results if not result.row.on_a_gpu)
    return {
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "flagged": flagged,
        "reproduced": reproduced,
        "environments": dict(recalled.environments),
        "gpus": [{name: gpu[name] for name in ("name", "driver", "target")} for gpu in recalled.gpus],
        "rows": [_row_data(result) for result in recalled.results],
    }


def _row_data(result: RowResult) -> dict[str, Any]:
    return {
        "report": result.row.report,
        "case_file": result.row.path.name,
        "stage": str(result.row.stage),
        "good": str(result.row.good),
        "bad": str(result.row.bad),
        "standing": str(result.standing),
        "seen": {name: list(pair) for name, pair in result.seen.items()},
        "reason_code": result.flag,
        "change": result.change,
        "as_stated": result.as_stated,
    }


def catalogue_page(catalogue: Catalogue) -> str:
    """``docs/catalogue.md``: rows by how far they are shown here, and what is no case with the reason."""
    both = [row for row in catalogue.rows if row.comparable]
    flagged = sum(bool(row.flag) for row in both)
    lines = [_PAGE, f"{flagged} of {len(both)} rows that show on both sides without a GPU are flagged.", ""]
    lines += _table("Shown without a GPU", both)
    one = [row for row in catalogue.rows if not row.comparable and not row.on_a_gpu]
    lines += _table(f"One side only: the other lies before {OLDEST} or in no release", one)
    lines += _gpu_table([row for row in catalogue.rows if row.on_a_gpu])
    lines += neighbours_section(catalogue.neighbours)
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


def _gpu_table(rows: Sequence[Row]) -> Iterator[str]:
    """Reported beside seen; where and when it was seen is said once, above."""
    yield from ("## Shown by a GPU", "")
    for where in dict.fromkeys((row.last_seen.gpu, row.last_seen.day) for row in rows if row.last_seen):
        tried = [row for row in rows if row.last_seen and (row.last_seen.gpu, row.last_seen.day) == where]
        counts = Counter(row.last_seen.standing for row in tried if row.last_seen)
        told = ", ".join(f"{count} {standing}" for standing, count in counts.items())
        yield from (f"Seen on {where[0]}, {where[1]}: {told}.", "")
    yield "| report | what | good → bad | stage | reported | seen | by the ordinary rules |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        report = f"[{row.report}]({row.link})" if row.link else row.report
        reported = _figures(row.figure)
        yield f"| {report} | {row.title} | {row.good} → {row.bad} | {row.stage} | {reported} | {_last_seen(row)} |"
    yield ""


_LONGEST = 200  # of what the rules said, in a cell of the page


def _last_seen(row: Row) -> str:
    """Two columns: the standing with what was seen, and what the rules said."""
    seen = row.last_seen
    if seen is None:
        return "not tried |"
    figures = {name: (pair[0], pair[1]) for name, pair in seen.figure.items()}
    change = textwrap.shorten(seen.change, _LONGEST, placeholder=" ...")
    told = f"{seen.standing}: {_figures(figures)}" if figures else f"{seen.standing}: {change}"
    flag = f"`{seen.flag}`: {change}" if seen.flag else (f"not flagged: {change}" if figures else "")
    return f"{told} | {flag}"


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
