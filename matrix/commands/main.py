"""The command line: what each command takes and which room does the work."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import matrix
from matrix.catalogue.suites import requirements_of, suite_files
from matrix.commands import options
from matrix.commands.causes import COMMANDS
from matrix.commands.workplace import gpu_host, project_root
from matrix.errors import ExitCode, FleetError, UsageError
from matrix.model import DEFAULT_TARGETS, Stage, Target
from matrix.resources import catalogue_folder, kernels_folder, passes_folder, sample_folder, suites_folder
from matrix.running.plan import GPU_STAGES, HOST_STAGES, Request, find_case_files
from matrix.running.progress import Board, wants_colour
from matrix.settings import config
from matrix.storage.runs import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.gpus.stages import GpuHost
    from matrix.judging.waivers import Waiver
    from matrix.nights.history import History
    from matrix.running.run import Run
    from matrix.settings.config import Configuration


def command() -> ExitCode:
    """Run the command line of this process. Returns the exit code; raises :class:`MatrixError`."""
    _obey_signals()
    try:
        result = main.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        return ExitCode(error.exit_code)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"see `triton-matrix {context.info_name} --help`" if context else ""
        raise UsageError(error.format_message(), hint=hint) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    return ExitCode(result) if isinstance(result, int) else ExitCode.CLEAN


def _obey_signals() -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: orderly, with everything measured kept."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
        signal.signal(signal.SIGHUP, interrupt)
    _end_with_nox()


def _end_with_nox() -> None:
    """Started by our noxfile, get SIGTERM when nox dies: it does not pass signals on."""
    parent = os.environ.get("MATRIX_PARENT")
    if parent and sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
        if os.getppid() != int(parent):
            raise KeyboardInterrupt


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(matrix.__version__, prog_name="triton-matrix")
def main() -> None:
    """Before you upgrade Triton or PyTorch: do your GPU kernels still build, are they right, are they fast?

    Exit codes: 0 complete and nothing regressed, 1 regressed, 2 usage or configuration, 3 incomplete,
    130 interrupted.
    """


for each in COMMANDS:
    main.add_command(each)


@main.command()
@options.selection
@click.option("--jobs", "-j", type=click.IntRange(1), help="Workers at a time; by default the cores.")
@click.option(
    "--fuzz", type=options.Seconds(), default=0.0, help="Try fresh points for so long, 60s say (needs a GPU)."
)
@options.delivery
@click.option(
    "--same-ptx-other-ptxas",
    "cross_ptxas",
    is_flag=True,
    help="Assemble findings in the code again, each side's PTX with the other's ptxas.",
)
@click.option("--catalogue", is_flag=True, help="Each documented regression on its good and its bad side: recall.")
@options.output
def run(
    jobs: int | None,
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
        return _run_catalogue(selection, Board(quiet=quiet or as_json), jobs, as_json=as_json)
    from matrix.running.run import Run, default_jobs

    configuration, home, host = _configuration(selection), _home(), gpu_host()
    request = _request(configuration, selection, host.targets)
    configuration = _with_requirements(configuration, request)
    profile = selection["profile"]
    waivers = _waivers(waiver_file)
    if (fuzz or lock_clocks) and not request.gpu_targets:
        raise UsageError("--fuzz and --lock-clocks need a GPU", hint="see `triton-matrix doctor`")
    state = Run(
        request=request,
        configuration=configuration,
        home=home,
        board=Board(quiet=quiet or as_json),
        jobs=jobs or default_jobs(),
        gpu_host=_taking_part(host, request),
        fuzz_seconds=fuzz or (profile.fuzz_seconds if profile and request.gpu_targets else 0.0),
        lock_mhz=lock_clocks or 0,
        profile=profile,
        waivers=waivers,
        history=_history(history_at),
        cross_ptxas=cross_ptxas,
    )
    return _executed(state, as_json=as_json, share=share)


def _executed(state: Run, *, as_json: bool, share: str | None) -> int:
    """The run, what it says at its end, and its exit code."""
    from matrix.reporting.summary import summary_text
    from matrix.storage.addresses import reach
    from matrix.storage.runfolder import load

    if share:
        reach(share, "the shared place")  # better known now than when all is measured
    finished = state.execute()
    folder = load(finished.folder)
    if as_json:
        click.echo(json.dumps(_as_json(folder, int(finished.exit_code)), default=str))
    else:
        click.echo(summary_text(folder, colour=wants_colour()), nl=False)
        click.echo(f"report: {finished.folder / 'report.html'}")
    if share:
        from matrix.running.shards import send

        click.echo(f"shared: {send(finished.folder, share)}", err=True)
    return int(finished.exit_code)


@main.command()
@click.option(
    "--address", default="auto", show_default=True, metavar="ADDRESS", help="auto, ray://HOST:PORT or HOST:PORT."
)
@options.selection
@click.option(
    "--run-id", type=options.Given(), metavar="RUN", help="Take up a run that did not end: its folder's name."
)
@options.delivery
@options.output
def fleet(
    address: str,
    run_id: str | None,
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

    configuration, board = _configuration(selection), Board(quiet=quiet or as_json)
    waivers, history = _waivers(waiver_file), _history(history_at)
    with connected(address) as cluster:
        offer = offered(cluster.nodes())
        asked = _request(configuration, selection, cluster.targets(), where=f"in the cluster ({offer})")
        request = fit_request(asked, offer, board.say)
        state = Run(
            request=request,
            configuration=_with_requirements(configuration, request),
            home=_home(),
            board=board,
            jobs=default_jobs(),
            lock_mhz=lock_clocks or 0,
            profile=selection["profile"],
            waivers=waivers,
            history=history,
            run_id=run_id or "",
            fleet=Fleet(cluster=cluster),
        )
        try:
            return _executed(state, as_json=as_json, share=share)
        except (KeyboardInterrupt, FleetError):
            click.echo(f"to take the run up again: --run-id {state.run_id}", err=True)
            raise


def _run_catalogue(selection: dict[str, Any], board: Board, jobs: int | None, *, as_json: bool) -> int:
    from matrix.catalogue.recall import Wanted, run_catalogue
    from matrix.catalogue.table import results_data, results_text
    from matrix.running.run import default_jobs

    ignored = [name for name in ("baseline", "targets", "kernels") if selection[name]]
    if ignored:
        raise UsageError(
            f"--catalogue brings its own {', '.join(ignored)}",
            hint="choose rows with --cases, by their files' names, and with --stages; environments with --candidate",
        )
    configuration = _configuration(selection)
    chosen = _flat(selection["candidate"])
    wanted = Wanted(
        globs=_flat(selection["cases"]),
        stages=tuple(map(Stage, _words("stage", _flat(selection["stages"]), list(Stage)))),
        environments=tuple(each.id for each in configuration.select(chosen)) if chosen else (),
    )
    done = run_catalogue(configuration, _home(), board, wanted, jobs=jobs or default_jobs(), host=gpu_host())
    click.echo(json.dumps(results_data(done)) if as_json else results_text(done.results, done.catalogue), nl=as_json)
    return ExitCode.CLEAN if all(result.as_stated for result in done.results) else ExitCode.INCOMPLETE


@main.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write a commented matrix.toml and a first case file into FOLDER, by default this one."""
    from matrix.authoring.scaffold import initialise

    for path in initialise(folder):
        click.echo(path)


