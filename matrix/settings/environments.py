"""Environments: one Triton/PyTorch pair each, as declared, and how they are called on a command line."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from matrix.errors import UsageError
from matrix.model import safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STOCK = "stock"  # the tag of a pair whose Triton is the one that its torch pins
HOST = "host"

# Rules that stand for an environment, by how many releases they lie behind the newest.
RULES = {"newest": 0, "newest-but-one": 1}

_PAIR = re.compile(r"triton(?P<triton>\d[^-]*)-torch(?P<torch>\d[^-]*)")

# What the caller's shell must not bring into an environment: everything that steers Triton, its LLVM or torch, and
# Python's own paths. An environment that wants such a variable declares it.
_COMPILING = (
    r"TRITON|TORCH|PYTORCH|MLIR_|LLVM_|NVPTX_|AMDGCN_|PTXAS_|PROTON"
    r"|(DISABLE_(LLVM_OPT|PTXAS_OPT|MMA_V\d|FAST_REDUCTION)|ALLOW_LHS_TMEM_LAYOUT_CONVERSION|USE_IR_LOC"
    r"|ENABLE_PIPELINING|STORE_TMEM|USE_STORED_HASH)"
)
_STEERING = re.compile(rf"PYTHON|PIP_|UV_|VIRTUAL_ENV|CONDA_|{_COMPILING}")
_HARMLESS = frozenset({"PYTHONUTF8", "PYTHONIOENCODING", "PYTHONFAULTHANDLER"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One Triton/PyTorch pair, as declared. Requirements are in the form that uv takes (PEP 508).

    ``as_of`` (an ISO date, or empty) resolves everything but Triton and torch as it was on that day.
    ``variables`` are set for every process inside, and part of the identity. ``inherit`` names a host
    interpreter (:data:`HOST`, or a path) whose torch is used, with the wanted Triton laid in front of it.
    ``python_exact`` forbids the running interpreter to stand in for a Python that cannot be had.
    """

    id: str
    triton: str
    torch: str = ""
    python: str = "3.11"
    python_exact: bool = False
    tags: tuple[str, ...] = ()
    as_of: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    inherit: str = ""
    find_links: tuple[str, ...] = ()
    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    offline: bool = False
    requires: tuple[str, ...] = ()
    variant: str = ""  # of the same pair, in a folder of its own

    @property
    def triton_version(self) -> str:
        """The version that the requirement pins, or ``""`` (a range, an index of nightlies, a commit)."""
        return pinned_version(self.triton)

    @property
    def torch_version(self) -> str:
        return pinned_version(self.torch)

    def apart(self, requires: Sequence[str]) -> Environment:
        """With what cases require, as a variant: what a library pins (an older NumPy) must not become everybody's."""
        if not requires:
            return self
        digest = hashlib.sha256("\n".join(sorted(requires)).encode()).hexdigest()
        return replace(self, requires=tuple(dict.fromkeys([*self.requires, *requires])), variant=digest[:8])


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTorch:
    """The one build of torch that hosts without a GPU use for every environment."""

    torch: str
    as_of: str = ""


def requirement(package: str, text: str, folder: Path | None = None) -> str:
    """A declared value as a requirement: a bare version, a specifier, a wheel or folder, or anything whole.

    Where ``package`` is empty the value must name its package itself.
    Paths are taken from ``folder`` where they are relative. Raises ``ValueError`` with what is wrong.
    """
    text = text.strip()
    if path := _local(text, folder):
        if name := _distribution(package, path):
            return f"{name} @ {path.as_uri()}"
        raise ValueError(f"{text!r} does not say which package it is; write 'name @ {path.as_uri()}'")
    if re.match(r"(git\+|https?://|file://)", text):
        return f"{package} @ {text}"
    if package and _is_version(text):
        return f"{package}=={Version(text)}"
    whole = f"{package}{text}" if package and re.match(r"[<>=!~]", text) else text
    try:
        return str(Requirement(whole))
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{text!r} is neither a version nor a requirement ({reason})") from None


