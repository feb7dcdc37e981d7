"""What is followed over nights, by columns: a row for each figure of each night, put together by series."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrix.judging.columns import coded, together
from matrix.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.judging.columns import Ints


class Figure(enum.StrEnum):
    """What a series follows; also the column of the history that holds it."""

    RATIO = "ratio"
    ESTIMATE = "estimate_us"
    MEDIAN = "median_us"


KEY = ("target", "gpu", "case", "params", "stage", "candidate", "baseline", "figure")
SAID = ("started_at", "run_id", "value", "ratio_low", "ratio_high", "median_us", "verdict", "reason_code", "flawed",
         "bimodal")  # fmt: skip
BESIDE = {"driver": "driver", "gpu_uuid": "GPU", "host": "host", "triton_version": "Triton", "torch_version": "torch",
           "baseline_triton": "the baseline's Triton"}  # fmt: skip
_READ = frozenset((*KEY, *BESIDE, *SAID, "baseline_median_us", *Figure))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Followed:
    """What is followed. ``order`` puts the rows of the ``table`` by series, each in the order of its nights; ``edges``
    are places in it, where another series begins, and the end. The table itself stays as it is, of millions of rows.
    """

    table: pa.Table
    started: Ints  # in microseconds, by row
    order: Ints
    edges: Ints

    @classmethod
    def of(cls, history: pa.Table) -> Followed:
        followed = _figures(history)
        table = followed.filter(pc.is_valid(followed["value"])).combine_chunks()  # for each take would do it anew
        series, started = _by_series(table), table["started_at"].cast(pa.int64()).to_numpy()
        order: Ints = np.lexsort((started, series))
        edges = np.flatnonzero(np.diff(series[order], prepend=-1, append=-1))
        return cls(table=table, started=started, order=order, edges=edges)

    def taken(self, places: Ints, names: Sequence[str]) -> pa.Table:
        """These columns of the rows at these places of the order."""
        return self.table.select(list(names)).take(pa.array(self.order[places]))

    def at(self, places: Iterable[int], names: Sequence[str]) -> list[dict[str, Any]]:
        """As :meth:`taken`, row by row."""
        found: list[dict[str, Any]] = self.taken(np.array([*places], dtype=np.int64), names).to_pylist()
        return found


def _figures(history: pa.Table) -> pa.Table:
    """A row for each figure of each night: of timed cells the ratio and both arms' medians, of others the estimate."""
    history = _encoded(history.select([name for name in history.column_names if name in _READ]))
    timed = history.filter(pc.equal(history["stage"], str(Stage.TIMING)))
    compiled = history.filter(pc.equal(history["stage"], str(Stage.COMPILE)))
    alone = {"baseline": "", "baseline_triton": "", "verdict": "", "reason_code": ""}
    own: dict[str, Any] = {**alone, "ratio_low": None, "ratio_high": None}
    base = _arms(timed.filter(pc.is_valid(timed["baseline_median_us"])))
    base = _with(
        base,
        **{**own, "candidate": base["baseline"], "triton_version": base["baseline_triton"], "torch_version": ""},
        median_us=base["baseline_median_us"],
    )
    parts = [
        (Figure.RATIO, timed),
        (Figure.ESTIMATE, compiled),
        (Figure.MEDIAN, _with(timed, **own)),
        (Figure.MEDIAN, base),
    ]
    tables = [_with(part, figure=str(figure), value=part[str(figure)]) for figure, part in parts]
    wanted = [*KEY, *BESIDE, *SAID]
    return pa.concat_tables([_plain(table.select(wanted)) for table in tables])


def _encoded(table: pa.Table) -> pa.Table:
    """Every text as its place among the distinct ones: what follows goes over millions of them several times."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(place, field.name, table[field.name].dictionary_encode())
    return table


def _arms(timed: pa.Table) -> pa.Table:
    """The first row of each baseline's arm: several candidates of a night share it."""
    arms = together([coded(timed[name])[0] for name in ("run_id", *KEY[:5], "baseline")])
    return timed.take(pa.array(np.sort(np.unique(arms, return_index=True)[1])))


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """With these columns in place of its own; a single value stands in every row."""
    for name, given in columns.items():
        values = given if isinstance(given, pa.ChunkedArray) else _repeated(given, len(table))
        place = table.schema.get_field_index(name)
        table = table.append_column(name, values) if place < 0 else table.set_column(place, name, values)
    return table


def _repeated(value: str | None, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, pa.float64())
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), pa.array([value]))


def _plain(table: pa.Table) -> pa.Table:
    """Every column nullable: the parts come from several places."""
    return table.cast(pa.schema([pa.field(field.name, field.type) for field in table.schema])).replace_schema_metadata()


def _by_series(table: pa.Table) -> Ints:
    """A number for each row's series; they are in the order of the series' names."""
    columns, sizes = [], []
    for name in KEY:
        places, values = coded(table[name])
        rank: Ints = np.empty(len(values), dtype=np.int64)
        rank[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        columns.append(rank[places])
        sizes.append(len(values))
    if math.prod(sizes) < np.iinfo(np.int64).max:
        return np.ravel_multi_index(columns, sizes) if len(table) else np.empty(0, dtype=np.int64)
    return together(columns)
