"""Locks: every package of an environment with version and hash, as uv resolved them (PEP 751)."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomllib

from matrix.provisioning import uv
from matrix.settings.environments import pinned_version, requirement_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The PyTorch CPU index either answers at once or is not waited for; uv honours proxies and certificates.
_BACKEND_VARIABLES = {"UV_HTTP_RETRIES": "0", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_TIMEOUT": "10"}
_BACKEND_TIMEOUT_S = 60.0
TRITON_NAMES = ("triton", "pytorch-triton")

# Whether the PyTorch CPU index answered, asked once in the life of this process; None: not asked yet.
_backend_answers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One package of a lock. ``sha256`` is the file's; for a git revision the commit; else empty."""

    name: str
    version: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of uv: requirements, and where and as of when to look for them.

    ``stand_in`` is the torch that all environments of a host without a GPU share, resolved by itself and
    as of its own day: its dependencies are newer than an old environment's ``as_of``.
    """

    triton: str
    torch: str = ""
    stand_in: str = ""
    stand_in_as_of: str = ""
    requires: tuple[str, ...] = ()
    as_of: str = ""
    find_links: tuple[str, ...] = ()
    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    offline: bool = False
    excluded: tuple[str, ...] = ()  # what a host already has
    alone: bool = False  # without dependencies


def resolve(question: Question, python: Path, lock: Path) -> list[str]:
    """Write ``lock`` and return what a reader of the results should know about it.

    Versions that ``lock`` already holds are kept where they still satisfy. Raises :class:`uv.UvError`.
    """
    if not question.stand_in:
        wanted = [each for each in (question.torch, question.triton, *question.requires) if each]
        undated = (question.triton, question.torch, *_pinned(question.requires))
        return _compile(_Compilation(question, python, lock, wanted, as_of=question.as_of, undated=undated))
    shared = lock.with_name("pylock.torch.toml")
    if lock.exists():
        shutil.copyfile(lock, shared)
    notes = _stand_in(question, python, shared)
    text = shared.read_text(encoding="utf-8")
    shared.unlink()
    pinned = [each for each in parse(text) if each.name not in {"torch", *TRITON_NAMES}]
    notes += _compile(
        _Compilation(
            question,
            python,
            lock,
            [question.triton, *question.requires],
            as_of=question.as_of,
            undated=(question.triton, *_pinned(question.requires)),
            dated=[(each.name, question.stand_in_as_of) for each in pinned],
            constraints=[f"{each.name}=={each.version}" for each in pinned],
            excluded=("torch",),
        )
    )
    lock.write_text(_joined(lock.read_text(encoding="utf-8"), text), encoding="utf-8")
    return list(dict.fromkeys(notes))


def _pinned(requires: Iterable[str]) -> list[str]:
    """What is asked for in one version alone is that version, whatever the day."""
    return [each for each in requires if pinned_version(each)]


def install(lock: Path, python: Path, *, offline: bool) -> None:
    """Install exactly the lock, checking its hashes. Raises :class:`uv.UvError`.

    Offline first: what uv's cache holds under a lock's hash is that very file, yet online uv asks the index
    about each again, and one that sends no validators (many a company's mirror) then sends every wheel again.
    """
    arguments = ["pip", "sync", "--preview-features", "pylock", "--python", str(python), str(lock)]
    try:
        uv.run([*arguments, "--offline"])
    except uv.UvError:
        if offline:
            raise
        uv.run(arguments)


def parse(text: str) -> tuple[LockedPackage, ...]:
    """The packages of a lock's text, by name. Raises ``ValueError`` where it is not a lock."""
    packages = tomllib.loads(text).get("packages", [])
    return tuple(sorted((_package(each) for each in packages), key=lambda each: each.name))


def drift(old: Iterable[LockedPackage], new: Iterable[LockedPackage]) -> list[str]:
    """How one resolution differs from another, one line a package; empty where they are the same."""
    before, after = ({each.name: each for each in packages} for packages in (old, new))
    lines = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            lines.append(f"{name} {now.version} added" if now else f"{name} {was.version if was else ''} removed")
        elif was.version != now.version:
            lines.append(f"{name} {was.version} -> {now.version}")
        elif was.sha256 != now.sha256:
            lines.append(f"{name} {was.version}: another file ({was.sha256[:12]} -> {now.sha256[:12]})")
    return lines


@dataclass(frozen=True, slots=True)
class _Compilation:
    """One ``uv pip compile``. ``undated`` requirements may be newer than ``as_of``, or have no date."""

    question: Question
    python: Path
    lock: Path
    requirements: Sequence[str]
    _: KW_ONLY
    as_of: str
    undated: Sequence[str] = ()
    dated: Sequence[tuple[str, str]] = ()
    constraints: Sequence[str] = ()
    excluded: Sequence[str] = ()
    backend: bool = False

    def files(self) -> dict[str, Sequence[str]]:
        triton = self.question.triton
        return {
            "requirements.in": self.requirements,
            "overrides.txt": [triton] if triton in self.requirements else [],
            "constraints.txt": self.constraints,
            "excludes.txt": [*self.excluded, *self.question.excluded],
        }

    def arguments(self, folder: Path) -> list[str]:
        """Uv's arguments, with :meth:`files` in ``folder``."""
        return [
            *(
                "pip",
                "compile",
                str(folder / "requirements.in"),
                "--overrides",
                str(folder / "overrides.txt"),
            ),
            *("--constraints", str(folder / "constraints.txt"), "--excludes", str(folder / "excludes.txt")),
            *("--quiet", "--no-header", "--python", str(self.python)),
            *("--format", "pylock.toml", "--output-file", str(self.lock)),
            *(["--no-deps"] if self.question.alone else []),
            *(["--torch-backend", "cpu"] if self.backend else []),
            *_sources(self.question),
        ]

    def dates(self) -> list[str]:
        if not self.as_of:
            return []
        days = dict(self.dated) | {requirement_name(each): "false" for each in self.undated if each}
        each = [f"--exclude-newer-package={name}={day}" for name, day in days.items() if day]
        return ["--exclude-newer", self.as_of, *each]


def _stand_in(question: Question, python: Path, lock: Path) -> list[str]:
    """Resolve the shared torch: from the PyTorch CPU index where it answers, else where pip would look."""
    global _backend_answers  # noqa: PLW0603 - one check in the life of the process is the point
    plain = _Compilation(
        question,
        python,
        lock,
        [question.stand_in],
        as_of=question.stand_in_as_of,
        undated=(question.stand_in,),
        excluded=TRITON_NAMES,
    )
    if _backend_answers is not False and not question.offline and "@" not in question.stand_in:
        try:
            notes = _compile(replace(plain, backend=True))
        except uv.UvError:
            _backend_answers = False
        else:
            _backend_answers = True
            return notes
    return _compile(plain)


def _compile(compilation: _Compilation) -> list[str]:
    dates = compilation.dates()
    with tempfile.TemporaryDirectory(prefix="triton-matrix-") as folder:
        for name, lines in compilation.files().items():
            Path(folder, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        arguments = compilation.arguments(Path(folder))
        try:
            _ask(compilation, [*arguments, *dates])
        except uv.UvError as error:
            if not dates or not _undated(str(error)):
                raise
            # An index that gives no dates cannot answer for a day in the past: better today's than nothing.
            _ask(compilation, arguments)
            return [f"the index gives no upload dates: resolved as of today, not of {compilation.as_of}"]
    return []


def _undated(error: str) -> bool:
    """Whether the day ruled out a package for having no date, which uv tells by naming none."""
    filtered = [line for line in error.splitlines() if "was filtered by `exclude-newer`" in line]
    return any("published at" not in line for line in filtered)


def _ask(compilation: _Compilation, arguments: list[str]) -> None:
    """Ask uv; offline first the folders of wheels alone, then with what uv's cache knows of the index."""
    if compilation.backend:
        uv.run(arguments, variables=_BACKEND_VARIABLES, timeout_s=_BACKEND_TIMEOUT_S)
    elif not compilation.question.offline:
        uv.run(arguments)
    else:
        try:
            uv.run([*arguments, "--offline", "--no-index"])
        except uv.UvError:
            uv.run([*arguments, "--offline"])


def _sources(question: Question) -> list[str]:
    links = [part for link in question.find_links for part in ("--find-links", link)]
    extra = [part for index in question.extra_indexes for part in ("--index", index)]
    index = ["--default-index", question.index] if question.index else []
    # As pip does it, the best of all indexes: a nightly index also holds old builds of common packages.
    strategy = ["--index-strategy", "unsafe-best-match"] if extra else []
    return [*links, *index, *extra, *strategy]


def _package(entry: dict[str, Any]) -> LockedPackage:
    files = [*entry.get("wheels", ()), *(entry[kind] for kind in ("archive", "sdist") if kind in entry)]
    hashes = [file.get("hashes", {}).get("sha256", "") for file in files[:1]]
    commit = entry.get("vcs", {}).get("commit-id", "")
    return LockedPackage(
        name=str(entry["name"]), version=str(entry.get("version", "")), sha256=commit or "".join(hashes)
    )


def _joined(lock: str, more: str) -> str:
    """One lock of two: a package that both hold is in both at the same version."""
    head, *blocks = re.split(r"(?m)^(?=\[\[packages\]\])", lock)
    names = {_name(block) for block in blocks}
    added = [block for block in re.split(r"(?m)^(?=\[\[packages\]\])", more)[1:] if _name(block) not in names]
    return head + "\n".join(block.strip() + "\n" for block in sorted([*blocks, *added], key=_name))


def _name(block: str) -> str:
    match = re.search(r'(?m)^name = "([^"]+)"', block)
    return match[1] if match else ""
