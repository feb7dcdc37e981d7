"""The GPU stages through a whole run, on a host whose GPU is made up: what is asked, kept, resumed and written.

The fake device's figures mean nothing and nothing here asserts one; what only a GPU can show is shown by
``triton-matrix doctor --gpu`` and the recorded run in the package.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import fake_host
import pandas as pd
import pytest
from conftest import Workshop

from matrix.errors import ExitCode, StorageError
from matrix.model import Stage
from matrix.running.plan import Request
from matrix.running.progress import Board
from matrix.running.run import Finished, Run
from matrix.settings import config
from matrix.storage.runs import Home
from matrix.storage.seal import faults, read_seal

CASES = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def double_kernel(x, out, n, step, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, scale * tl.load(x + i * step, mask=i < n), mask=i < n)

def double(x, *, scale=2.0):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), scale, BLOCK=64)
    return out

def vector(make, p):
    return [make.normal((p.n,), "fp32")]

cases = [
    Case(name="right", run=double, reference=lambda x: 2 * x, inputs=vector, bytes_moved=lambda p: 8.0 * p.n,
         correctness=[{"n": 65}], timing=[{"n": 256}], competitor=lambda x: 2 * x),
    Case(name="wrong", run=double, reference=lambda x, *, scale=2.0: 2 * x, inputs=vector,
         timing=[{"n": 256, "scale": 3.0}]),
    Case(name="dies", run=lambda x: __import__("os").abort(), reference=lambda x: x, inputs=vector,
         correctness=[{"n": 4}]),
]
"""
PAIR = ("triton3.8.0-torch2.14.1", "triton3.9.0-torch2.15.0")


def run(root: Path, monkeypatch: pytest.MonkeyPatch, gpus: int = 1) -> Run:
    fake_host.stand_in(monkeypatch)
    configuration = config.load(root)
    request = Request(
        baseline=PAIR[0],
        candidates=PAIR[1:],
        targets=("sm_90",),
        case_files=(root / "cases.py",),
        stages=(Stage.IMPORT, Stage.CORRECTNESS, Stage.TIMING),
        gpu_targets=("sm_90",),
    )
    return Run(
        request=request,
        configuration=configuration,
        home=Home(root=root),
        board=Board(quiet=True),
        jobs=2,
        gpu_host=fake_host.fake_host(gpus),
        timing_plan=fake_host.PLAN,
    )


def laid_out(workshop: Workshop, root: Path) -> Path:
    for name in PAIR:
        workshop.environment(name)
    (root / ".matrix").mkdir()
    (root / ".matrix" / "environments").symlink_to(workshop.root / ".matrix" / "environments")
    (root / "cases.py").write_text(CASES)
    return root


@pytest.fixture
def folder(workshop: Workshop, tmp_path: Path) -> Path:
    return laid_out(workshop, tmp_path)


@pytest.fixture(scope="module")
def two_runs(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Finished]:
    """A run that takes up an interrupted one, and the next, which measures all of it."""
    root = laid_out(workshop, tmp_path_factory.mktemp("resumed"))
    with pytest.MonkeyPatch.context() as patch:
        first = run(root, patch)
        patch.setattr(Run, "_conclude", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.execute()
    with pytest.MonkeyPatch.context() as patch:
        return run(root, patch).execute(), run(root, patch).execute()


def test_what_is_right_is_timed_and_every_row_is_written(two_runs: tuple[Finished, Finished]) -> None:
    _, finished = two_runs
    cells = pd.read_parquet(finished.folder / "cells.parquet")
    outcomes = cells.groupby(["case", "stage"]).outcome.unique().map(list)
    assert outcomes["right", "correctness"] == ["passed"]
    assert outcomes["right", "timing"] in (["passed"], ["invalid"])
    assert outcomes["wrong", "correctness"] == ["wrong"]
    assert outcomes["wrong", "timing"] == ["not_run"]
    assert outcomes["dies", "correctness"] == ["crash"]
    reasons = cells[(cells.case == "wrong") & (cells.stage == "timing")].reason
    assert reasons.str.contains("not timed, since its correctness is wrong").any()
    arms = pd.read_parquet(finished.folder / "timings.parquet")
    assert sorted(arms.role) == ["baseline", "candidate", "control"]
    assert set(arms.case) == {"right"}
    assert arms.competitor.str.contains("of torch").all()
    assert (arms.bytes_moved == 8.0 * 256).all()
    rounds = pd.read_parquet(finished.folder / "rounds.parquet")
    assert len(rounds) == 3 * (2 * 2 + 1)
    assert all(len(samples) == 10 for samples in rounds[rounds.cache == "cold"].samples_us)
    dimensions = pd.read_parquet(finished.folder / "dimensions.parquet")
    own = dimensions[(dimensions.case == "right") & (dimensions.params == "n=65")]
    assert {"launched", "bounds", "written", "values", "repeat", "strided", "misaligned"} <= set(own.dimension)
    at_timing_point = dimensions[(dimensions.case == "right") & (dimensions.params == "n=256")]
    assert set(at_timing_point.dimension) == {"launched", "bounds", "written", "inputs", "values"}
    assert len(set(own[own.dimension == "values"].reference_digest)) == 1
    meta = json.loads((finished.folder / "run.json").read_text())
    assert meta["gpus"][0]["uuid"] == "GPU-fake-0"
    assert meta["gpus"][0]["timing_wall_s"] > 0
    # The GPU's own code dies in both environments, and so does what is wrong in both: nothing regressed by it.
    assert finished.exit_code in (ExitCode.CLEAN, ExitCode.INCOMPLETE)


def test_an_interrupted_measurement_is_resumed_and_a_finished_one_is_repeated(
    two_runs: tuple[Finished, Finished],
) -> None:
    second, third = two_runs
    cells = pd.read_parquet(second.folder / "cells.parquet")
    kept = cells[(cells.case == "right") & cells.stage.isin(["correctness", "timing"])]
    assert kept.cached.all()
    arms = pd.read_parquet(second.folder / "timings.parquet")
    assert set(arms.run_id) == {second.run_id}
    cells = pd.read_parquet(third.folder / "cells.parquet")
    assert not cells[cells.stage.isin(["correctness", "timing"])].cached.any()


BROKEN = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def copy_kernel(x, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * step, mask=i < n), mask=i < n)