def requirement_name(text: str) -> str:
    """The distribution that a requirement names, normalised."""
    return canonicalize_name(Requirement(text).name)


def pinned_version(text: str) -> str:
    """``"3.9.0"`` of ``triton==3.9.0`` and of a wheel with that version in its name; ``""`` of a range."""
    if not text:
        return ""
    parsed = Requirement(text)
    if parsed.url:
        return _wheel_version(parsed.url)
    pins = [each.version for each in parsed.specifier if each.operator in {"==", "==="}]
    return pins[0] if len(pins) == 1 and "*" not in pins[0] else ""


def releases(environments: Sequence[Environment]) -> list[Environment]:
    """One stock pair a Triton release, the one with the newest torch, oldest release first."""
    best: dict[Version, Environment] = {}
    for environment in environments:
        if STOCK in environment.tags and environment.triton_version and not environment.inherit:
            version = Version(environment.triton_version)
            best[version] = max(best.get(version, environment), environment, key=_torch_order)
    return [best[version] for version in sorted(best)]


def find(environments: Sequence[Environment], name: str, *, folder: Path | None = None) -> Environment:
    """The environment that ``name`` means.

    =========================== ==========================================================
    ``newest``                  the newest release among the stock pairs; ``newest-but-one``
    ``triton3.9.0-torch2.15.0`` that id; a pair that is not declared is made up on the spot
    ``3.9.0``                   the stock pair of that Triton with the newest torch
    ``3.9.0@host``              that Triton in front of the host's own torch
    ``host``                    the host's own Triton and torch
    ``path/to/triton-*.whl``    that wheel with the newest release's torch
    =========================== ==========================================================

    Raises :class:`UsageError` for any other name.
    """
    if found := _declared(environments, name) or _made_up(environments, name, folder):
        return found
    raise _unknown(environments, name)


def select(
    environments: Sequence[Environment], names: Iterable[str], *, folder: Path | None = None
) -> list[Environment]:
    """The environments that names, globs and comma-separated lists of them mean, each once, in order."""
    chosen: dict[str, Environment] = {}
    for name in (part.strip() for names_ in names for part in names_.split(",") if part.strip()):
        if re.search(r"[*?]", name):
            found = [each for each in environments if fnmatchcase(each.id, name)]
            if not found:
                raise UsageError(f"no environment matches {name!r}", hint="see `triton-matrix plan` for the ids")
        else:
            found = [find(environments, name, folder=folder)]
        chosen |= {each.id: each for each in found}
    return list(chosen.values())


