"""The digests of a run's result files, and whether the files are still those.

``digests.json`` names every file of the run folder with its SHA-256, and its own digest is the run's *seal*: who has
the seal on paper can tell later that nothing was edited, removed or added, the list itself included. The rendered
pages are left out, since a newer program may render them anew from the files that are sealed.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import StorageError
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "digests.json"
RENDERED = ("report.html", "signoff.html")
_SCHEMA = 1
_CHUNK = 1 << 20


class Wrong(enum.StrEnum):
    """What can be wrong with a file."""

    TAMPERED = "tampered"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One file that is not as it was sealed; ``path`` is relative to the run folder."""

    path: str
    wrong: Wrong
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """``digest`` is the list's own SHA-256; ``files`` are SHA-256 by relative path."""

    digest: str
    files: Mapping[str, str]


def seal(folder: Path) -> Seal:
    """Write the list of what lies in ``folder`` now."""
    written = {"schema": _SCHEMA, "algorithm": "sha256", "files": digests_of(folder)}
    write_atomically(folder / NAME, json.dumps(written, indent=1, sort_keys=True).encode())
    return read_seal(folder)


def read_seal(folder: Path) -> Seal:
    """The list as it stands. Raises :class:`StorageError` where there is none or it is not ours."""
    path = folder / NAME
    try:
        data = path.read_bytes()
        files = json.loads(data)["files"]
        known = json.loads(data)["schema"] == _SCHEMA
    except FileNotFoundError as error:
        if not folder.exists():
            raise StorageError(f"there is no run at {folder}", hint="runs lie in .matrix/runs") from error
        hint = "the run did not finish, or an older triton-matrix made it: such a run cannot be verified"
        raise StorageError(f"{folder} is not sealed: it has no {NAME}", hint=hint) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint="compare the seal with the signed page") from error
    if not known or not isinstance(files, dict):
        raise StorageError(f"{path} is not a list of this version", hint="verify with the triton-matrix that wrote it")
    return Seal(digest=hashlib.sha256(data).hexdigest(), files=files)


def faults(folder: Path, sealed: Seal, *, expected: str = "") -> list[Fault]:
    """Every file that was edited, removed or added since; ``expected`` is the seal as somebody noted it."""
    there = digests_of(folder)
    found = [_fault(path, digest, there.get(path)) for path, digest in sealed.files.items()]
    found += [Fault(path=path, wrong=Wrong.EXTRA) for path in there if path not in sealed.files]
    if expected and expected != sealed.digest:
        detail = f"the seal is {sealed.digest}, and not {expected}"
        found.append(Fault(path=NAME, wrong=Wrong.TAMPERED, detail=detail))
    return sorted(filter(None, found), key=lambda fault: fault.path)


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file under ``folder`` but the rendered pages and the list, by relative path."""
    left_out = {*RENDERED, NAME}
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return {name: _digest(path) for name, path in sorted(found.items()) if name not in left_out}


def _digest(path: Path) -> str:
    """Of a link, where it leads to: what it shows lies outside and may change at any time."""
    if path.is_symlink():
        return hashlib.sha256(b"link to " + bytes(path.readlink())).hexdigest()
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}", hint="check the disk") from error
    return digest.hexdigest()


def _fault(path: str, sealed: str, found: str | None) -> Fault | None:
    if found is None:
        return Fault(path=path, wrong=Wrong.MISSING)
    if found != sealed:
        return Fault(path=path, wrong=Wrong.TAMPERED, detail=f"sha256 {found}, sealed as {sealed}")
    return None
