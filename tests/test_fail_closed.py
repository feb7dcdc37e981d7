"""Nothing is green for want of having looked: altered runs, profiles, lone shards, stages that nothing entered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_folders
from click.testing import CliRunner
from conftest import Project
from judged import BASELINE, CANDIDATE, cell

from matrix.commands import main as cli
from matrix.errors import ExitCode, StorageError, UsageError
from matrix.judging.decision import exit_code, summarise
from matrix.judging.judge_tables import judge
from matrix.judging.outcomes import fails_in_both
from matrix.judging.thresholds import Thresholds
from matrix.model import Stage
from matrix.records import Verdict
from matrix.reporting.junit import Result, result_of
from matrix.running.profiles import NOTHING, with_nothing_judged
from matrix.settings import config
from matrix.storage.runfolder import load
from matrix.storage.seal import seal

PAIR = ("--baseline", run_folders.BASELINE, "--candidate", run_folders.NEXT)


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    """A run that found nothing, sealed."""
    folder = run_folders.build(tmp_path / "quiet", quiet=True, hostile=False)
    seal(folder)
    return folder


def ended(*arguments: str) -> tuple[object, str]:
    done = CliRunner().invoke(cli.main, list(arguments), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value, done.output


def asked(folder: Path, **request: object) -> Path:
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    meta["request"] |= request
    (folder / "run.json").write_text(json.dumps(meta), encoding="utf-8")
    seal(folder)
    return folder


def test_compare_takes_no_run_that_was_altered(quiet: Path) -> None:
    assert ended("compare", str(quiet), *PAIR)[0] == ExitCode.CLEAN
    cells = pq.read_table(quiet / "cells.parquet")
    wrong = pa.array(["wrong"] * len(cells), cells.schema.field("outcome").type)
    pq.write_table(cells.set_column(cells.schema.names.index("outcome"), "outcome", wrong), quiet / "cells.parquet")
    with pytest.raises(StorageError, match=r"is not the run that was sealed: cells\.parquet"):
        ended("compare", str(quiet), *PAIR)


def test_compare_wants_what_a_sign_off_wanted(quiet: Path) -> None:
    asked(quiet, profile="signoff", targets=["sm_90"])
    code, said = ended("compare", str(quiet), *PAIR)
    assert code == ExitCode.INCOMPLETE
    assert "correctness, which needs a GPU of that target" in said and "timing, which needs a GPU" in said


def test_a_place_with_one_run_ends_with_that_run_s_exit_code(tmp_path: Path) -> None:
    run = run_folders.build(tmp_path / "shared" / "only", hostile=False)
    seal(run)
    assert ended("report", str(run))[0] == ExitCode.CLEAN  # the page again, of what was decided before
    assert ended("report", str(run.parent))[0] == ExitCode.REGRESSED
    assert (run / "report.html").is_file()
    assert ended("report", str(run.parent), "-o", str(tmp_path / "page.html"))[0] == ExitCode.REGRESSED


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("wrong", "wrong", Verdict.EQUAL),
        ("crash", "compile_error", Verdict.IMPROVED),
        ("compile_error", "run_error", Verdict.CHANGED),
        ("unsupported", "compile_error", Verdict.CHANGED),
        ("wrong", "unsupported", Verdict.IMPROVED),
    ],
)
def test_what_works_in_neither_is_counted_and_no_passed_test(before: str, after: str, verdict: Verdict) -> None:
    row = judged(before, after)
    assert row.verdict is verdict and fails_in_both(row.reason_code)
    assert "1 failing in both" in summarise([row]).text
    assert result_of(row) is Result.SKIPPED


def judged(before: str, after: str, stage: str = "compile"):
    cells = [
        dataclasses.replace(cell(name, outcome, stage=stage), reason=f"said by {name}" if outcome != "passed" else "")
        for name, outcome in ((BASELINE, before), (CANDIDATE, after))
    ]
    (row,) = judge(cells, (), run_id="r", baseline=BASELINE, candidates=[CANDIDATE], expectations={},
                   thresholds=Thresholds())  # fmt: skip
    return row


def test_what_is_told_of_before_was_said_before() -> None:
    assert judged("crash", "compile_error").change.endswith(f"(before: said by {BASELINE})")
    assert judged("compile_error", "crash").change.endswith(f": said by {CANDIDATE}")
    assert not fails_in_both(judged("compile_error", "passed").reason_code)
    assert not fails_in_both(judged("unsupported", "refused").reason_code)


def test_a_case_that_broke_on_one_side_was_not_put_to_the_test() -> None:
    for pair in (("compile_error", "case_error"), ("case_error", "wrong")):
        assert judged(*pair).verdict is Verdict.INCOMPLETE
    assert judged("timeout", "out_of_memory", "import").verdict is Verdict.INCOMPLETE


def test_where_nothing_was_built_or_run_the_candidate_is_incomplete() -> None:
    imported = judged("passed", "passed", "import")
    names = {"run_id": "r", "baseline": BASELINE, "candidates": [CANDIDATE]}
    rows = with_nothing_judged([imported], [Stage.IMPORT, Stage.COMPILE], **names)
    assert [row.reason_code for row in rows[1:]] == [NOTHING] and exit_code(rows) is ExitCode.INCOMPLETE
    assert with_nothing_judged([imported], [Stage.IMPORT], **names) == [imported]
    compiled = dataclasses.replace(imported, stage="compile")
    assert with_nothing_judged([imported, compiled], [Stage.COMPILE, Stage.INTERPRET], **names) == [imported, compiled]
    failed = judged("import_error", "import_error", "import")
    assert with_nothing_judged([failed], [Stage.COMPILE], **names) == [failed]


ELSEWHERE = """
import torch, triton
import triton.language as tl
from matrix import Case


