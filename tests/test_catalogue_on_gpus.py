"""Rows of the catalogue that take a GPU, on a host whose GPU is made up: what is run, read off and said.

The fake device runs kernels in the interpreter: outcomes are real ones, times mean nothing and none is asserted.
"""

from __future__ import annotations

from pathlib import Path

import fake_host
import pytest
from conftest import Workshop

from matrix.catalogue.on_gpus import GpuBench, run_on_gpus
from matrix.catalogue.results import RowResult, Standing
from matrix.catalogue.rows import Row, read_catalogue
from matrix.judging.thresholds import Thresholds
from matrix.model import Stage
from matrix.running.execute import Bench
from matrix.running.progress import Board
from matrix.running.workers import WorkerHome
from matrix.settings.environments import child_environment

OLD, NEW = "3.8.0", "3.9.0"
CASE = '''
"""example#1: {title}.
https://example.com/1
"""
import os
import torch, triton, triton.language as tl
from matrix import Case

STAGE = "{stage}"
GOOD, BAD = "{good}", "{bad}"
TARGET = "sm_90"
PARAMS = {{"n": 256, "scale": 2.0}}
BAD_PARAMS = {{"n": 256, "scale": {scale}}}
FIGURE = {figure}

@triton.jit
def scale_kernel(x, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, scale * tl.load(x + i, mask=i < n), mask=i < n)

def scaled(x, *, scale):
    if scale == 0.0:
        os.abort()
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), scale, BLOCK=64)
    return out

case = Case(
    name="{name}", run=scaled, reference=lambda x: 2 * x, without={{"strided": "contiguous inputs"}},
    inputs=lambda make, p: [make.normal((p.n,), "fp32")], axes={{"scale": [2.0, 3.0, 0.0]}},
    correctness=[{{"n": 256}}], timing=[{{"n": 256}}],
)
'''


def write(folder: Path, name: str, **given: object) -> None:
    plain = {"title": name, "stage": "correctness", "good": OLD, "bad": OLD, "scale": 2.0,
             "figure": {"outcome": ("passed", "wrong")}}  # fmt: skip
    (folder / f"{name}.py").write_text(CASE.format(name=name, **{**plain, **given}))


@pytest.fixture
def results(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> dict[tuple[str, Stage], RowResult]:
    """The rows that the test has written, by its parameter, run with the two newest releases."""
    fake_host.stand_in(monkeypatch)
    folder, scratch = tmp_path / "catalogue", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    for name, given in request.param.items():
        write(folder, name, **given)
    built = {release: workshop.environment(release) for release in (OLD, NEW)}
    homes = {
        release: WorkerHome(
            environment=release,
            interpreter=each.interpreter,
            variables=child_environment(each.environment),
            pythonpath=(),
            scratch=scratch,
            memory_bytes=16 << 30,
        )
        for release, each in built.items()
    }
    where = GpuBench(
        bench=Bench.make(scratch, store=scratch, slots=2),
        homes=homes,
        locks={release: each.digest for release, each in built.items()},
        host=fake_host.fake_host(),
        board=Board(quiet=True),
        jobs=2,
        timeout_s=120,
        plan=fake_host.PLAN,
    )
    rows: tuple[Row, ...] = read_catalogue(folder).rows
    tried = run_on_gpus(rows, where, Thresholds())
    assert [gpu["name"] for gpu in tried.gpus] == ["fake"]
    return dict(tried.results)


CHECKED = {
    "wrong_at_another_point": {"scale": 3.0},
    "right_everywhere": {"bad": NEW},
    "dies": {"scale": 0.0, "figure": {"outcome": ("passed", "wrong or crash")}},
    "other_release_not_here": {"bad": "3.2.0"},
}


@pytest.mark.parametrize("results", [CHECKED], indirect=True, ids=["checked"])
def test_both_sides_are_checked_and_compared_by_the_ordinary_rules(
    results: dict[tuple[str, Stage], RowResult],
) -> None:
    found = {name: result for (name, _), result in results.items()}
    wrong, right, dies = (found[name] for name in ("wrong_at_another_point", "right_everywhere", "dies"))
    assert (wrong.standing, wrong.flag, wrong.seen) == (Standing.FLAGGED, "wrong", {"outcome": ("passed", "wrong")})
    assert (right.standing, right.flag) == (Standing.NOT_REPRODUCED, "")
    assert right.seen == {"outcome": ("passed", "passed")}
    assert (dies.standing, dies.flag) == (Standing.FLAGGED, "crash")
    assert "other_release_not_here" not in found


TIMED = {
    "other_release": {"stage": "timing", "bad": NEW, "figure": {"ratio": (1.0, 3.0)}},
    "same_release": {"stage": "timing", "figure": {"ratio": (1.0, 3.0)}},
    "wrong_and_so_not_timed": {"stage": "timing", "scale": 3.0, "figure": {"ratio": (1.0, 3.0)}},
}


@pytest.mark.parametrize("results", [TIMED], indirect=True, ids=["timed"])
def test_both_sides_are_timed_beside_each_other(results: dict[tuple[str, Stage], RowResult]) -> None:
    found = {name: result for (name, _), result in results.items()}
    for name in ("other_release", "same_release"):
        good, bad = found[name].seen["ratio"]
        assert good == 1.0
        # The fake device's samples may be judged invalid; where they are not, there is a ratio.
        assert (bad is None) == ("no verdict on time" in found[name].change)
    untimed = found["wrong_and_so_not_timed"]
    assert (untimed.standing, untimed.seen["ratio"]) == (Standing.NOT_REPRODUCED, (1.0, None))
    assert "not timed, since its correctness is wrong" in untimed.change
