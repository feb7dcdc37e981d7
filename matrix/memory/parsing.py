"""PTX text into instructions: one kernel's body, with source lines, labels and declared parameters.

Only what an evaluator needs is taken apart; comments, debug sections and register declarations are dropped.
Blocks of inline assembly are instructions like any other, their own labels included.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.code import ptx
from matrix.memory.accesses import access_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.memory.accesses import Access

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+)?(?:\.\w+\s+(?:\d+\s+)?)*([\w$]+)(?:\[(\d+)\])?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)
_CALLED = re.compile(r"@\[ (?:.*/)?([^:/\]]+):(\d+):\d+")
_STATEMENT = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^\s,]+")
_LABEL = re.compile(r"([\w$]+):(?!:)\s*")
_NAME = re.compile(r"[%A-Za-z_$][\w.$]*")
_REGISTER = re.compile(r"%\w+")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?")

# Arithmetic on floating-point values, which decides no address; what compares or moves them may.
_FLOATING = re.compile(r"\.b?f(?:16|32|64)(?:x2)?$")
_DECIDING = ("setp", "set.", "cvt", "mov", "selp", "ld", "st", "red", "atom", "tensormap", "cp", "shfl")
# Instructions whose first operand is no result.
_NO_RESULT = {
    *("st", "red", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "cp", "wgmma", "mbarrier", "fence"),
    *("membar", "tensormap", "stmatrix", "prefetch", "prefetchu", "tcgen05", "griddepcontrol", "setmaxnreg"),
    *(
        "call",
        "nanosleep",
        "applypriority",
        "discard",
        "multimem",
        "st_async",
        "pmevent",
        "brkpt",
        "clusterlaunchcontrol",
    ),
}
_WITH_RESULT = ("mbarrier.try_wait", "mbarrier.test_wait", "tcgen05.ld")


@dataclass(slots=True)
class Instruction:
    """One instruction. ``guard`` is its predicate register, empty where it always executes."""

    index: int
    op: str
    guard: str
    negated: bool
    operands: list[str]
    location: tuple[str, int]  # file name and line; empty and 0 where the PTX does not say
    results: tuple[str, ...] = ()
    access: Access | None = None
    register_factor: bool = False  # of a wgmma: its first factor is in registers, not in shared memory

    @property
    def sources(self) -> list[str]:
        """The registers (and symbols) that are read, addresses included."""
        read = self.operands[1:] if self.results else self.operands
        found = [name for operand in read for name in _NAME.findall(operand)]
        return [*found, self.guard] if self.guard else found

    @staticmethod
    def registers(operand: str) -> list[str]:
        """The registers that an operand names."""
        return [name for name in _NAME.findall(operand) if name[0] == "%"]

    def address(self, position: int) -> tuple[str, int]:
        """The base and the byte offset of an operand such as ``[%r1+16]``."""
        match = _ADDRESS.match(self.operands[position])
        return (match[1], int(match[2] or 0)) if match else ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A kernel: ``labels`` hold every place of a name (scopes may repeat one), ``params`` names and sizes."""

    name: str
    instructions: list[Instruction]
    labels: dict[str, list[int]]
    params: list[tuple[str, str, int]]  # name, PTX type, bytes of an array (0 for a scalar)
    threads: int
    unread: frozenset[str] = frozenset()  # what shuffles hand to nobody: ptxas leaves such a one out

    def target(self, label: str, at: int) -> int | None:
        """The index that a branch at ``at`` to ``label`` goes to: the nearest of that name."""
        places = self.labels.get(label, ())
        return min(places, key=lambda place: abs(place - at), default=None)


