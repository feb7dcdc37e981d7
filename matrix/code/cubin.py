"""Reads what a verdict needs off a cubin: the code of each function and the resources ptxas gave it.

A cubin is an ELF64 file. The layout of ``.nv.info`` is not published; the attributes read here are the ones
that ``cuobjdump -res-usage`` prints, and the tests compare the two. Reading them here costs microseconds and
no process a kernel.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import MatrixError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_EM_CUDA = 190

# .nv.info entries: a format byte, an attribute byte, then a value of the format's size.
_SIZED_VALUE = 0x04
_FRAME_SIZE = 0x11
_REGISTER_COUNT = 0x2F
_WORD_BYTES = 4


class CubinError(MatrixError):
    """The bytes are not a cubin, or not one of a layout that is known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinFunction:
    """One function: ``text`` is its machine code as laid out in the file, padding included.

    ``stack_bytes`` is the frame of a thread, which is where spills show; ``shared_bytes`` is static shared
    memory only (Triton's own is dynamic and in its metadata) with the block's reserved part included.
    """

    name: str
    text: bytes
    registers: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    kind: int
    data: bytes
    size: int


def functions(cubin: bytes) -> list[CubinFunction]:
    """Every function in the file, in file order. Raises :class:`CubinError`."""
    try:
        sections = _sections(cubin)
        symbols = _symbol_names(sections)
        info = [item for section in sections if section.name == ".nv.info" for item in _info(section.data)]
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise CubinError(f"not a readable cubin ({len(cubin)} bytes): {error}") from error
    registers = {symbols.get(symbol, ""): value for kind, symbol, value in info if kind == _REGISTER_COUNT}
    frames = {symbols.get(symbol, ""): value for kind, symbol, value in info if kind == _FRAME_SIZE}
    shared = {name: s.size for s in sections if (name := s.name.removeprefix(".nv.shared.")) != s.name}
    return [
        CubinFunction(
            name=name,
            text=section.data,
            registers=registers.get(name, 0),
            stack_bytes=frames.get(name, 0),
            shared_bytes=shared.get(name, 0),
        )
        for section in sections
        if section.name.startswith(".text.") and (name := section.name.removeprefix(".text."))
    ]


def function(cubin: bytes, name: str) -> CubinFunction:
    """The function ``name``, or the only one there is. Raises :class:`CubinError`."""
    found = functions(cubin)
    for candidate in found:
        if candidate.name == name:
            return candidate
    if len(found) == 1:
        return found[0]
    names = ", ".join(candidate.name for candidate in found) or "none"
    raise CubinError(f"no function {name!r} in the cubin; it has: {names}")


def _sections(cubin: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(cubin)
    identity, machine, offset, entry_size, count, names_index = (header[i] for i in (0, 2, 6, 11, 12, 13))
    if not identity.startswith(b"\x7fELF") or machine != _EM_CUDA:
        raise ValueError("no ELF header of machine type CUDA")
    raw = [_SECTION.unpack_from(cubin, offset + index * entry_size) for index in range(count)]
    names = _content(cubin, raw[names_index])
    return [
        _Section(name=_string(names, entry[0]), kind=entry[1], data=_content(cubin, entry), size=entry[5])
        for entry in raw
    ]


def _content(cubin: bytes, entry: tuple[int, ...]) -> bytes:
    kind, offset, size = entry[1], entry[4], entry[5]
    if kind == _SHT_NOBITS:
        return b""
    if offset + size > len(cubin):
        raise ValueError(f"truncated: a section ends at byte {offset + size}")
    return cubin[offset : offset + size]


def _symbol_names(sections: list[_Section]) -> dict[int, str]:
    names = next((s.data for s in sections if s.name == ".strtab"), b"")
    table = next((s.data for s in sections if s.kind == _SHT_SYMTAB), b"")
    return {index: _string(names, entry[0]) for index, entry in enumerate(_SYMBOL.iter_unpack(table))}


def _info(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol index, value) of the entries that hold two 32-bit words."""
    at = 0
    while at + 4 <= len(data):
        layout, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if layout != _SIZED_VALUE:  # the other formats keep their value in the two bytes just read
            continue
        if size == 2 * _WORD_BYTES:
            yield attribute, *struct.unpack_from("<II", data, at)
        at += size


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()
