"""The findings of the recorded sample as a person judged them: a list kept as data, and what is found today."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.judging.compare import judge_again
from matrix.judging.thresholds import Thresholds
from matrix.resources import sample_folder
from matrix.storage.runfolder import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.judging.findings import Finding
    from matrix.storage.runfolder import RunFolder

LIST = Path(__file__).resolve().parent / "data" / "sample_findings.json"
OPEN = "NOT YET JUDGED BY A PERSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A finding as the list holds it; ``why`` is a person's."""

    candidate: str
    title: str
    word: str
    cells: tuple[str, ...]
    why: str = OPEN


def listed(found: Sequence[Finding]) -> list[Listed]:
    return [
        Listed(
            candidate=one.candidate,
            title=one.title,
            word=str(one.verdict),
            cells=tuple(sorted({f"{row.case}:{row.params}" for row in one.rows})),
        )
        for one in found
    ]


def read_list() -> list[Listed]:
    rows = json.loads(LIST.read_text(encoding="utf-8"))
    return [Listed(**{**row, "cells": tuple(row["cells"])}) for row in rows]


def judged_again() -> RunFolder:
    """The sample with every candidate judged by today's rules."""
    folder = sample_folder()
    request = load(folder).meta["request"]
    run, _ = judge_again([folder], request["baseline"], request["candidates"], Thresholds())
    return run
