"""The commands about this host: is it fit, and its environments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.commands import options
from matrix.commands.workplace import project_home, project_root
from matrix.errors import ExitCode, UsageError
from matrix.running.progress import Board, wants_colour
from matrix.settings import config

if TYPE_CHECKING:
    from matrix.settings.config import Configuration


@options.command()
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
        configuration = config.load(project_root(), file=config_file).with_wheels([name or ""], folder=Path.cwd())
        return _examine_gpus(gpu_index, name, configuration, as_json=as_json)
    if gpu_index is not None or name is not None:
        raise UsageError("--gpu-index and --environment mean nothing without --gpu", hint="add --gpu")
    checks = examine(project_home())
    if as_json:
        click.echo(json.dumps([check.data() for check in checks]))
    else:
        click.echo(examined_text(checks, colour=wants_colour()), nl=False)
    return ExitCode.CLEAN if all(check.fit for check in checks) else ExitCode.INCOMPLETE


def _examine_gpus(wanted: str | None, name: str | None, configuration: Configuration, *, as_json: bool) -> int:
    from matrix.gpus.devices import require_gpu
    from matrix.gpus.doctor import examine, interpreter, line

    require_gpu()  # before an environment is built for it
    board = Board(quiet=as_json)
    where, seen = interpreter(name, configuration, project_root(), board), []
    for one in examine(where, wanted, board.say):
        seen.append(one)
        if not as_json:
            click.echo(line(one, colour=wants_colour()), nl=False)
    if as_json:
        click.echo(json.dumps([one.data() for one in seen]))
    return ExitCode.CLEAN if all(one.proof.fit for one in seen) else ExitCode.INCOMPLETE


@options.command()
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


COMMANDS = (doctor, environment)
