"""Runs over nights: one partitioned Parquet dataset, in a folder or on S3, a file a run.

``DIR-or-URL/month=2026-11/<run id>.parquet``: any reader of hive-partitioned Parquet takes it as one table. A run is
one file named by its id, written whole, so appending it again changes nothing. Addresses are a folder, or what
pyarrow's file systems take (``s3://bucket/prefix?region=...&endpoint_override=...``), or fsspec's where it is
installed.
"""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import functools
import io
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from matrix.errors import StorageError, UsageError
from matrix.gpus.rounds import BIMODAL
from matrix.judging.arm_pairs import ArmPairs
from matrix.memory.cost import estimate_us
from matrix.model import Stage, selects
from matrix.reporting.timed_cells import arms_of
from matrix.storage.addresses import public, reach
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.records import ArmRecord
    from matrix.storage.runfolder import RunFolder

COPY = "history.parquet"
NIGHTS = 90  # that a run folder keeps for its report
_VERSION = "1"
_METADATA = "triton_matrix_history"
_ALONE = "a file in it is no run's, or damaged: name a folder that holds the history alone"
_NAMED = 12  # cases that an error names
_MONTH = pa.field("month", pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One compared cell of one run. Of the timing stage with times, of the compile stage with an estimate.

    ``ratio`` is candidate over baseline of the same night: what moves both (clocks, a driver) is not in it. The
    baseline's own times are in ``baseline_median_us``.
    """

    run_id: str
    started_at: dt.datetime
    host: str
    gpu: str
    gpu_uuid: str
    driver: str
    baseline: str
    baseline_triton: str
    candidate: str
    triton_version: str
    torch_version: str
    target: str
    case: str
    params: str
    stage: str
    verdict: str
    reason_code: str
    waived: bool
    bimodal: bool
    flawed: bool
    baseline_median_us: float | None
    median_us: float | None
    p20_us: float | None
    p80_us: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    clock_mhz: float | None
    estimate_us: float | None


_TYPES = {
    "str": pa.string(),
    "bool": pa.bool_(),
    "float | None": pa.float64(),
    "dt.datetime": pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema(
    [pa.field(field.name, _TYPES[str(field.type)], nullable="None" in str(field.type)) for field in fields(HistoryRow)],
    metadata={_METADATA: _VERSION},
)
_TEXTS = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
_CODE = pa.dictionary(pa.int32(), pa.string())
CODED = pa.schema([field.with_type(_CODE) if field.name in _TEXTS else field for field in SCHEMA])


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What the footer of one file of the dataset says; ``run_ids`` are the least and the greatest."""

    path: str
    version: str
    lacking: tuple[str, ...]
    run_ids: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A dataset by its file system and the path in it; ``address`` is what the user wrote."""

    address: str
    files: pyarrow.fs.FileSystem
    path: str

    @classmethod
    def of(cls, address: str) -> History:
        """Raises :class:`UsageError` for an address that no file system takes, or that cannot be reached."""
        files, path, found = reach(address, "the history")
        if found.type is pyarrow.fs.FileType.File:
            raise UsageError(f"the history {public(address)} is a file", hint="name a folder of its own")
        return cls(address=public(address), files=files, path=path)

    def append(self, run: RunFolder) -> bool:
        """Add a run; False where it is there already. Raises :class:`StorageError` where it cannot be written."""
        started = _started(run)
        target = f"{self.path}/{_MONTH.name}={started:%Y-%m}/{run.run_id}.parquet"
        try:
            if self.files.get_file_info(target).type is pyarrow.fs.FileType.File:
                return False
            self._write(target, pa.Table.from_pylist([_as_row(row) for row in history_rows(run)], schema=SCHEMA))
        except (pa.ArrowException, OSError) as error:
            hint = "the run itself is whole: add it with `triton-matrix trend --history ... --add RUN`"
            raise StorageError(f"the history {self.address} cannot be written: {error}", hint=hint) from error
        return True

    def read(self, *, since: dt.datetime | None = None, cases: Iterable[str] | None = None) -> pa.Table:
        """All rows, oldest first; of these cases alone, and from then on.

        Raises :class:`UsageError` where there is no history, :class:`StorageError` that names a file in it which is no
        run's, damaged, or of a run that another file holds.
        """
        wanted = _filter(since, cases)
        try:
            if self.files.get_file_info(self.path).type is pyarrow.fs.FileType.NotFound:
                hint = "is the address right? `triton-matrix run --history ...` and `trend --add RUN` begin one"
                raise UsageError(f"there is no history at {self.address}", hint=hint)
            found = ds.dataset(
                self.path, filesystem=self.files, format="parquet", schema=SCHEMA, exclude_invalid_files=False
            )
            with concurrent.futures.ThreadPoolExecutor() as readers:  # an object store takes its time for each
                _require_ours(list(readers.map(_file_of, found.get_fragments())))
            table = found.to_table(columns=SCHEMA.names, filter=wanted)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"the history {self.address} cannot be read: {error}", hint=_ALONE) from error
        if empty := [field.name for field in SCHEMA if not field.nullable and table[field.name].null_count]:
            told = f"a file in it has rows without {', '.join(empty)}"
            raise StorageError(f"the history {self.address} cannot be read: {told}", hint=_ALONE)
        return table.sort_by("started_at")

    def recent(self, run: RunFolder) -> pa.Table:
        """What was measured of the run's cases over the nights before it, itself among them: rows with a figure."""
        since = _started(run) - dt.timedelta(days=NIGHTS)
        table = self.read(since=since, cases={row.case for row in run.verdicts if row.case})
        measured = [pc.is_valid(table[name]) for name in ("ratio", "median_us", "estimate_us")]
        return table.filter(functools.reduce(pc.or_, measured))

    def _write(self, target: str, table: pa.Table) -> None:
        """Whole or not at all: an object store shows an object when it is closed, a folder what was renamed."""
        data = io.BytesIO()
        pq.write_table(table, data, compression="zstd")
        self.files.create_dir(target.rpartition("/")[0], recursive=True)
        folder, _, name = target.rpartition("/")
        local = isinstance(self.files, pyarrow.fs.LocalFileSystem)
        # Names that begin with a dot are no part of a dataset.
        written = f"{folder}/.{name}" if local else target
        with self.files.open_output_stream(written) as stream:
            stream.write(data.getbuffer())
        if local:
            self.files.move(written, target)


def _file_of(fragment: ds.ParquetFileFragment) -> _File:
    schema, footer = fragment.physical_schema, fragment.metadata
    column = schema.names.index("run_id") if "run_id" in schema.names else None
    groups = [] if column is None else [footer.row_group(n).column(column) for n in range(footer.num_row_groups)]
    bounds = [group.statistics for group in groups if group.statistics and group.statistics.has_min_max]
    return _File(
        path=fragment.path,
        version=(schema.metadata or {}).get(_METADATA.encode(), b"").decode(errors="replace"),
        lacking=tuple(field.name for field in SCHEMA if not field.nullable and field.name not in schema.names),
        run_ids=frozenset(str(value) for each in bounds for value in (each.min, each.max)),
    )


def _require_ours(files: Sequence[_File]) -> None:
    """Raise :class:`StorageError` with every file that is no run's of this version, and every run that is doubled."""
    problems = [f"{file.path} is no run's of this version" for file in files if file.version != _VERSION]
    ours = [file for file in files if file.version == _VERSION]
    problems += [f"{file.path} lacks {', '.join(file.lacking)}" for file in ours if file.lacking]
    by_run: dict[str, list[str]] = defaultdict(list)
    for file in ours:
        for run_id in file.run_ids:
            by_run[run_id].append(file.path)
    twice = {run_id: paths for run_id, paths in by_run.items() if len(paths) > 1}
    problems += [f"run {run_id} is there more than once: {', '.join(paths)}" for run_id, paths in twice.items()]
    if problems:
        hint = "move away what is no run's, and all but one file of a run"
        raise StorageError("the history cannot be read: " + "\n".join(problems), hint=hint)


def selected(table: pa.Table, globs: Sequence[str]) -> pa.Table:
    """The rows of these cells; no globs select all. By :func:`matrix.model.selects`.

    Raises :class:`UsageError` where there are none.
    """
    if not len(table):
        raise UsageError("the history holds no rows", hint="add runs with --add RUN, or with `run --history`")
    if not globs:
        return table
    columns = [table[name].to_pylist() for name in ("candidate", "target", "case", "params")]
    kept = [_is_selected(*row, tuple(globs)) for row in zip(*columns, strict=True)]
    if not any(kept):
        cases = sorted(set(columns[2]))
        known, more = ", ".join(cases[:_NAMED]), " ..." if len(cases) > _NAMED else ""
        raise UsageError(f"no cell of the history matches {', '.join(globs)}", hint=f"cases in it: {known}{more}")
    return table.filter(pa.array(kept, pa.bool_()))


@functools.lru_cache(maxsize=100_000)
def _is_selected(candidate: str, target: str, case: str, params: str, globs: tuple[str, ...]) -> bool:
    point = f"{case}:{params}" if params else case
    return selects(globs, f"{candidate}/{target}/{point}", case)


def write_copy(folder: Path, table: pa.Table) -> None:
    """The history of a run's cells into its folder, so that its report needs nothing else."""
    data = io.BytesIO()
    pq.write_table(table, data, compression="zstd")
    write_atomically(folder / COPY, data.getvalue())


def read_copy(folder: Path) -> pa.Table:
    """What :func:`write_copy` wrote, each text once with the rows that it stands in; no rows where there is no copy."""
    path = folder / COPY
    if not path.exists():
        return CODED.empty_table()
    try:
        return pq.ParquetFile(path, read_dictionary=_TEXTS).read().select(SCHEMA.names)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint="the file is damaged: repeat the run") from error


