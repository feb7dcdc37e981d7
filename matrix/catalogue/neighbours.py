"""The other side of recall: what the ordinary rules flag of the built-in cases between neighbouring releases.

``neighbours.json`` beside the catalogue's case files is what ``tests/benchmarks/catalogue_recall.py --record`` wrote.
Being flagged makes no false alarm: ``true`` says by hand which flags (a release, a glob over cells) something else
confirms, and what.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NEIGHBOURS = "neighbours.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """A cell that is flagged in release ``after`` against ``before``; ``confirmed`` says by what, if by anything."""

    before: str
    after: str
    cell: str
    reason_code: str
    change: str
    confirmed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """How many cells were compared over all steps, and those that were flagged; empty where nothing is recorded."""

    day: str = ""
    compared: int = 0
    flagged: tuple[Flagged, ...] = ()

    @property
    def unconfirmed(self) -> int:
        return sum(not each.confirmed for each in self.flagged)


def read_neighbours(folder: Path) -> Neighbours:
    """What is recorded in ``folder``."""
    file = folder / NEIGHBOURS
    if not file.is_file():
        return Neighbours()
    record = json.loads(file.read_text(encoding="utf-8"))
    flagged = tuple(Flagged(**each, confirmed=_confirmed(each, record["true"])) for each in record["flagged"])
    return Neighbours(day=record["day"], compared=record["compared"], flagged=flagged)


def _confirmed(flag: Mapping[str, Any], known: list[dict[str, str]]) -> str:
    own = (each for each in known if each["after"] == flag["after"])
    return next((each["why"] for each in own if fnmatchcase(flag["cell"], each["cells"])), "")


def neighbours_section(found: Neighbours) -> Iterator[str]:
    """Lines of the documentation's page; none where nothing is recorded."""
    if not found.compared:
        return
    yield from ("## False alarms: the built-in cases between neighbouring releases", "")
    share, alarms = len(found.flagged) / found.compared, found.unconfirmed / found.compared
    yield (
        f"{len(found.flagged)} of {found.compared} compared cells are flagged at the compile stage ({share:.1%}); "
        f"{found.unconfirmed} by nothing else confirmed, a rate of false alarms of at most {alarms:.1%}. Seen on "
        f"{found.day}, 3.0.0 to 3.3.1 for sm_80 and sm_90 and 3.3.1 to 3.9.0 for all four targets, by"
    )
    yield from ("", "    python -P tests/benchmarks/catalogue_recall.py", "")
    yield "| step | cell | flagged as | what changed | confirmed by |"
    yield "| --- | --- | --- | --- | --- |"
    for each in found.flagged:
        step = f"{each.before} to {each.after}"
        yield f"| {step} | `{each.cell}` | `{each.reason_code}` | {each.change} | {each.confirmed or 'nothing'} |"
    yield ""
