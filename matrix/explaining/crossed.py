"""What crossed assemblies say of a finding in the code, with the finding's own rule asked of each crossing.

| candidate's PTX, baseline's assembler | baseline's PTX, candidate's assembler | whose |
| --- | --- | --- |
| shows it | does not | Triton's |
| does not | shows it | the assembler's |
| shows it | shows it | either's: each alone does it |
| does not | does not | both's: neither alone does it |
| shows it | refused | Triton's: it alone does it, and the other way round |
| does not | refused | unknown: the assembler takes part, alone or with Triton; and the other way round |

A ptxas that refuses newer PTX is an outcome, in its own words. Where a side's own PTX with its own assembler is not the
code that was recorded, nothing is concluded.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from matrix.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.records import AssemblyRecord


class Whose(enum.StrEnum):
    """What the crossings say."""

    TRITON = "triton"
    ASSEMBLER = "assembler"
    EITHER = "either"
    BOTH = "both"
    UNKNOWN = "unknown"


def whose(rows: Sequence[AssemblyRecord], reason_code: str) -> tuple[Whose, str]:
    """What the rows of one verdict say about its reason, and why. Kernels that do not show it are left out."""
    kernels: dict[tuple[str, str, int], dict[tuple[bool, bool], AssemblyRecord]] = {}
    for row in rows:
        crossing = (row.of_candidate, row.by_candidate)
        kernels.setdefault((row.kernel, row.config, row.index), {})[crossing] = row
    said = {
        _of_kernel(found, reason_code) for found in kernels.values() if _shows(found.get((True, True)), reason_code)
    }
    if len(said) == 1:
        return said.pop()
    if said:
        return Whose.UNKNOWN, "Re-assembled, its kernels do not agree on whose it is."
    return Whose.UNKNOWN, _unreproduced(rows)


def _unreproduced(rows: Sequence[AssemblyRecord]) -> str:
    failed = next((row.reason for row in rows if row.of_candidate == row.by_candidate and row.reason), "")
    return f"Re-assembling its own PTX did not give the recorded code again{f': {failed}' if failed else ''}."


def _of_kernel(found: Mapping[tuple[bool, bool], AssemblyRecord], reason: str) -> tuple[Whose, str]:
    own = [found.get(key) for key in ((False, False), (True, True))]
    if not all(row is not None and row.reproduced for row in own):
        return Whose.UNKNOWN, _unreproduced(list(found.values()))
    triton, assembler = (_shows(found.get(key), reason) for key in ((True, False), (False, True)))
    text = f"Re-assembled: {_column(found.get((True, False)), triton)}; {_column(found.get((False, True)), assembler)}."
    match triton, assembler:
        case True, True:
            return Whose.EITHER, text
        case False, False:
            return Whose.BOTH, text
        case True, _:
            return Whose.TRITON, text
        case _, True:
            return Whose.ASSEMBLER, text
        case _:
            return Whose.UNKNOWN, text


def _shows(row: AssemblyRecord | None, reason: str) -> bool | None:
    return None if row is None or row.outcome != Outcome.PASSED else reason in row.shows


def _column(row: AssemblyRecord | None, shows: bool | None) -> str:
    if row is None:
        return "one crossing was not made"
    whose_ptx = "candidate" if row.of_candidate else "baseline"
    whose_ptxas = "candidate" if row.by_candidate else "baseline"
    subject = f"the {whose_ptx}'s PTX with the {whose_ptxas}'s ptxas {row.ptxas_version}"
    if shows is None:
        return f"{subject} was refused ({row.reason})"
    return f"{subject} {'shows it' if shows else 'does not show it'}"
