"""The tables of the GPU stages: written, read back, absent, damaged."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import timed
from judged import BASELINE, CANDIDATE

from matrix.errors import StorageError
from matrix.records import Role, Tuning
from matrix.storage import store

ARMS, ROUNDS = timed.recorded(BASELINE, CANDIDATE)
TUNED = timed.arm(
    tuning=Tuning.PINNED,
    configurations={"matmul_kernel": {"BLOCK_M": 128, "num_warps": 8}},
    problems=["the queue ran empty"],
    clock_mhz=None,
)
DIMENSIONS = [timed.dimension(BASELINE), timed.dimension(CANDIDATE, "strided", "refused", reason="ValueError: strides")]


def test_what_is_written_is_read_back(tmp_path):
    store.write_dimensions(tmp_path, DIMENSIONS)
    store.write_timings(tmp_path, [*ARMS, TUNED])
    store.write_rounds(tmp_path, ROUNDS)
    assert store.read_dimensions(tmp_path) == DIMENSIONS
    assert store.read_timings(tmp_path) == [*ARMS, TUNED]
    assert isinstance(store.read_timings(tmp_path)[0].role, Role)
    assert isinstance(store.read_timings(tmp_path)[-1].tuning, Tuning)
    again = store.read_rounds(tmp_path)
    assert [r.throttled_ns for r in again] == [r.throttled_ns for r in ROUNDS]
    for one, other in zip(again, ROUNDS, strict=True):
        assert one.samples_us == pytest.approx(other.samples_us, rel=1e-6)


def test_rounds_of_some_cells(tmp_path):
    store.write_rounds(tmp_path, ROUNDS)
    wanted = ROUNDS[0].cell_id
    found = store.read_rounds(tmp_path, {wanted, "no such cell"})
    assert {one.cell_id for one in found} == {wanted}
    assert len(found) == sum(one.cell_id == wanted for one in ROUNDS) > 0
    assert store.read_rounds(tmp_path, set()) == []


def test_samples_are_a_list_column_and_structures_are_text(tmp_path):
    store.write_rounds(tmp_path, ROUNDS)
    schema = pq.read_schema(tmp_path / "rounds.parquet")
    assert schema.field("samples_us").type == pa.list_(pa.float32())
    assert schema.field("throttled_ns").type == pa.string()
    assert schema.metadata[b"triton_matrix_schema"] == str(store.SCHEMA_VERSION).encode()


def test_any_reader_can_take_a_median_of_the_raw_samples(tmp_path):
    store.write_rounds(tmp_path, ROUNDS)
    samples = f"SELECT unnest(samples_us) us FROM '{tmp_path}/rounds.parquet' WHERE role = 'candidate'"
    ((median,),) = duckdb.sql(f"SELECT median(us) FROM ({samples})").fetchall()
    assert 40 < median < 200


def test_a_host_without_a_gpu_leaves_no_such_tables(tmp_path):
    store.write_dimensions(tmp_path, [])
    store.write_timings(tmp_path, [])
    store.write_rounds(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    assert (store.read_dimensions(tmp_path), store.read_timings(tmp_path), store.read_rounds(tmp_path)) == ([], [], [])


@pytest.mark.parametrize("name", ["dimensions", "timings", "rounds"])
def test_a_damaged_table_is_named(tmp_path, name):
    (tmp_path / f"{name}.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StorageError, match=f"{name}.parquet"):
        getattr(store, f"read_{name}")(tmp_path)
