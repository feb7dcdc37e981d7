"""What a cell that failed said, or what a run lacks, as short as a summary has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.judging.changes import decode
from matrix.model import Outcome
from matrix.wording import listing, unique

if TYPE_CHECKING:
    from matrix.judging.groups import Group
    from matrix.records import CellRecord
    from matrix.storage.runfolder import RunFolder


def cell_of(run: RunFolder, cell_id: str, stage: str) -> CellRecord | None:
    """The cell at this stage; where it never got so far, at the stage that stopped it."""
    stages = {cell.stage: cell for cell in run.cells_by_id.get(cell_id, ())}
    return stages.get(stage) or next(iter(stages.values()), None)


def said(group: Group) -> str:
    """The first line of why the worst cell of a finding failed, the candidate's side first; empty where none did.

    Of what is of no cell (a stage that nobody judged, a waiver that covers nothing): which.
    """
    run, verdict = group.sightings[0]
    if not verdict.case:
        return listing(unique(change.cause for _, row in group.sightings for change in decode(row.detail)), limit=3)
    for cell_id in (verdict.candidate_cell_id, verdict.baseline_cell_id):
        cell = cell_of(run, cell_id, verdict.stage)
        if cell and cell.outcome != Outcome.PASSED and cell.reason.strip():
            return cell.reason.strip().splitlines()[0]
    return ""
