"""Shards: runs of several hosts in one matrix, from folders and from a real S3 server; nothing averaged."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import run_folders
from click.testing import CliRunner
from conftest import Project
from object_store import s3_bucket

from matrix.commands import main as cli
from matrix.errors import ExitCode, StorageError, UsageError
from matrix.reporting.report import render_runs
from matrix.running.profiles import profiles, with_unjudged
from matrix.running.shards import fetch, merged_exit, send, shards_of, shards_text
from matrix.storage.runfolder import load
from matrix.storage.runs import Home
from matrix.storage.seal import seal

ON_GPU = ("compile", "correctness", "timing")


def host(folder, name, *, run_id, driver="580.159.04", power=700.0, stages=ON_GPU, artifacts=None):
    """A run of an H200 on a host of that name, sealed; with so many of its artifacts, or all."""
    run_folders.build(folder, gpu=True, hostile=False, host=name, run_id=run_id)
    for left in sorted((folder / "artifacts").iterdir())[artifacts:] if artifacts else ():
        left.unlink()
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (gpu,) = meta["gpus"]
    meta["gpus"] = [{**gpu, "driver": driver, "power_limit_w": power}]
    meta["request"]["stages"] = list(stages)
    (folder / "run.json").write_text(json.dumps(meta), encoding="utf-8")
    seal(folder)
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two hosts' runs in one folder."""
    root = tmp_path_factory.mktemp("shared")
    host(root / "run-a", "alpha", run_id="run-a")
    host(root / "run-b", "beta", run_id="run-b", driver="575.57.08", power=500.0)
    return root


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """The same with a few artifacts each: three hundred files take a test server half a minute."""
    root = tmp_path_factory.mktemp("light")
    host(root / "run-a", "alpha", run_id="run-a", artifacts=3)
    host(root / "run-b", "beta", run_id="run-b", driver="575.57.08", power=500.0, artifacts=3)
    return root


@pytest.fixture(scope="module")
def runs(shared):
    return [load(shared / "run-a"), load(shared / "run-b")]


@pytest.fixture(scope="module")
def bucket():
    with s3_bucket("shards") as found:
        yield found


def test_what_differs_between_hosts_is_said(runs):
    found = shards_of(runs)
    differing = {each.name: dict(each.values) for each in found.properties if each.differs}
    assert differing["driver"] == {"alpha": "580.159.04", "beta": "575.57.08"}
    assert differing["power limit, W"] == {"alpha": "700", "beta": "500"}
    assert "GPU" not in differing and found.requests == []
    assert "differs on sm_90: driver: alpha 580.159.04; beta 575.57.08" in shards_text(found)


def test_two_runs_of_a_cell_stand_side_by_side(runs):
    slower = [
        dataclasses.replace(row, change="time of a call x9.99") if row.reason_code == "slower" else row
        for row in runs[1].verdicts
    ]
    found = shards_of([runs[0], dataclasses.replace(runs[1], verdicts=slower)])
    told = [dict(each.found) for each in found.listed if each.stage == "timing"]
    assert told and all(set(each) == {"run-a", "run-b"} for each in told)
    assert any("x9.99" in each["run-b"] and "x9.99" not in each["run-a"] for each in told)
    page = render_runs([runs[0], dataclasses.replace(runs[1], verdicts=slower)])
    assert "x9.99" in page and "alpha (run-a)" in page and "beta (run-b)" in page


def test_a_verdict_that_two_runs_do_not_share_comes_first(runs):
    other = [dataclasses.replace(row, verdict="improved") if row.reason_code == "slower" else row
             for row in runs[1].verdicts]  # fmt: skip
    found = shards_of([runs[0], dataclasses.replace(runs[1], verdicts=other)])
    assert found.disagreeing and found.listed[0] in found.disagreeing


def test_another_request_is_said(runs):
    meta = {**runs[1].meta, "request": {**runs[1].meta["request"], "candidates": ["x"]}}
    found = shards_of([runs[0], dataclasses.replace(runs[1], meta=meta)])
    assert any(each.startswith("candidates is ") and "['x'] in run-b" in each for each in found.requests)


def test_a_missing_architecture_is_an_empty_column(runs):
    assert shards_of(runs).missing == ["sm_80", "sm_100", "sm_120"]
    page = render_runs(runs)
    assert page.count("correctness, timing: no host") >= 3
    assert "No run had a GPU of sm_80, sm_100 and sm_120" in page
    assert "no host" not in render_runs(runs[:1])


def judged_on(run, target):
    """The run as if its GPU were another one, and as a sign-off wants it."""
    rows = [dataclasses.replace(row, target=target) if row.target == "sm_90" else row for row in run.verdicts]
    passed = [dataclasses.replace(row, verdict="equal", reason_code="passed") for row in rows]
    complete = with_unjudged(passed, profiles()["signoff"], run_id=run.run_id, baseline=run_folders.BASELINE,
                             candidates=[run_folders.NEXT], targets=["sm_90", "sm_120"])  # fmt: skip
    return dataclasses.replace(run, verdicts=complete)


