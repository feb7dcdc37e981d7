"""A kernel's memory traffic for people: the bound, the figures, and a table by source line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.memory.cost import bound, estimate_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.records import KernelFacts, KernelRecord

_HEADS = ("line", "access", "bytes a lane", "requests", "wavefronts", "ideal", "sectors", "ideal", "unknown")
_COLUMNS = ("requests", "wavefronts", "wavefronts_ideal", "sectors", "sectors_ideal", "unknown")


def memory_text(kernels: Iterable[KernelRecord]) -> str:
    """For a terminal: each kernel's traffic, means a block over the grid."""
    return "\n".join(line for kernel in kernels for line in _kernel(kernel)) + "\n"


def _kernel(kernel: KernelRecord) -> list[str]:
    facts = kernel.facts
    lines = ["", f"kernel {kernel.kernel} ({kernel.cell_id}), grid {kernel.grid}"]
    if facts.shared_wavefronts is None:
        return [*lines, f"  not evaluated: {facts.memory_note or 'the launch is not known'}"]
    lines += [f"  {text}" for text in _figures(facts)]
    return [*lines, *(f"  {text}" for text in table(facts.memory_lines or []))]


def _figures(facts: KernelFacts) -> list[str]:
    busy = facts.busy_us or {}
    times = ", ".join(f"{name} {time:.1f}" for name, time in sorted(busy.items(), key=lambda item: -item[1]))
    note = f"; {facts.memory_note}" if facts.memory_note else ""
    shared = f"{facts.shared_wavefronts:.0f} ({facts.shared_wavefronts_ideal:.0f} would do)"
    fetched = f" ({facts.fetched_sectors:.0f} of them not in L1)" if facts.fetched_sectors is not None else ""
    sectors = f"{facts.global_load_sectors:.0f} loaded{fetched}, {facts.global_store_sectors:.0f} stored"
    return [
        f"busy, us: {times or 'unknown'}; bound by {bound(busy) or 'nothing known'}; estimate {estimate_us(busy):.1f}",
        f"shared wavefronts a block: {shared}",
        f"global sectors a block: {sectors} ({facts.global_sectors_ideal:.0f} would do)",
        f"bulk copies a block: {facts.bulk_bytes:.0f} bytes",
        f"warp instructions a block: {_instructions(facts)}",
        f"unknown: {facts.memory_unknown:.1%} of requests{note}",
    ]


def _instructions(facts: KernelFacts) -> str:
    if facts.machine_instructions is None:
        return f"{facts.executed_instructions or 0:.0f} of the PTX"
    spills = f"; spills move {facts.local_sectors:.0f} sectors" if facts.local_sectors else ""
    return f"{facts.machine_instructions:.0f}{spills}"


def table(lines: Sequence[Mapping[str, float | int | str]]) -> list[str]:
    """The most expensive lines first, in columns."""
    rows = [_HEADS, *(_row(line) for line in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
    return [
        "  ".join(_aligned(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def _row(line: Mapping[str, float | int | str]) -> tuple[str, ...]:
    place = f"{line['file']}:{line['line']}" if line["file"] else "-"
    figures = (f"{float(line[name]):.6g}" for name in _COLUMNS)
    return (place, str(line["kind"]).replace("_", " "), str(line["width"] or "-"), *figures)


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)
