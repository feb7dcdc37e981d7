"""Overlays: the host's own torch with another Triton laid in front, for containers and closed clusters.

A virtual environment on the host's interpreter whose ``.pth`` file adds the host's packages behind its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.errors import EnvironmentBuildError
from matrix.provisioning.locks import TRITON_NAMES, LockedPackage, Question
from matrix.settings.environments import HOST, pinned_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.settings.environments import Environment

HOST_PYTHON = "MATRIX_HOST_PYTHON"
_QUERY_TIMEOUT_S = 60.0

# Runs in the host's interpreter, whatever its age. Folders without distributions (the caller's sources on
# PYTHONPATH, the standard library) are none of ours.
_QUERY = """
import glob, json, os, sys
from importlib import metadata
def holds(path):
    return path and any(glob.glob(os.path.join(path, kind)) for kind in ("*.dist-info", "*.egg-info"))
folders = [path for path in sys.path if holds(path)]
packages = {}
pins = []
for each in metadata.distributions(path=folders):
    name = each.metadata["Name"]
    if name and name not in packages:
        packages[name] = each.version
        if name == "torch":
            pins = each.requires or []
print(json.dumps({"executable": sys.executable, "folders": folders, "packages": packages, "pins": pins}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What an interpreter of the host has installed. ``packages`` is by normalised name."""

    interpreter: Path
    folders: tuple[Path, ...]
    packages: Mapping[str, str]
    torch_requires: tuple[str, ...]

    @property
    def triton(self) -> str:
        return next((self.packages[name] for name in TRITON_NAMES if name in self.packages), "")

    def has(self, text: str) -> bool:
        """Whether a requirement is met by what is there; a file or a commit never is."""
        wanted = Requirement(text)
        version = self.triton if wanted.name == "triton" else self.packages.get(canonicalize_name(wanted.name), "")
        return bool(version) and not wanted.url and wanted.specifier.contains(version, prereleases=True)


def find_host(environment: Environment) -> Host:
    """The host interpreter that has torch. Raises :class:`EnvironmentBuildError` where there is none."""
    tried = list(dict.fromkeys(_candidates(environment)))
    for interpreter in tried:
        host = _query(interpreter)
        if host and "torch" in host.packages:
            return host
    looked = ", ".join(str(each) for each in tried) or "nowhere"
    raise EnvironmentBuildError(
        environment.id,
        f"no interpreter of the host has torch (looked at {looked})",
        hint=f"set {HOST_PYTHON}, or inherit, to the interpreter whose torch is to be used",
    )


def question(environment: Environment, host: Host) -> Question | None:
    """What has to be installed in front of the host's packages; nothing where it has all that is wanted."""
    triton = "" if host.has(environment.triton) else environment.triton
    requires = tuple(each for each in environment.requires if not host.has(each))
    if not (triton or requires):
        return None
    wanted = {canonicalize_name(Requirement(each).name) for each in (triton, *requires) if each}
    return Question(
        triton=triton,
        requires=requires,
        as_of=environment.as_of,
        find_links=environment.find_links,
        index=environment.index,
        extra_indexes=environment.extra_indexes,
        offline=environment.offline,
        # Further packages may need what the host lacks; Triton itself needs only what torch brings.
        excluded=tuple(name for name in host.packages if name not in wanted) if requires else (),
        alone=not requires,
    )


def lay_behind(host: Host, packages: Path) -> None:
    """Make the host's packages importable behind those of the environment."""
    lines = [f"import site; site.addsitedir({str(folder)!r})\n" for folder in host.folders]
    (packages / "_triton_matrix_host.pth").write_text("".join(lines), encoding="utf-8")


def inherited(host: Host, own: tuple[LockedPackage, ...]) -> tuple[LockedPackage, ...]:
    """The lock of an overlay: what it holds itself, and the host's torch, Triton and NumPy."""
    names = {each.name for each in own}
    if names.intersection(TRITON_NAMES):
        names.update(TRITON_NAMES)
    taken = [name for name in ("torch", "numpy", *TRITON_NAMES) if name in host.packages and name not in names]
    added = [LockedPackage(name=name, version=host.packages[name]) for name in taken]
    return tuple(sorted([*own, *added], key=lambda each: each.name))


def label(environment: Environment, host: Host) -> str:
    torch = host.packages["torch"]
    if host.has(environment.triton):
        return f"the host's own torch {torch} and Triton {host.triton}"
    wanted = pinned_version(environment.triton) or environment.triton
    return f"Triton {wanted} in front of the host's torch {torch}, which has Triton {host.triton or 'none'}"


def _candidates(environment: Environment) -> Iterator[Path]:
    if environment.inherit != HOST:
        yield Path(environment.inherit)
        return
    if named := os.environ.get(HOST_PYTHON):
        yield Path(named)
        return
    # The interpreter that ours was made from, then every python3 on the PATH that is not ours.
    yield Path(sys.base_prefix, "bin", "python3")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("python3", path=folder)
        if found and not Path(found).is_relative_to(sys.prefix):
            yield Path(found)


def _query(interpreter: Path) -> Host | None:
    try:
        done = subprocess.run(
            [str(interpreter), "-c", _QUERY],
            capture_output=True,
            check=True,
            timeout=_QUERY_TIMEOUT_S,
            cwd=interpreter.parent,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # not there, or no interpreter: the next candidate may be one
    return Host(
        interpreter=Path(found["executable"]),
        folders=tuple(Path(folder) for folder in found["folders"]),
        packages={canonicalize_name(name): version for name, version in found["packages"].items()},
        torch_requires=tuple(found["pins"]),
    )
