"""What compared cells are called: the names by which globs select them, and their params without a label."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from matrix.model import selects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records import VerdictRecord


def matches(row: VerdictRecord, globs: Sequence[str]) -> bool:
    """Whether any glob selects the candidate's cell, be there a record of it or not; no globs select all."""
    point = f"{row.case}:{row.params}" if row.params else row.case
    cell_id = row.candidate_cell_id or f"{row.candidate}/{row.target}/{point}"
    return not globs or selects(globs, cell_id, row.case)


@functools.lru_cache(maxsize=1 << 12)
def plain_params(params: str) -> str:
    """The params without the label that tells how kernels were tuned, or which configuration was compiled."""
    kept = [part for part in params.split(",") if not part.startswith(("tuning=", "config="))]
    return ",".join(kept)
