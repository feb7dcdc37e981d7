"""The commands of what outlives a run: the history over nights and the ledger of hypotheses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.commands import options
from matrix.commands.selection import flat
from matrix.commands.workplace import project_home

if TYPE_CHECKING:
    from collections.abc import Sequence


@options.command()
@click.option(
    "--history",
    "history_at",
    type=options.Given(),
    metavar="DIR-or-URL",
    required=True,
    help="Where the runs were added.",
)
@click.option("--add", "added", type=click.Path(path_type=Path), multiple=True, metavar="RUN", help="Add a run first.")
@click.option("--cases", type=options.Globs(), multiple=True, metavar="GLOB,...", help="Cases or cell ids to draw.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="The page; by default ./trend.html."
)
@click.option("--json", "as_json", is_flag=True, help="The series as JSON on stdout, and no page.")
def trend(
    history_at: str, added: Sequence[Path], cases: Sequence[list[str]], output: Path | None, as_json: bool
) -> None:
    """Draw each case over nights, with the nights since which its level is another and what else moved then."""
    from matrix.nights.history import History, selected
    from matrix.nights.trend_chart import trend_text
    from matrix.nights.trends import trends
    from matrix.reporting.report import render_trend
    from matrix.reporting.show import rows
    from matrix.running.shards import require_untouched
    from matrix.storage.atomic import write_atomically
    from matrix.storage.runfolder import load

    history = History.of(history_at)
    for run_dir in added:
        require_untouched(run_dir)
        known = "added" if history.append(load(run_dir)) else "was there already"
        click.echo(f"{run_dir}: {known}", err=True)
    table = selected(history.read(), flat(cases))
    if as_json:
        click.echo(json.dumps(rows(trends(table).series), default=str))
        return
    path = output or Path("trend.html")
    write_atomically(path, render_trend(table, history.address).encode())
    click.echo(trend_text(table, limit=40), nl=False)
    click.echo(path)


@options.command()
@click.argument("sentence", required=False)
@click.option("--cases", type=options.Globs(), multiple=True, metavar="GLOB,...", help="The cells that it is about.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def hypothesis(sentence: str | None, cases: Sequence[list[str]], as_json: bool) -> None:
    """Write a hypothesis into the ledger before a run: SENTENCE is

    "because <evidence>, changing <one thing> should <effect on counters and time> without <constraint>".

    The next run of such cells fills it and says whether it is so. Without SENTENCE: the ledger, its chain checked.
    """
    from matrix.hypotheses.hypothesis import read_hypothesis
    from matrix.hypotheses.ledger import checked_rows, ledger_of
    from matrix.hypotheses.ledger_text import ledger_text, opened_text
    from matrix.hypotheses.trials import opened, revision_of
    from matrix.reporting.show import rows

    home = project_home()
    if sentence is None:
        found = checked_rows(home)
        click.echo(json.dumps(rows(found)) if as_json else ledger_text(found), nl=as_json)
        return
    read = read_hypothesis(sentence)
    (row,) = ledger_of(home).append([opened(read, flat(cases), revision_of(home.root))])
    click.echo(json.dumps(dataclasses.asdict(row)) if as_json else opened_text(row, read), nl=as_json)


COMMANDS = (trend, hypothesis)
