"""The commands that lead from a red cell to its cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matrix.commands import options
from matrix.commands.workplace import gpu_host, project_home, project_root
from matrix.errors import UsageError
from matrix.resources import kernels_folder, sample_folder
from matrix.running.progress import Board
from matrix.settings import config

if TYPE_CHECKING:
    from matrix.causes.probe import Laboratory
    from matrix.causes.redcell import RedCell
    from matrix.running.profiles import Profile


# Where a cell that somebody asks about is found.
_questioned = options.together(
    click.argument("cell", type=options.Given()),
    click.option("--good", default="", metavar="ENV", help="By default the run's baseline."),
    click.option("--bad", default="", metavar="ENV", help="By default the candidate in which it is worst."),
    click.option("--run", "run_dir", type=click.Path(path_type=Path), help="A run folder; by default the latest."),
    click.option("--sample", is_flag=True, help="The run on a GPU that this package carries."),
    click.option("--kernels", type=click.Path(path_type=Path), multiple=True, help="Case files of your own."),
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere."),
    click.option("--quiet", "-q", is_flag=True, help="No progress bars."),
)


@options.command()
@_questioned
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="By default ./repro-<case>.py.")
def repro(output: Path | None, **asked: Any) -> None:
    """Write a red cell as one Python file that needs torch and triton alone.

    It is run in both environments first, and not written unless it shows the difference. CELL is looked up in the
    run, or, where it is not there and --good and --bad are given, run for the purpose: `sm_90/case:a=1,b=2`.
    """
    from matrix.causes.draft import default_name
    from matrix.causes.reproducer import reproduce

    lab = _laboratory(asked)
    red = _red_cell(lab, asked)
    made = reproduce(red, lab, output or Path(default_name(red)))
    for name, (before, after) in made.differing.items():
        click.echo(f"{name:<22}{before!s:<24} {after}")
    click.echo(f"good: {made.good.command} {made.path}")
    click.echo(f"bad:  {made.bad.command} {made.path}")
    click.echo(made.path)


@options.command()
@_questioned
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def bisect(as_json: bool, **asked: Any) -> None:
    """Walk the releases between --good and --bad to the first that has a red cell, and to whose change it is.

    What the run recorded is taken from it, the rest is measured. Ends with how to go on to the commit.
    """
    from matrix.causes.bisection import bisect as walk_releases
    from matrix.causes.bisection import bisection_text
    from matrix.causes.draft import default_name

    lab = _laboratory(asked)
    red = _red_cell(lab, asked)
    found = walk_releases(red, lab)
    text = json.dumps(found.data(), default=str) if as_json else bisection_text(found, default_name(red))
    click.echo(text, nl=as_json)


@options.command()
@_questioned
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="By default ./issue-<case>.md.")
def issue(output: Path | None, **asked: Any) -> None:
    """Write a red cell as a Markdown report for Triton's tracker: releases, figures, environment, reproducer.

    The reproducer is made and run as `repro` does, and lies beside the report. What `bisect` found out of the cell
    before is in the table.
    """
    from matrix.causes.draft import default_name
    from matrix.causes.reproducer import reproduce
    from matrix.causes.upstream_report import issue_markdown
    from matrix.model import safe
    from matrix.storage.atomic import write_atomically

    lab = _laboratory(asked)
    red = _red_cell(lab, asked)
    path = output or Path(f"issue-{safe(red.verdict.case)}.md")
    made = reproduce(red, lab, path.parent / default_name(red))
    write_atomically(path, issue_markdown(red, made, lab).encode())
    click.echo(made.path)
    click.echo(path)


@options.command()
@click.option("--index", default="", metavar="URL", help="The index to ask; by default uv's.")
@click.option(
    "--profile", type=options.ProfileName(), default="quick", show_default=True, help="What to run of a new pair."
)
@click.option("--cases", multiple=True, metavar="GLOB", help="Cases or cell ids to run.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bars.")
@click.pass_context
def watch(context: click.Context, index: str, profile: Profile, cases: tuple[str, ...], quiet: bool) -> int:
    """Ask the index for a newer Triton or torch than is declared; add the pair, run it, report.

    A pair is the newest torch with the Triton that it pins; a Triton that no torch pins yet is laid in front of it.
    Ends as `run` does, and with 0 where there is nothing newer.
    """
    import datetime as dt

    from matrix.provisioning.upstream import ask, declare, newest_declared, unknown_pairs

    root = project_root()
    configuration = config.load(root)
    before = newest_declared(configuration)
    newest = ask(before.python, index)
    today = dt.datetime.now(dt.UTC).date()
    pairs = unknown_pairs(newest, configuration.environments, today=today, index=index)
    if not pairs:
        click.echo(f"nothing newer than {before.id}: the index has Triton {newest.triton} and torch {newest.torch}")
        return 0
    click.echo(f"added to {declare(root, pairs)}: {', '.join(pair.id for pair in pairs)}", err=True)
    group = context.parent.command if context.parent else None
    run = group.commands["run"] if isinstance(group, click.Group) else None
    if run is None:
        raise UsageError("watch is part of triton-matrix", hint="call `triton-matrix watch`")
    arguments = ["--baseline", before.id, "--profile", profile.name, *(["--quiet"] if quiet else [])]
    arguments += [part for pair in pairs for part in ("--candidate", pair.id)]
    arguments += [part for glob in cases for part in ("--cases", glob)]
    return int(run.main(arguments, prog_name="triton-matrix run", standalone_mode=False) or 0)


def _laboratory(asked: dict[str, Any]) -> Laboratory:
    from matrix.causes.probe import Laboratory, is_on_host
    from matrix.running.run import default_jobs

    configuration = config.load(project_root(), file=asked["config_file"])
    return Laboratory(
        configuration=configuration.with_wheels([asked["good"], asked["bad"]], folder=Path.cwd()),
        home=project_home(),
        board=Board(quiet=asked["quiet"]),
        jobs=default_jobs(),
        gpu_host=gpu_host(),
        on_host=is_on_host(asked["good"]) or is_on_host(asked["bad"]),
    )


def _red_cell(lab: Laboratory, asked: dict[str, Any]) -> RedCell:
    """The cell in the run that was named, or the latest; where it is not there, in a run made for it."""
    from matrix.causes.redcell import find, holds, require_two
    from matrix.running.plan import find_case_files
    from matrix.storage.runfolder import load
    from matrix.storage.runs import LATEST

    cell, good, bad = asked["cell"], lab.named(asked["good"]), lab.named(asked["bad"])
    told = sample_folder() if asked["sample"] else asked["run_dir"]
    latest = (lab.home.runs / LATEST / "run.json").is_file()
    folder = load(told or lab.home.latest()) if told or latest else None
    require_two(good, bad, folder, lab.configuration)
    if folder is None or not (told or holds(folder, cell, good=good, bad=bad)):
        if not (good and bad):
            raise UsageError(f"there is no run that holds {cell!r}", hint="name its run, or --good and --bad")
        files = find_case_files([kernels_folder(), *lab.configuration.kernels, *asked["kernels"]])
        folder = lab.probe(cell, files, asked["good"], [asked["bad"]])
    return find(folder, cell, good=good, bad=bad)


COMMANDS = (repro, bisect, issue, watch)
