"""The catalogue: documented regressions as cases, each with its good and its bad side and the figure that shows it.

A row's data are the plain constants of its case file, read without importing it; what could not be made a case is
in ``absent.toml`` beside them, with what was tried.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomllib
from packaging.version import Version

from matrix.catalogue.neighbours import Neighbours, read_neighbours
from matrix.model import CPU, Stage, format_params

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

ON_A_GPU = frozenset((Stage.CORRECTNESS, Stage.TIMING))
OLDEST = Version("3.0.0")  # no older release has an environment
ABSENT = "absent.toml"
ON_GPUS = "on_gpus.json"  # what `run --catalogue --json` wrote on a host with a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of a row: a release (empty: none is known), a target and a point."""

    version: str
    target: str
    params: Mapping[str, Any]

    @property
    def shown(self) -> bool:
        """Whether that release can be had."""
        return bool(self.version) and Version(self.version) >= OLDEST

    def __str__(self) -> str:
        target = "" if self.target == CPU else self.target
        return ", ".join(filter(None, (self.version, target, format_params(self.params)))) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a row of a GPU stage came to when it was last run: ``figure`` as in :class:`Row`, ``gpu`` where."""

    gpu: str
    day: str
    standing: str
    figure: Mapping[str, Sequence[Any]]
    flag: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One documented regression. ``figure`` has what is seen on the good and on the bad side, by name.

    ``flag`` is the reason code by which the ordinary rules flag the bad side against the good one; empty where they
    do not. ``limit_s`` is its own time limit for a compile, where the bad side never ends. Of a row that takes a GPU,
    ``figure`` is what was reported and ``last_seen`` what we saw.
    """

    path: Path
    report: str
    title: str
    link: str
    stage: Stage
    good: Arm
    bad: Arm
    figure: Mapping[str, tuple[Any, Any]]
    flag: str = ""
    limit_s: float | None = None
    last_seen: Seen | None = None

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def key(self) -> tuple[str, Stage]:
        """A file may be two rows: what is shown without a GPU, and with one."""
        return self.path.stem, self.stage

    @property
    def on_a_gpu(self) -> bool:
        return self.stage in ON_A_GPU

    @property
    def arms(self) -> tuple[Arm, Arm]:
        return (self.good, self.bad)

    @property
    def comparable(self) -> bool:
        """Whether both sides can be had here."""
        return self.good.shown and self.bad.shown and not self.on_a_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A documented regression that is no case, and why; ``tried`` says what was done to see it."""

    report: str
    link: str
    title: str
    why: str
    tried: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All rows, in the order of their files' names."""

    rows: tuple[Row, ...]
    absent: tuple[Absent, ...] = field(default=())
    neighbours: Neighbours = field(default_factory=Neighbours)


def read_catalogue(folder: Path) -> Catalogue:
    """The catalogue in ``folder``. Raises ``KeyError`` for a case file that lacks a row's data."""
    record = folder / ON_GPUS
    seen = read_seen(json.loads(record.read_text(encoding="utf-8"))) if record.is_file() else {}
    rows = tuple(row for path in sorted(folder.glob("*.py")) for row in _rows(path, seen))
    file = folder / ABSENT
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["absent"] if file.is_file() else []
    absent = tuple(Absent(**entry) for entry in entries)
    return Catalogue(rows=rows, absent=absent, neighbours=read_neighbours(folder))


def read_seen(record: Mapping[str, Any]) -> dict[tuple[str, str], Seen]:
    """What ``run --catalogue --json`` wrote on a host with a GPU, by case file and stage; of GPU stages alone."""
    gpu = ", ".join(f"{each['name']} (driver {each['driver']})" for each in record["gpus"])
    return {
        (row["case_file"], row["stage"]): Seen(
            gpu=gpu,
            day=record["day"],
            standing=row["standing"],
            figure=row["seen"],
            flag=row["reason_code"],
            change=row["change"],
        )
        for row in record["rows"]
        if row["stage"] in ON_A_GPU
    }


def _rows(path: Path, seen: Mapping[tuple[str, str], Seen]) -> Iterator[Row]:
    """The file's row, and a second one where it states what a GPU shows of the same case beside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    data, told = _constants(tree), ast.get_docstring(tree) or ""
    yield _row(path, data, told, seen)
    if further := data.get("ON_GPU"):
        with_a_gpu = {name: value for name, value in data.items() if name not in {"FLAG", "LIMIT_S", "BAD_TARGET"}}
        yield _row(path, {**with_a_gpu, **further}, told, seen)


def _row(path: Path, data: Mapping[str, Any], told: str, seen: Mapping[tuple[str, str], Seen]) -> Row:
    report, _, title = told.partition("\n")[0].partition(": ")
    good = Arm(version=data["GOOD"], target=data["TARGET"], params=data["PARAMS"])
    bad = Arm(
        version=data["BAD"],
        target=data.get("BAD_TARGET", good.target),
        params=data.get("BAD_PARAMS", good.params),
    )
    return Row(
        path=path,
        report=report,
        title=title.rstrip(".").replace("``", "`"),
        link=_first_link(told),
        stage=Stage(data["STAGE"]),
        good=good,
        bad=bad,
        figure=data["FIGURE"],
        flag=data.get("FLAG", ""),
        limit_s=data.get("LIMIT_S"),
        last_seen=seen.get((path.name, data["STAGE"])),
    )


def _first_link(text: str) -> str:
    found = re.search(r"https://\S+?(?=[,.]?(\s|$))", text)
    return found[0] if found else ""


def _constants(tree: ast.Module) -> dict[str, Any]:
    """The file's plain data: torch and triton are not installed where this is read."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                found |= {name.id: item for name, item in zip(target.elts, value, strict=True) if _is_name(name)}  # type: ignore[attr-defined]
            elif isinstance(target, ast.Name):
                found[target.id] = value
    return found


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name)