def test_the_exit_code_is_that_of_all_together(runs):
    assert merged_exit(runs) is ExitCode.REGRESSED
    hopper, blackwell = judged_on(runs[0], "sm_90"), judged_on(runs[1], "sm_120")
    # Each alone lacks the other's target; together nothing is missing.
    assert merged_exit([hopper]) is merged_exit([blackwell]) is ExitCode.INCOMPLETE
    assert merged_exit([hopper, blackwell]) is ExitCode.CLEAN
    assert merged_exit([hopper, hopper]) is ExitCode.INCOMPLETE
    assert not shards_of([hopper, blackwell]).lacking
    # A cell that no host ran there is still missing, whatever else was judged.
    gone = next(row for row in blackwell.verdicts if row.stage == "timing")
    same = ("timing", gone.case, gone.params)
    fewer = [row for row in blackwell.verdicts if (row.stage, row.case, row.params) != same]
    assert any(row.stage == "timing" and row.target == "sm_120" for row in fewer)
    parts = [hopper, dataclasses.replace(blackwell, verdicts=fewer)]
    assert merged_exit(parts) is ExitCode.INCOMPLETE
    assert shards_of(parts).lacking == {("sm_120", "timing"): [f"{gone.case}:{gone.params}"]}
    assert f"judged by no run on sm_120: timing of {gone.case}:" in shards_text(shards_of(parts))
    assert "Judged by no run on sm_120" in render_runs(parts)


def test_a_run_that_was_cut_short_is_read_with_a_word_on_it(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(shared / "run-a", tmp_path / ".matrix" / "runs" / "run-a"))
    (folder / "digests.json").unlink()  # killed after its last table, before its seal
    command = ["report", str(folder), "-o", "page.html"]
    done = CliRunner().invoke(cli.main, command, standalone_mode=False)
    assert done.exception is None and "run-a: the run is not sealed" in done.stderr
    assert Home(root=tmp_path).resume("run-a")[0] == "run-a"  # a fleet ends it
    (folder / "run.json").write_text(json.dumps(json.loads((folder / "run.json").read_text()) | {"state": "running"}))
    done = CliRunner().invoke(cli.main, command, standalone_mode=False)
    assert "did not come to its end, it is running" in done.stderr
    passed = judged_on(load(folder), "sm_90"), judged_on(load(shared / "run-b"), "sm_120")
    assert merged_exit(passed) is ExitCode.INCOMPLETE
    assert "run-a: the run did not come to its end" in shards_text(shards_of(passed))
    assert "run-a: the run did not come to its end" in render_runs(passed)


def test_runs_are_shared_through_a_folder_and_found_there(shared, tmp_path):
    there = tmp_path / "there"
    assert send(shared / "run-a", str(there)) == f"{there}/run-a"
    send(shared / "run-a", str(there))
    assert fetch([str(there)], tmp_path) == [there / "run-a"]
    assert fetch([str(there / "run-a"), str(there)], tmp_path) == [there / "run-a"]  # once
    assert load(there / "run-a").verdicts == load(shared / "run-a").verdicts


def test_runs_on_s3_are_merged_by_the_command(light, bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address, client = bucket
    for name in ("run-a", "run-b"):
        send(light / name, address.format("nightly"))
    done = CliRunner().invoke(cli.main, ["report", address.format("nightly"), "-o", "page.html"], standalone_mode=False)
    assert done.exception is None and done.return_value == ExitCode.REGRESSED
    assert "2 runs of alpha and beta" in done.output and "no GPU of sm_80, sm_100 and sm_120" in done.output
    assert "alpha" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not (tmp_path / ".matrix").exists()
    client.put_object(Bucket="shards", Key="nightly/run-b/verdicts.parquet", Body=b"other")
    with pytest.raises(StorageError, match=r"not the run that was sealed: verdicts\.parquet tampered"):
        fetch([address.format("nightly")], tmp_path / "again")
    with pytest.raises(UsageError, match="no run at s3://shards/nothing"):
        fetch([address.format("nothing")], tmp_path)


def test_a_run_that_is_not_whole_yet_is_none(light, bucket, tmp_path):
    address, client = bucket
    client.put_object(Bucket="shards", Key="partly/run-c/cells.parquet", Body=b"")
    send(light / "run-a", address.format("partly"))
    assert [path.name for path in fetch([address.format("partly")], tmp_path)] == ["run-a"]


def test_a_run_shares_itself(project: Project):
    done = project.matrix("run", "--cases", "vector_add", "--stages", "import", "--share", "shared", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    (copied,) = (project.root / "shared").iterdir()
    assert load(copied).run_id == project.latest.resolve().name
