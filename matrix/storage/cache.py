"""Results by content: what was measured once, under the same everything, is not measured again.

An entry is written the moment its result arrives, atomically, so a run that is killed at any point is
resumed by the next one, which finds all that was finished and redoes only the rest.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.model import Outcome
from matrix.resources import package_folder
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What may come out differently next time without anything having changed: never taken from the cache.
_TRANSIENT = frozenset({Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY, Outcome.CRASH, Outcome.INTERRUPTED})


def key_of(parts: Mapping[str, Any]) -> str:
    """The digest of a JSON-able description; equal descriptions give equal keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@cache
def worker_digest() -> str:
    """The digest of everything of ours that runs inside an environment (rings 0 and 1)."""
    root = package_folder()
    return digest_of(
        [
            *sorted((root / "worker").glob("*.py")),
            root / "baton.py",
            root / "case.py",
            root / "loading.py",
            root / "model.py",
        ]
    )


@cache
def evidence_digest() -> str:
    """The digest of everything of ours that decides what facts the same artefacts have."""
    root = package_folder()
    read = [root / "records.py", *(root / "data" / f"{name}.toml" for name in ("gpus", "rates", "targets"))]
    return digest_of([*sorted((root / "code").glob("*.py")), *sorted((root / "memory").glob("*.py")), *read])


def digest_of(files: Iterable[Path]) -> str:
    """The digest of files' names and contents, in this order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


class Cache:
    """JSON values by key in a folder, two levels deep.

    A ``fresh`` one has nothing that was there before: what is put into it replaces that.
    """

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        self._folder = folder
        self._fresh = fresh
        self._put: set[str] = set()

    def get(self, key: str) -> Any:
        """The value, or None where there is none; an unreadable entry counts as none."""
        if self._fresh and key not in self._put:
            return None
        try:
            return json.loads(self._path(key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def put(self, key: str, value: Any) -> None:
        """Store the value; raises :class:`matrix.errors.StorageError` where the disk is full or read-only."""
        write_atomically(self._path(key), json.dumps(value).encode())
        self._put.add(key)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


def lasting(parts: list[dict[str, Any]]) -> bool:
    """Whether these parts would come out the same again, so that they may be taken from the cache."""
    return not any(part["outcome"] in _TRANSIENT for part in parts)
