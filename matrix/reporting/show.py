"""Everything that a run knows about one cell."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.explaining import confounders
from matrix.explaining.chains import as_dict, chains_of
from matrix.model import selects
from matrix.running.plan import near_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.explaining.chain import Chain
    from matrix.explaining.confounders import Confounders
    from matrix.records import CellRecord, KernelRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder


def matching(folder: RunFolder, glob: str) -> list[CellRecord]:
    """The cell rows that the glob selects, or whose id ends in the text given.

    Raises :class:`UsageError` for none.
    """
    found = [row for row in folder.cells if row.cell_id.endswith(glob) or selects((glob,), row.cell_id, row.case)]
    if not found:
        near = sorted({row.cell_id for row in folder.cells if row.case in glob})[:5]
        alike = near_names([glob], {row.case for row in folder.cells})
        hint = f"did you mean {', '.join(alike)}?" if alike else "ids are in cells.parquet, column cell_id"
        hint = f"cells of that case: {'; '.join(near)}" if near else hint
        raise UsageError(f"no cell of run {folder.run_id} matches {glob!r}", hint=hint)
    return found


def kernels_of(folder: RunFolder, cells: Iterable[CellRecord]) -> list[KernelRecord]:
    wanted = {row.cell_id for row in cells}
    return [kernel for kernel in folder.kernels if kernel.cell_id in wanted]


def code_of(folder: RunFolder, cells: Sequence[CellRecord], kind: str) -> str:
    """The code of all kernels of these cells, one after the other."""
    texts = []
    for kernel in kernels_of(folder, cells):
        digest = kernel.artifacts.get(kind)
        if digest:
            comment = ";" if kind == "llir" else "//"
            texts.append(f"{comment} {kernel.cell_id} {kernel.kernel} {kind}\n{folder.artifact(digest).rstrip()}\n")
    if not texts:
        raise UsageError(f"no {kind} is kept for {cells[0].cell_id}", hint=f"outcome: {cells[0].outcome}")
    return "\n".join(texts)


def as_data(folder: RunFolder, cells: Sequence[CellRecord]) -> dict[str, Any]:
    ids = {row.cell_id for row in cells}
    verdicts = [v for v in folder.verdicts if v.candidate_cell_id in ids or v.baseline_cell_id in ids]
    return {
        "confounders": confounders.as_data(_confounders(folder, verdicts)),
        "cells": rows(cells),
        "kernels": rows(kernels_of(folder, cells)),
        "dimensions": rows(row for row in folder.dimensions if row.cell_id in ids),
        "timings": rows(row for row in folder.timings if row.cell_id in ids),
        "verdicts": rows(verdicts),
        "chains": [{"verdict": index, **as_dict(chain)} for index, chain in _chains(folder, verdicts)],
    }


def _confounders(folder: RunFolder, verdicts: Iterable[VerdictRecord]) -> list[Confounders]:
    pairs = dict.fromkeys((row.baseline, row.candidate) for row in verdicts)
    return [confounders.confounders([folder], *pair) for pair in pairs]


def _chains(folder: RunFolder, verdicts: Iterable[VerdictRecord]) -> Iterator[tuple[int, Chain]]:
    """Of the verdicts that have one, by their place."""
    found = ((index, chains_of(folder).of(row)) for index, row in enumerate(verdicts))
    return ((index, chain) for index, chain in found if chain.links)


def _linked(chain: dict[str, Any]) -> Iterator[str]:
    """A chain as lines: the links in order, the first change in capitals, whose it is, what does not fit."""
    links = (f"{link['step']} {'FIRST CHANGE' if link['first'] else link['state']}" for link in chain["links"])
    yield f"  chain: {', '.join(links)}"
    yield f"  whose change: {chain['owner']}. {chain['why']}"
    yield from (f"  {link['step']}: {link['note']}" for link in chain["links"] if link["note"])
    yield from (f"  BROKEN: {text}" for text in chain["broken"])


def rows(records: Iterable[Any]) -> list[dict[str, Any]]:
    """Records as plain dictionaries."""
    return [dataclasses.asdict(record) for record in records]


def as_text(folder: RunFolder, cells: Sequence[CellRecord]) -> str:
    """A page for a terminal: outcomes, verdicts, then every kernel with its facts and where its code is."""
    data = as_data(folder, cells)
    lines = [f"{each['candidate']}: {each['text']}" for each in data["confounders"]]
    for cell in cells:
        lines += [cell.cell_id, f"  {cell.stage}: {cell.outcome}  {cell.reason}".rstrip()]
        lines += [f"    expected: {cell.expected}"] if cell.expected else []
        lines += [f"    {line}" for line in cell.detail.rstrip().splitlines()[-12:]]
    chains = {chain["verdict"]: chain for chain in data["chains"]}
    for index, verdict in enumerate(data["verdicts"]):
        lines += ["", f"verdict ({verdict['baseline']} -> {verdict['candidate']}): {verdict['verdict']}"]
        lines += [f"  {verdict['reason_code']}: {verdict['change']}"] if verdict["change"] else []
        lines += _linked(chains[index]) if index in chains else []
    lines += [line for row in data["dimensions"] for line in _dimension(row)]
    lines += [line for row in data["timings"] for line in _timing(row)]
    for kernel in data["kernels"]:
        lines += ["", f"kernel {kernel['kernel']} ({kernel['cell_id']})"]
        lines += [f"  {name}: {_value(value)}" for name, value in kernel["facts"].items() if _told(name, value)]
        lines += [f"  {name}: {_value(kernel[name])}" for name in ("num_warps", "num_stages", "num_ctas", "grid")]
        lines += [f"  ptxas: {kernel['ptxas_version']}", f"  signature: {_value(kernel['signature'])}"]
        kept = folder.path / "artifacts"
        lines += [f"  code {kind}: {kept / digest}.zst" for kind, digest in kernel["artifacts"].items()]
    return "\n".join(lines) + "\n"


def _dimension(row: dict[str, Any]) -> Iterator[str]:
    figures = f", {row['worst']:.0%} of the allowance ({row['budget']})" if row["worst"] is not None else ""
    yield f"  dimension {row['dimension']}: {row['outcome']}{figures}  {row['reason']}".rstrip()


def _timing(row: dict[str, Any]) -> Iterator[str]:
    """An arm: its figures, those that are None left out."""
    yield from ("", f"timed as {row['role']} on {row['gpu']} ({row['cell_id']})")
    left_out = {"run_id", "host", "gpu", "environment", "role", "case", "params", "cell_id", "target"}
    for name, value in row.items():
        if name not in left_out and value not in (None, "", [], {}):
            yield f"  {name}: {', '.join(value) if isinstance(value, list) else _value(value)}"


def _told(name: str, value: Any) -> bool:
    """Whether a fact has something to say; lines of memory traffic have a view of their own (``--memory``)."""
    return name != "memory_lines" and value is not None and value not in ({}, [], "")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
