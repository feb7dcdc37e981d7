"""Machine code to SASS text, by one nvdisasm for all environments (fact F7).

nvdisasm takes about half a second to start whatever it is given, so kernels go through it in batches: the
code of many, one after the other, as one raw binary, split again by offset. The text leaves out addresses
and names branch targets by labels, so that the texts of two kernels differ only where their code does.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import ExitCode, MatrixError

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "nvidia-cuda-nvdisasm"
INSTRUCTION_BYTES = 16  # on every target here
_TIMEOUT_SECONDS = 300.0

_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$")
_BRANCH = re.compile(
    r"^(?P<head>(?:@!?U?P\w+\s+)?(?:BRA|BRX|BRXU|JMP|JMX|JMXU|CALL|RET|BSSY|WARPSYNC|LEPC)\b.*?)"
    r"(?P<address>-?0x[0-9a-f]+)(?P<tail>\)?)$"
)


class DisassemblerError(MatrixError):
    """nvdisasm is missing, or it failed on something other than the code itself."""

    exit_code = ExitCode.INCOMPLETE


class UnreadableCodeError(DisassemblerError):
    """nvdisasm does not recognise the code as that of the target."""


@functools.cache
def version() -> str:
    """The release of nvdisasm in use, such as ``13.5.37``. Raises :class:`DisassemblerError`."""
    return _distribution().version


def disassemble(codes: Sequence[bytes], target: str) -> list[str]:
    """The SASS text of each code, in order; the empty text for a code that cannot be read.

    ``target`` is ``"sm_90"`` or the like. Raises :class:`DisassemblerError` where the tool itself fails.
    """
    texts = [""] * len(codes)
    readable = [i for i, code in enumerate(codes) if code and len(code) % INSTRUCTION_BYTES == 0]
    distinct = list(dict.fromkeys(codes[i] for i in readable))
    found = dict(zip(distinct, _bisected(distinct, target), strict=True))
    for i in readable:
        texts[i] = found[codes[i]]
    return texts


def _bisected(codes: list[bytes], target: str) -> list[str]:
    """As :func:`disassemble`, halving a batch that fails until only the bad codes are lost."""
    if not codes:
        return []
    try:
        return _batch(codes, target)
    except UnreadableCodeError:
        if len(codes) == 1:
            return [""]
    middle = len(codes) // 2
    return _bisected(codes[:middle], target) + _bisected(codes[middle:], target)


def _batch(codes: list[bytes], target: str) -> list[str]:
    instructions = iter(_addresses(_run_nvdisasm(b"".join(codes), target)))
    texts, start = [], 0
    for code in codes:
        # They come in the order of their addresses.
        inside = list(itertools.islice(instructions, len(code) // INSTRUCTION_BYTES))
        expected = range(start, start + len(code), INSTRUCTION_BYTES)
        if [address for address, _ in inside] != list(expected):
            raise UnreadableCodeError(f"nvdisasm printed {len(inside)} instructions for {len(code)} bytes")
        texts.append(_labelled([(address - start, text) for address, text in inside], base=start))
        start += len(code)
    return texts


def _run_nvdisasm(binary: bytes, target: str) -> str:
    architecture = target.replace("sm_", "SM")
    with tempfile.NamedTemporaryFile(prefix="triton-matrix-", suffix=".bin") as file:
        file.write(binary)
        file.flush()
        try:
            done = subprocess.run(
                [_executable(), "-b", architecture, "-ndf", file.name],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DisassemblerError(f"nvdisasm could not be run: {error}") from error
    if done.returncode == 0:
        return done.stdout
    first_line = done.stderr.strip().partition("\n")[0] or f"exit status {done.returncode}"
    if "at address" in done.stderr or "Illegal instruction" in done.stderr:
        raise UnreadableCodeError(f"not {target} code: {first_line}")
    raise DisassemblerError(f"nvdisasm {version()} failed for {target}: {first_line}")


def _addresses(output: str) -> list[tuple[int, str]]:
    matches = (_LINE.match(line) for line in output.splitlines())
    return [(int(match[1], 16), match[2]) for match in matches if match]


def _labelled(instructions: list[tuple[int, str]], *, base: int) -> str:
    """One instruction a line, labels on their own lines, the padding at the end left out."""
    while instructions and instructions[-1][1] == "NOP":
        instructions = instructions[:-1]
    end = len(instructions) * INSTRUCTION_BYTES
    branches = {address: match for address, text in instructions if (match := _BRANCH.match(text))}
    targets = sorted({t for m in branches.values() if 0 <= (t := int(m["address"], 16) - base) < end})
    names = {target: f".L{number}" for number, target in enumerate(targets)}
    lines = []
    for address, text in instructions:
        if address in names:
            lines.append(f"{names[address]}:")
        match = branches.get(address)
        lines.append("    " + (_renamed(match, names, base) if match else text))
    return "\n".join(lines) + "\n"


def _renamed(match: re.Match[str], names: dict[int, str], base: int) -> str:
    target = int(match["address"], 16) - base
    return f"{match['head']}{names.get(target, hex(target))}{match['tail']}"


@functools.cache
def _executable() -> str:
    for file in _distribution().files or ():
        path = Path(str(file.locate()))
        if path.stem == "nvdisasm" and path.parent.name == "bin" and path.is_file():
            return str(path)
    raise DisassemblerError(f"{PACKAGE} {version()} lacks its program", hint=f"reinstall {PACKAGE}")


def _distribution() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise DisassemblerError(
            f"{PACKAGE} is not installed beside triton-matrix", hint=f"pip install {PACKAGE}"
        ) from error