@triton.jit
def copy_kernel(x_ptr, out_ptr, n):
    at = tl.arange(0, 128)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0), mask=at < n)


def copy(x):
    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, x.numel())
    return out


case = Case(
    name="elsewhere", run=copy, inputs=lambda make, p: [make.normal((9,), "fp32")], compile=[{}], targets=["sm_80"]
)
"""


def test_a_run_of_a_case_for_another_target_is_incomplete_and_says_so(project: Project) -> None:
    project.write("elsewhere.py", ELSEWHERE)
    arguments = ("--no-builtin", "--kernels", "elsewhere.py", "--stages", "import,compile")
    done = project.matrix("run", *arguments, "--targets", "sm_90")
    assert done.returncode == ExitCode.INCOMPLETE, done.stderr
    assert "nothing was built or run of what was asked for" in done.stdout
    assert project.matrix("run", *arguments, "--targets", "sm_80").returncode == ExitCode.CLEAN


def test_what_has_no_cell_at_a_stage_is_listed_as_not_tested(quiet: Path) -> None:
    from matrix.reporting.gaps import gaps

    run = load(quiet)
    stages = {row.stage for row in run.cells}
    assert {"compile", "interpret"} <= stages
    fewer = [row for row in run.cells if (row.stage, row.case) != ("interpret", run.cells[0].case)]
    told = {gap.what for gap in gaps([dataclasses.replace(run, cells=fewer)])}
    assert any(what.startswith("interpret of ") and run.cells[0].case in what for what in told)


def test_a_digest_that_is_none_is_refused(quiet: Path) -> None:
    with pytest.raises(UsageError, match="--seal 'xyz' is no SHA-256"):
        ended("verify", str(quiet), "--seal", "xyz")


def test_a_configuration_named_by_a_relative_path_has_absolute_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "matrix.toml").write_text('pythonpath = ["src"]\nkernels = ["cases"]\n')
    monkeypatch.chdir(tmp_path)
    loaded = config.load(Path(), file=Path("matrix.toml"))
    assert loaded.pythonpath == (tmp_path / "src",) and loaded.kernels == (tmp_path / "cases",)
    assert config.load(Path()).pythonpath == (tmp_path / "src",)
