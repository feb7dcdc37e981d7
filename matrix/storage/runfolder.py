"""A finished run, read back from its folder: run.json, the tables and the stored code.

Nothing here needs the machine that made the run, so a report can be rendered anywhere.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from matrix.errors import StorageError, UsageError
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.thresholds import Thresholds
from matrix.records import ArmRecord, CellRecord, DimensionRecord, KernelRecord, RoundRecord, VerdictRecord
from matrix.storage.artifacts import Artifacts
from matrix.storage.rows import ByCell
from matrix.storage.store import (
    SCHEMA_VERSION,
    arm_rows,
    cell_rows,
    dimension_rows,
    kernel_rows,
    read_rounds,
    read_verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

COMPLETE = "complete"  # the state of a run that came to its end
# Of run.json: what a value is and, of a list, what each entry has.
_NEEDED: Mapping[str, tuple[type, frozenset[str]]] = {
    "run_id": (str, frozenset()),
    "started_at": (str, frozenset()),
    "request": (dict, frozenset()),
    "environments": (list, frozenset(("id",))),
    "cases": (list, frozenset(("name", "file", "expectations"))),
    "not_run": (list, frozenset(("what", "why"))),
}
_RERUN = "the run was cut short or the file is not ours: repeat the run, it redoes only what is missing"


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFolder:
    """One run: ``meta`` is run.json as it stands, the tables are typed records. What is looked up is indexed once."""

    path: Path
    meta: Mapping[str, Any]
    cells: Sequence[CellRecord]
    kernels: Sequence[KernelRecord]
    verdicts: Sequence[VerdictRecord]
    dimensions: Sequence[DimensionRecord] = ()
    timings: Sequence[ArmRecord] = ()

    @property
    def run_id(self) -> str:
        return str(self.meta["run_id"])

    @property
    def host(self) -> str:
        """The machine's name as the run recorded it, or the run's id where it recorded none."""
        named = dict(self.meta.get("host") or {}).get("name")
        return str(named or next((cell.host for cell in self.cells if cell.host), self.run_id))

    @property
    def shortfall(self) -> str:
        return shortfall(self.meta)

    @cached_property
    def environments(self) -> dict[str, Mapping[str, Any]]:
        return {str(entry["id"]): entry for entry in self.meta.get("environments", ())}

    @cached_property
    def thresholds(self) -> Thresholds:
        """What the run judged by; where it is older than one of them, today's."""
        kept = dict(self.meta.get("thresholds") or {})
        known = {field.name for field in fields(Thresholds)}
        return Thresholds(**{name: value for name, value in kept.items() if name in known})

    @cached_property
    def pairs(self) -> ArmPairs:
        """Who was timed with whom."""
        return ArmPairs(self.timings)

    @cached_property
    def cells_by_id(self) -> Mapping[str, Sequence[CellRecord]]:
        """A record for each stage."""
        return ByCell(self.cells)

    @cached_property
    def kernels_by_cell(self) -> Mapping[str, Sequence[KernelRecord]]:
        return ByCell(self.kernels)

    @cached_property
    def dimensions_by_cell(self) -> Mapping[str, Sequence[DimensionRecord]]:
        return ByCell(self.dimensions)

    def rounds(self, cells: Collection[str] | None = None) -> list[RoundRecord]:
        """The raw samples of these cell ids, read anew at each call: only for who draws them."""
        return read_rounds(self.path, cells)

    @property
    def has_artifacts(self) -> bool:
        """Whether the folder came with stored code: a run that was passed on may have left it out."""
        return self._artifacts.is_dir()

    def artifact(self, digest: str) -> str:
        """The stored text whose bytes have this SHA-256.

        Raises :class:`StorageError` where it is not stored or damaged.
        """
        return Artifacts(self._artifacts).get(digest).decode("utf-8", errors="replace")

    @property
    def _artifacts(self) -> Path:
        return self.path / "artifacts"


def shortfall(meta: Mapping[str, Any]) -> str:
    """Why a run is not all that it was to be, in words; empty where it came to its end."""
    state = str(meta.get("state", COMPLETE))
    error = f": {meta['error']}" if meta.get("error") else ""
    return "" if state == COMPLETE else f"the run did not come to its end, it is {state}{error}"


def load(path: Path, *, judged: bool = True) -> RunFolder:
    """Read the run in this folder; :class:`StorageError` names the file that is missing, cut or foreign.

    Without its verdicts where it is not ``judged``, or is to be judged anew.
    """
    require_folder(path)
    return RunFolder(
        path=path,
        meta=_meta(path / "run.json"),
        cells=cell_rows(path),
        kernels=kernel_rows(path),
        verdicts=read_verdicts(path) if judged else (),
        dimensions=dimension_rows(path),
        timings=arm_rows(path),
    )


def require_folder(path: Path) -> None:
    """Raise :class:`UsageError` where a run's folder was meant and one of its files is named."""
    if path.is_file():
        raise UsageError(f"{path} is a file, and a run is a folder", hint=f"name the folder: {path.parent}")


def load_all(paths: Sequence[Path], *, judged: bool = True) -> list[RunFolder]:
    """Every run once, oldest first, even where two paths lead to the same run (``latest`` and its name)."""
    runs = {run.run_id: run for run in (load(path, judged=judged) for path in paths)}
    return sorted(runs.values(), key=lambda run: str(run.meta.get("started_at", "")))


def _meta(path: Path) -> Mapping[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = "give the folder of a run, such as .matrix/runs/latest"
        raise StorageError(f"{path.parent} is not a run folder: it has no {path.name}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint=_RERUN) from error
    if not isinstance(meta, dict) or "schema" not in meta or "run_id" not in meta:
        raise StorageError(f"{path} is not a run's: it names no schema and run_id", hint=_RERUN)
    if meta["schema"] != SCHEMA_VERSION:
        hint = "read it with the triton-matrix that wrote it, or repeat the run"
        raise StorageError(f"{path} has schema {meta['schema']!r}; this version reads {SCHEMA_VERSION}", hint=hint)
    if lacking := list(_lacking(meta)):
        raise StorageError(f"{path} is damaged: {'; '.join(lacking)}", hint=_RERUN)
    return meta


def _lacking(meta: Mapping[str, Any]) -> Iterator[str]:
    """What readers need of a run.json and this one does not have."""
    for name, (kind, keys) in _NEEDED.items():
        value = meta.get(name)
        if not isinstance(value, kind):
            yield f"{name} is {'missing' if name not in meta else f'{value!r:.40}'}"
        elif kind is list and not all(isinstance(entry, dict) and keys <= entry.keys() for entry in meta[name]):
            yield f"an entry of {name} lacks its {' or '.join(sorted(keys))}"
        elif name == "started_at" and not _is_time(meta[name]):
            yield f"started_at is no time: {value!r:.40}"


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