def read_copies(folders: Sequence[Path]) -> pa.Table:
    """The copies of several run folders as one history: each run once."""
    tables: list[pa.Table] = []
    seen: set[str] = set()
    for folder in folders:
        table = read_copy(folder)
        runs = set(table["run_id"].unique().to_pylist())
        tables.append(table.filter(pc.is_in(table["run_id"], pa.array(sorted(runs - seen), pa.string()))))
        seen |= runs
    return pa.concat_tables(tables).sort_by("started_at") if tables else CODED.empty_table()


def history_rows(run: RunFolder) -> list[HistoryRow]:
    """A row for every verdict that is about a case."""
    return list(_rows(run))


def _rows(run: RunFolder) -> Iterator[HistoryRow]:
    pairs = ArmPairs(run.timings)
    estimates = _estimates(run)
    drivers = {str(gpu.get("uuid", "")): str(gpu.get("driver", "")) for gpu in run.meta.get("gpus") or ()}
    environments = run.environments
    for row in run.verdicts:
        if not row.case:
            continue
        pair = arms_of(pairs, row) if row.stage == Stage.TIMING else None
        arm = pair.candidate if pair else None
        sides = (pair.baseline, pair.candidate) if pair else ()
        yield HistoryRow(
            run_id=run.run_id,
            started_at=_started(run),
            host=run.host,
            gpu=arm.gpu if arm else "",
            gpu_uuid=arm.gpu_uuid if arm else "",
            driver=drivers.get(arm.gpu_uuid, "") if arm else "",
            baseline=row.baseline,
            baseline_triton=str(environments.get(row.baseline, {}).get("triton", "")),
            candidate=row.candidate,
            triton_version=str(environments.get(row.candidate, {}).get("triton", "")),
            torch_version=str(environments.get(row.candidate, {}).get("torch_build", "")),
            target=row.target,
            case=row.case,
            params=row.params,
            stage=row.stage,
            verdict=str(row.verdict),
            reason_code=row.reason_code,
            waived=bool(row.waived),
            bimodal=any(BIMODAL in side.warnings for side in sides),
            flawed=any(side.problems for side in sides),
            baseline_median_us=pair.baseline.median_us if pair else None,
            **_times(arm),
            estimate_us=estimates.get(row.candidate_cell_id) if row.stage == Stage.COMPILE else None,
        )


