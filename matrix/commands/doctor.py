"""Is this host fit? Each check says what it found and, where it is not fit, what to do."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from matrix.code import disassembler
from matrix.commands.workplace import gpu_host
from matrix.provisioning import uv
from matrix.running.host import this_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.storage.runs import Home

# Two CPU environments with their caches take about 3 GB; a run adds some hundred MB.
_WANTED_DISK_BYTES = 5 << 30
_WANTED_MEMORY_BYTES = 4 << 30
_INDEX_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. ``fit`` is false only for what a run cannot do without."""

    name: str
    found: str
    fit: bool = True
    hint: str = ""

    def data(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def examine(home: Home) -> list[Check]:
    """All checks, in the order in which a run would meet them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = [_uv(), _index(folder), _disassembler()]
    return [
        _host(),
        _memory(),
        _disk(home.root),
        *tools,
        _gpu(),
        Check(name="stages", found=_stages(gpu_host().targets)),
    ]


def _host() -> Check:
    host = this_host()
    return Check(name="host", found=f"{host.name}, {host.system}, {host.cores} cores, Python {host.python}")


def _memory() -> Check:
    size = this_host().memory_bytes
    return Check(
        name="memory",
        found=f"{size / 2**30:.1f} GiB",
        fit=size >= _WANTED_MEMORY_BYTES,
        hint="a worker needs about 2 GiB: use --jobs 1",
    )


def _disk(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    if not os.access(root, os.W_OK):
        return Check(name="disk", found=f"{root} cannot be written to", fit=False, hint="work in a folder of your own")
    return Check(
        name="disk",
        found=f"{free / 2**30:.1f} GiB free in {root}",
        fit=free >= _WANTED_DISK_BYTES,
        hint=f"free {_WANTED_DISK_BYTES / 2**30:.0f} GiB: two environments with their downloads take about three",
    )


def _uv() -> Check:
    try:
        return Check(name="uv", found=uv.run(["--version"]).strip())
    except (OSError, uv.UvError) as error:
        return Check(name="uv", found=str(error), fit=False, hint="pip install uv")


def _index(folder: Path) -> Check:
    """Ask the index for Triton as a run would, which also proves proxies and certificates."""
    question = folder / "question.txt"
    question.write_text("triton\n", encoding="utf-8")
    arguments = ["pip", "compile", "--quiet", "--no-header", "--no-deps", "--no-cache", str(question)]
    try:
        answer = uv.run(arguments, timeout_s=_INDEX_TIMEOUT_S)
    except (OSError, uv.UvError) as error:
        hint = "set UV_DEFAULT_INDEX or PIP_INDEX_URL; offline: `offline = true` and `find_links` in matrix.toml"
        return Check(name="package index", found=str(error).splitlines()[-1], fit=False, hint=hint)
    pinned = next((line for line in answer.splitlines() if line.startswith("triton==")), "answers")
    return Check(name="package index", found=f"newest there: {pinned}")


def _disassembler() -> Check:
    try:
        return Check(name="nvdisasm", found=disassembler.version())
    except disassembler.DisassemblerError as error:
        return Check(name="nvdisasm", found=str(error), fit=False, hint=error.hint)


def _gpu() -> Check:
    names = gpu_names()
    if not names:
        return Check(name="GPU", found="none: kernels are compiled for all targets and interpreted, not run")
    return Check(name="GPU", found="; ".join(names))


def gpu_names() -> Sequence[str]:
    """The GPUs of this host with their driver, empty where there are none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [f"{pynvml.nvmlDeviceGetName(handle)}, driver {driver}" for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _stages(targets: Sequence[str]) -> str:
    beyond = f"; correctness, timing and, with profiling rights, counters for {', '.join(targets)}" if targets else ""
    return f"import, compile and interpret for all targets{beyond}"


def examined_text(checks: Sequence[Check], *, colour: bool) -> str:
    """The checks for a terminal, a line each."""
    lines = []
    for check in checks:
        word = "ok " if check.fit else "BAD"
        if colour:
            word = f"\x1b[{'32' if check.fit else '31'}m{word}\x1b[0m"
        lines.append(f"{word} {check.name}: {check.found}")
        if not check.fit and check.hint:
            lines.append(f"    {check.hint}")
    return "\n".join(lines) + "\n"
