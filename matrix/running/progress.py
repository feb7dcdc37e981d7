"""Progress on stderr: bars where a person watches, nothing where not."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator


def stderr_console() -> Console:
    """A console that honours ``NO_COLOR`` and terminals that are none."""
    return Console(stderr=True, highlight=False)


def wants_colour() -> bool:
    """Whether stdout is for eyes and colour is not declined (https://no-color.org)."""
    return bool(sys.stdout and sys.stdout.isatty()) and not os.environ.get("NO_COLOR")


class Tick(Protocol):
    """Notes progress."""

    def __call__(self, count: int = 1) -> None: ...


class Board:
    """One display for all that a run does, a line a stage."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = stderr_console()
        self._shown = console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not self._shown,
            transient=True,
        )

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        with self._progress:
            yield

    def task(self, description: str, total: int) -> Tick:
        """A line for ``total`` things; calling what is returned notes one done, or as many as it is told."""
        identity = self._progress.add_task(description, total=total)

        def tick(count: int = 1) -> None:
            self._progress.advance(identity, count)

        return tick

    def say(self, text: str) -> None:
        """A line that stays, on stderr."""
        if self._shown:
            self._progress.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr)  # noqa: T201
