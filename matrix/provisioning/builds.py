"""Builds environments: resolves, locks and installs each under ``.matrix/environments/<id>/``.

The folder holds ``pylock.toml`` (the lock, which stays when the installation is made anew), the virtual
environment, and ``manifest.json``, written last: without a manifest that fits, nothing in it is used.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.provisioning import locks, overlays, uv
from matrix.provisioning.bytecode import link_bytecode
from matrix.provisioning.locks import LockedPackage, Question
from matrix.provisioning.manifests import (
    BuiltEnvironment,
    Manifest,
    Spec,
    folder_of,
    gpu_present,
    interpreter_of,
    read_manifest,
)
from matrix.settings.environments import STOCK, pinned_version, requirement_name
from matrix.storage.atomic import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from matrix.provisioning.overlays import Host
    from matrix.settings.environments import CpuTorch, Environment

_LOCK = "pylock.toml"
_LOCK_SPEC = "pylock.spec.json"
# Two places, so that a run that works in the installation of before is not disturbed by the next build.
_PLACES = ("venv-a", "venv-b")


def _silent(_: str) -> None:
    """The progress of somebody who does not watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Where environments are built, and for what host. ``progress`` is told each step in words."""

    root: Path
    cpu: CpuTorch
    gpu: bool = field(default_factory=gpu_present)
    progress: Callable[[str], None] = _silent

    def ready(self, environment: Environment) -> BuiltEnvironment | None:
        """The environment as built before, or None where it must be built. Reads one small file."""
        manifest = read_manifest(folder_of(self.root, environment))
        fits = manifest is not None and manifest.fits(self._spec(environment))
        return manifest.built(environment, self.root) if manifest and fits else None

    def build(self, environment: Environment, *, upgrade: bool = False) -> BuiltEnvironment:
        """The environment, ready to use: as it was built before, or built now.

        A lock that is there is kept; ``upgrade`` resolves anew, and what moved is in the result's ``drift``.
        Two processes never build one environment at once: the second waits, and uses what the first built.
        Raises :class:`matrix.errors.EnvironmentBuildError`, and nothing else, for whatever goes wrong.
        """
        folder = folder_of(self.root, environment)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._held(folder / ".lock", environment.id):
                if not upgrade and (found := self.ready(environment)):
                    return found
                return self._build(environment, folder, upgrade=upgrade)
        except (uv.UvError, OSError) as error:
            raise uv.explain(environment.id, error) from error

    def _spec(self, environment: Environment) -> Spec:
        return Spec.of(environment, self.cpu, gpu=self.gpu)

    @contextlib.contextmanager
    def _held(self, path: Path, name: str) -> Iterator[None]:
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            self.progress(f"{name}: waiting for another process that builds it")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _build(self, environment: Environment, folder: Path, *, upgrade: bool) -> BuiltEnvironment:
        old = read_manifest(folder)
        _sweep(folder, keep=old.venv if old else "")
        job = _Job(
            environment=environment,
            spec=self._spec(environment),
            host=overlays.find_host(environment) if environment.inherit else None,
            folder=folder,
            venv=folder / _PLACES[1 if old and old.venv == _PLACES[0] else 0],
            upgrade=upgrade,
        )
        try:
            manifest = job.run(self.progress)
        except BaseException:  # interrupted, too: what is half done must not take up the disk
            shutil.rmtree(job.venv, ignore_errors=True)
            raise
        _write(folder / "manifest.json", manifest.as_json())
        return manifest.built(environment, self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One build of one environment, under its lock."""

    environment: Environment
    spec: Spec
    host: Host | None
    folder: Path
    venv: Path
    upgrade: bool

    def run(self, progress: Callable[[str], None]) -> Manifest:
        name = self.environment.id
        progress(f"{name}: making the environment")
        notes = self._make_venv()
        progress(f"{name}: resolving")
        before = self._locked()
        notes += self._lock()
        packages = self._locked()
        progress(f"{name}: installing {len(packages)} packages")
        if packages:
            locks.install(self.folder / _LOCK, interpreter_of(self.venv), offline=self.environment.offline)
            beside = sorted(self.folder.parent.glob("*/venv-*/lib/python3*/site-packages"))
            site = _packages_folder(self.venv)
            link_bytecode(site, [each for each in beside if each != site])
        if self.host:
            overlays.lay_behind(self.host, _packages_folder(self.venv))
        return self._manifest(packages, notes, locks.drift(before, packages) if before else [])

    def _make_venv(self) -> list[str]:
        wanted = str(self.host.interpreter) if self.host else self.environment.python
        arguments = ["venv", "--no-project", "--allow-existing", str(self.venv), "--python"]
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        try:
            uv.run([*arguments, wanted])
        except uv.UvError:
            if self.host or self.environment.python_exact or running == wanted:
                raise
        else:
            return []
        # No such Python here and none to be downloaded: the one that runs this is at least the same for all.
        uv.run([*arguments, sys.executable])
        return [f"Python {running} stands in for {wanted}, which is neither here nor to be had"]

    def _lock(self) -> list[str]:
        """Make sure that the folder's lock is of this spec; kept as it is where it already was.

        ======================= ================================================
        the lock that is there  what becomes of it
        ======================= ================================================
        none, or of other pair  resolved from nothing (with ``upgrade``, always)
        of the same spec        kept
        more is required now    resolved; the versions that it holds are kept
        less is required now    resolved from nothing: what is gone may have pinned others
        ======================= ================================================
        """
        lock, of = self.folder / _LOCK, self.folder / _LOCK_SPEC
        held = _read_spec(of)
        if self.upgrade or not held or not self.spec.extends(held[0]):
            lock.unlink(missing_ok=True)
        elif held[0] == self.spec and lock.exists() and not self.host:
            return held[1]
        of.unlink(missing_ok=True)
        question = overlays.question(self.environment, self.host) if self.host else self._question()
        if question is None:
            lock.unlink(missing_ok=True)
            return []
        notes = self._resolve(question, lock)
        _write(of, {"spec": self.spec.as_json(), "notes": notes})
        return notes

    def _resolve(self, question: Question, lock: Path) -> list[str]:
        staged = self.folder / "pylock.new.toml"
        staged.unlink(missing_ok=True)
        if lock.exists():
            shutil.copyfile(lock, staged)
        try:
            notes = locks.resolve(question, interpreter_of(self.venv), staged)
            staged.replace(lock)
        finally:
            staged.unlink(missing_ok=True)
        return notes

    def _question(self) -> Question:
        return Question(
            triton=self.environment.triton,
            torch=self._own_torch(),
            stand_in=self.spec.stand_in,
            stand_in_as_of=self.spec.stand_in_as_of,
            requires=self.spec.requires,
            as_of=self.environment.as_of,
            find_links=self.environment.find_links,
            index=self.environment.index,
            extra_indexes=self.environment.extra_indexes,
            offline=self.environment.offline,
        )

    def _own_torch(self) -> str:
        """The pair's torch, and not the CPU build of it where the same index has both."""
        torch, version = self.environment.torch, self.environment.torch_version
        return f"{torch},!={version}+cpu" if torch == f"torch=={version}" and "+" not in version else torch

    def _locked(self) -> tuple[LockedPackage, ...]:
        """The packages of the folder's lock; none where it has no lock, or a damaged one."""
        try:
            return locks.parse((self.folder / _LOCK).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError):
            return ()

    def _manifest(self, own: tuple[LockedPackage, ...], notes: list[str], drift: list[str]) -> Manifest:
        host, environment = self.host, self.environment
        packages = overlays.inherited(host, own) if host else own
        versions = {each.name: each.version for each in packages}
        torch = versions.get("torch", "")
        triton = versions.get(requirement_name(environment.triton)) or (host.triton if host else "")
        pins = host.torch_requires if host else _requires("torch", _packages_folder(self.venv))
        declared = STOCK in environment.tags
        stock = declared if self.spec.stand_in else _is_stock(pins, triton, otherwise=declared)
        return Manifest(
            spec=self.spec,
            venv=self.venv.name,
            python=_python_version(self.venv),
            packages=packages,
            triton=triton,
            torch_build=torch,
            stock=stock,
            label=overlays.label(environment, host) if host else self._label(torch, triton, stock=stock),
            notes=tuple(notes),
            drift=tuple(drift),
            watched={str(folder): folder.stat().st_mtime_ns for folder in (host.folders if host else ())},
        )

    def _label(self, torch: str, triton: str, *, stock: bool) -> str:
        if not self.spec.stand_in:
            return f"torch {torch}" if stock else f"Triton {triton} forced onto torch {torch}"
        version, _, local = torch.partition("+")
        build = f"torch {version} ({'CPU' if local == 'cpu' else local or 'the default build'})"
        pair = pinned_version(self.environment.torch)
        return build if pair == version else f"{build} stands in for {pair}"


