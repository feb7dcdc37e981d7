"""The report: one self-contained HTML page from one run folder or several.

The page needs no network and lives without its script; whatever a case or a compiler named is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

import jinja2
import markupsafe

from matrix import __version__, wording
from matrix.hypotheses.ledger_view import ledger_view
from matrix.judging.compare import garbage_uncollected
from matrix.judging.groups import Section, group
from matrix.nights.history import read_copies
from matrix.nights.trend_chart import trend
from matrix.reporting.cards import WITH_CARD, WITH_CODE, card, line
from matrix.reporting.dimension_table import checked_comparisons
from matrix.reporting.gaps import gaps, hazards, unfit
from matrix.reporting.gpu_facts import gpu_facts
from matrix.reporting.headline import decisions, figures, full_names, reach, short_names, title
from matrix.reporting.picture import legend, panels
from matrix.reporting.provenance import comparison, run_facts
from matrix.reporting.timed_cells import DRAWN, timed_comparisons
from matrix.resources import reports_folder
from matrix.running.shards import shards_of
from matrix.storage.atomic import write_atomically
from matrix.storage.runfolder import load_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from matrix.judging.groups import Group
    from matrix.reporting.cards import Card
    from matrix.storage.runfolder import RunFolder

_NAME = "report.html"
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # but for tabs and line ends
TREND_PAGE = 400  # series that a page of trends draws


def render(run_dirs: Sequence[Path]) -> str:
    """The page for these runs, laid side by side and never averaged.

    Raises :class:`StorageError` where a folder is not a run's, or a file in it is cut or foreign.
    """
    with garbage_uncollected():
        return render_runs(load_all(run_dirs))


def render_runs(runs: Sequence[RunFolder]) -> str:
    """The page for runs that are loaded."""
    return templates().get_template("report.html").render(_page(runs))


def write_page(run: RunFolder) -> Path:
    """Write the page into the run's folder, whole or not at all. ``run.meta`` may be what run.json is yet to say."""
    path = run.path / _NAME
    write_atomically(path, render_runs([run]).encode())
    return path


def _page(runs: Sequence[RunFolder]) -> Mapping[str, object]:
    groups = group(runs)
    shown = panels(runs, groups)
    told = _cards(groups)
    sections = {kind: [one for one in told if one.group.section is kind] for kind in Section}
    return {
        "title": title(runs),
        "short": short_names(runs),
        "named": full_names(runs),
        "runs": runs,
        "decisions": decisions(runs, groups),
        "reach": reach(runs),
        "shards": shards_of(runs) if len(runs) > 1 else None,
        "figures": figures(runs, groups),
        "comparison": comparison(runs),
        "panels": shown,
        "legend": legend(shown),
        "findings": sections[Section.FINDING],
        "waived": sections[Section.WAIVED],
        "improvements": sections[Section.IMPROVEMENT],
        "known": sections[Section.KNOWN],
        "noted": sections[Section.NOTED],
        "standing": sections[Section.STANDING],
        "undecided": sections[Section.UNDECIDED],
        "timed": timed_comparisons(runs, groups),
        "drawn": DRAWN,
        "carded": WITH_CARD,
        "instruments": gpu_facts(runs),
        "checked": checked_comparisons(runs),
        "hazards": hazards(runs),
        "unfit": unfit(runs),
        "gaps": gaps(runs),
        "ledger": ledger_view(runs),
        "trend": trend(read_copies([run.path for run in runs])),
        "run_facts": [run_facts(run) for run in runs],
        "version": __version__,
        **_assets(),
    }


def render_trend(history: pa.Table, address: str) -> str:
    """A page of its own for a whole history."""
    page = templates().get_template("trend_page.html")
    return page.render(trend=trend(history, limit=TREND_PAGE), address=address, version=__version__, **_assets())


def _cards(groups: Sequence[Group]) -> list[Card]:
    """Code for the worst only, and only for sections that show it: the page must stay small."""
    shown = {Section.FINDING, Section.WAIVED, Section.IMPROVEMENT}
    coded = [found.anchor for found in groups if found.section in shown]
    chosen = set(coded[:WITH_CODE])
    seen: Counter[Section] = Counter()
    told = []
    for found in groups:
        full = found.section in shown and seen[found.section] < WITH_CARD
        seen[found.section] += 1
        told.append(card(found, code=found.anchor in chosen) if full else line(found))
    return told


def _assets() -> dict[str, object]:
    """Style and script, inlined; the page's policy allows this very script and nothing else."""
    folder = reports_folder()
    style = (folder / "report.css").read_text(encoding="utf-8")
    script = (folder / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "style": markupsafe.Markup(style),  # noqa: S704 - our own file
        "script": markupsafe.Markup(script),  # noqa: S704 - our own file
        "script_digest": digest,
    }


def templates() -> jinja2.Environment:
    """The report's templates with their filters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(reports_folder()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
    environment.filters |= {
        "listing": wording.listing,
        "phrase": wording.phrase,
        "place": wording.place,
        "web": web_address,
        "breakable": breakable,
    }
    environment.globals |= {"looks": wording.LOOKS, "plural": wording.plural}
    return environment


def visible(value: object) -> object:
    """What a page shows, with control characters as their escapes: a browser shows nothing of them, or obeys them."""
    return type(value)(_CONTROL.sub(_escape, value)) if isinstance(value, str) and _CONTROL.search(value) else value


def _escape(control: re.Match[str]) -> str:
    return f"\\x{ord(control[0]):02x}"


def breakable(text: str) -> markupsafe.Markup:
    """The text, escaped, with places where a line may break: names here have no spaces."""
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(re.sub(r"([_,/:])", r"\1<wbr>", escaped))  # noqa: S704 - escaped above


def web_address(link: str) -> str:
    """The address behind a case's link, or nothing where it is not one that a browser should follow."""
    if re.match(r"https?://", link):
        return link
    issue = re.fullmatch(r"triton#(\d+)", link)
    return f"https://github.com/triton-lang/triton/issues/{issue[1]}" if issue else ""
