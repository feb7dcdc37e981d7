"""JUnit XML as a CI's reader sees it."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter

import junitparser
import pytest
import run_folders

from matrix.errors import ExitCode
from matrix.judging.decision import exit_code
from matrix.records import Verdict
from matrix.reporting import junit
from matrix.reporting.junit import Result, junit_xml, result_of
from matrix.resources import sample_folder
from matrix.storage.runfolder import load


def read(run):
    return junitparser.JUnitXml.fromfile(io.BytesIO(junit_xml(run).encode()))


def ended(case):
    return type(case.result[0]).__name__.lower() if case.result else "passed"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("junit") / "run"
    return load(run_folders.build(folder, candidates=(run_folders.NEXT, run_folders.NEWEST), gpu=True))


def test_every_verdict_is_a_test_of_its_own_and_the_counts_are_the_elements(run):
    xml = read(run)
    beside = len(run.meta["not_run"])
    assert [suite.name for suite in xml] == [
        f"{name} against {run_folders.BASELINE}" for name in (run_folders.NEXT, run_folders.NEWEST)
    ]
    total = 0
    for suite in xml:
        cases = list(suite)
        rows = [row for row in run.verdicts if suite.name.startswith(row.candidate)]
        assert len(cases) == suite.tests == len(rows) + beside
        assert len({(case.classname, case.name) for case in cases}) == len(cases)
        counts = Counter(map(ended, cases))
        said = {"failure": suite.failures, "error": suite.errors, "skipped": suite.skipped}
        assert {name: counts[name] for name in said} == said
        assert all(said.values())
        total += len(cases)
    assert xml.tests == total


def test_a_failure_carries_its_finding_and_what_the_compiler_said(run):
    xml = read(run)
    cases = {(suite.name.partition(" ")[0], case.classname, case.name): case for suite in xml for case in suite}
    row = next(row for row in run.verdicts if row.case == "embedding_gather" and row.verdict is Verdict.REGRESSED)
    case = cases[row.candidate, f"{row.stage}.{row.case}", row.candidate_cell_id]
    (failure,) = case.result
    assert failure.type == "compiler_abort"
    assert row.finding_id in failure.text
    assert "embedding_gather: " in failure.text
    assert "LLVM ERROR: Cannot select" in failure.text


@pytest.mark.parametrize("reason", ["not_run", "missing", "timeout"])
def test_what_was_not_run_is_skipped_and_every_other_gap_is_an_error(run, reason):
    row = dataclasses.replace(run.verdicts[0], verdict=Verdict.INCOMPLETE, reason_code=reason)
    assert result_of(row) is (Result.SKIPPED if reason == "not_run" else Result.ERROR)


def test_a_stage_that_the_run_left_out_is_skipped_with_its_reason(run):
    skipped = [case for suite in read(run) for case in suite if case.name == run.meta["not_run"][0]["what"]]
    assert len(skipped) == 2
    assert {ended(case) for case in skipped} == {"skipped"}
    assert run.meta["not_run"][0]["why"] in skipped[0].result[0].message


def test_failures_and_errors_agree_with_the_exit_code(run, tmp_path):
    flat = load(run_folders.build(tmp_path / "flat", quiet=True, hostile=False))
    missing = dataclasses.replace(flat.verdicts[0], verdict=Verdict.INCOMPLETE, reason_code="missing")
    partly = dataclasses.replace(flat, verdicts=[missing, *flat.verdicts[1:]])
    for each, code in ((run, ExitCode.REGRESSED), (flat, ExitCode.CLEAN), (partly, ExitCode.INCOMPLETE)):
        assert exit_code(each.verdicts) is code
        xml = read(each)
        assert bool(xml.failures) is (code is ExitCode.REGRESSED)
        assert bool(xml.failures or xml.errors) is (code is not ExitCode.CLEAN)


def test_a_timing_that_is_not_believed_is_an_error_and_no_failure(run, monkeypatch):
    row = next(r for r in run.verdicts if r.stage == "timing" and r.reason_code == "slower")
    monkeypatch.setattr(junit, "deciding", lambda rows: [r for r in rows if r is not row])
    cases = {(case.classname, case.name): case for suite in read(run) for case in suite}
    case = cases[f"timing.{row.case}", row.candidate_cell_id]
    assert ended(case) == "error"
    assert "not believed" in case.result[0].text


def test_hostile_names_and_control_characters_are_text(run):
    row = dataclasses.replace(run.verdicts[0], case="<b>\x00\x1b[31m&", change="]]>\x08")
    cases = [case for suite in read(dataclasses.replace(run, verdicts=[row])) for case in suite]
    assert any(case.classname.endswith("<b>\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m&") for case in cases)


def test_the_recorded_run_reads(tmp_path):
    run = load(sample_folder())
    xml = read(run)
    assert sum(suite.tests for suite in xml) == len(run.verdicts) + len(run.meta["not_run"]) * len(
        run.meta["request"]["candidates"]
    )
    names = {case.name for suite in xml for case in suite if ended(case) == "failure"}
    assert any("column_max_tma" in name for name in names)