def _sweep(folder: Path, *, keep: str) -> None:
    """Remove what an interrupted build left. The installation in use stays: a run may be working in it."""
    for left in folder.glob("venv-*"):
        if left.name != keep:
            shutil.rmtree(left)


def _write(path: Path, data: dict[str, Any]) -> None:
    replace_file(path, json.dumps(data, indent=1).encode(), durable=True)


def _read_spec(path: Path) -> tuple[Spec, list[str]] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Spec.from_json(data["spec"]), list(data["notes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # never written, or by another version: the lock is made anew


def _is_stock(pins: Iterable[str], triton: str, *, otherwise: bool) -> bool:
    """Whether torch pins this Triton; a torch that pins none (a CPU build) is what its declaration says."""
    wanted = [Requirement(each) for each in pins]
    of_triton = [each for each in wanted if canonicalize_name(each.name) in {"triton", "pytorch-triton"}]
    if not of_triton:
        return otherwise
    return any(each.specifier.contains(triton, prereleases=True) for each in of_triton)


def _requires(package: str, site: Path) -> list[str]:
    found = next(iter(metadata.distributions(name=package, path=[str(site)])), None)
    return list((found.requires if found else None) or ())


def _packages_folder(venv: Path) -> Path:
    found = [*venv.glob("lib/python3*/site-packages"), *venv.glob("Lib/site-packages")]
    if not found:
        raise FileNotFoundError(f"{venv} has no site-packages")
    return found[0]


def _python_version(venv: Path) -> str:
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "version_info":
            return value.strip()
    return ""