def _times(arm: ArmRecord | None) -> dict[str, Any]:
    names = ("median_us", "p20_us", "p80_us", "ratio", "ratio_low", "ratio_high", "clock_mhz")
    return {name: getattr(arm, name) if arm else None for name in names}


def _estimates(run: RunFolder) -> Mapping[str, float]:
    """Microseconds by cell, over its kernels; none where a kernel's traffic is not known."""
    found: dict[str, float | None] = {}
    for kernel in run.kernels:
        busy = kernel.facts.busy_us
        known = found.get(kernel.cell_id, 0.0)
        found[kernel.cell_id] = known + estimate_us(busy) if busy and known is not None else None
    return {cell_id: value for cell_id, value in found.items() if value is not None}


def _as_row(row: HistoryRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _started(run: RunFolder) -> dt.datetime:
    started = dt.datetime.fromisoformat(str(run.meta["started_at"]))
    return started.astimezone(dt.UTC) if started.tzinfo else started.replace(tzinfo=dt.UTC)


def _filter(since: dt.datetime | None, cases: Iterable[str] | None) -> pc.Expression | None:
    wanted = None if since is None else pc.field("started_at") >= pa.scalar(since, SCHEMA.field("started_at").type)
    if cases is None:
        return wanted
    named = pc.field("case").isin(sorted(cases))
    return named if wanted is None else wanted & named
