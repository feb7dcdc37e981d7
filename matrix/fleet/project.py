"""What a host needs of the user's folder: packed by the driver, unpacked once a host, and whose paths are whose."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from matrix.errors import UsageError
from matrix.resources import kernels_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.settings.config import Configuration

_MOST_BYTES = 256 << 20
_LEFT_OUT = frozenset({"__pycache__"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the user's folder and the built-in case files lie on one host."""

    project: Path
    kernels: Path

    @classmethod
    def here(cls, project: Path) -> Roots:
        return cls(project=project, kernels=kernels_folder())

    def moved(self, path: Path, to: Roots) -> Path:
        """The same file on another host."""
        # What lies in a clone lies in both: the built-in files come first.
        for own, other in ((self.kernels, to.kernels), (self.project, to.project)):
            if path.is_relative_to(own):
                return other / path.relative_to(own)
        return path

    def retold(self, value: T, to: Roots) -> T:
        """A value (texts, containers, dataclasses) with this host's folders named as the other's."""
        told: T = _retold(value, [(str(self.kernels), str(to.kernels)), (str(self.project), str(to.project))])
        return told


def _retold(value: Any, names: Sequence[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for own, other in names:
            value = value.replace(own, other)
        return value
    if isinstance(value, Path):
        return Path(_retold(str(value), names))
    if isinstance(value, dict):
        return {_retold(k, names): _retold(v, names) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_retold(each, names) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = {f.name: _retold(getattr(value, f.name), names) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **told)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The files that travel, as a tar archive, and its digest."""

    data: bytes
    digest: str

    def unpack(self, folder: Path) -> Path:
        """Where the files lie under ``folder``; put there whole or not at all, by whoever comes first."""
        place = folder / "projects" / self.digest
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
                inside = Path(scratch, "project")
                inside.mkdir()
                with tarfile.open(fileobj=io.BytesIO(self.data)) as archive:
                    archive.extractall(inside, filter="data")
                try:
                    inside.rename(place)
                except OSError:
                    if not place.is_dir():  # nobody else was quicker: it is something else
                        raise
        return place


def pack(root: Path, configuration: Configuration, case_files: Iterable[Path]) -> Project:
    """The user's configuration, case files with what lies beside them, and sources that cases import.

    Raises :class:`UsageError` naming what lies outside of ``root``, which no other host could find.
    """
    root, shipped = root.resolve(), kernels_folder().resolve()
    own = [path.resolve() for path in case_files if not path.resolve().is_relative_to(shipped)]
    places = {*(path.resolve() for path in configuration.sources[1:]), *(path.parent for path in own)}
    places |= {path.resolve() for path in configuration.pythonpath}
    if outside := sorted(str(path) for path in places if not path.is_relative_to(root)):
        hint = "what hosts of a fleet need travels with the project: move it there, or start in a folder above both"
        raise UsageError(f"outside of {root}: {', '.join(outside)}", hint=hint)
    return packed(root, sorted({file for place in places for file in _files(place, root)}))


def packed(root: Path, files: Sequence[Path]) -> Project:
    """These files in an archive that is the same whenever they are."""
    if (size := sum(file.stat().st_size for file in files)) > _MOST_BYTES:
        largest = max(files, key=lambda file: file.stat().st_size)
        hint = f"the largest file is {largest}; keep case files and sources in folders of their own"
        raise UsageError(f"{size >> 20} MiB beside the case files would travel to every host", hint=hint)
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for file in files:
            info = tarfile.TarInfo(str(file.relative_to(root)))
            data = file.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return Project(data=sink.getvalue(), digest=hashlib.sha256(sink.getvalue()).hexdigest()[:16])


def _files(place: Path, root: Path) -> Iterable[Path]:
    if place.is_file():
        yield place
        return
    for folder, inside, names in os.walk(place):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in _LEFT_OUT]
        # A project's own root may hold anything: of it the files at the top alone.
        if Path(folder) == root:
            inside.clear()
        yield from (path for name in names if not name.startswith(".") and (path := Path(folder, name)).is_file())
