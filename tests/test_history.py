"""The history over nights: partitioned Parquet in a folder and on a real S3 server, each run once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
import shutil

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import run_folders
from browser import chromium, opened, overflowing
from click.testing import CliRunner
from object_store import s3_bucket

from matrix.commands import main as cli
from matrix.errors import StorageError, UsageError
from matrix.memory.cost import estimate_us
from matrix.nights.history import SCHEMA, History, history_rows, read_copy, selected, write_copy
from matrix.nights.trends import trends
from matrix.records import Role
from matrix.reporting import report
from matrix.resources import sample_folder
from matrix.storage.runfolder import load

NIGHT = dt.datetime(2026, 10, 1, 2, tzinfo=dt.UTC)
SLOW = "rows=8192,cols=8192,dtype=fp16,block_m=16,block_n=128"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(run_folders.build(tmp_path_factory.mktemp("history") / "run", gpu=True, hostile=False))


@pytest.fixture(scope="module")
def bucket():
    """A bucket of an S3 server on loopback, as an address; pyarrow's own client speaks to it."""
    with s3_bucket("nights") as found:
        yield found


def on_night(run, night, *, factor=1.0, driver="580.159.04"):
    """The same measurement on another night; the candidate's time multiplied."""
    ratio = factor * math.exp(0.002 * math.sin(7.0 * night))
    timings = [
        dataclasses.replace(arm, ratio=arm.ratio * ratio, median_us=arm.median_us * ratio)
        if arm.role is Role.CANDIDATE
        else arm
        for arm in run.timings
    ]
    gpus = [{**gpu, "driver": driver} for gpu in run.meta["gpus"]]
    meta = {**run.meta, "run_id": f"run-{night:03}", "gpus": gpus,
            "started_at": (NIGHT + dt.timedelta(days=night)).isoformat()}  # fmt: skip
    return dataclasses.replace(run, meta=meta, timings=timings)


def local(tmp_path):
    return History.of(str(tmp_path / "history"))


def test_a_run_is_one_file_of_its_month_and_every_reader_takes_the_folder(run, tmp_path):
    history = local(tmp_path)
    assert history.append(on_night(run, 0))
    assert history.append(on_night(run, 31))
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["history/month=2026-10/run-000.parquet", "history/month=2026-11/run-031.parquet"]
    assert ds.dataset(tmp_path / "history", partitioning="hive").to_table().num_rows == 2 * len(history_rows(run))
    query = f"SELECT month, count(*), max(ratio) FROM '{tmp_path}/history/*/*.parquet' GROUP BY month ORDER BY month"
    (october, *_), (november, *_) = duckdb.sql(query).fetchall()
    assert (str(october), str(november)) == ("2026-10", "2026-11")


def test_the_same_run_twice_is_there_once(run, tmp_path):
    history = local(tmp_path)
    assert history.append(run)
    rows = history.read().num_rows
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert not history.append(run)
    assert history.read().num_rows == rows == len(history_rows(run)) > 100
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before


def test_rows_say_what_was_measured(run):
    rows = {(row.stage, row.case, row.params): row for row in history_rows(run)}
    slow = rows["timing", "column_max_tma", SLOW]
    assert slow.ratio == pytest.approx(3.14, abs=0.02)
    assert (slow.gpu, slow.driver, slow.triton_version) == ("NVIDIA H200", "580.159.04", "3.6.0")
    assert slow.baseline_median_us < slow.median_us
    assert (slow.verdict, slow.flawed, slow.bimodal) == ("regressed", False, False)
    assert rows["timing", "cumsum", "rows=8,dtype=fp32"].flawed
    sample = load(sample_folder())
    known = {kernel.cell_id: kernel for kernel in sample.kernels if kernel.facts.busy_us}
    compiled = [row for row in history_rows(sample) if row.stage == "compile" and row.estimate_us]
    assert compiled
    (kernel,) = {k.index: k for k in known.values() if k.case == "softmax" and k.environment == "host"}.values()
    (row,) = (r for r in compiled if r.case == "softmax" and r.candidate == "host" and r.params == kernel.params)
    assert row.estimate_us == pytest.approx(estimate_us(kernel.facts.busy_us))


def test_a_real_s3_server_holds_it(run, bucket):
    address, client = bucket
    history = History.of(address.format("team/kernels"))
    with pytest.raises(UsageError, match="there is no history at s3://nights/team/kernels"):
        history.read()
    for night in range(3):
        assert history.append(on_night(run, night))
    assert not history.append(on_night(run, 2))
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="nights")["Contents"] if entry["Size"]]
    assert keys == [f"team/kernels/month=2026-10/run-{night:03}.parquet" for night in range(3)]
    assert history.read().num_rows == 3 * len(history_rows(run))
    since = NIGHT + dt.timedelta(days=2)
    assert set(history.read(since=since)["run_id"].to_pylist()) == {"run-002"}
    assert set(history.read(cases=["softmax"])["case"].to_pylist()) == {"softmax"}


def test_what_pyarrow_does_not_know_goes_through_fsspec(run):
    history = History.of("memory://nights/kernels")
    assert history.append(on_night(run, 0))
    assert not history.append(on_night(run, 0))
    assert history.append(on_night(run, 40))
    assert history.read().num_rows == 2 * len(history_rows(run))


