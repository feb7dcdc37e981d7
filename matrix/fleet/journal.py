"""Every answer of a run as it came, on the driver's disk: a driver that starts again loses none and asks none twice."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Self

import filelock

from matrix.errors import UsageError
from matrix.storage.atomic import storage_error

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from matrix.fleet.orders import Answer


class Journal:
    """One file, only ever appended to. Pickles of our own answers: it is as trusted as what lies beside it."""

    def __init__(self, path: Path, head: str) -> None:
        """``head`` says what the run is: of another one no answer may be taken."""
        self._path, self._head = path, head
        self._lock = filelock.FileLock(path.with_suffix(".lock"))

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self.answers = self._read()
            self._file = self._path.open("ab")
        except filelock.Timeout:
            raise UsageError(
                f"{self._path.stem} is under way in another process", hint="let it end, or end it"
            ) from None
        except OSError as error:
            raise storage_error(self._path, error) from error
        if not self._file.tell():
            pickle.dump(self._head, self._file)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._file.close()
        self._lock.release()

    def keep(self, answer: Answer) -> bool:
        """Record an answer, before anything else is done with it; False where its unit was answered already."""
        if answer.unit in self.answers:
            return False
        try:
            pickle.dump(answer, self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._file.flush()
        except OSError as error:
            raise storage_error(self._path, error) from error
        self.answers[answer.unit] = answer
        return True

    def _read(self) -> dict[str, Answer]:
        """What is there, less a last entry that was cut short, which is cut off."""
        answers: dict[str, Answer] = {}
        if not self._path.is_file():
            return answers
        with self._path.open("r+b") as file:
            whole = 0
            try:
                if pickle.load(file) != self._head:  # noqa: S301 - our own file
                    told = "this run was of another request, or of another version of this program"
                    raise UsageError(told, hint="repeat the command as it was, or leave --run-id out")
                while True:
                    whole = file.tell()
                    answer = pickle.load(file)  # noqa: S301 - our own file
                    answers[answer.unit] = answer
            except (EOFError, pickle.UnpicklingError):
                file.truncate(whole)
        return answers
