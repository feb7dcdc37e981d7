"""The result tables: Parquet files with a versioned schema, readable by any Parquet reader.

Schema history:

* 1: cells, evidence and verdicts as of triton-matrix 0.1. Where a GPU took part also dimensions, timings,
  rounds and counters: tables beside the others, which a reader that does not know them never opens.

Structured values (options, signature, widths, hazards ...) are JSON strings, so that every reader can
open them; only raw samples, of which there are many, are a list column of 32-bit floats. Base units
everywhere: bytes, seconds, and microseconds where a name ends in ``_us``; times are UTC.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from matrix.atomic import storage_error
from matrix.errors import StorageError
from matrix.records import (
    ArmRecord,
    CellRecord,
    CounterRecord,
    DimensionRecord,
    KernelFacts,
    KernelRecord,
    Role,
    RoundRecord,
    Tuning,
    VerdictRecord,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    FlatRecord = CellRecord | VerdictRecord | DimensionRecord | ArmRecord | CounterRecord

SCHEMA_VERSION = 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")

_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_TYPES = {"str": _TEXT, "int": _INT, "float": _FLOAT, "bool": pa.bool_(), "datetime": pa.timestamp("us", tz="UTC")}
_SAMPLES = "samples_us"
_WORDS = {"Role": Role, "Tuning": Tuning}


def _field(field: dataclasses.Field[Any]) -> pa.Field:
    """A dataclass field's column: scalars as they are, everything structured as JSON text."""
    name = str(field.type)
    nullable = "None" in name
    if field.name == _SAMPLES:
        return pa.field(_SAMPLES, pa.list_(pa.float32()), nullable=False)
    return pa.field(field.name, _TYPES.get(name.replace(" | None", ""), _TEXT), nullable=nullable)


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"triton_matrix_schema": str(SCHEMA_VERSION)})


_FLAT = ("seconds", "facts")
CELLS = _schema(*(_field(f) for f in dataclasses.fields(CellRecord)))
VERDICTS = _schema(*(_field(f) for f in dataclasses.fields(VerdictRecord)))
DIMENSIONS = _schema(*(_field(f) for f in dataclasses.fields(DimensionRecord)))
TIMINGS = _schema(*(_field(f) for f in dataclasses.fields(ArmRecord)))
ROUNDS = _schema(*(_field(f) for f in dataclasses.fields(RoundRecord)))
COUNTERS = _schema(*(_field(f) for f in dataclasses.fields(CounterRecord)))
EVIDENCE = _schema(
    *(_field(f) for f in dataclasses.fields(KernelRecord) if f.name not in _FLAT),
    *(_field(f) for f in dataclasses.fields(KernelFacts)),
    *(pa.field(f"seconds_{stage}", _FLOAT, nullable=True) for stage in _STAGES),
    pa.field("seconds_total", _FLOAT, nullable=True),
)


def write_cells(folder: Path, records: Sequence[CellRecord]) -> None:
    _write(folder / "cells.parquet", CELLS, [_row(record) for record in records])


def write_verdicts(folder: Path, records: Sequence[VerdictRecord]) -> None:
    _write(folder / "verdicts.parquet", VERDICTS, [_row(record) for record in records])


def write_evidence(folder: Path, records: Sequence[KernelRecord]) -> None:
    _write(folder / "evidence.parquet", EVIDENCE, [_evidence_row(record) for record in records])


def write_dimensions(folder: Path, records: Sequence[DimensionRecord]) -> None:
    """Like the timings and the rounds, only where there are any: a host without a GPU leaves no such table."""
    if records:
        _write(folder / "dimensions.parquet", DIMENSIONS, [_row(record) for record in records])


def write_timings(folder: Path, records: Sequence[ArmRecord]) -> None:
    if records:
        _write(folder / "timings.parquet", TIMINGS, [_row(record) for record in records])


def write_rounds(folder: Path, records: Sequence[RoundRecord]) -> None:
    if records:
        _write(folder / "rounds.parquet", ROUNDS, [_round_row(record) for record in records])


def write_counters(folder: Path, records: Sequence[CounterRecord]) -> None:
    if records:
        _write(folder / "counters.parquet", COUNTERS, [_row(record) for record in records])


def read_cells(folder: Path) -> list[CellRecord]:
    return [CellRecord(**row) for row in _read(folder / "cells.parquet", CELLS)]


def read_verdicts(folder: Path) -> list[VerdictRecord]:
    return [VerdictRecord(**row) for row in _read(folder / "verdicts.parquet", VERDICTS)]


def read_evidence(folder: Path) -> list[KernelRecord]:
    return [_kernel_record(row) for row in _read(folder / "evidence.parquet", EVIDENCE)]


def read_dimensions(folder: Path) -> list[DimensionRecord]:
    """The rows, none where there is no such table; so do the timings and the rounds."""
    rows = _read_if_there(folder / "dimensions.parquet", DIMENSIONS)
    return [DimensionRecord(**row) for row in rows]


