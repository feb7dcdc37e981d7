"""Run folders: where a run's files lie, what run.json says, and which run is the latest."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.errors import StorageError, UsageError
from matrix.storage.atomic import storage_error, write_atomically
from matrix.storage.seal import NAME as SEAL

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = ".matrix"
LATEST = "latest"
_ANEW = "start the run anew, without --run-id: what was measured is in the cache"
_OWNER = "pid"  # in a scratch folder: the process that it belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The ``.matrix`` folder of a project."""

    root: Path

    @property
    def path(self) -> Path:
        return self.root / HOME

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    def begin(self) -> tuple[str, datetime.datetime, Path]:
        """A new run's id, start and folder. Raises :class:`StorageError` where it cannot be made."""
        started = datetime.datetime.now(datetime.UTC)
        run_id = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        folder = self.runs / run_id
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise storage_error(folder, error) from error
        return run_id, started, folder

    def resume(self, run_id: str) -> tuple[str, datetime.datetime, Path]:
        """The id, start and folder of a run that did not end.

        Raises :class:`UsageError` where there is none, or its run.json is damaged.
        """
        folder = self.runs / run_id
        path = folder / "run.json"
        try:
            meta = json.loads(path.read_bytes())
        except FileNotFoundError:
            known = "the ids of runs are the names of the folders there"
            raise UsageError(f"no run {run_id!r} under {self.runs}", hint=known) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {error}", hint=_ANEW) from None
        try:
            state, started = meta.get("state"), datetime.datetime.fromisoformat(meta["started_at"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UsageError(f"{path} is damaged: it does not say when the run began", hint=_ANEW) from None
        # Without its seal it was cut short at its very end, which is then done again.
        if state == "complete" and (folder / SEAL).exists():
            raise UsageError(f"run {run_id} came to its end", hint=f"its report: {folder / 'report.html'}")
        return run_id, started, folder

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for one run's own files, gone afterwards; what killed runs left goes first.

        Raises :class:`StorageError` where it cannot be made.
        """
        root = self.path / "tmp"
        with contextlib.ExitStack() as stack:
            try:
                root.mkdir(parents=True, exist_ok=True)
                _sweep(root)
                # Interrupted, a compiler that a worker had started may still write there: the next run sweeps it.
                made = tempfile.TemporaryDirectory(prefix="run-", dir=root, ignore_cleanup_errors=True)
                folder = Path(stack.enter_context(made))
                (folder / _OWNER).write_text(str(os.getpid()), encoding="utf-8")
            except OSError as error:
                raise storage_error(root, error) from error
            yield folder

    def point_latest(self, folder: Path) -> None:
        """Make ``runs/latest`` lead to ``folder``."""
        link = self.runs / f".latest-{os.getpid()}"
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(folder.name, target_is_directory=True)
            link.replace(self.runs / LATEST)
        except OSError as error:
            with contextlib.suppress(OSError):
                link.unlink(missing_ok=True)
            raise storage_error(self.runs / LATEST, error) from error

    def latest(self) -> Path:
        """The folder of the latest finished run. Raises :class:`UsageError` where there is none."""
        path = self.runs / LATEST
        if not (path / "run.json").is_file():
            raise UsageError(f"no finished run under {self.runs}", hint="run `triton-matrix run` first")
        return path.resolve()


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write run.json whole or not at all."""
    write_atomically(folder / "run.json", json.dumps(meta, indent=1, default=str).encode())


def mark_ended(folder: Path, state: str, error: str = "") -> None:
    """Leave word in run.json that the run ended early: everything else in it stays. What is sealed is left alone.

    Called while an error is on its way, which a disk that takes nothing more must not mask.
    """
    if (folder / SEAL).exists():
        return
    with contextlib.suppress(StorageError, OSError, ValueError):
        meta = json.loads((folder / "run.json").read_bytes())
        write_meta(folder, {**meta, "state": state, "exit_code": None, **({"error": error} if error else {})})


def _sweep(root: Path) -> None:
    """Remove what runs that were killed left in the scratch folder."""
    for folder in root.iterdir():
        try:
            alive = Path("/proc", str(int((folder / _OWNER).read_text(encoding="utf-8")))).exists()
        except (OSError, ValueError):
            alive = False
        if not alive:
            shutil.rmtree(folder, ignore_errors=True)