def test_an_address_is_shown_without_what_it_may_hide(bucket):
    address, _ = bucket
    assert History.of(address.format("x")).address == "s3://nights/x"
    with pytest.raises(UsageError) as caught:
        History.of("nowhere://user:secret@host/x?key=secret")
    assert "nowhere://host/x" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_no_history_is_one_clear_error(run, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        History.of(str(tmp_path / "file"))
    history = local(tmp_path)
    history.append(run)
    (tmp_path / "history" / "month=2026-11" / "other.parquet").write_bytes(b"no parquet")
    with pytest.raises(StorageError, match="cannot be read"):
        history.read()


def test_files_that_are_no_run_s_and_runs_that_are_there_twice_are_named(run, tmp_path):
    history = local(tmp_path)
    with pytest.raises(UsageError, match="there is no history at"):
        history.read()
    history.append(on_night(run, 0))
    (written,) = (tmp_path / "history").rglob("*.parquet")
    shutil.copy(written, written.with_name("copy.parquet"))
    table = pq.read_table(written, partitioning=None)
    pq.write_table(table.drop_columns(["target"]), written.with_name("cut.parquet"))
    pq.write_table(table.replace_schema_metadata(), written.with_name("foreign.parquet"))
    with pytest.raises(StorageError) as caught:
        history.read()
    for told in (r"foreign\.parquet is no run's", r"cut\.parquet lacks target", r"run-000 is there .*copy\.parquet"):
        assert re.search(told, str(caught.value))


def test_trend_names_a_damaged_run_that_is_to_be_added(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(run.path, tmp_path / "run")
    (folder / "run.json").write_text(json.dumps({**run.meta, "started_at": "once"}))
    arguments = ["trend", "--history", "history", "--add", str(folder)]
    done = CliRunner().invoke(cli.main, arguments, standalone_mode=False)
    assert isinstance(done.exception, StorageError)
    assert "started_at is no time: 'once'" in str(done.exception)


def test_a_half_written_file_is_no_part_of_it(run, tmp_path):
    history = local(tmp_path)
    history.append(run)
    (tmp_path / "history" / "month=2026-11" / ".run-9.parquet").write_bytes(b"PAR1")
    assert history.read().num_rows == len(history_rows(run))


def test_globs_select_cells(run, tmp_path):
    history = local(tmp_path)
    history.append(run)
    table = history.read()
    assert selected(table, []) is table
    for glob in ("softmax", "softmax:*", f"{run_folders.NEXT}/*/softmax:*"):
        assert set(selected(table, [glob])["case"].to_pylist()) == {"softmax"}
    with pytest.raises(UsageError, match="matches nothing"):
        selected(table, ["nothing"])
    with pytest.raises(UsageError, match="holds no rows"):
        selected(SCHEMA.empty_table(), [])


def filled(run, history, nights=30, slow_from=20, driver_from=12):
    for night in range(nights):
        history.append(
            on_night(
                run,
                night,
                factor=1.08 if night >= slow_from else 1.0,
                driver="590.44.01" if night >= driver_from else "580.159.04",
            )
        )


def test_trends_over_a_month_find_the_change_and_the_driver(run, tmp_path):
    history = local(tmp_path)
    filled(run, history)
    found = {
        (series.case, series.params): series for series in trends(history.read()).series if series.figure == "ratio"
    }
    series = found["column_max_tma", SLOW]
    assert [change.place for change in series.changes] == [20]
    assert series.changes[0].ratio == pytest.approx(1.08, rel=0.01)
    assert series.points[12].moved == ("driver 580.159.04 → 590.44.01",)
    assert ("cumsum", "rows=8,dtype=fp32") not in found  # flawed in every night: no figure


def test_the_report_draws_each_case_over_nights(run, tmp_path):
    history = local(tmp_path)
    filled(run, history)
    last = on_night(run, 29, factor=1.08)
    folder = shutil.copytree(run.path, tmp_path / "run")
    write_copy(folder, history.recent(last))
    assert read_copy(folder).num_rows < history.read().num_rows  # rows without a figure stay where they are
    assert trends(read_copy(folder)) == trends(history.read())
    path = report.write_page(load(folder))
    for width, scheme in ((1200, "light"), (400, "dark")):
        with (
            chromium() as browser,
            opened(browser, path, viewport={"width": width, "height": 900}, color_scheme=scheme) as page,
        ):
            section = page.locator("#trend")
            row = section.locator("li", has_text="column_max_tma").first
            assert "since 2026-10-21" in row.inner_text()
            assert "2026-10-13: driver 580.159.04 → 590.44.01" in row.inner_text()
            assert row.locator("svg .mark.worse").count() == 1
            assert row.locator("svg .dot").count() == 30
            assert row.locator("svg").bounding_box()["height"] > 40
            assert overflowing(page, "#trend *", width) == []
    assert path.stat().st_size < 3_000_000


def test_the_trend_command_adds_draws_and_tells(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = local(tmp_path)
    filled(run, history, nights=29)

    def call(*arguments):
        found = ["trend", "--history", "history", *arguments]
        return CliRunner().invoke(cli.main, found, standalone_mode=False)

    done = call("--add", str(run.path), "--add", str(run.path))
    assert done.exception is None
    assert "was there already" in done.stderr
    assert "since 2026-10-21" in done.stdout
    with chromium() as browser, opened(browser, tmp_path / "trend.html") as page:
        assert page.locator("#trend li").count() > 5
    told = json.loads(call("--cases", "column_max_tma", "--json").stdout)
    assert {series["case"] for series in told} == {"column_max_tma"}
    assert len(told[0]["points"]) == 30
    assert SCHEMA.names[0] == "run_id"


def test_an_unreachable_history_stops_a_run_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_PROJECT", str(tmp_path))
    (tmp_path / "file").write_text("x")
    done = CliRunner().invoke(cli.main, ["run", "--history", str(tmp_path / "file")], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert not (tmp_path / ".matrix" / "runs").exists()
