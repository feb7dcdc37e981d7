"""Counts instruction classes in SASS text (:mod:`matrix.code.disassembler`): instructions, not executions.

What counts as what:

* a *barrier* is a ``BAR``: a thread-block barrier. Waits on mbarriers (``SYNCS``) order asynchronous copies
  and matrix instructions and are not counted, nor are cluster barriers (``UCGABAR``) and ``WARPSYNC``;
* generic ``LD`` and ``ST`` count as global;
* a *bulk copy* is TMA work, of tensors (``UTMALDG``, ``UTMASTG``, ``UTMAREDG``) or plain bytes (``UBLKCP``,
  ``UBLKRED``);
* ``HFMA2`` with zero factors is how ptxas writes a constant; it is no arithmetic and not counted as fma.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_INSTRUCTION = re.compile(r"^\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)(.*)$")
_WIDTH = re.compile(r"^[US]?(8|16|32|64|128|256)$")
_ZERO_FACTORS = re.compile(r"-?RZ(\.\w+)*, -?RZ")

_GLOBAL_LOADS = {"LDG", "LD"}
_GLOBAL_STORES = {"STG", "ST"}
_ATOMICS = {"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS"}
_BULK_COPIES = {"UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"}
_FMA = {"FFMA", "FFMA2", "HFMA2", "DFMA", "UFFMA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SassCounts:
    """Instructions by class. ``*_bits`` count accesses by width in bits, ``matrix_pipe`` by opcode."""

    instructions: int
    barriers: int
    shuffles: int
    atomics: int
    async_copies: int
    bulk_copies: int
    ldmatrix: int
    stmatrix: int
    fma: int
    local_loads: int
    local_stores: int
    global_load_bits: dict[str, int]
    global_store_bits: dict[str, int]
    shared_load_bits: dict[str, int]
    shared_store_bits: dict[str, int]
    matrix_pipe: dict[str, int]

    @property
    def global_loads(self) -> int:
        return sum(self.global_load_bits.values())

    @property
    def global_stores(self) -> int:
        return sum(self.global_store_bits.values())

    @property
    def shared_loads(self) -> int:
        return sum(self.shared_load_bits.values())

    @property
    def shared_stores(self) -> int:
        return sum(self.shared_store_bits.values())


def count(sass: str) -> SassCounts:
    """The counts of one kernel's SASS text."""
    matches = [match for line in sass.splitlines() if (match := _INSTRUCTION.match(line))]
    opcodes = Counter(match[1] for match in matches)
    return SassCounts(
        instructions=len(matches),
        barriers=opcodes["BAR"],
        shuffles=opcodes["SHFL"],
        atomics=_total(opcodes, _ATOMICS),
        async_copies=opcodes["LDGSTS"],
        bulk_copies=_total(opcodes, _BULK_COPIES),
        ldmatrix=opcodes["LDSM"],
        stmatrix=opcodes["STSM"],
        fma=sum(1 for match in matches if match[1] in _FMA and not _ZERO_FACTORS.search(match[3])),
        local_loads=opcodes["LDL"],
        local_stores=opcodes["STL"],
        global_load_bits=_by_width(matches, _GLOBAL_LOADS),
        global_store_bits=_by_width(matches, _GLOBAL_STORES),
        shared_load_bits=_by_width(matches, {"LDS"}),
        shared_store_bits=_by_width(matches, {"STS"}),
        matrix_pipe={name: number for name, number in sorted(opcodes.items()) if name.endswith("MMA")},
    )


def _total(opcodes: Counter[str], names: set[str]) -> int:
    return sum(opcodes[name] for name in names)


def _by_width(matches: list[re.Match[str]], names: set[str]) -> dict[str, int]:
    widths = Counter(_width(match[2]) for match in matches if match[1] in names)
    return {str(width): widths[width] for width in sorted(widths)}


def _width(modifiers: str) -> int:
    found = [int(match[1]) for part in modifiers.split(".") if (match := _WIDTH.match(part))]
    return found[-1] if found else 32
