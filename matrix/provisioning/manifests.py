"""What an environment's folder says of itself, so that it is found again without asking anybody."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from matrix.provisioning.locks import LockedPackage
from matrix.provisioning.overlays import HOST_PYTHON
from matrix.settings.environments import STOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.settings.environments import CpuTorch, Environment

# 1: first form.
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEnvironment:
    """An environment that is installed and can be used.

    ``packages`` is the lock, ``digest`` the identity of what a result was made with: the lock, the variables
    and the Python. ``label`` says in words which torch is there; ``notes`` what departs from the request;
    ``drift`` what this resolution changed against the one before.
    """

    environment: Environment
    directory: Path
    interpreter: Path
    python: str
    packages: tuple[LockedPackage, ...]
    digest: str
    triton: str
    torch_build: str
    stock: bool
    label: str
    notes: tuple[str, ...]
    drift: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.environment.id

    @property
    def lock(self) -> Path:
        """The lock file; an overlay that installed nothing has none."""
        return self.directory / "pylock.toml"

    def version(self, package: str) -> str:
        """The version of a package, or ``""`` where the environment does not hold it."""
        return next((each.version for each in self.packages if each.name == package), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What decides about an installation. ``files`` are local wheels by size and time of change."""

    triton: str
    torch: str
    stand_in: str
    stand_in_as_of: str
    python: str
    as_of: str
    inherit: str
    sources: tuple[str, ...]
    stock: bool
    files: tuple[str, ...]
    requires: tuple[str, ...]

    @classmethod
    def of(cls, environment: Environment, cpu: CpuTorch, *, gpu: bool) -> Spec:
        """With ``gpu`` an environment has its own torch; without, the shared one in place of a release."""
        stand_in = "" if gpu or environment.inherit or not environment.torch_version else cpu.torch
        if environment.torch and Requirement(environment.torch).url:
            stand_in = ""  # somebody's own build of torch is what is to be tested
        host = os.environ.get(HOST_PYTHON, "") if environment.inherit else ""
        requirements = (environment.triton, "" if stand_in else environment.torch, *environment.requires)
        return cls(
            triton=environment.triton,
            torch=environment.torch,
            stand_in=stand_in,
            stand_in_as_of=cpu.as_of if stand_in else "",
            python=environment.python,
            as_of=environment.as_of,
            inherit=f"{environment.inherit}{host and '='}{host}",
            sources=(environment.index, *environment.extra_indexes, *environment.find_links),
            stock=STOCK in environment.tags,
            files=tuple(_stamps(requirements)),
            requires=environment.requires,
        )

    def extends(self, other: Spec) -> bool:
        """Equal but for further packages that this one has."""
        return replace(self, requires=()) == replace(other, requires=()) and set(self.requires) >= set(other.requires)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Raises ``KeyError`` or ``TypeError`` where another version wrote it."""
        values: dict[str, Any] = {field.name: data[field.name] for field in fields(cls)}
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values | lists)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The last file that a build writes. ``watched`` are the host's folders by time of change."""

    spec: Spec
    venv: str
    python: str
    packages: tuple[LockedPackage, ...]
    triton: str
    torch_build: str
    stock: bool
    label: str
    notes: tuple[str, ...]
    drift: tuple[str, ...]
    watched: Mapping[str, int]

    def fits(self, spec: Spec) -> bool:
        """Whether what is installed is what is wanted, and nothing besides: a package more may pin others."""
        return self.spec == spec and all(_changed(Path(folder)) == stamp for folder, stamp in self.watched.items())

    def built(self, environment: Environment, root: Path) -> BuiltEnvironment:
        directory = folder_of(root, environment)
        return BuiltEnvironment(
            environment=environment,
            directory=directory,
            interpreter=interpreter_of(directory / self.venv),
            python=self.python,
            packages=self.packages,
            digest=_digest(self.packages, environment.variables, self.python),
            triton=self.triton,
            torch_build=self.torch_build,
            stock=self.stock,
            label=self.label,
            notes=self.notes,
            drift=self.drift,
        )

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        values = {field.name: data[field.name] for field in fields(cls)}
        return cls(
            **values
            | {
                "spec": Spec.from_json(data["spec"]),
                "packages": tuple(LockedPackage(**each) for each in data["packages"]),
                "notes": tuple(data["notes"]),
                "drift": tuple(data["drift"]),
            }
        )


def folder_of(root: Path, environment: Environment) -> Path:
    variant = f"+{environment.variant}" if environment.variant else ""
    return root / ".matrix" / "environments" / f"{environment.id}{variant}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder whose installation is whole; None in every other case."""
    try:
        data = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        manifest = Manifest.from_json(data) if data["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # never finished, damaged, or of another version: built anew
    return manifest if manifest and interpreter_of(folder / manifest.venv).exists() else None


def gpu_present() -> bool:
    """Whether the host has an NVIDIA GPU that this process may use."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in {"", "-1", "NoDevFiles"}:
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def interpreter_of(venv: Path) -> Path:
    """The Python of a virtual environment."""
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _digest(packages: Iterable[LockedPackage], variables: Mapping[str, str], python: str) -> str:
    locked = [[each.name, each.version, each.sha256] for each in packages]
    text = json.dumps([locked, sorted(variables.items()), python])
    return hashlib.sha256(text.encode()).hexdigest()


def _stamps(requirements: Iterable[str]) -> Iterable[str]:
    """Local files among the requirements, so that a wheel that was built anew is noticed."""
    for text in requirements:
        parts = urlsplit((Requirement(text).url if text else "") or "")
        path = Path(unquote(parts.path))
        if parts.scheme == "file" and path.is_file():
            stat = path.stat()
            yield f"{path} {stat.st_size} {stat.st_mtime_ns}"


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
