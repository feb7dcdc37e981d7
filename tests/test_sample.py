"""The recorded run that the package carries: what a real H200 measured, judged by today's rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_findings import OPEN, judged_again, listed, read_list

from matrix.judging.compare import judge_again
from matrix.judging.decision import summarise
from matrix.judging.distrust import by_comparison
from matrix.judging.findings import findings
from matrix.judging.thresholds import Thresholds
from matrix.records import Role, Verdict
from matrix.reporting.report import render
from matrix.resources import sample_folder
from matrix.storage.runfolder import load

BASELINE = "triton3.5.1-host"


@pytest.fixture(scope="module")
def sample() -> Path:
    return sample_folder()


def test_the_package_carries_it_and_it_is_small(sample: Path) -> None:
    assert sum(file.stat().st_size for file in sample.iterdir()) < 2_000_000


def test_it_comes_out_finding_by_finding_as_a_person_judged_it() -> None:
    """The list is data: after another recording ``tests/benchmarks/sample.py`` writes it anew, to be judged."""
    expected = read_list()
    assert {replace(one, why="") for one in listed(findings(judged_again().verdicts))} == {
        replace(one, why="") for one in expected
    }
    assert [one for one in expected if OPEN in one.why or not one.why] == []


def test_the_tma_reduction_is_slower_and_its_pointer_twin_is_not(sample: Path) -> None:
    """triton#9703, read off the verdicts and not off the list."""
    folder, _ = judge_again([sample], BASELINE, ["host"], Thresholds())
    slower = {row.case: row for row in folder.verdicts if row.speed == "slower"}
    assert set(slower) == {"column_max_tma"}
    assert max(row.ratio or 0 for row in folder.verdicts if row.case == "column_max_tma") > 3
    twin = {row.speed for row in folder.verdicts if row.case == "column_max_pointer" and row.stage == "timing"}
    assert twin == {"equivalent"}


def test_cells_with_identical_code_stand_still(sample: Path) -> None:
    rows = judged_again().verdicts
    found = [controls for _, controls in by_comparison(rows) if controls.tested]
    assert sum(controls.tested for controls in found) >= 10
    assert [row.case for controls in found for row in controls.contradicted] == []


def test_the_recorded_verdicts_are_those_of_today_s_rules(sample: Path) -> None:
    recorded = load(sample)
    candidates = recorded.meta["request"]["candidates"]
    folder, _ = judge_again([sample], BASELINE, candidates, Thresholds())
    said = {(row.candidate, row.case, row.params, row.stage): row.verdict for row in recorded.verdicts}
    assert {(row.candidate, row.case, row.params, row.stage): row.verdict for row in folder.verdicts} == said


def test_the_baseline_against_itself_stays_within_the_instrument_s_noise(sample: Path) -> None:
    controls = [arm for arm in load(sample).timings if arm.role is Role.CONTROL]
    assert len(controls) >= 40
    off = sorted(abs((arm.ratio or 0) - 1) for arm in controls)
    assert off[int(0.95 * len(off))] <= 0.0025
    assert off[-1] <= 0.006


def test_improvements_of_3_8_0_show_as_clearly(sample: Path) -> None:
    folder, _ = judge_again([sample], BASELINE, ["triton3.8.0-host"], Thresholds())
    improved = {row.case for row in folder.verdicts if row.verdict is Verdict.IMPROVED and row.stage == "timing"}
    assert "column_max_pointer" in improved
    assert summarise(folder.verdicts).sentence == "Do not upgrade."


def test_its_report_is_a_page(sample: Path) -> None:
    page = render([sample])
    assert "left out of this run&#39;s folder" in page
    assert "Errno" not in page and str(sample) not in page
    assert "NVIDIA H200" in page
    assert "column_max_tma: slower" in page
