"""What the package index has beyond what is declared: a newer PyTorch with the Triton it pins, a Triton ahead of it."""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from matrix.errors import EnvironmentBuildError, MatrixError, StorageError
from matrix.provisioning import uv
from matrix.settings import config
from matrix.settings.environments import STOCK, Environment, releases
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.settings.config import Configuration

# The wheels that pin a Triton are Linux's, wherever this runs.
_PLATFORM = "x86_64-manylinux_2_28"
# An index that is named is asked alone: what this host looks through besides is another question.
_ALONE = {"UV_INDEX": "", "UV_EXTRA_INDEX_URL": "", "UV_FIND_LINKS": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest releases of an index; ``pinned`` is the Triton that this torch pins, or empty."""

    triton: str
    torch: str
    pinned: str


def ask(python: str, index: str = "") -> Newest:
    """Ask the index, or uv's own where none is named. Raises :class:`EnvironmentBuildError` with uv's reason."""
    found = _resolved(["torch"], python, index)
    alone = _resolved(["triton"], python, index, "--no-deps")
    missing = [name for name, versions in (("torch", found), ("triton", alone)) if name not in versions]
    if missing:
        hint = "a wheel for Linux and this Python must be there"
        raise EnvironmentBuildError("(newest)", f"the index has no {' and no '.join(missing)}", hint=hint)
    return Newest(triton=alone["triton"], torch=found["torch"], pinned=found.get("triton", ""))


def unknown_pairs(
    newest: Newest, environments: Sequence[Environment], *, today: dt.date, index: str = ""
) -> list[Environment]:
    """The pairs to add, the one that torch pins first.

    ============================================== =================================================
    the index has                                  pair
    ============================================== =================================================
    a torch that is newer than all declared ones   it with the Triton that it pins: stock
    a Triton newer than all declared and pinned    it in front of the newest torch: forced
    neither                                        none
    ============================================== =================================================
    """
    known = releases(environments)
    tritons = [Version(each.triton_version) for each in known]
    torches = [Version(each.torch_version) for each in known if each.torch_version]
    wanted: list[tuple[str, bool]] = []
    if newest.pinned and Version(newest.torch) > max(torches, default=Version("0")):
        wanted.append((newest.pinned, True))
    if Version(newest.triton) > max([*tritons, *(Version(version) for version, _ in wanted)], default=Version("0")):
        wanted.append((newest.triton, False))
    return [
        Environment(
            id=f"triton{version}-torch{newest.torch}",
            triton=f"triton=={version}",
            torch=f"torch=={newest.torch}",
            python=known[-1].python if known else "3.11",
            tags=(STOCK,) if stock else (),
            as_of=today.isoformat(),
            requires=("numpy",),
            index=index,
        )
        for version, stock in wanted
    ]


def declare(root: Path, pairs: Sequence[Environment]) -> Path:
    """Write the pairs into the project's own file, and read it back.

    Raises :class:`StorageError` where it does not read back as it should: it is then as it was.
    """
    before = config.load(root)
    path = before.sources[-1] if len(before.sources) > 1 else root / config.USER_FILE
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    table = "environments" if path.name == config.USER_FILE or path.suffix != ".toml" else _nested(path)
    text = "".join(_entry(table, pair) for pair in pairs)
    write_atomically(path, f"{old.rstrip()}\n{text}".lstrip().encode())
    try:
        known = {each.id for each in config.load(root).environments}
        wrong = [pair.id for pair in pairs if pair.id not in known]
    except MatrixError as error:
        wrong = [str(error)]
    if wrong:
        write_atomically(path, old.encode()) if old else path.unlink()
        hint = f"add them by hand:\n{text}"
        raise StorageError(f"{path} does not take further environments: {'; '.join(wrong)}", hint=hint)
    return path


def newest_declared(configuration: Configuration) -> Environment:
    """What a new pair is compared with: the newest release that is declared."""
    return configuration.environment("newest")


def _nested(path: Path) -> str:
    return "tool.triton-matrix.environments" if path.name == "pyproject.toml" else "environments"


def _entry(table: str, pair: Environment) -> str:
    lines = [
        f"\n[[{table}]]",
        f'id = "{pair.id}"',
        f'triton = "{pair.triton_version}"',
        f'torch = "{pair.torch_version}"',
    ]
    lines += [f'python = "{pair.python}"', f"as_of = {pair.as_of}", f"requires = {json.dumps(list(pair.requires))}"]
    lines += [f"tags = {json.dumps(list(pair.tags))}"] if pair.tags else []
    lines += [f'index = "{pair.index}"'] if pair.index else []
    return "\n".join(lines) + "\n"


def _resolved(requirements: Sequence[str], python: str, index: str, *options: str) -> Mapping[str, str]:
    """Versions by name, as uv resolves the requirements today."""
    with tempfile.TemporaryDirectory(prefix="triton-matrix-") as folder:
        file = Path(folder, "requirements.in")
        file.write_text("\n".join(requirements), encoding="utf-8")
        arguments = ["pip", "compile", str(file), "--quiet", "--no-header", "--no-annotate", "--refresh"]
        arguments += ["--python-version", python, "--python-platform", _PLATFORM, *options]
        try:
            said = uv.run([*arguments, "--default-index", index], variables=_ALONE) if index else uv.run(arguments)
        except (uv.UvError, OSError) as error:
            raise uv.explain("(newest)", error) from error
    return dict(re.findall(r"(?m)^([A-Za-z0-9_.-]+)==([^\s;+]+)", said))