@main.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--arguments", default="", metavar="EXPRESSIONS", help="What it is called with: 'torch.randn(64, 64), 8'."
)
@click.option("--environment", "name", metavar="ENV", default="newest", help="Where it is called; built if need be.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The case file to write; by default stdout.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere.")
def adopt(function: str, arguments: str, name: str, output: Path | None, config_file: Path | None) -> None:
    """Draft a case from a launch function: called once, its launches compiled and recorded, never run."""
    from matrix.authoring.adopt import Adoption, draft
    from matrix.provisioning.provision import provide
    from matrix.running.host import this_host
    from matrix.running.workers import homes_of, memory_share
    from matrix.storage.atomic import write_atomically

    adoption = Adoption.of(function, arguments)
    if output and output.exists():
        raise UsageError(f"{output} is there already", hint="nothing was written")
    configuration = config.load(project_root(), file=config_file)
    provisions = provide([name], configuration, project_root(), Board(quiet=True))
    with _home().scratch() as scratch:
        homes = homes_of(provisions, configuration.pythonpath, scratch, memory_share(this_host(), 1))
        if name not in homes:
            raise UsageError(f"environment {name} could not be built: {provisions[name].problem}")
        text = draft(adoption, homes[name], provisions[name].triton_version, scratch)
    if output is None:
        click.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    click.echo(output)


