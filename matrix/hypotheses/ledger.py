"""The ledger: hypotheses and what runs said about them, append-only, each row bound to the one before.

Every append is one Parquet file in ``.matrix/ledger``, created and never written again. A row's ``hash`` is the SHA-256
of its own values and of the hash before it (canonical JSON), so that an edited, removed or moved row breaks the chain
at its place; ``head.json`` holds the count and the last hash, so that rows missing at the end are noticed too. Each
run folder keeps a copy as it was when the run ended, which its seal covers.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from matrix.errors import StorageError
from matrix.storage.atomic import storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.storage.runs import Home

COPY = "ledger.parquet"
_HEAD = "head.json"
_SCHEMA_VERSION = "1"
RESTORE = "restore it from a backup; run folders keep copies (ledger.parquet). Nothing is added to a broken chain"
HYPOTHESIS, RESULT = "hypothesis", "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row. Of a hypothesis: the sentence and its parts. Of a result: what one cell of a run measured.

    ``hypothesis`` is the number of the hypothesis' row, ``cases`` are the globs of the cells that it is about.
    ``change`` is what was to change or, in a result, what did; ``counters`` are pairs (baseline, candidate) as JSON.
    """

    number: int
    kind: str
    written_at: str
    hypothesis: int
    text: str = ""
    evidence: str = ""
    change: str = ""
    effect: str = ""
    constraint: str = ""
    cases: str = ""
    revision: str = ""
    run_id: str = ""
    host: str = ""
    workload: str = ""
    baseline: str = ""
    candidate: str = ""
    several_changes: bool = False
    baseline_median_us: float | None = None
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    counters: str = ""
    correct: str = ""
    verdict: str = ""
    reason: str = ""
    previous_hash: str = ""
    hash: str = ""

    def sealed(self, previous: str) -> LedgerRow:
        """The row bound to the one before."""
        bound = replace(self, previous_hash=previous, hash="")
        return replace(bound, hash=bound.digest())

    def digest(self) -> str:
        values = {name: value for name, value in dataclasses.asdict(self).items() if name != "hash"}
        return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