def child_environment(environment: Environment, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a process inside the environment.

    What steers Python, Triton or torch in the caller's shell stays out; what the environment declares
    comes in. Variables that steer Triton are part of an environment's identity, so none may leak in.
    """
    base = os.environ if base is None else base
    kept = {name: value for name, value in base.items() if name in _HARMLESS or not _STEERING.match(name)}
    return kept | {"PYTHONNOUSERSITE": "1"} | dict(environment.variables)


def kept_out(base: Mapping[str, str] | None = None) -> list[str]:
    """The variables in the caller's shell that steer Triton, its LLVM or torch, and reach no environment."""
    return sorted(name for name in (os.environ if base is None else base) if re.match(_COMPILING, name))


def _unknown(environments: Sequence[Environment], name: str) -> UsageError:
    short = list(dict.fromkeys(each.triton_version for each in environments if each.triton_version))
    near = _neighbours(environments, name) if _is_version(name) else []
    known = [*(each.id for each in environments), *short, *RULES]
    close = [each.triton_version for each in near] or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "write triton<version>-torch<version> for any other pair"
    if near:
        pair = f"triton{name}-torch{near[0].torch_version}"
        hint += f" {name} itself needs a torch beside it: name a pair, such as {pair}, or declare one in matrix.toml"
    listing = ", ".join(short) or "none"
    return UsageError(f"there is no environment {name!r}; declared are the Tritons {listing}", hint=hint)


def _neighbours(environments: Sequence[Environment], version: str) -> list[Environment]:
    """The releases next to a version that is none of them: of its own minor version first, the older one first."""
    ranked, wanted = releases(environments), Version(version)
    older = [each for each in ranked if Version(each.triton_version) < wanted][-1:]
    newer = [each for each in ranked if Version(each.triton_version) > wanted][:1]
    same = wanted.release[:2]
    return sorted([*older, *newer], key=lambda each: Version(each.triton_version).release[:2] != same)


def _declared(environments: Sequence[Environment], name: str) -> Environment | None:
    for environment in environments:
        if environment.id == name:
            return environment
    ranked = releases(environments)
    if name in RULES:
        return ranked[-1 - RULES[name]] if len(ranked) > RULES[name] else None
    same = [each for each in environments if each.triton_version == name and not each.inherit]
    stock = [each for each in ranked if each.triton_version == name]
    return next(iter(stock or sorted(same, key=_torch_order)[-1:]), None)


def _made_up(environments: Sequence[Environment], name: str, folder: Path | None) -> Environment | None:
    if name == HOST:
        return Environment(id=HOST, triton="triton", inherit=HOST)
    # As somebody writes it, and by the id that it then has.
    version = name.removesuffix(f"@{HOST}") if "@" in name else name.removeprefix("triton").removesuffix(f"-{HOST}")
    if name in (f"{version}@{HOST}", f"triton{version}-{HOST}") and _is_version(version):
        return Environment(id=f"triton{version}-{HOST}", triton=f"triton=={version}", inherit=HOST)
    if match := _PAIR.fullmatch(name):
        return _pair(environments, match["triton"], match["torch"])
    if name.endswith(".whl") and (path := _local(name, folder)):
        return _wheel(environments, path)
    return None


def _pair(environments: Sequence[Environment], triton: str, torch: str) -> Environment | None:
    """A pair that is not declared: dated and completed as the declared pairs of its two halves are."""
    if not (_is_version(triton) and _is_version(torch)):
        return None
    halves = [each for each in environments if each.triton_version == triton or each.torch_version == torch]
    same = next((each for each in environments if each.triton_version == triton), None)
    return Environment(
        id=f"triton{triton}-torch{torch}",
        triton=f"triton=={triton}",
        torch=f"torch=={torch}",
        as_of=max((each.as_of for each in halves), default=""),
        requires=same.requires if same else ("numpy",),
    )


def _wheel(environments: Sequence[Environment], path: Path) -> Environment | None:
    newest = releases(environments)[-1:]
    if not newest:
        return None
    if not path.is_file():
        raise UsageError(f"there is no wheel {path}", hint="name the file of a Triton that you built or downloaded")
    version = _wheel_version(path.name) or path.stem
    torch = newest[0].torch_version
    name = safe(f"triton{version}-torch{torch}")
    if any(each.id == name for each in environments):  # a build of a release is not that release
        name += f"-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    return replace(
        newest[0],
        id=name,
        triton=requirement("triton", str(path)),
        tags=(),
        as_of="",
    )


def _torch_order(environment: Environment) -> Version:
    return Version(environment.torch_version or "0")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _local(text: str, folder: Path | None) -> Path | None:
    """The file or folder that a value names, which is recognised by how it is written."""
    if "://" in text or not (text.endswith(".whl") or text.startswith((".", "/", "~"))):
        return None
    return Path(folder or Path.cwd(), Path(text).expanduser()).resolve()


def _distribution(package: str, path: Path) -> str:
    """A wheel says itself which distribution it is (``pytorch_triton-...``)."""
    try:
        return str(parse_wheel_filename(path.name)[0])
    except InvalidWheelFilename:
        return package


def _wheel_version(url: str) -> str:
    try:
        return str(parse_wheel_filename(url.rpartition("/")[2].partition("#")[0].replace("%2B", "+"))[1])
    except InvalidWheelFilename:
        return ""
