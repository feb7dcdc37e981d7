"""summary.md and the lines that a terminal shows."""

from __future__ import annotations

import dataclasses
import re

import markdown_it
import pytest
import run_folders

from matrix.judging.findings import number
from matrix.records import Verdict
from matrix.reporting.summary import summary_markdown, summary_text
from matrix.storage.runfolder import load


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summary") / "run"
    return load(run_folders.build(folder, candidates=(run_folders.NEXT, run_folders.NEWEST)))


def test_markdown_decides_first_and_names_every_finding(run):
    text = summary_markdown(run)
    assert text.startswith(
        "<!-- triton-matrix -->\n# Triton 3.5.1 → 3.6.0, 3.9.0\n\ntriton3.6.0-torch2.11.0: One thing differs:"
    )
    assert text.index("One thing differs") < text.index("**Do not upgrade.**") < text.index("| findings |")
    for heading in ("Findings", "Without a verdict", "Improvements", "Known differences", "Not tested"):
        assert f"## {heading}\n" in text
    assert r"column\_max\_tma: more exchange between threads<br>first change: TTGIR" in text


def test_why_a_cell_failed_is_told_where_its_finding_is(run):
    lines = summary_text(run).splitlines()
    at = next(n for n, line in enumerate(lines) if "embedding_gather: aborts the compiler" in line)
    assert lines[at + 1].strip() == "SIGABRT in the compile of _gather_kernel (make_llir)"
    assert r"aborts the compiler<br>SIGABRT in the compile of \_gather\_kernel (make\_llir) |" in summary_markdown(run)
    assert (
        summary_markdown(run).count("no answer for 120 s on") == summary_markdown(run).count("no answer for 120 s") - 2
    )


def test_markdown_shows_a_hostile_name_as_text(run):
    text = summary_markdown(run)
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_github_s_markdown_has_whole_tables_and_no_markup_of_ours_but_breaks(run):
    tokens = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).parse(summary_markdown(run))
    kinds = [token.type for token in tokens]
    assert kinds.count("table_open") >= 5
    html = [t.content.strip() for t in tokens if t.type == "html_block"]
    assert html == ["<!-- triton-matrix -->"]
    inline = {c.content for t in tokens for c in t.children or () if c.type == "html_inline"}
    assert inline <= {"<br>"}


def test_a_comment_holds_it_whatever_was_found(run):
    rows = [
        dataclasses.replace(row, case=f"{row.case}{n}{'*' * 5000}", finding_id="") for n, row in enumerate(run.verdicts)
    ]
    text = summary_markdown(dataclasses.replace(run, verdicts=number(rows)))
    assert len(text) < 65_536
    assert all(len(line) <= 1001 for line in text.splitlines())
    assert "Not tested" in text or "report.html holds the rest" in text


def test_the_terminal_gets_colour_only_where_asked(run):
    assert "\x1b" not in summary_text(run)
    coloured = summary_text(run, colour=True)
    assert "\x1b[31;1mDo not upgrade.\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == summary_text(run)


def test_a_flat_run_is_four_lines(tmp_path):
    folder = run_folders.build(tmp_path / "run", quiet=True, hostile=False)
    assert summary_text(load(folder)).splitlines()[1].startswith("Nothing regressed.")
    assert len(summary_text(load(folder)).splitlines()) == 4


def test_what_fails_in_both_is_never_passed_over(tmp_path):
    quiet = load(run_folders.build(tmp_path / "run", quiet=True, hostile=False))
    first, *rest = quiet.verdicts
    detail = first.detail.replace(f'"{first.reason_code}"', '"failing_in_both"')
    broken = dataclasses.replace(first, verdict=Verdict.EQUAL, reason_code="failing_in_both", detail=detail)
    run = dataclasses.replace(quiet, verdicts=number([broken, *rest]))
    assert "1 cell failing in both" in summary_text(run)
    assert first.case in summary_text(run)
    assert "## Fails in both" in summary_markdown(run)
