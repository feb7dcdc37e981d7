"""What compared cells are called: the names by which globs select them, and their params without a label."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records import VerdictRecord


def matches(row: VerdictRecord, globs: Sequence[str]) -> bool:
    """Whether any glob matches the candidate's cell id, its last part or the case; no globs select all."""
    return not globs or any(fnmatch.fnmatchcase(name, glob) for name in _names(row) for glob in globs)


def _names(row: VerdictRecord) -> tuple[str, ...]:
    """Also of a cell that has no record in the candidate."""
    point = f"{row.case}:{row.params}" if row.params else row.case
    name = row.candidate_cell_id or f"{row.candidate}/{row.target}/{point}"
    return name, name.rsplit("/", 1)[-1], row.case


@functools.lru_cache(maxsize=1 << 12)
def plain_params(params: str) -> str:
    """The params without the label that tells how kernels were tuned, or which configuration was compiled."""
    kept = [part for part in params.split(",") if not part.startswith(("tuning=", "config="))]
    return ",".join(kept)
