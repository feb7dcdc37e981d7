"""Waivers: what they cover stays visible and decides nothing; an expired or idle one is an error."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest
import run_folders
from browser import chromium, opened

from matrix.errors import ConfigurationError, ExitCode
from matrix.judging.compare import judge_again
from matrix.judging.decision import exit_code, summarise
from matrix.judging.findings import REGRESSIONS
from matrix.judging.groups import Section, group
from matrix.judging.thresholds import Thresholds
from matrix.judging.waivers import UNUSED, read_waivers, waive
from matrix.records import Verdict
from matrix.reporting import report
from matrix.reporting.junit import junit_xml
from matrix.reporting.summary import summary_markdown, summary_text
from matrix.storage.runfolder import load
from matrix.storage.store import read_verdicts, write_verdicts

TODAY = dt.date(2026, 11, 30)
GOOD = """\
[[waivers]]
cells = ["*/column_max_tma:*"]
stages = ["compile"]
reason = "replaced by the pointer twin in 1.8"
owner = "kernels@example.org"
link = "https://example.org/issues/12"
expires = 2026-11-30
"""


def written(tmp_path, text):
    path = tmp_path / "waivers.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(tmp_path, text):
    return read_waivers(written(tmp_path, text), today=TODAY)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(run_folders.build(tmp_path_factory.mktemp("waivers") / "run", hostile=False))


def test_a_waived_finding_keeps_its_verdict_and_decides_nothing(run, tmp_path):
    rows = waive(run.verdicts, read(tmp_path, GOOD))
    covered = [row for row in rows if row.waived]
    assert {row.case for row in covered} == {"column_max_tma"}
    assert {row.verdict for row in covered} == {Verdict.CODE_RISK}
    assert len(rows) == len(run.verdicts)
    before, after = summarise(run.verdicts), summarise(rows)
    assert after.findings == before.findings - 1
    assert f"{len(covered)} waived" in after.text
    assert exit_code(rows) is ExitCode.REGRESSED


def test_the_exit_code_is_clean_only_when_all_that_decides_is_waived(run, tmp_path):
    everything = GOOD.replace("*/column_max_tma:*", "*").replace('stages = ["compile"]\n', "")
    rows = waive(run.verdicts, read(tmp_path, everything))
    assert exit_code(rows) is ExitCode.CLEAN
    assert summarise(rows).sentence == "Nothing regressed."
    left = [dataclasses.replace(row, waived=None) if row.case == "top_k" else row for row in rows]
    assert exit_code(left) is ExitCode.CLEAN
    left = [dataclasses.replace(row, waived=None) if row.case == "embedding_gather" else row for row in rows]
    assert exit_code(left) is ExitCode.REGRESSED


def test_stages_and_reasons_narrow_a_waiver(run, tmp_path):
    for line in ('stages = ["timing"]', 'reasons = ["slower"]'):
        (waiver,) = read(tmp_path, GOOD.replace('stages = ["compile"]', line))
        assert not any(map(waiver.covers, run.verdicts))


def test_a_waiver_of_what_passes_is_idle_and_makes_the_run_incomplete(tmp_path):
    flat = load(run_folders.build(tmp_path / "run", quiet=True, hostile=False))
    rows = waive(flat.verdicts, read(tmp_path, GOOD))
    (idle,) = (row for row in rows if row.reason_code == UNUSED)
    assert idle.verdict is Verdict.INCOMPLETE
    assert "waivers.toml:1" in idle.change
    assert exit_code(flat.verdicts) is ExitCode.CLEAN
    assert exit_code(rows) is ExitCode.INCOMPLETE
    told = dataclasses.replace(flat, verdicts=rows)
    assert "a waiver covers nothing" in summary_markdown(told)
    assert "waiver" in summary_text(told)
    assert 'type="waiver_unused"' in junit_xml(told)


def test_all_faults_of_the_file_come_at_once_with_their_lines(tmp_path):
    text = GOOD.replace("2026-11-30", "2026-11-29") + (
        '\n[[waivers]]\ncells = []\nreason = "because"\nstages = ["timings"]\nexpires = "soon"\nuntil = 3\n'
        '\n[[waiver]]\ncells = ["*"]\n'
    )
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    said = caught.value.problems
    for words in (
        ("waivers.toml:7", "expired on 2026-11-29"),
        ("waivers.toml:10", "cells", "missing"),
        ("owner", "missing"),
        ("link", "missing"),
        ("waivers.toml:12", "'timings'", "did you mean 'timing'?"),
        ("waivers.toml:13", "expires", "must be a date"),
        ("waivers.toml:14", "until", "unknown key"),
        ("waiver", "unknown key", "did you mean 'waivers'?"),
    ):
        assert any(all(word in line for word in words) for line in said), (words, said)


def test_it_holds_through_its_last_day_and_a_missing_file_is_an_error(tmp_path):
    assert read_waivers(written(tmp_path, GOOD), today=TODAY)
    with pytest.raises(ConfigurationError, match="expired"):
        read_waivers(written(tmp_path, GOOD), today=TODAY + dt.timedelta(days=1))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_waivers(tmp_path / "nowhere.toml", today=TODAY)


def test_the_report_the_summary_and_the_tests_show_what_is_waived(run, tmp_path):
    rows = waive(run.verdicts, read(tmp_path, GOOD))
    folder = run_folders.build(tmp_path / "run", hostile=False)
    write_verdicts(folder, rows)
    assert read_verdicts(folder) == rows
    told = load(folder)
    (found,) = (each for each in group([told]) if each.section is Section.WAIVED)
    assert found.finding.verdict in REGRESSIONS
    for text in (summary_markdown(told), summary_text(told), junit_xml(told)):
        assert "replaced by the pointer twin in 1.8" in text
    page = report.write_page(load(folder))
    with chromium() as browser, opened(browser, page) as shown:
        section = shown.locator("#waived")
        assert "column_max_tma" in section.inner_text()
        assert "kernels@example.org, until 2026-11-30" in section.inner_text()
        assert shown.locator("#findings article", has_text="column_max_tma").count() == 0
        assert "1 waived finding" in shown.locator(".decision").inner_text()


def test_a_finding_that_is_waived_in_part_still_decides(run, tmp_path):
    rows = waive(run.verdicts, read(tmp_path, GOOD.replace("*/column_max_tma:*", "*/sm_90/column_max_tma:*")))
    told = dataclasses.replace(run, verdicts=rows)
    (found,) = (each for each in group([told]) if each.finding.cases == ("column_max_tma",) and each.finding.regressed)
    assert found.section is Section.FINDING
    assert 0 < sum(bool(row.waived) for row in found.finding.rows) < len(found.finding.rows)


def test_recorded_runs_are_judged_anew_under_waivers(tmp_path):
    folder = run_folders.build(tmp_path / "run", hostile=False)
    waivers = read(tmp_path, GOOD)
    _, before = judge_again([folder], run_folders.BASELINE, [run_folders.NEXT], Thresholds())
    merged, code = judge_again([folder], run_folders.BASELINE, [run_folders.NEXT], Thresholds(), waivers)
    assert before is code is ExitCode.REGRESSED
    assert any(row.waived for row in merged.verdicts)


def test_an_empty_reason_owner_or_link_is_none(tmp_path):
    text = GOOD.replace("replaced by the pointer twin in 1.8", "").replace("kernels@example.org", " ")
    with pytest.raises(ConfigurationError) as failure:
        read(tmp_path, text.replace("https://example.org/issues/12", ""))
    assert str(failure.value).count("is empty") == 3
