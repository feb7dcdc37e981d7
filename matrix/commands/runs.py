"""The commands that run kernels, and the one that says what would run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matrix.commands import options
from matrix.commands.records import judged_data
from matrix.commands.selection import (
    configuration_of,
    flat,
    history_of,
    request_of,
    waivers_of,
    with_requirements,
    words,
)
from matrix.commands.workplace import gpu_host, project_home
from matrix.errors import ExitCode, FleetError, UsageError, all_of
from matrix.model import Stage
from matrix.running.progress import Board, wants_colour

if TYPE_CHECKING:
    from matrix.gpus.stages import GpuHost
    from matrix.running.plan import Request
    from matrix.running.profiles import Profile
    from matrix.running.run import Run


@options.command()
@options.selection
@click.option("--jobs", "-j", type=click.IntRange(1), help="Workers at a time; by default the cores.")
@click.option("--fresh", is_flag=True, help="Reuse nothing that was found before; what is found now is kept.")
@options.further
@options.delivery
@click.option("--catalogue", is_flag=True, help="Each documented regression on its good and its bad side: recall.")
@options.output
def run(
    jobs: int | None,
    fresh: bool,
    fuzz: float,
    lock_clocks: int | None,
    waiver_file: Path | None,
    history_at: str | None,
    share: str | None,
    cross_ptxas: bool,
    catalogue: bool,
    as_json: bool,
    quiet: bool,
    **selection: Any,
) -> int:
    """Build the environments, run the kernels, judge, and write the report."""
    if catalogue:
        return _run_catalogue(selection, Board(quiet=quiet or as_json), jobs, as_json=as_json, fresh=fresh)
    configuration, home, host = configuration_of(selection), project_home(), gpu_host()
    request, waivers, history = all_of(
        lambda: request_of(configuration, selection, host.targets),
        lambda: waivers_of(waiver_file),
        lambda: history_of(history_at),
    )
    configuration = with_requirements(configuration, request)
    profile = selection["profile"]
    fuzz_seconds = _fuzz_seconds(fuzz, profile, request, lock_clocks)
    # All of pandas comes with it: what was mistyped is told before that.
    from matrix.running.run import Run, default_jobs

    state = Run(
        request=request,
        configuration=configuration,
        home=home,
        board=Board(quiet=quiet or as_json),
        jobs=jobs or default_jobs(),
        gpu_host=_taking_part(host, request),
        fuzz_seconds=fuzz_seconds,
        lock_mhz=lock_clocks or 0,
        profile=profile,
        waivers=waivers,
        history=history,
        cross_ptxas=cross_ptxas,
        fresh=fresh,
    )
    return _executed(state, as_json=as_json, share=share)


@options.command()
@click.option(
    "--address", default="auto", show_default=True, metavar="ADDRESS", help="auto, ray://HOST:PORT or HOST:PORT."
)
@options.selection
@click.option(
    "--run-id", type=options.Given(), metavar="RUN", help="Take up a run that did not end: its folder's name."
)
@options.further
@options.delivery
@options.output
def fleet(
    address: str,
    run_id: str | None,
    fuzz: float,
    cross_ptxas: bool,
    lock_clocks: int | None,
    waiver_file: Path | None,
    history_at: str | None,
    share: str | None,
    as_json: bool,
    quiet: bool,
    **selection: Any,
) -> int:
    """As `run`, on the hosts of a Ray cluster that is running: docs/fleet.md.

    Each target takes one host with GPUs of it, the others share out what needs none. Needs Ray:
    pip install "triton-matrix[fleet]".
    """
    from matrix.fleet.cluster import connected
    from matrix.fleet.fleet import Fleet, fit_request
    from matrix.fleet.pools import offered
    from matrix.running.run import Run, default_jobs

    configuration, board = configuration_of(selection), Board(quiet=quiet or as_json)
    if configuration.wheels:
        hint = "declare it in matrix.toml, as an environment whose triton every host can fetch"
        raise UsageError(f"hosts have no {next(iter(configuration.wheels))}", hint=hint)
    waivers, history = all_of(lambda: waivers_of(waiver_file), lambda: history_of(history_at))
    profile = selection["profile"]
    if Stage.COUNTERS in flat(selection["stages"]):
        hint = "leave them out of --stages; `triton-matrix run` on a host with the GPU reads them"
        raise UsageError("a fleet reads no counters: they need the very GPU that a cell was timed on", hint=hint)
    with connected(address) as cluster:
        offer = offered(cluster.nodes())
        asked = request_of(configuration, selection, cluster.targets(), where=f"in the cluster ({offer})")
        request = fit_request(asked, offer, board.say)
        state = Run(
            request=request,
            configuration=with_requirements(configuration, request),
            home=project_home(),
            board=board,
            jobs=default_jobs(),
            fuzz_seconds=_fuzz_seconds(fuzz, profile, request, lock_clocks),
            lock_mhz=lock_clocks or 0,
            profile=profile,
            waivers=waivers,
            history=history,
            cross_ptxas=cross_ptxas,
            run_id=run_id or "",
            fleet=Fleet(cluster=cluster),
        )
        try:
            return _executed(state, as_json=as_json, share=share)
        except (KeyboardInterrupt, FleetError):
            click.echo(f"to take the run up again: --run-id {state.run_id}", err=True)
            raise


@options.command()
@options.selection
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def plan(as_json: bool, **selection: Any) -> None:
    """What would run, stage by stage, and what would not and why. Runs and builds nothing."""
    from matrix.running.preview import preview, preview_text

    configuration, home = configuration_of(selection), project_home()
    request = request_of(configuration, selection, gpu_host().targets)
    found = preview(request, with_requirements(configuration, request), home)
    click.echo(json.dumps(found) if as_json else preview_text(found), nl=as_json)


def _executed(state: Run, *, as_json: bool, share: str | None) -> int:
    """The run, what it says at its end, and its exit code."""
    from matrix.reporting.summary import summary_text
    from matrix.storage.addresses import reach
    from matrix.storage.runfolder import load
    from matrix.storage.seal import RENDERED

    if share:
        reach(share, "the shared place")  # better known now than when all is measured
    finished = state.execute()
    folder = load(finished.folder)
    if as_json:
        click.echo(json.dumps(judged_data(folder, int(finished.exit_code)), default=str))
    else:
        click.echo(summary_text(folder, colour=wants_colour()), nl=False)
        for what, page in zip(("report", "sign-off"), RENDERED, strict=True):
            if (finished.folder / page).is_file():
                click.echo(f"{what}: {finished.folder / page}")
    if share:
        from matrix.running.shards import send

        click.echo(f"shared: {send(finished.folder, share)}", err=True)
    return int(finished.exit_code)


def _fuzz_seconds(told: float, profile: Profile | None, request: Request, lock_clocks: int | None) -> float:
    """For how long to try fresh points. Raises :class:`UsageError` for what is nothing without a GPU."""
    if (told or lock_clocks) and not request.gpu_targets:
        raise UsageError("--fuzz and --lock-clocks need a GPU", hint="see `triton-matrix doctor`")
    return told or (profile.fuzz_seconds if profile and request.gpu_targets else 0.0)


def _taking_part(host: GpuHost, request: Request) -> GpuHost:
    from matrix.gpus.devices import usable

    return dataclasses.replace(host, gpus=tuple(usable(host.gpus, request.targets)))


def _run_catalogue(selection: dict[str, Any], board: Board, jobs: int | None, *, as_json: bool, fresh: bool) -> int:
    from matrix.catalogue.recall import Wanted, run_catalogue
    from matrix.catalogue.table import results_data, results_text
    from matrix.running.run import default_jobs

    ignored = [name for name in ("baseline", "targets", "kernels") if selection[name]]
    if ignored:
        raise UsageError(
            f"--catalogue brings its own {', '.join(ignored)}",
            hint="choose rows with --cases, by their files' names, and with --stages; environments with --candidate",
        )
    configuration = configuration_of(selection)
    chosen = flat(selection["candidate"])
    wanted = Wanted(
        globs=flat(selection["cases"]),
        stages=tuple(map(Stage, words("stage", flat(selection["stages"]), list(Stage)))),
        environments=tuple(each.id for each in configuration.select(chosen)) if chosen else (),
    )
    done = run_catalogue(
        configuration, project_home(), board, wanted, jobs=jobs or default_jobs(), host=gpu_host(), fresh=fresh
    )
    click.echo(json.dumps(results_data(done)) if as_json else results_text(done.results, done.catalogue), nl=as_json)
    return ExitCode.CLEAN if all(result.as_stated for result in done.results) else ExitCode.INCOMPLETE


COMMANDS = (run, fleet, plan)
