"""The catalogue as data: every row is complete, and its page in the documentation is current."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from conftest import ROOT, Project

from matrix.catalogue.neighbours import NEIGHBOURS, neighbours_section, read_neighbours
from matrix.catalogue.recall import Recalled, Wanted
from matrix.catalogue.results import RowResult, Standing, is_seen
from matrix.catalogue.rows import Arm, Row, Seen, read_catalogue, read_seen
from matrix.catalogue.table import catalogue_page, recall, results_data, results_text
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


@pytest.mark.parametrize("each", CATALOGUE.rows, ids=lambda each: "-".join(each.key))
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
        result(Standing.NEEDS_GPU, stage=Stage.TIMING),
    ]
    assert recall(results) == (1, 2)
    assert "flagged 1 of 2 reproduced (50%); 1 one side only" in results_text(results, CATALOGUE)


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


def test_a_row_whose_release_is_not_among_those_chosen_is_said_to_be_elsewhere(project: Project) -> None:
    done = project.matrix("run", "--catalogue", "--candidate", "3.9.0", "--cases", "triton_9834*,vllm_40680*")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert "no environment of Triton 3.3.1 or 3.4.0 takes part" in done.stdout
    assert "on a GPU: flagged 0 of 0 reproduced; 1 release not here" in done.stdout


def test_the_catalogue_chooses_its_own_releases(project: Project) -> None:
    done = project.matrix("run", "--catalogue", "--baseline", "3.8.0")
    assert done.returncode == ExitCode.USAGE
    assert "--catalogue brings its own baseline" in done.stderr
    done = project.matrix("run", "--catalogue", "--cases", "nothing*,triton_9703*,triton_9704_descriptor_reduction")
    assert done.returncode == ExitCode.USAGE
    assert "no row of the catalogue matches 'nothing*', 'triton_9704_descriptor_reduction'" in done.stderr
    assert "did you mean triton_9703_descriptor_reduction" in done.stderr
    done = project.matrix("run", "--catalogue", "--cases", "triton_9703*", "--stages", "import")
    assert done.returncode == ExitCode.USAGE and "shows at compile, timing" in done.stderr


def test_rows_go_by_file_and_stage() -> None:
    keys = [each.key for each in CATALOGUE.rows]
    assert len(set(keys)) == len(keys)
    both = {row.stage for row in CATALOGUE.rows if row.name == "triton_9703_descriptor_reduction"}
    assert both == {Stage.COMPILE, Stage.TIMING}
    on_a_gpu = Wanted(globs=("triton_9703*",), stages=(Stage.TIMING,)).rows(CATALOGUE)
    assert [(row.good.params["block_m"], row.flag) for row in on_a_gpu] == [(16, "")]


@pytest.mark.parametrize(
    ("name", "stated", "found", "alike"),
    [
        ("outcome", "wrong or crash", "crash", True),
        ("outcome", "wrong", "crash", False),
        ("reason", "32-bit", "only 32-bit types", True),
        ("ratio", 1.3, 1.15, True),  # more than half of it, in logarithms
        ("ratio", 1.3, 1.13, False),
        ("ratio", 1.3, 0.7, False),
        ("ratio", 1.3, None, False),
        ("registers", 40, 40, True),
        ("registers", 40, 41, False),
    ],
)
def test_a_figure_is_seen_by_what_it_is(name: str, stated: object, found: object, *, alike: bool) -> None:
    good = {"ratio": 1.0, "outcome": "passed"}.get(name, stated)
    assert is_seen(name, row(figure={name: (good, stated)}), (good, found)) is alike


def test_a_row_of_a_gpu_is_held_to_what_was_last_seen() -> None:
    recorded = {
        "day": "2026-01-01",
        "gpus": [{"name": "H200", "driver": "1", "target": "sm_90"}],
        "rows": [
            {"case_file": "x.py", "stage": stage, "standing": "flagged", "seen": {"outcome": ["passed", "wrong"]},
             "reason_code": "wrong", "change": "gives wrong values"}
            for stage in ("compile", "correctness")
        ],
    }  # fmt: skip
    seen = read_seen(recorded)
    assert list(seen) == [("x.py", "correctness")]
    known = seen["x.py", "correctness"]
    assert known.gpu == "H200 (driver 1)"
    plain = row(stage=Stage.CORRECTNESS)
    held = row(stage=Stage.CORRECTNESS, last_seen=known)
    for each, flag, stated in ((plain, "", True), (held, "wrong", True), (held, "crash", False)):
        fared = RowResult(row=each, standing=Standing.FLAGGED, seen={}, flag=flag)
        assert fared.as_stated is stated
    assert not RowResult(row=held, standing=Standing.NOT_REPRODUCED, seen={}).as_stated


def test_what_was_seen_on_a_gpu_stands_beside_what_was_reported() -> None:
    seen = Seen(gpu="H200 (driver 1)", day="2026-01-01", standing="not reproduced",
                figure={"outcome": ["passed", "passed"]}, flag="", change="outputs have the same bits")  # fmt: skip
    figure = {"outcome": ("passed", "wrong")}
    rows = (row(stage=Stage.CORRECTNESS, last_seen=seen, figure=figure), row(stage=Stage.CORRECTNESS, figure=figure))
    page = catalogue_page(dataclasses.replace(CATALOGUE, rows=rows))
    assert "Seen on H200 (driver 1), 2026-01-01: 1 not reproduced." in page
    assert "| outcome passed → wrong | not reproduced: outcome passed → passed | not flagged: outputs have" in page
    assert "| outcome passed → wrong | not tried | |" in page


def test_what_ran_on_a_gpu_has_a_total_of_its_own() -> None:
    results = (
        result(Standing.FLAGGED, "spills_appeared"),
        result(Standing.FLAGGED, "wrong", stage=Stage.CORRECTNESS),
        result(Standing.NOT_HERE, stage=Stage.CORRECTNESS),
    )
    text = results_text(results, CATALOGUE)
    assert "\nflagged 1 of 1 reproduced (100%)\n" in text
    assert "on a GPU: flagged 1 of 1 reproduced (100%); 1 release not here" in text
    data = results_data(Recalled(catalogue=CATALOGUE, results=results))
    assert (data["flagged"], data["reproduced"]) == (1, 1)
    assert [each["stage"] for each in data["rows"]] == ["compile", "correctness", "correctness"]


def test_what_nothing_confirms_counts_as_a_false_alarm(tmp_path: Path) -> None:
    assert list(neighbours_section(read_neighbours(tmp_path))) == []
    flag = {"before": "3.5.1", "cell": "sm_90/a:n=1", "reason_code": "spills_grew", "change": "stack 8 to 376 bytes"}
    flagged = [
        {**flag, "after": "3.6.0"},
        {**flag, "after": "3.7.1"},
        {**flag, "after": "3.6.0", "cell": "sm_90/aa:n=1"},
    ]
    known = [{"cells": "sm_90/a:*", "after": "3.6.0", "why": "1.5 times the time on an H200"}]
    record = {"day": "2026-01-01", "compared": 40, "flagged": flagged, "true": known}
    (tmp_path / NEIGHBOURS).write_text(json.dumps(record))
    text = "\n".join(neighbours_section(read_neighbours(tmp_path)))
    assert "3 of 40 compared cells are flagged at the compile stage (7.5%); 2 by nothing else confirmed" in text
    assert "at most 5.0%" in text
    assert "stack 8 to 376 bytes | 1.5 times the time on an H200 |" in text and text.count("| nothing |") == 2
