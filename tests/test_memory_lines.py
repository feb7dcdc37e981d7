"""Memory traffic by source line, as the report and the terminal tell it."""

from __future__ import annotations

import hashlib
import types
from pathlib import Path
from typing import Any

import pytest
from judged import BASELINE, CANDIDATE, facts, kernel

from matrix.records import KernelFacts
from matrix.reporting.memory_lines import line_rows
from matrix.reporting.memory_table import memory_text


def line(number: int, wavefronts: float, kind: str = "shared_store") -> dict[str, float | int | str]:
    figures = {"requests": 4.0, "unknown": 0.0, "wavefronts_ideal": 4.0, "sectors": 0.0, "sectors_ideal": 0.0}
    return {"file": "k.py", "line": number, "kind": kind, "width": 4, "wavefronts": wavefronts, **figures}


def evaluated(*lines: dict[str, float | int | str], **given: Any) -> KernelFacts:
    zeros = ("shared_wavefronts_ideal", "global_load_sectors", "global_store_sectors", "global_sectors_ideal")
    values = {**dict.fromkeys((*zeros, "bulk_bytes", "memory_unknown"), 0.0), "shared_wavefronts": 1125.0}
    return facts(memory_lines=list(lines), busy_us={"shared": 141.5, "dram": 31.5}, **values, **given)


def run_of(path: Path, digest: str) -> Any:
    return types.SimpleNamespace(meta={"cases": [{"name": "softmax", "file": str(path), "digest": digest}]})


@pytest.mark.parametrize("changed", [False, True])
def test_lines_side_by_side_with_their_source(tmp_path: Path, changed: bool) -> None:
    path = tmp_path / "k.py"
    path.write_text("first\n    x = tl.max(tile, 0)\n", encoding="utf-8")
    digest = hashlib.sha256(b"other" if changed else path.read_bytes()).hexdigest()
    before = kernel(BASELINE, evaluated(line(1, 32), line(2, 60)), source_file=str(path))
    after = kernel(CANDIDATE, evaluated(line(1, 32), line(2, 1000), line(2, 92)), source_file=str(path))
    worst, same = line_rows(run_of(path, digest), before, after)
    assert (worst.place, worst.baseline, worst.candidate, worst.moved) == ("k.py:2", "60", "1,092", True)
    assert worst.source == ("" if changed else "x = tl.max(tile, 0)")  # never the line of another file
    assert (same.place, same.moved) == ("k.py:1", False)


def test_a_side_that_was_not_evaluated_has_no_lines(tmp_path: Path) -> None:
    pair = kernel(BASELINE, facts()), kernel(CANDIDATE, evaluated(line(1, 32)))
    assert line_rows(run_of(tmp_path / "gone.py", ""), *pair) == []


def test_for_a_terminal() -> None:
    text = memory_text([kernel(CANDIDATE, evaluated(line(31, 1065), memory_note="1 loops sampled"))])
    assert "bound by shared" in text
    assert "shared wavefronts a block: 1125 (0 would do)" in text
    assert "1 loops sampled" in text
    (row,) = [words for words in map(str.split, text.splitlines()) if words[:1] == ["k.py:31"]]
    assert row == ["k.py:31", "shared", "store", "4", "4", "1065", "4", "0", "0", "0"]
    unknown = memory_text([kernel(CANDIDATE, facts(memory_note="kernel k: 48 threads a block are no whole warps"))])
    assert "not evaluated: kernel k: 48 threads" in unknown
