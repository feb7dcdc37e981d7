"""The commands that write files for kernel authors."""

from __future__ import annotations

from pathlib import Path

import click

from matrix.commands import options
from matrix.commands.workplace import project_home, project_root
from matrix.errors import UsageError
from matrix.running.progress import Board
from matrix.settings import config


@options.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write a commented matrix.toml and a first case file into FOLDER, by default this one."""
    from matrix.authoring.scaffold import initialise

    for path in initialise(folder):
        click.echo(path)


@options.command()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--arguments", default="", metavar="EXPRESSIONS", help="What it is called with: 'torch.randn(64, 64), 8'."
)
@click.option("--environment", "name", metavar="ENV", default="newest", help="Where it is called; built if need be.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="The case file to write; by default stdout."
)
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
    with project_home().scratch() as scratch:
        homes = homes_of(provisions, configuration.pythonpath, scratch, memory_share(this_host(), 1))
        if name not in homes:
            raise UsageError(f"environment {name} could not be built: {provisions[name].problem}")
        drafted = draft(adoption, homes[name], provisions[name].triton_version, scratch, project=project_root())
    for note in drafted.notes:
        click.echo(note, err=True)
    if output is None:
        click.echo(drafted.text, nl=False)
        return
    write_atomically(output, drafted.text.encode())
    click.echo(output)


COMMANDS = (init, adopt)
