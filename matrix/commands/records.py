"""The commands that read recorded runs. They run nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matrix.commands import options
from matrix.commands.selection import flat, waivers_of
from matrix.commands.workplace import project_home, project_root
from matrix.errors import ExitCode, UsageError
from matrix.resources import sample_folder
from matrix.running.progress import wants_colour
from matrix.settings import config

if TYPE_CHECKING:
    from collections.abc import Sequence


@options.command()
@click.argument("cell", type=options.Given())
@click.option("--run", "run_dir", type=click.Path(path_type=Path), help="A run folder; by default the latest.")
@click.option("--sample", is_flag=True, help="The run on a GPU that this package carries.")
@click.option("--code", type=click.Choice(["ttir", "ttgir", "llir", "ptx", "sass"]), help="Print this code alone.")
@click.option("--memory", is_flag=True, help="Print what its launches do to memory, line by line.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def show(cell: str, run_dir: Path | None, sample: bool, code: str | None, memory: bool, as_json: bool) -> None:
    """Everything known about the cells that match CELL: an id, or a glob over ids."""
    from matrix.reporting.memory_table import memory_text
    from matrix.reporting.show import as_data, as_text, code_of, kernels_of, matching
    from matrix.storage.runfolder import load

    folder = load(sample_folder() if sample else run_dir or project_home().latest())
    found = matching(folder, cell)
    if code and (memory or as_json):
        raise UsageError("--code prints code alone", hint="leave --json and --memory out")
    if code:
        click.echo(code_of(folder, found, code), nl=False)
    elif memory and not as_json:
        click.echo(memory_text(kernels_of(folder, found)), nl=False)
    elif as_json:
        click.echo(json.dumps(as_data(folder, found), default=str))
    else:
        click.echo(as_text(folder, found), nl=False)


@options.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--baseline", type=options.Given(), required=True, metavar="ENV", help="An environment id that the runs hold."
)
@click.option("--candidate", type=options.Commas(), multiple=True, required=True, metavar="ENV,...")
@options.waivers
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere.")
def compare(
    runs: Sequence[Path],
    baseline: str,
    candidate: Sequence[list[str]],
    waiver_file: Path | None,
    as_json: bool,
    config_file: Path | None,
) -> int:
    """Judge recorded runs anew, with another baseline or other thresholds. Runs nothing."""
    from matrix.judging.compare import judge_again
    from matrix.reporting.summary import summary_text
    from matrix.running.profiles import completed
    from matrix.running.shards import require_untouched

    for run_dir in runs:
        require_untouched(run_dir)
    thresholds = config.load(project_root(), file=config_file).thresholds
    folder, code = judge_again(runs, baseline, flat(candidate), thresholds, waivers_of(waiver_file), completed)
    if as_json:
        click.echo(json.dumps(judged_data(folder, int(code)), default=str))
    else:
        click.echo(summary_text(folder, colour=wants_colour()), nl=False)
    return int(code)


@options.command()
@click.argument("runs", nargs=-1, type=options.Given())
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the page.")
@click.option("--sample", is_flag=True, help="The run on a GPU that this package carries: ./sample-report.html.")
@click.option("--signoff", is_flag=True, help="The sign-off page of one run instead, for A4 paper: signoff.html.")
def report(runs: Sequence[str], output: Path | None, sample: bool, signoff: bool) -> int:
    """Render the report of a run, or of several side by side. Without RUNS: the latest.

    RUNS are folders or addresses (s3://bucket/prefix?region=...) of runs, or of places that hold some. Runs of several
    hosts are laid into one matrix; what differs between the hosts is said, and the exit code is that of all together:
    of a place also where it holds one run alone. The page of a run's own folder again exits with 0.

    The page of one run goes into that run's folder; that of several, of a run at an address or of the
    sample into the folder where you are. --output names another file. The last line on stdout is where it went.
    """
    import tempfile

    if sample and runs:
        raise UsageError("--sample is a run of its own", hint="name runs, or give --sample alone")
    if sample:
        output = output or Path("sample-signoff.html" if signoff else "sample-report.html")
    with tempfile.TemporaryDirectory(prefix="triton-matrix-") as scratch:
        folders = _run_folders(runs, Path(scratch), sample=sample)
        if output is None and any(folder.is_relative_to(scratch) for folder in folders):
            output = Path("signoff.html" if signoff else "report.html")
        if signoff and len(folders) > 1:
            raise UsageError("a sign-off page is of one run", hint="name one run with --signoff")
        if len(folders) == 1 and output is None and not os.access(folders[0], os.W_OK):
            raise UsageError(f"{folders[0]} cannot be written to", hint="--output names a file elsewhere for the page")
        if signoff:
            from matrix.reporting.signoff import write_signoff

            click.echo(write_signoff(folders[0], output))
        else:
            own = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
            return _report_of(folders, output or own, judged=len(folders) > 1 or any(map(_is_place, runs)))
    return ExitCode.CLEAN


def _is_place(address: str) -> bool:
    """Whether it is an address, or a folder that is no run's own: where others leave what is to be judged together."""
    return not (Path(address) / "run.json").is_file()


@options.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--seal", "expected", type=options.Given(), metavar="SHA256", help="The seal as the signed page has it.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def verify(run_dir: Path, expected: str | None, as_json: bool) -> int:
    """Are a run's result files still those that were sealed? Names each that was edited, removed or added.

    Pages are rendered from those files and not sealed themselves. Exit code 0 or, where anything is wrong, 3.
    """
    from matrix.reporting.show import rows
    from matrix.storage.runfolder import require_folder
    from matrix.storage.seal import faults, read_seal

    seal = (expected or "").strip().lower()
    if expected and not re.fullmatch("[0-9a-f]{64}", seal):
        raise UsageError(f"--seal {expected!r} is no SHA-256", hint="the sign-off page has it: 64 hexadecimal digits")
    require_folder(run_dir)
    sealed = read_seal(run_dir)
    found = faults(run_dir, sealed, expected=seal)
    if as_json:
        click.echo(json.dumps({"seal": sealed.digest, "files": len(sealed.files), "faults": rows(found)}))
    else:
        for fault in found:
            click.echo(f"{fault.wrong:<9} {fault.path}  {fault.detail}".rstrip())
        faulty = "1 fault" if len(found) == 1 else f"{len(found) or 'no'} faults"
        click.echo(f"{len(sealed.files)} files, {faulty}; seal {sealed.digest}")
    return ExitCode.INCOMPLETE if found else ExitCode.CLEAN


def _run_folders(runs: Sequence[str], scratch: Path, *, sample: bool) -> list[Path]:
    if sample:
        return [sample_folder()]
    from matrix.running.shards import caution, fetch

    folders = fetch(runs or [str(project_home().latest())], scratch)
    for folder in folders:
        if told := caution(folder):
            click.echo(f"{folder.name}: {told}", err=True)
    return folders


def _report_of(folders: Sequence[Path], path: Path, *, judged: bool) -> int:
    """The page of runs laid side by side; of several, with what is to be known of their hosts. The exit code is theirs
    together where they are to be ``judged``.
    """
    from matrix.judging.compare import garbage_uncollected
    from matrix.reporting.report import render_runs
    from matrix.running.shards import merged_exit, shards_of, shards_text
    from matrix.storage.atomic import write_atomically
    from matrix.storage.runfolder import load_all

    with garbage_uncollected():
        loaded = load_all(folders)
        write_atomically(path, render_runs(loaded).encode())
    if len(loaded) > 1:
        click.echo(shards_text(shards_of(loaded)), nl=False)
    click.echo(path)
    return merged_exit(loaded) if judged else ExitCode.CLEAN


def judged_data(folder: Any, code: int) -> dict[str, Any]:
    from matrix.explaining import chains, confounders
    from matrix.judging.groups import group
    from matrix.reporting.show import rows

    return {
        "run_id": folder.run_id,
        "folder": str(folder.path),
        "exit_code": code,
        "confounders": confounders.as_data(confounders.confounders_of([folder])),
        "verdicts": rows(folder.verdicts),
        "chains": chains.as_data(group([folder])),
    }


COMMANDS = (show, compare, report, verify)