@main.command()
@options.selection
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def plan(as_json: bool, **selection: Any) -> None:
    """What would run, stage by stage, and what would not and why. Runs and builds nothing."""
    from matrix.running.preview import preview, preview_text

    configuration, home = _configuration(selection), _home()
    request = _request(configuration, selection, gpu_host().targets)
    found = preview(request, _with_requirements(configuration, request), home)
    click.echo(json.dumps(found) if as_json else preview_text(found), nl=as_json)


@main.command()
@click.argument("cell")
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

    folder = load(sample_folder() if sample else run_dir or _home().latest())
    found = matching(folder, cell)
    if code:
        click.echo(code_of(folder, found, code), nl=False)
    elif memory and not as_json:
        click.echo(memory_text(kernels_of(folder, found)), nl=False)
    elif as_json:
        click.echo(json.dumps(as_data(folder, found), default=str))
    else:
        click.echo(as_text(folder, found), nl=False)


@main.command()
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

    thresholds = config.load(project_root(), file=config_file).thresholds
    folder, code = judge_again(runs, baseline, _flat(candidate), thresholds, _waivers(waiver_file))
    if as_json:
        click.echo(json.dumps(_as_json(folder, int(code)), default=str))
    else:
        click.echo(summary_text(folder, colour=wants_colour()), nl=False)
    return int(code)


@main.command()
@click.argument("runs", nargs=-1)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to write the page of several runs.")
@click.option("--sample", is_flag=True, help="The run on a GPU that this package carries, into sample-report.html.")
@click.option("--signoff", is_flag=True, help="The sign-off page of one run instead, for A4 paper: signoff.html.")
def report(runs: Sequence[str], output: Path | None, sample: bool, signoff: bool) -> int:
    """Render the report of a run, or of several side by side. Without RUNS: the latest.

    RUNS are folders or addresses (s3://bucket/prefix?region=...) of runs, or of places that hold some. Runs of several
    hosts are laid into one matrix; what differs between the hosts is said, and the exit code is that of all together.
    """
    import tempfile

    from matrix.reporting.report import write_report

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
        if signoff:
            from matrix.reporting.signoff import write_signoff

            click.echo(write_signoff(folders[0], output))
        elif len(folders) == 1 and output is None:
            click.echo(write_report(folders[0]))
        else:
            return _report_of(folders, output or Path("report.html"))
    return ExitCode.CLEAN


def _run_folders(runs: Sequence[str], scratch: Path, *, sample: bool) -> list[Path]:
    if sample:
        return [sample_folder()]
    from matrix.running.shards import fetch

    return fetch(runs or [str(_home().latest())], scratch)


def _report_of(folders: Sequence[Path], path: Path) -> int:
    """The page of runs laid side by side; of several, with what is to be known of their hosts."""
    from matrix.reporting.report import render_runs
    from matrix.running.shards import merged_exit, shards_of, shards_text
    from matrix.storage.atomic import write_atomically
    from matrix.storage.runfolder import load_all

    loaded = load_all(folders)
    write_atomically(path, render_runs(loaded).encode())
    if len(loaded) > 1:
        click.echo(shards_text(shards_of(loaded)), nl=False)
    click.echo(path)
    return merged_exit(loaded) if len(loaded) > 1 else ExitCode.CLEAN


@main.command()
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
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to write the page; by default trend.html.")
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
    table = selected(history.read(), _flat(cases))
    if as_json:
        click.echo(json.dumps(rows(trends(table).series), default=str))
        return
    path = output or Path("trend.html")
    write_atomically(path, render_trend(table, history.address).encode())
    click.echo(trend_text(table, limit=40), nl=False)
    click.echo(path)


@main.command()
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

    home = _home()
    if sentence is None:
        found = checked_rows(home)
        click.echo(json.dumps(rows(found)) if as_json else ledger_text(found), nl=as_json)
        return
    read = read_hypothesis(sentence)
    (row,) = ledger_of(home).append([opened(read, _flat(cases), revision_of(home.root))])
    click.echo(json.dumps(dataclasses.asdict(row)) if as_json else opened_text(row, read), nl=as_json)