def copy(x):
    out = torch.empty_like(x)
    # The last elements of what needs a third program are forgotten.
    copy_kernel[(min(triton.cdiv(x.numel(), 16), 2),)](x, out, x.numel(), x.stride(0), BLOCK=16)
    return out

case = Case(name="forgets", run=copy, reference=lambda x: x, inputs=lambda make, p: [make.normal((p.n,), "fp32")],
            correctness=[{"n": 16}, {"n": 32}, {"n": 20}])
"""


def test_fuzzing_finds_the_smallest_point_that_fails_and_its_id_replays_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cases.py").write_text(BROKEN.replace('{"n": 32}', '{"n": 32}, {"n": 300, "tag": "never right"}'))
    first = run(folder, monkeypatch)
    first.request = dataclasses.replace(
        first.request, stages=(Stage.CORRECTNESS,), cases=("forgets:n=1*", "forgets:n=2*")
    )
    first.fuzz_seconds = 3.0
    finished = first.execute()
    cells = pd.read_parquet(finished.folder / "cells.parquet")
    found = cells[cells.params.str.contains("fuzz=")]
    assert set(found.outcome) == {"unwritten"}
    assert set(found.environment) == set(PAIR)
    assert found.params.str.contains("n=33,").all()
    second = run(folder, monkeypatch)
    second.request = dataclasses.replace(
        second.request, stages=(Stage.CORRECTNESS,), cases=(f"forgets:{found.params.iloc[0]}",)
    )
    again = pd.read_parquet(second.execute().folder / "cells.parquet")
    replayed = again[again.stage == "correctness"]
    assert list(replayed.outcome) == ["unwritten", "unwritten"]
    assert set(replayed.params) == {found.params.iloc[0]}


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_two_gpus_share_the_cells_of_their_target(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = run(folder, monkeypatch, gpus=2).execute()
    meta = json.loads((finished.folder / "run.json").read_text())
    assert [gpu["uuid"] for gpu in meta["gpus"]] == ["GPU-fake-0", "GPU-fake-1"]
    cells = pd.read_parquet(finished.folder / "cells.parquet")
    assert not cells[cells.stage == "correctness"].duplicated(["environment", "case", "params"]).any()


def _full(path: Path, *_: object) -> None:
    raise StorageError(f"cannot write {path}: no space left", hint="free some disk space")


def test_a_run_says_that_it_is_complete_when_all_of_it_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "matrix.toml").write_text("")
    monkeypatch.setattr("matrix.running.run.write_page", lambda run: _full(run.path / "report.html"))
    failed = run(folder, monkeypatch)
    failed.request = dataclasses.replace(failed.request, stages=(Stage.IMPORT,), gpu_targets=())
    with pytest.raises(StorageError, match=r"report\.html"):
        failed.execute()
    meta = json.loads((failed.folder / "run.json").read_text())
    assert (meta["state"], meta["exit_code"]) == ("failed", None)
    assert "no space left" in meta["error"]
    assert [case["name"] for case in meta["cases"]] == ["right", "wrong", "dies"]
    monkeypatch.undo()
    whole = run(folder, monkeypatch)
    whole.request = failed.request
    monkeypatch.setattr(Run, "_add_to_history", lambda *_: False)
    monkeypatch.setattr(Home, "point_latest", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        whole.execute()
    meta = json.loads((whole.folder / "run.json").read_text())
    assert (meta["state"], meta["exit_code"]) == ("complete", ExitCode.INCOMPLETE)
    assert faults(whole.folder, read_seal(whole.folder)) == []


def test_a_run_that_is_stopped_or_breaks_says_so_beside_what_it_knew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, state, told in (
        (KeyboardInterrupt(), "interrupted", None),
        (ZeroDivisionError("x"), "failed", "ZeroDivisionError: x"),
    ):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(Run, "_find", fail)
        one = run(folder, monkeypatch)
        with pytest.raises(type(error)):
            one.execute()
        meta = json.loads((one.folder / "run.json").read_text())
        assert (meta["state"], meta.get("error"), meta["request"]["targets"]) == (state, told, ["sm_90"])
        assert one.home.resume(one.run_id)[2] == one.folder