def read_timings(folder: Path) -> list[ArmRecord]:
    rows = _read_if_there(folder / "timings.parquet", TIMINGS)
    return [ArmRecord(**_values(ArmRecord, row)) for row in rows]


def read_rounds(folder: Path, cells: Collection[str] | None = None) -> list[RoundRecord]:
    """All rounds, or those of these cell ids: there may be millions of samples."""
    rows = _read_if_there(folder / "rounds.parquet", ROUNDS, cells)
    return [RoundRecord(**_values(RoundRecord, row)) for row in rows]


def read_counters(folder: Path) -> list[CounterRecord]:
    rows = _read_if_there(folder / "counters.parquet", COUNTERS)
    return [CounterRecord(**_values(CounterRecord, row)) for row in rows]


def _row(record: FlatRecord) -> dict[str, Any]:
    return {f.name: _scalar(getattr(record, f.name)) for f in dataclasses.fields(record)}


def _scalar(value: Any) -> Any:
    return value if not isinstance(value, (dict, list)) else json.dumps(value)


def _round_row(record: RoundRecord) -> dict[str, Any]:
    row = {f.name: _scalar(getattr(record, f.name)) for f in dataclasses.fields(record) if f.name != _SAMPLES}
    return {**row, _SAMPLES: record.samples_us}


def _evidence_row(record: KernelRecord) -> dict[str, Any]:
    flat = [f.name for f in dataclasses.fields(record) if f.name not in _FLAT]
    row = {name: _scalar(getattr(record, name)) for name in flat}
    row |= {f.name: _scalar(getattr(record.facts, f.name)) for f in dataclasses.fields(record.facts)}
    row |= {f"seconds_{stage}": record.seconds.get(stage) for stage in _STAGES}
    row["seconds_total"] = sum(record.seconds.values()) if record.seconds else None
    return row


def _kernel_record(row: dict[str, Any]) -> KernelRecord:
    values = {f.name: _value(f, row[f.name]) for f in dataclasses.fields(KernelRecord) if f.name not in _FLAT}
    facts = {f.name: _value(f, row[f.name]) for f in dataclasses.fields(KernelFacts)}
    seconds = {s: row[f"seconds_{s}"] for s in _STAGES if row[f"seconds_{s}"] is not None}
    return KernelRecord(**values, seconds=seconds, facts=KernelFacts(**facts))


def _values(record: type[ArmRecord | RoundRecord | CounterRecord], row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: _value(field, row[field.name]) for field in dataclasses.fields(record)}


def _value(field: dataclasses.Field[Any], value: Any) -> Any:
    if str(field.type) in _WORDS:
        return _WORDS[str(field.type)](value)
    structured = str(field.type).startswith(("dict", "list"))
    return json.loads(value) if structured and isinstance(value, str) else value


def _write(path: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    partial = path.with_suffix(".partial")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), partial, compression="zstd")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def _read_if_there(path: Path, schema: pa.Schema, cells: Collection[str] | None = None) -> Iterable[dict[str, Any]]:
    return _read(path, schema, cells) if path.exists() else ()


def _read(path: Path, schema: pa.Schema, cells: Collection[str] | None = None) -> list[dict[str, Any]]:
    """The rows of a table of ours. Raises :class:`StorageError` for a missing, damaged or foreign file."""
    try:
        table = pq.ParquetFile(path).read()  # pq.read_table would import pandas, which takes a second
    except FileNotFoundError:
        raise StorageError(f"{path} is missing", hint="is this a run folder, and did the run finish?") from None
    except (pa.ArrowInvalid, OSError) as error:
        hint = "the file is damaged or no Parquet; the run's other files may still be read"
        raise StorageError(f"{path} cannot be read: {error}", hint=hint) from error
    version = (table.schema.metadata or {}).get(b"triton_matrix_schema")
    absent = [field for field in schema if field.name not in table.schema.names]
    missing = [field.name for field in absent if not field.nullable]
    if version is None or missing:
        lacks = f"it lacks {', '.join(missing)}" if missing else "it does not say so"
        raise StorageError(f"{path} is not a table of triton-matrix: {lacks}", hint="name a run folder")
    if int(version) > SCHEMA_VERSION:
        hint = "upgrade triton-matrix"
        raise StorageError(f"{path} has schema {int(version)}, this version knows {SCHEMA_VERSION}", hint=hint)
    for field in absent:  # figures that came later: unknown in a table from before
        table = table.append_column(field, pa.nulls(len(table), field.type))
    if cells is not None:
        table = table.filter(pc.is_in(table.column("cell_id"), pa.array(sorted(cells), pa.string())))
    return _rows(table.select(schema.names))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """The table as dictionaries; times without Arrow's detour through pandas."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    times = [name for name in table.column_names if name == "started_at"]
    for row in rows:
        row.update({name: _EPOCH + datetime.timedelta(microseconds=row[name]) for name in times})
    return rows
