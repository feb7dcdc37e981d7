"""What PTX still states and SASS does not: matrix instructions by shape and type, threads a block."""

from __future__ import annotations

import re
from collections import Counter

_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_THREADS = re.compile(r"^\.(?:maxntid|reqntid)\s+([\d, ]+)", re.MULTILINE)
_MMA = re.compile(r"\b(mma\.sync|mma\.sp|wgmma\.mma_async)((?:\.\w+(?:::\w+)*)+)")
_SHAPE = re.compile(r"\.m\d+n\d+k\d+")
_KIND = re.compile(r"\.kind::(\w+)")
_TCGEN05 = re.compile(r"\btcgen05\.mma((?:\.\w+(?:::\w+)*)+)\s*\[[^\]]*\],\s*(?:\[[^\]]*\]|%\w+),\s*%\w+,\s*(%\w+|\d+)")
_CONSTANT = re.compile(r"\bmov\.[bu]32\s+(%r\d+), (\d+);")
_ASSIGNED = re.compile(r"^\s*(?:@!?%p\d+ )?[a-z][\w.:]*\s+(%r\d+),", re.MULTILINE)

# PTX ISA, "tcgen05.mma: instruction descriptor": element types by kind; k is 32 bytes of elements.
_ELEMENTS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
}
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}

_DROPPED = re.compile(r"^\s*(\.loc|\.file)\b|^\$L__(tmp|func_begin|func_end|pub)\w*:$")
_COMMENT = re.compile(r"\s*//.*$")


def target(ptx: str) -> str:
    """The architecture in the ``.target`` directive, such as ``sm_90a``; empty where there is none."""
    match = _TARGET.search(ptx)
    return match[1] if match else ""


def threads(ptx: str) -> int:
    """Threads a block, all partitions of a specialised kernel included; 0 where the PTX does not say."""
    match = _THREADS.search(ptx)
    if match is None:
        return 0
    total = 1
    for size in match[1].split(","):
        total *= int(size)
    return total


def matrix_ops(ptx: str) -> dict[str, int]:
    """Matrix instructions by shape and types, result type first: ``{"wgmma.m64n128k16.f32.f16.f16": 4}``.

    ``tcgen05.mma`` has its shape in a descriptor; where that is no constant, only the kind is named.
    """
    if "mma" not in ptx:  # most kernels have none
        return {}
    found = Counter(_mma_name(match[1], match[2]) for match in _MMA.finditer(ptx))
    calls = list(_TCGEN05.finditer(ptx))
    if calls:
        constants = _constants(ptx)
        found.update(_tcgen05_name(match[1], _number(match[2], constants)) for match in calls)
    return dict(sorted(found.items()))


def canonical(ptx: str) -> str:
    """The PTX without comments, source lines, debug sections and the labels that serve them."""
    lines, in_section = [], False
    for raw in ptx.splitlines():
        line = _COMMENT.sub("", raw).rstrip()
        in_section = in_section or line.lstrip().startswith(".section")
        if not in_section and line and not _DROPPED.match(line):
            lines.append(line)
        if in_section and "}" in line:
            in_section = False
    return "\n".join(lines) + "\n"


def _mma_name(instruction: str, modifiers: str) -> str:
    shape = _SHAPE.search(modifiers)
    kind = _KIND.search(modifiers)
    types = [part for part in modifiers.split(".") if re.fullmatch(r"(?:[busf]|bf|tf)\d+|e\dm\d", part)]
    # mma.sync names the type of its input accumulator too: d, a, b, c.
    parts = [instruction.partition(".")[0] + (".sp" if instruction == "mma.sp" else "")]
    parts += [shape[0][1:]] if shape else []
    parts += [f"kind::{kind[1]}"] if kind else []
    return ".".join([*parts, *types[:3]])


def _tcgen05_name(modifiers: str, descriptor: int | None) -> str:
    match = _KIND.search(modifiers)
    kind = match[1] if match else ""
    pair = ".cta_group::2" if "cta_group::2" in modifiers else ""
    elements = _ELEMENTS.get(kind, {})
    if descriptor is None or not elements or ".sp" in modifiers:
        return f"tcgen05.mma{pair}.kind::{kind}"
    rows, columns = (descriptor >> 24 & 0x1F) * 16, (descriptor >> 17 & 0x3F) * 8
    accumulator = _ACCUMULATORS.get(descriptor >> 4 & 0x3, "?")
    left, right = (elements.get(descriptor >> shift & 0x7, "?") for shift in (7, 10))
    return f"tcgen05.mma{pair}.m{rows}n{columns}k{_DEPTH[kind]}.{accumulator}.{left}.{right}"


def _constants(ptx: str) -> dict[str, int]:
    """Registers that are assigned once, and a number."""
    assignments = Counter(_ASSIGNED.findall(ptx))
    return {name: int(value) for name, value in _CONSTANT.findall(ptx) if assignments[name] == 1}


def _number(operand: str, constants: dict[str, int]) -> int | None:
    return constants.get(operand) if operand.startswith("%") else int(operand)
