"""What moved between two versions of one kernel's code, short enough to read."""

from __future__ import annotations

import collections
import difflib
import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.code import ptx
from matrix.code.ir import canonical_llir, canonical_mlir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Enough to see what moved; the whole is in the run folder.
SHOWN_LINES = 90
SHOWN_COLUMNS = 180
# Matching is quadratic at worst: what follows the first lines of very long code is counted, not matched.
MATCHED_LINES = 2500
_CONTEXT = 2
_OPCODES_SHOWN = 12

# nvdisasm writes each instruction's address before and its encoding after it: both move when anything does.
_SASS_NOISE = re.compile(r"/\*[0-9a-fx ]+\*/")
_OPCODE = re.compile(r"^\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]+)(?:\.|\s|;)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a unified diff; ``sign`` is ``+``, ``-``, a space, or ``@`` where lines are left out."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpcodeMove:
    """An instruction whose count moved."""

    opcode: str
    baseline: int
    candidate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeDiff:
    """How the candidate's text of one kind (``ttgir``, ``ptx``, ...) differs from the baseline's."""

    kind: str
    baseline_digest: str
    candidate_digest: str
    added: int = 0
    removed: int = 0
    lines: Sequence[Line] = ()
    left_out: int = 0  # lines of the diff that are not shown
    opcodes: Sequence[OpcodeMove] = field(default=())
    problem: str = ""  # why there is no diff


def unified(kind: str, baseline: str, candidate: str) -> tuple[list[Line], int, int]:
    """The diff's lines and how many were added and removed, locations and addresses stripped first."""
    before, after = canonical_lines(kind, baseline), canonical_lines(kind, candidate)
    lines = list(_lines(before[:MATCHED_LINES], after[:MATCHED_LINES]))
    signs = collections.Counter(line.sign for line in lines)
    beyond_before, beyond_after = max(0, len(before) - MATCHED_LINES), max(0, len(after) - MATCHED_LINES)
    if beyond_before or beyond_after:
        text = f"the first {MATCHED_LINES:,} lines were compared; {beyond_before:,} and {beyond_after:,} follow"
        lines.append(Line(sign="@", text=text))
    return lines, signs["+"], signs["-"]


def code_diff(kind: str, digests: tuple[str, str], texts: tuple[str, str]) -> CodeDiff:
    """A diff cut to a length that can be read, with the instruction counts that moved where it is SASS."""
    lines, added, removed = unified(kind, *texts)
    return CodeDiff(
        kind=kind,
        baseline_digest=digests[0],
        candidate_digest=digests[1],
        added=added,
        removed=removed,
        lines=[Line(sign=line.sign, text=_cut(line.text)) for line in lines[:SHOWN_LINES]],
        left_out=max(0, len(lines) - SHOWN_LINES),
        opcodes=opcode_moves(*texts) if kind == "sass" else (),
    )


def opcode_moves(baseline: str, candidate: str) -> list[OpcodeMove]:
    """The opcodes whose counts moved most: register allocation reshuffles SASS, counts survive it."""
    before, after = _opcodes(baseline), _opcodes(candidate)
    moves = [
        OpcodeMove(opcode=opcode, baseline=before[opcode], candidate=after[opcode])
        for opcode in before | after
        if before[opcode] != after[opcode]
    ]
    moves.sort(key=lambda move: (-abs(move.candidate - move.baseline), move.opcode))
    return moves[:_OPCODES_SHOWN]


def canonical_lines(kind: str, text: str) -> list[str]:
    """The lines that carry meaning, from the same canonical text that the hashes are taken of."""
    match kind:
        case "ttir" | "ttgir":
            text = canonical_mlir(text)
        case "llir":
            text = canonical_llir(text)
        case "ptx":
            text = ptx.canonical(text)
        case _:
            text = _SASS_NOISE.sub("", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _opcodes(sass: str) -> collections.Counter[str]:
    matches = map(_OPCODE.match, canonical_lines("sass", sass))
    return collections.Counter(match[1] for match in matches if match)


def _lines(before: Sequence[str], after: Sequence[str]) -> Iterator[Line]:
    raw: Iterable[str] = difflib.unified_diff(before, after, n=_CONTEXT, lineterm="")
    for text in itertools.islice(raw, 2, None):  # the two lines of file names say nothing here
        yield Line(sign=text[:1], text=text if text.startswith("@") else text[1:])


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_COLUMNS else f"{text[:SHOWN_COLUMNS]} …"
