"""Canonical text of a kernel's IR, for hashes and for the differences that a report shows.

What says where the code came from (locations, paths, debug metadata) is left out. Values are named after the
operation that makes them, because Triton names them by number up to 3.5 and after the source's variables
since: the same IR of two releases is the same text, and one more operation renames only its own kind.
"""

from __future__ import annotations

import re
from collections import Counter

from matrix.code.mlir import without_locations

_VALUE = re.compile(r"%[\w.$-]+")
_RESULT = re.compile(r"^\s*(%[\w.$-]+)(?::\d+)?(?:, %[\w.$-]+(?::\d+)?)* = \"?([\w.]+)")
_LOOP_ARGUMENT = re.compile(r"(?:scf\.for(?: unsigned)? |[(,] ?)(%[\w.$-]+)(?= = )")
_TYPED = re.compile(r"[(,] ?(%[\w.$-]+)(?=: )")
_POINTER = re.compile(r"!tt\.(?:ptr|tensordesc)<(?:tensor<(?:\d+x)+)?([A-Za-z]\w*)")

_LLVM_DEBUG = re.compile(r"(?:, | )!(?:dbg|srcloc) !\d+")
_LLVM_REFERENCE = re.compile(r"!\d+")
_LLVM_DROPPED = re.compile(r"^[^\S\n]*(?:(?:;|!|#dbg_|source_filename\b).*)?(?:\n|\Z)", re.MULTILINE)
_LLVM_DEBUG_CALL = re.compile(r"^.*@llvm\.dbg\..*\n?", re.MULTILINE)
_TRAILING = re.compile(r"[^\S\n]+$", re.MULTILINE)

# MLIR's names for element types, which moved between releases, as Triton's own.
_DTYPES = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "f8E4M3FN": "fp8e4nv",
    "f8E4M3FNUZ": "fp8e4nv",  # what 3.0 and 3.1 print for it
    "f8E5M2": "fp8e5",
    "f8E4M3B11FNUZ": "fp8e4b15",
}


def canonical_mlir(text: str) -> str:
    """TTIR or TTGIR without locations, its values renamed."""
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()
    lines = []
    for raw in text.splitlines():
        if raw.startswith("#loc"):
            continue
        line, _ = without_locations(raw)
        if line.lstrip().startswith("^"):
            line = line.partition("//")[0].rstrip()  # a comment names the blocks that lead here
        if line.strip():
            lines.append(_renamed(line, names, counts))
    return "\n".join(lines) + "\n"


def canonical_llir(text: str) -> str:
    """LLVM IR without comments, metadata and debug records."""
    # Over the whole text at once: there are a hundred thousand lines of it in a small run.
    kept = _LLVM_DROPPED.sub("", text)
    if "@llvm.dbg." in kept:
        kept = _LLVM_DEBUG_CALL.sub("", kept)
    return _TRAILING.sub("", _LLVM_REFERENCE.sub("!", _LLVM_DEBUG.sub("", kept))).removesuffix("\n") + "\n"


def interface_dtypes(ttir: str) -> list[str]:
    """Element types of the kernel's pointers and descriptors, in the order of its arguments."""
    for raw in ttir.splitlines():
        line, _ = without_locations(raw)
        if "tt.func public" in line:
            return [_DTYPES.get(name, re.sub(r"^i(\d+)$", r"int\1", name)) for name in _POINTER.findall(line)]
    return []


def _renamed(line: str, names: dict[str, str], counts: Counter[str]) -> str:
    """Uses get their names first: a line may reuse a name that it also reads."""
    made = _made(line)
    pieces, end = [], 0
    for match in _VALUE.finditer(line):
        pieces.append(line[end : match.start()])
        if match.start() in made:
            kind = made[match.start()]
            names[match[0]] = f"%{kind}_{counts[kind]}"
            counts[kind] += 1
        pieces.append(names.get(match[0], match[0]))
        end = match.end()
    return "".join([*pieces, line[end:]])


def _made(line: str) -> dict[int, str]:
    """Where in the line a value is made, and what kind of value it is called."""
    stripped = line.lstrip()
    made: dict[int, str] = {}
    result = _RESULT.match(line)
    if result:
        kind = result[2].rpartition(".")[2]
        results = line[: line.index(" = ")]
        made |= {match.start(): kind for match in _VALUE.finditer(results)}
    if stripped.startswith("^") or "tt.func" in stripped:
        made |= {match.start(1): "arg" for match in _TYPED.finditer(line)}
    elif "scf.for" in stripped or "scf.while" in stripped:
        made |= {match.start(1): "arg" for match in _LOOP_ARGUMENT.finditer(line)}
    return made