_ARROW = {"int": pa.int64(), "str": pa.string(), "bool": pa.bool_(), "float | None": pa.float64()}
SCHEMA = pa.schema(
    [
        pa.field(field.name, _ARROW[str(field.type)], nullable="None" in str(field.type))
        for field in dataclasses.fields(LedgerRow)
    ],
    metadata={"triton_matrix_ledger": _SCHEMA_VERSION},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger of a project."""

    folder: Path

    def rows(self) -> list[LedgerRow]:
        """All rows in order, none where there is no ledger. Raises :class:`StorageError` where the chain is broken."""
        if not self.folder.is_dir():
            if self.folder.exists() or self.folder.is_symlink():
                raise StorageError(f"the ledger {self.folder} is no folder", hint=f"move it away, or {RESTORE}")
            return []
        rows = [row for path in self._files() for row in read_rows(path)]
        wrong = broken(rows) or self._short(rows)
        if wrong:
            raise StorageError(f"the ledger in {self.folder} is not as it was written: {wrong}", hint=RESTORE)
        return rows

    def append(self, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        """Add rows, numbered and bound to those before; nothing that was written is touched."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                before = self.rows()
                added = _bound(before, rows)
                _create(self.folder / f"{added[0].number:08d}.parquet", added)
                head = {"rows": len(before) + len(added), "hash": added[-1].hash}
                write_atomically(self.folder / _HEAD, json.dumps(head).encode())
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return added

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.parquet"))

    def _short(self, rows: Sequence[LedgerRow]) -> str:
        """What the head says against the rows: written after them, it may lag by the append of a crash."""
        path = self.folder / _HEAD
        if not path.exists():
            return f"{_HEAD} is missing" if len(self._files()) > 1 else ""
        try:
            head = json.loads(path.read_bytes())
            count, last = int(head["rows"]), str(head["hash"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{_HEAD} cannot be read ({error})"
        if count < 1:
            return f"{_HEAD} cannot be right: it counts {count} rows"
        if len(rows) < count:
            return f"rows are missing at the end, from row {len(rows) + 1} to row {count}"
        return "" if rows[count - 1].hash == last else f"row {count} is not the one that {_HEAD} names"


def ledger_of(home: Home) -> Ledger:
    """The ledger of a project's folder."""
    return Ledger(folder=home.path / "ledger")


def checked_rows(home: Home) -> list[LedgerRow]:
    """The ledger's rows, held against the chain and against what run folders keep of it.

    Raises :class:`StorageError` where a row was edited, removed or moved.
    """
    ledger = ledger_of(home)
    rows = ledger.rows()
    runs = sorted(path.parent for path in home.runs.glob(f"*/{COPY}") if not path.parent.is_symlink())
    if lost := _forgotten(rows, runs):
        raise StorageError(f"the ledger in {ledger.folder} is not as it was written: {lost}", hint=RESTORE)
    return rows


def broken(rows: Sequence[LedgerRow]) -> str:
    """Where the chain breaks first; empty where it holds."""
    previous = ""
    for place, row in enumerate(rows, start=1):
        if row.number != place:
            return f"row {place} is missing: row {row.number} stands in its place"
        if row.previous_hash != previous:
            return f"row {place} does not follow the row before it"
        if row.digest() != row.hash:
            return f"row {place} was edited"
        previous = row.hash
    return ""


def read_rows(path: Path) -> list[LedgerRow]:
    """The rows of one file, unchecked. Raises :class:`StorageError` for a file that is not the ledger's."""
    try:
        table = pq.ParquetFile(path).read()
        version = (table.schema.metadata or {}).get(b"triton_matrix_ledger", b"").decode()
        if version != _SCHEMA_VERSION:
            raise StorageError(
                f"{path} is no ledger of this version", hint="read it with the triton-matrix that wrote it"
            )
        if wrong := [field.name for field in SCHEMA if table.schema.field(field.name).type != field.type]:
            told = f"of another type than it was written: {', '.join(wrong)}"
            raise StorageError(f"{path} cannot be read: {told}", hint="the file is damaged: restore it")
        return [LedgerRow(**row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, TypeError, ValueError, KeyError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint="the file is damaged: restore it") from error


def _forgotten(rows: Sequence[LedgerRow], copies: Sequence[Path]) -> str:
    """Which run folder's copy the ledger does not continue; empty where it continues all of them."""
    for folder in copies:
        copy = read_copy(folder)
        if copy and [row.hash for row in rows[: len(copy)]] != [row.hash for row in copy]:
            return f"{folder.name} ended with {len(copy)} rows that the ledger does not hold as they were"
    return ""


def write_copy(folder: Path, rows: Sequence[LedgerRow]) -> None:
    """The ledger as it is now, into a run folder; nothing where there are no rows.

    Raises :class:`StorageError` where it cannot be written, or is there already.
    """
    try:
        if rows:
            _create(folder / COPY, rows)
    except OSError as error:
        raise storage_error(folder / COPY, error) from error


def read_copy(folder: Path) -> list[LedgerRow]:
    """The ledger as it was when the run ended; none where it had none."""
    path = folder / COPY
    return read_rows(path) if path.exists() else []


def _bound(before: Sequence[LedgerRow], rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    previous, number = (before[-1].hash, before[-1].number) if before else ("", 0)
    bound: list[LedgerRow] = []
    for row in rows:
        number += 1
        own = number if row.kind == HYPOTHESIS else row.hypothesis
        bound.append(replace(row, number=number, hypothesis=own).sealed(previous))
        previous = bound[-1].hash
    return bound


def _create(path: Path, rows: Sequence[LedgerRow]) -> None:
    """A new file, whole or not at all, by one writer at a time. Raises ``OSError`` where it is there already."""
    if path.exists():
        raise FileExistsError(errno.EEXIST, "is there already, and the ledger overwrites nothing", str(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.Table.from_pylist([dataclasses.asdict(row) for row in rows], schema=SCHEMA), partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
