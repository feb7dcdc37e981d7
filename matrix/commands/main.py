"""The command line: the group of all commands, and one process's way through it."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import click

import matrix
from matrix.commands import authoring, causes, hosts, lasting, records, runs
from matrix.errors import ExitCode, StorageError, UsageError


def command() -> ExitCode:
    """Run the command line of this process. Returns the exit code; raises :class:`MatrixError`."""
    _obey_signals()
    _require_a_folder()
    try:
        result = main.main(standalone_mode=False)
    except SystemExit:  # click's, where nobody reads on: not 1, which says that something regressed
        return ExitCode.INCOMPLETE
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageError(f"a disk is full: {error}", hint="free some space, and run again") from error
        raise
    except click.exceptions.Exit as error:
        return ExitCode(error.exit_code)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"see `triton-matrix {context.info_name} --help`" if context else ""
        raise UsageError(error.format_message(), hint=hint) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    return ExitCode(result) if isinstance(result, int) else ExitCode.CLEAN


def _require_a_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise UsageError(f"the current folder is gone: {error.strerror}", hint="cd to one that is there") from None


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


for each in (runs, records, causes, lasting, authoring, hosts):
    for known in each.COMMANDS:
        main.add_command(known)
