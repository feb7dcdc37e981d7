"""The Markdown report for Triton's tracker: a recorded cell, and one that is compiled over all releases."""

from __future__ import annotations

import re

from conftest import Project, Workshop
from markdown_it import MarkdownIt
from reproducers import executed, shown

from matrix.errors import ExitCode

RECORDED = "sm_90/column_max_tma:rows=8192,cols=8192,dtype=fp16,block_m=16,block_n=128"
ANNOTATED = "sm_90/regression_triton_3762:spelling=annotated"


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its head left out."""
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_a_recorded_cell_has_times_their_spread_the_first_link_and_a_reproducer(
    project: Project, workshop: Workshop
) -> None:
    """On the H200 of the sample 62 us on 3.5.1 and 194 us on 3.6.0; without one it shows by its code."""
    done = project.matrix("issue", RECORDED, "--sample", "--good", "3.5.1", "--bad", "3.6.0", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    text = (project.root / "issue-column_max_tma.md").read_text(encoding="utf-8")
    assert text.startswith("# column_max_tma: slower since 3.6.0 on sm_90\n")
    rows = {row[0]: row for row in table(text, "Releases")}
    assert rows["3.6.0"][2] == "bad" and re.match(r"19\d\.\d us \(19\d\.\d us to ", rows["3.6.0"][3])
    assert rows["3.4.0"][2] == "good" and rows["3.0.0"][2] == "not measured"
    assert "first change: TTGIR; whose: Triton's optimiser" in text and "NVIDIA H200" in text
    assert "from triton" in text
    assert "<table>" in MarkdownIt().enable("table").render(text)
    file = project.root / "repro-column_max_tma.py"
    said = file.read_text(encoding="utf-8")
    assert "The time itself was taken in run" in said and "no GPU of sm_90" in said
    code, bad = executed(workshop, "3.6.0", file)
    before, after = map(int, shown(said)["shuffles"])
    assert code == 1 and bad["shuffles"] == after == before + 16


def test_a_compile_error_is_told_over_all_releases(project: Project) -> None:
    done = project.matrix("issue", ANNOTATED, "--good", "3.2.0", "--bad", "3.4.0", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    text = (project.root / "issue-regression_triton_3762.md").read_text(encoding="utf-8")
    assert text.startswith("# regression_triton_3762: compile error since 3.3.1 on sm_90\n")
    sides = {row[0]: row[2] for row in table(text, "Releases")}
    assert sides["3.2.0"] == sides["3.1.0"] == "good"
    assert {sides[version] for version in ("3.3.1", "3.4.0", "3.9.0")} == {"bad"}
    assert "not measured" not in sides.values()
