"""The result tables: Parquet files with a versioned schema, readable by any Parquet reader.

Schema history:

* 1: cells, evidence and verdicts as of triton-matrix 0.1. Where a GPU took part also dimensions, timings,
  rounds and counters, and assemblies where PTX was assembled again: tables beside the others, which a reader that
  does not know them never opens. A column that comes later is nullable, and null in a table from before it
  (``verdicts``: ``first_change``, ``whose_change``): a reader of the version reads both, and the version stays.

Structured values (options, signature, widths, hazards ...) are JSON strings, so that every reader can
open them; only raw samples, of which there are many, are a list column of 32-bit floats. Base units
everywhere: bytes, seconds, and microseconds where a name ends in ``_us``; times are UTC.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import json
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from matrix.errors import StorageError
from matrix.records import (
    ArmRecord,
    AssemblyRecord,
    CellRecord,
    CounterRecord,
    DimensionRecord,
    KernelFacts,
    KernelRecord,
    Role,
    RoundRecord,
    Tuning,
    Verdict,
    VerdictRecord,
)
from matrix.storage.atomic import storage_error
from matrix.storage.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

R = TypeVar("R")

SCHEMA_VERSION = 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
COMPILER_STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin")

_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_TYPES = {"str": _TEXT, "int": _INT, "float": _FLOAT, "bool": pa.bool_(), "datetime": pa.timestamp("us", tz="UTC")}
_SAMPLES = "samples_us"
_WORDS: Mapping[str, type[str]] = {"Role": Role, "Tuning": Tuning, "Verdict": Verdict}


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
_FACT_FIELDS = dataclasses.fields(KernelFacts)
FACTS = tuple(field.name for field in _FACT_FIELDS)
CELLS = _schema(*(_field(f) for f in dataclasses.fields(CellRecord)))
VERDICTS = _schema(*(_field(f) for f in dataclasses.fields(VerdictRecord)))
DIMENSIONS = _schema(*(_field(f) for f in dataclasses.fields(DimensionRecord)))
TIMINGS = _schema(*(_field(f) for f in dataclasses.fields(ArmRecord)))
ROUNDS = _schema(*(_field(f) for f in dataclasses.fields(RoundRecord)))
COUNTERS = _schema(*(_field(f) for f in dataclasses.fields(CounterRecord)))
ASSEMBLIES = _schema(*(_field(f) for f in dataclasses.fields(AssemblyRecord)))
EVIDENCE = _schema(
    *(_field(f) for f in dataclasses.fields(KernelRecord) if f.name not in _FLAT),
    *(_field(f) for f in dataclasses.fields(KernelFacts)),
    *(pa.field(f"seconds_{stage}", _FLOAT, nullable=True) for stage in COMPILER_STAGES),
    pa.field("seconds_total", _FLOAT, nullable=True),
)


def as_cell_rows(records: Sequence[CellRecord]) -> Rows[CellRecord]:
    """As they would be read back; so do the other three."""
    return Rows(_table(CELLS, _columns_of(CellRecord, records)), functools.partial(_records, CellRecord))


def as_kernel_rows(records: Sequence[KernelRecord]) -> Rows[KernelRecord]:
    columns = _columns_of(KernelRecord, records, _FLAT) | _columns_of(KernelFacts, [record.facts for record in records])
    for stage in COMPILER_STAGES:
        columns[f"seconds_{stage}"] = [record.seconds.get(stage) for record in records]
    columns["seconds_total"] = [sum(record.seconds.values()) if record.seconds else None for record in records]
    return Rows(_table(EVIDENCE, columns), _kernels)


def as_dimension_rows(records: Sequence[DimensionRecord]) -> Rows[DimensionRecord]:
    table = _table(DIMENSIONS, _columns_of(DimensionRecord, records))
    return Rows(table, functools.partial(_records, DimensionRecord))


def as_arm_rows(records: Sequence[ArmRecord]) -> Rows[ArmRecord]:
    return Rows(_table(TIMINGS, _columns_of(ArmRecord, records)), functools.partial(_records, ArmRecord))


def write_cells(folder: Path, records: Sequence[CellRecord]) -> None:
    _write(folder / "cells.parquet", as_cell_rows(records).table)


def write_verdicts(folder: Path, records: Sequence[VerdictRecord]) -> None:
    rows = records if isinstance(records, Rows) else verdict_rows(records)
    _write(folder / "verdicts.parquet", rows.table)


def write_evidence(folder: Path, records: Sequence[KernelRecord]) -> None:
    _write(folder / "evidence.parquet", as_kernel_rows(records).table)


def write_dimensions(folder: Path, records: Sequence[DimensionRecord]) -> None:
    """Like the timings and the rounds, only where there are any: a host without a GPU leaves no such table."""
    if records:
        _write(folder / "dimensions.parquet", as_dimension_rows(records).table)


def write_timings(folder: Path, records: Sequence[ArmRecord]) -> None:
    if records:
        _write(folder / "timings.parquet", as_arm_rows(records).table)


def write_rounds(folder: Path, records: Sequence[RoundRecord]) -> None:
    if records:
        _write(folder / "rounds.parquet", _table(ROUNDS, _columns_of(RoundRecord, records)))


def write_counters(folder: Path, records: Sequence[CounterRecord]) -> None:
    if records:
        _write(folder / "counters.parquet", _table(COUNTERS, _columns_of(CounterRecord, records)))


def write_assemblies(folder: Path, records: Sequence[AssemblyRecord]) -> None:
    if records:
        _write(folder / "assemblies.parquet", _table(ASSEMBLIES, _columns_of(AssemblyRecord, records)))


def cell_rows(folder: Path) -> Rows[CellRecord]:
    return Rows(_read(folder / "cells.parquet", CELLS), functools.partial(_records, CellRecord))


def kernel_rows(folder: Path) -> Rows[KernelRecord]:
    return Rows(_read(folder / "evidence.parquet", EVIDENCE), _kernels)


def dimension_rows(folder: Path) -> Rows[DimensionRecord]:
    """None where there is no such table; so are the arms."""
    table = _read_if_there(folder / "dimensions.parquet", DIMENSIONS)
    return Rows(table, functools.partial(_records, DimensionRecord))


def arm_rows(folder: Path) -> Rows[ArmRecord]:
    return Rows(_read_if_there(folder / "timings.parquet", TIMINGS), functools.partial(_records, ArmRecord))


def verdict_rows(records: Sequence[VerdictRecord]) -> Rows[VerdictRecord]:
    """As they would be read back."""
    return verdict_table(_table(VERDICTS, _columns_of(VerdictRecord, records)))


def verdict_table(table: pa.Table) -> Rows[VerdictRecord]:
    return Rows(table, functools.partial(_records, VerdictRecord))


def read_verdicts(folder: Path) -> list[VerdictRecord]:
    path = folder / "verdicts.parquet"
    table = _read(path, VERDICTS)
    try:
        return _records(VerdictRecord, table)
    except ValueError as error:
        message = f"{path} holds a verdict that this version does not know: {error}"
        raise StorageError(message, hint="read it with the triton-matrix that wrote it") from error


def read_evidence(folder: Path) -> list[KernelRecord]:
    return list(kernel_rows(folder))


def _kernels(table: pa.Table) -> list[KernelRecord]:
    seconds = zip(*(table.column(f"seconds_{stage}").to_pylist() for stage in COMPILER_STAGES), strict=True)
    spent = [{stage: value for stage, value in zip(COMPILER_STAGES, row) if value is not None} for row in seconds]
    return _records(KernelRecord, table, seconds=spent, facts=facts_of(table))


def facts_of(table: pa.Table) -> list[KernelFacts]:
    """What the code of each row of an evidence table shows; equal code is one object."""
    rows = zip(*(_plain(table.column(field.name)) for field in _FACT_FIELDS), strict=True)
    return [_facts(*row) for row in rows]


# Code that did not change is one object over all runs that are read, so that it is compared once.
@functools.lru_cache(maxsize=1 << 16)
def _facts(*row: Any) -> KernelFacts:
    values = zip(_FACT_FIELDS, row, strict=True)
    return KernelFacts(
        **{f.name: json.loads(value) if _is_structured(f) and value is not None else value for f, value in values}
    )


def read_dimensions(folder: Path) -> list[DimensionRecord]:
    """The rows, none where there is no such table; so do the timings and the rounds."""
    return list(dimension_rows(folder))


def read_timings(folder: Path) -> list[ArmRecord]:
    return list(arm_rows(folder))


def read_rounds(folder: Path, cells: Collection[str] | None = None) -> list[RoundRecord]:
    """All rounds, or those of these cell ids: there may be millions of samples."""
    return _records_if_there(RoundRecord, folder / "rounds.parquet", ROUNDS, cells)


def read_counters(folder: Path) -> list[CounterRecord]:
    return _records_if_there(CounterRecord, folder / "counters.parquet", COUNTERS)


def read_assemblies(folder: Path) -> list[AssemblyRecord]:
    return _records_if_there(AssemblyRecord, folder / "assemblies.parquet", ASSEMBLIES)


def _columns_of(kind: type[Any], records: Sequence[Any], without: Collection[str] = ()) -> dict[str, list[Any]]:
    """The records by column; what is structured as JSON, samples as they are."""
    columns = {}
    for field in dataclasses.fields(kind):
        if field.name not in without:
            values = list(map(attrgetter(field.name), records))
            columns[field.name] = _texts(values) if _is_structured(field) else values
    return columns


def _texts(values: Sequence[Any]) -> list[str | None]:
    """JSON; of an object that many records share, once."""
    known: dict[int, str | None] = {id(None): None}
    for value in values:
        if id(value) not in known:
            known[id(value)] = json.dumps(value)
    return [known[id(value)] for value in values]


def _is_structured(field: dataclasses.Field[Any]) -> bool:
    return str(field.type).startswith(("dict", "list")) and field.name != _SAMPLES


def _records_if_there(kind: type[R], path: Path, schema: pa.Schema, cells: Collection[str] | None = None) -> list[R]:
    return _records(kind, _read_if_there(path, schema, cells))


def _records(kind: type[R], table: pa.Table, **given: Sequence[Any]) -> list[R]:
    """A record for each row. Equal texts and equal structures are one object in all records: there are millions."""
    fields = [field for field in dataclasses.fields(kind) if field.name not in given]  # type: ignore[arg-type]
    return _filled(
        kind, {field.name: _decoded(table.column(field.name), field) for field in fields} | given, len(table)
    )


def _filled(kind: type[R], columns: Mapping[str, Sequence[Any]], count: int) -> list[R]:
    """Records with these values in their slots, a column at a time: their own constructor takes five times as long."""
    made = list(map(object.__new__, itertools.repeat(kind, count)))
    for name, values in columns.items():
        deque(map(getattr(kind, name).__set__, made, values), maxlen=0)
    return made


def _decoded(column: pa.ChunkedArray, field: dataclasses.Field[Any]) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())  # without Arrow's detour through pandas
        return _shared(column, lambda value: _EPOCH + datetime.timedelta(microseconds=value))
    if _is_structured(field):
        return _shared(column, json.loads)
    if str(field.type) in _WORDS:
        return _shared(column, _WORDS[str(field.type)])
    return _plain(column)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """As it is stored; equal texts are one object."""
    if pa.types.is_string(column.type):
        return _shared(column, str)
    quick = not column.null_count and pa.types.is_primitive(column.type)
    values: list[Any] = column.to_numpy().tolist() if quick else column.to_pylist()
    return values


def _shared(column: pa.ChunkedArray, decode: Callable[[Any], Any]) -> list[Any]:
    """Every distinct value decoded once."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # of no chunk at all
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([]).dictionary_encode()
    values = np.fromiter([*map(decode, encoded.dictionary.to_pylist()), None], dtype=object)
    found: list[Any] = values[encoded.indices.fill_null(-1).to_numpy()].tolist()
    return found


def _table(schema: pa.Schema, columns: Mapping[str, list[Any]]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _write(path: Path, table: pa.Table) -> None:
    partial = path.with_suffix(".partial")
    try:
        pq.write_table(table, partial, compression="zstd")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def _read_if_there(path: Path, schema: pa.Schema, cells: Collection[str] | None = None) -> pa.Table:
    return _read(path, schema, cells) if path.exists() else schema.empty_table()


def _read(path: Path, schema: pa.Schema, cells: Collection[str] | None = None) -> pa.Table:
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
    return table.select(schema.names)
