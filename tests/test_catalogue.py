"""The catalogue as data: every row is complete, and its page in the documentation is current."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, Project

from matrix.catalogue.recall import RowResult, Standing
from matrix.catalogue.rows import Arm, Row, read_catalogue
from matrix.catalogue.table import catalogue_page, recall, results_text
from matrix.errors import ExitCode
from matrix.model import Stage
from matrix.resources import catalogue_folder

CATALOGUE = read_catalogue(catalogue_folder())


def row(**given: object) -> Row:
    arm = Arm(version="3.8.0", target="sm_90", params={})
    plain = {"path": Path("x.py"), "report": "triton#1", "title": "", "link": "", "stage": Stage.COMPILE, "good": arm,
             "bad": arm, "figure": {}}  # fmt: skip
    return Row(**{**plain, **given})


def result(standing: Standing, flag: str = "", **given: object) -> RowResult:
    return RowResult(row=row(**given), standing=standing, seen={}, flag=flag)


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    assert page == catalogue_page(CATALOGUE), "write it anew: python -P -m matrix.catalogue.table > docs/catalogue.md"


@pytest.mark.parametrize("each", CATALOGUE.rows, ids=lambda each: each.name)
def test_a_row_is_complete(each: Row) -> None:
    assert each.report and each.title and each.link and each.figure
    assert each.comparable or not each.flag


def test_what_is_no_case_says_why_and_is_no_row() -> None:
    reports = {each.report for each in CATALOGUE.rows}
    assert all(each.why and each.link and each.report not in reports for each in CATALOGUE.absent)


def test_recall_counts_what_both_sides_showed() -> None:
    results = [
        result(Standing.FLAGGED, "spills_appeared"),
        result(Standing.MISSED),
        result(Standing.ONE_SIDE),
        result(Standing.NEEDS_GPU),
    ]
    assert recall(results) == (1, 2)
    assert "flagged 1 of 2 reproduced (50%); 1 one side only, 1 needs a GPU" in results_text(results, CATALOGUE)


def test_a_row_that_fares_otherwise_than_its_data_say_is_not_as_stated() -> None:
    flagged = RowResult(row=row(flag="wrong"), standing=Standing.FLAGGED, seen={}, flag="wrong")
    assert flagged.as_stated
    assert not RowResult(row=row(flag="wrong"), standing=Standing.MISSED, seen={}).as_stated
    assert not RowResult(row=row(), standing=Standing.NOT_REPRODUCED, seen={}).as_stated


def test_two_rows_from_the_command_line(project: Project) -> None:
    done = project.matrix("run", "--catalogue", "--cases", "triton_9834*,triton_10629*")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert "vector_width_lost: mean width of global loads 128 to 16 bits" in done.stdout
    assert "flagged 1 of 2 reproduced (50%)" in done.stdout


def test_the_catalogue_chooses_its_own_releases(project: Project) -> None:
    done = project.matrix("run", "--catalogue", "--baseline", "3.8.0")
    assert done.returncode == ExitCode.USAGE
    assert "--catalogue brings its own baseline" in done.stderr
    assert project.matrix("run", "--catalogue", "--cases", "nothing*").returncode == ExitCode.USAGE
