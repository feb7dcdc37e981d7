"""Every error that a user can meet, with its exit code; the command line is the only place that exits.

Exit codes: 0 complete and nothing regressed, 1 regressed, 2 usage or configuration, 3 incomplete.
Each error names the value, where it came from and what to do (``hint``).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ExitCode(enum.IntEnum):
    """What a CI job acts on."""

    CLEAN = 0
    REGRESSED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERRUPTED = 130


class MatrixError(Exception):
    """An error to be shown as one message, without a traceback."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def told(self) -> str:
        """The error as a terminal shows it."""
        return f"error: {self}\nhint: {self.hint}" if self.hint else f"error: {self}"


class UsageError(MatrixError):
    """The command line asks for something that is not there."""


class SeveralErrors(MatrixError):
    """Mistakes that do not hang together, told at once, each with its own hint."""

    def __init__(self, errors: Sequence[MatrixError]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = tuple(errors)
        self.exit_code = errors[0].exit_code

    def told(self) -> str:
        """All of them, in order."""
        return "\n".join(error.told() for error in self.errors)


class ConfigurationError(MatrixError):
    """A configuration or data file is wrong; all of its mistakes are reported at once."""

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        self.problems = problems
        super().__init__("\n".join(problems), hint=hint)


class EnvironmentBuildError(MatrixError):
    """An environment could not be resolved or installed."""

    exit_code = ExitCode.INCOMPLETE

    def __init__(self, environment: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"environment {environment}: {message}", hint=hint)
        self.environment = environment


class FleetError(MatrixError):
    """The cluster that did the work is gone; what it had answered is kept."""

    exit_code = ExitCode.INCOMPLETE


class StorageError(MatrixError):
    """Results could not be written or read back."""

    exit_code = ExitCode.INCOMPLETE


def all_of(*steps: Callable[[], Any]) -> tuple[Any, ...]:
    """What steps that do not need one another return. Raises the error of one, or :class:`SeveralErrors`."""
    results: list[Any] = []
    errors: list[MatrixError] = []
    for step in steps:
        try:
            results.append(step())
        except SeveralErrors as several:
            errors += several.errors
        except MatrixError as error:
            errors.append(error)
    if len(errors) > 1:
        raise SeveralErrors(errors)
    if errors:
        raise errors[0]
    return tuple(results)