def parse(text: str) -> Program:
    """The first kernel of a PTX module. Raises ``ValueError`` where there is none."""
    entry = _ENTRY.search(text)
    opening = text.find("{", entry.end()) if entry else -1
    if entry is None or opening < 0:
        raise ValueError("no kernel in this PTX: it has no .entry with a body")
    declared = text[entry.end() : opening]
    instructions: list[Instruction] = []
    labels: dict[str, list[int]] = {}
    files = {number: (two or one).rpartition("/")[2] for number, one, two in _FILE.findall(text)}
    for kind, value, location in _statements(text[opening + 1 :], files):
        if kind == "label":
            labels.setdefault(value, []).append(len(instructions))
        else:
            instruction = _instruction(value, len(instructions), location)
            if instruction is not None:
                instructions.append(instruction)
    return Program(
        name=entry[1],
        instructions=instructions,
        labels=labels,
        params=[(name, kind, int(size or 0)) for kind, name, size in _PARAM.findall(declared)],
        threads=ptx.threads(text),
        unread=_unread(text, instructions),
    )


def _unread(text: str, instructions: Iterable[Instruction]) -> frozenset[str]:
    """Registers that only the shuffle which sets them names; arithmetic on data is kept without its operands."""
    names = {name for i in instructions if i.op.startswith("shfl") for name in i.results if name[0] == "%"}
    return frozenset(names and {name for name, count in Counter(_REGISTER.findall(text)).items() if count == 1} & names)


def _statements(body: str, files: dict[str, str]) -> Iterator[tuple[str, str, tuple[str, int]]]:
    """Labels and instructions in order, each with the source line in force; ends with the kernel's body."""
    location, open_text = ("", 0), ""
    for raw in body.split("\n"):
        line, _, comment = raw.partition("//")
        line = line.strip()
        if not line:
            continue
        if line[0] == "." and not open_text:
            if line.startswith(".loc"):
                location = _located(line, comment, files) or location
                continue
            if line.startswith((".section", ".entry", ".visible", ".func")):
                return
        open_text = f"{open_text} {line}" if open_text else line
        if line[-1] not in ";:{}" and ";" not in line:
            continue  # a statement over several lines
        yield from ((kind, value, location) for kind, value in _split(open_text))
        open_text = ""


def _located(line: str, comment: str, files: dict[str, str]) -> tuple[str, int] | None:
    """The user's own line of a ``.loc``: of what was inlined the outermost call, which its comment tells.

    None for line 0, which the compiler made up, and for the lines of inline assembly: the line before stands.
    """
    called = _CALLED.findall(comment)
    if called:
        name, number = called[-1]
        return name, int(number)
    if not comment:
        return None
    words = line.split(None, 3)
    return (files.get(words[1], ""), int(words[2])) if words[2] != "0" else None


def _split(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(";"):
        statement = part.strip()
        while statement[:1] in ("{", "}"):
            statement = statement[1:].lstrip()
        while (match := _LABEL.match(statement)) is not None:
            yield "label", match[1]
            statement = statement[match.end() :]
        if statement and statement[0] != ".":
            yield "instruction", statement


@functools.cache
def _is_data(op: str) -> bool:
    return op.startswith(("mma", "wgmma.mma")) or (bool(_FLOATING.search(op)) and not op.startswith(_DECIDING))


def _instruction(statement: str, index: int, location: tuple[str, int]) -> Instruction | None:
    match = _STATEMENT.match(statement)
    if match is None:
        return None
    op = match[3]
    if _is_data(op):
        in_registers = op.startswith("wgmma") and match[4].count("{") > 1
        return Instruction(index, op, match[2] or "", match[1] == "!", [], location, register_factor=in_registers)
    operands = _OPERAND.findall(match[4])
    access = access_of(op, len(operands))
    instruction = Instruction(index, op, match[2] or "", match[1] == "!", operands, location, access=access)
    if operands and (op.partition(".")[0] not in _NO_RESULT or op.startswith(_WITH_RESULT)):
        first = operands[0]
        instruction.results = tuple(_NAME.findall(first)) if first[0] == "{" or "|" in first else (first,)
    return instruction