@main.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--seal", "expected", type=options.Given(), metavar="SHA256", help="The seal as the signed page has it.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def verify(run_dir: Path, expected: str | None, as_json: bool) -> int:
    """Are a run's result files still those that were sealed? Names each that was edited, removed or added.

    Pages are rendered from those files and not sealed themselves. Exit code 0 or, where anything is wrong, 3.
    """
    from matrix.reporting.show import rows
    from matrix.storage.seal import faults, read_seal

    sealed = read_seal(run_dir)
    found = faults(run_dir, sealed, expected=(expected or "").strip().lower())
    if as_json:
        click.echo(json.dumps({"seal": sealed.digest, "files": len(sealed.files), "faults": rows(found)}))
    else:
        for fault in found:
            click.echo(f"{fault.wrong:<9} {fault.path}  {fault.detail}".rstrip())
        faulty = "1 fault" if len(found) == 1 else f"{len(found) or 'no'} faults"
        click.echo(f"{len(sealed.files)} files, {faulty}; seal {sealed.digest}")
    return ExitCode.INCOMPLETE if found else ExitCode.CLEAN


@main.command()
@click.option("--gpu", "with_gpu", is_flag=True, help="Prove on each GPU that times measured there can be trusted.")
@click.option("--gpu-index", "gpu_index", metavar="GPU", help="With --gpu: one GPU alone, by index or UUID.")
@click.option("--environment", "name", metavar="ENV", help="With --gpu: measure in this environment, built if need be.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def doctor(with_gpu: bool, gpu_index: str | None, name: str | None, config_file: Path | None, as_json: bool) -> int:
    """Is this host fit? uv, index, disk, GPU and driver, and which stages are possible.

    With --gpu the instrument proves itself instead: kernels of known duration read right, equal arms agree,
    planted slow-downs are found, and what a timer without our precautions would have reported.
    """
    from matrix.commands.doctor import examine, examined_text

    if with_gpu:
        return _examine_gpus(gpu_index, name, config.load(project_root(), file=config_file), as_json=as_json)
    if gpu_index is not None or name is not None:
        raise UsageError("--gpu-index and --environment mean nothing without --gpu", hint="add --gpu")
    checks = examine(_home())
    if as_json:
        click.echo(json.dumps([check.data() for check in checks]))
    else:
        click.echo(examined_text(checks, colour=wants_colour()), nl=False)
    return ExitCode.CLEAN if all(check.fit for check in checks) else ExitCode.INCOMPLETE


def _examine_gpus(wanted: str | None, name: str | None, configuration: Configuration, *, as_json: bool) -> int:
    from matrix.gpus.doctor import examine, interpreter, line

    board = Board(quiet=as_json)
    where, seen = interpreter(name, configuration, project_root(), board), []
    for one in examine(where, wanted, board.say):
        seen.append(one)
        if not as_json:
            click.echo(line(one, colour=wants_colour()), nl=False)
    if not seen:
        raise UsageError("this host has no GPU that NVML knows and this process may use", hint="nvidia-smi shows them")
    if as_json:
        click.echo(json.dumps([one.data() for one in seen]))
    return ExitCode.CLEAN if all(one.proof.fit for one in seen) else ExitCode.INCOMPLETE


@main.command()
@click.argument("name")
@click.option("--upgrade", is_flag=True, help="Resolve anew, and say what moved.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere.")
def environment(name: str, upgrade: bool, config_file: Path | None) -> None:
    """Build the environment NAME: resolve, lock, install. (What `nox -s "env(...)"` calls.)"""
    from matrix.errors import EnvironmentBuildError
    from matrix.provisioning.provision import build_one

    configuration = config.load(project_root(), file=config_file or _told_config())
    wanted = configuration.environment(name).apart(json.loads(os.environ.get("MATRIX_REQUIRES", "[]")))
    found = build_one(wanted, configuration, project_root(), upgrade=upgrade)
    if found.built is None:
        message, _, hint = found.problem.removeprefix(f"environment {wanted.id}: ").partition("\nhint: ")
        raise EnvironmentBuildError(wanted.id, message, hint=hint)
    for note in (*found.built.notes, *found.built.drift):
        click.echo(note, err=True)
    click.echo(found.built.interpreter)


def _told_config() -> Path | None:
    """The configuration file of the run that has this environment built."""
    told = os.environ.get("MATRIX_CONFIG")
    return Path(told) if told else None


def _home() -> Home:
    return Home(root=project_root())


def _configuration(selection: dict[str, Any]) -> Configuration:
    return config.load(project_root(), file=selection["config_file"])


def _history(address: str | None) -> History | None:
    from matrix.nights.history import History

    return History.of(address) if address else None


def _waivers(path: Path | None) -> tuple[Waiver, ...]:
    import datetime

    from matrix.judging.waivers import read_waivers

    return read_waivers(path, today=datetime.datetime.now(datetime.UTC).date()) if path else ()


def _taking_part(host: GpuHost, request: Request) -> GpuHost:
    from matrix.gpus.devices import usable

    return dataclasses.replace(host, gpus=tuple(usable(host.gpus, request.targets)))


def _stages(configuration: Configuration, selection: dict[str, Any], *, gpu: bool, where: str) -> tuple[Stage, ...]:
    """The stages asked for; by default all that can be run. Raises :class:`UsageError` for one that cannot."""
    asked = _flat(selection["stages"])
    if not asked and selection["profile"]:
        return tuple(selection["profile"].stages_here(gpu=gpu))
    asked = asked or list(configuration.stages)
    if not asked:
        return (*HOST_STAGES, *GPU_STAGES) if gpu else HOST_STAGES
    stages = tuple(map(Stage, _words("stage", asked, list(Stage))))
    if beyond := [str(stage) for stage in stages if stage in GPU_STAGES and not gpu]:
        hint = "see `triton-matrix doctor`; --targets may have left the GPU's own target out"
        raise UsageError(f"no GPU {where} for {', '.join(beyond)}", hint=hint)
    return stages


def _request(
    configuration: Configuration, selection: dict[str, Any], gpus_of: Sequence[str], *, where: str = "here"
) -> Request:
    """The command line over the configuration. Raises :class:`UsageError` for what is not there."""
    candidates = _flat(selection["candidate"]) or list(configuration.candidates)
    baseline = configuration.environment(selection["baseline"] or configuration.baseline).id
    chosen = [each.id for each in configuration.select(candidates)]
    if baseline in chosen and len(chosen) > 1:
        chosen.remove(baseline)
    if chosen == [baseline]:
        raise UsageError(f"baseline and candidate are both {baseline}", hint="name two environments")
    cases = tuple(_flat(selection["cases"]) or configuration.cases)
    builtin = configuration.builtin and not selection["no_builtin"]
    suites = _flat(selection["suite"])
    shipped = find_case_files([kernels_folder()]) if builtin and not suites else ()
    left_out = [suites_folder(), *([] if cases else [catalogue_folder(), passes_folder()])]
    shipped = tuple(file for file in shipped if not any(map(file.is_relative_to, left_out)))
    shipped += suite_files(suites)
    files = tuple(dict.fromkeys((*shipped, *find_case_files([*configuration.kernels, *selection["kernels"]]))))
    if not files:
        raise UsageError("no case files to run", hint="name some with --kernels")
    wanted = selection["profile"].targets if selection["profile"] else ()
    asked = _flat(selection["targets"]) or wanted or configuration.targets or tuple(map(str, DEFAULT_TARGETS))
    targets = _words("target", asked, list(Target))
    gpu_targets = tuple(target for target in targets if target in gpus_of)
    return Request(
        baseline=baseline,
        candidates=tuple(chosen),
        targets=targets,
        case_files=files,
        cases=cases,
        stages=_stages(configuration, selection, gpu=bool(gpu_targets), where=where),
        gpu_targets=gpu_targets,
        configs=selection["configs"],
    )


def _with_requirements(configuration: Configuration, request: Request) -> Configuration:
    return dataclasses.replace(configuration, requires=requirements_of(request.case_files))


def _words(what: str, given: Sequence[str], allowed: Sequence[Any]) -> tuple[str, ...]:
    known = [str(word) for word in allowed]
    if wrong := [word for word in given if word not in known]:
        raise UsageError(f"unknown {what}: {', '.join(wrong)}", hint=f"known: {', '.join(known)}")
    return tuple(word for word in known if word in given) if given else tuple(known)


def _flat(lists: Sequence[Sequence[str]]) -> list[str]:
    return [item for part in lists for item in part]


def _as_json(folder: Any, code: int) -> dict[str, Any]:
    from matrix.judging import chains, confounders
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
