"""The recorded sample: taken from a run, its verdicts by today's rules, and the findings that a person judges.

After a run on a GPU whose recording is to take the sample's place, and the paths that are not to be in it:

    PYTHONPATH=.:tests python -P tests/benchmarks/sample.py --record RUN_DIR --hide /its/project/ [--code RUN_DIR]

After a rule changed, without --record. It rewrites ``matrix/data/sample`` and ``tests/data/sample_findings.json``. A
finding that a person judged keeps that judgement as long as it reads the same; a new one is marked, and
``tests/test_sample.py`` fails until somebody has looked at the figures and put a reason in its place.

``--code`` names a run of the compile stage of the same request by today's program: where it has the same PTX and
machine code (but for paths) of a kernel, the figures read off that code are taken from it. Times are rounded to the
nanosecond: events tell them apart by 32.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sample_findings import LIST, OPEN, judged_again, listed, read_list

from matrix.judging.decision import summarise
from matrix.judging.findings import findings
from matrix.resources import sample_folder
from matrix.storage.store import read_evidence, write_evidence, write_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records import KernelRecord

TABLES = ("cells", "evidence", "dimensions", "timings", "rounds")
# Digits that are kept of a round's figures, in us and MHz.
DIGITS = {"busy_us": 0, "wall_us": -1, "worker_us": -1, "clock_mhz": 1}


SMALL = {"compression": "brotli", "compression_level": 11, "write_statistics": False}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--hide", action="append", default=[])
    asked = parser.parse_args()
    if asked.record:
        record(asked.record, asked.hide)
    if asked.code:
        renew_evidence(asked.code, asked.hide)
    judge()


def record(run: Path, hide: Sequence[str]) -> None:
    folder = sample_folder()
    for name in TABLES:
        if not (run / f"{name}.parquet").exists():
            (folder / f"{name}.parquet").unlink(missing_ok=True)
            continue
        table = _placeless(pq.read_table(run / f"{name}.parquet"), hide)
        # Small groups of rounds: the samples of each take few values, and those are then short to write down.
        rows = 300 if name == "rounds" else None
        table = _rounded(table) if name == "rounds" else table
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows, **SMALL)
    text = (run / "run.json").read_text(encoding="utf-8")
    (folder / "run.json").write_text(_without(text, hide), encoding="utf-8")


def renew_evidence(run: Path, hide: Sequence[str]) -> None:
    """Figures read off equal PTX, from the run that read them last."""
    anew = {_place(row): row for row in read_evidence(run)}
    rows, same = [], 0
    for row in read_evidence(sample_folder()):
        found = anew.get(_place(row))
        if found is not None and _code(found) == _code(row):
            rows.append(replace(row, facts=found.facts))
            same += 1
        else:
            print(f"other code here, as recorded: {row.cell_id}")
            rows.append(row)
    print(f"{same} of {len(rows)} kernels have the same code here")
    write_evidence(sample_folder(), rows)


def judge() -> None:
    folder, run = sample_folder(), judged_again()
    write_verdicts(folder, run.verdicts)
    meta = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    meta["exit_code"] = int(summarise(run.verdicts).exit_code)
    (folder / "run.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    known = {replace(one, why=OPEN): one.why for one in read_list()} if LIST.exists() else {}
    rows = [replace(one, why=known.get(one, OPEN)) for one in listed(findings(run.verdicts))]
    LIST.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(rows)} findings, {sum(row.why == OPEN for row in rows)} of them to be judged by a person: {LIST}")


def _code(row: KernelRecord) -> tuple[str, str]:
    return row.facts.ptx_hash, row.facts.sass_hash


def _place(row: KernelRecord) -> tuple[object, ...]:
    return row.cell_id, row.kernel, row.index, row.config


def _without(text: str, hide: Sequence[str]) -> str:
    for path in hide:
        text = text.replace(path, "")
    return text


def _placeless(table: pa.Table, hide: Sequence[str]) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = [None if text is None else _without(text, hide) for text in table.column(number).to_pylist()]
            table = table.set_column(number, field, pa.array(texts, type=field.type))
    return table


def _rounded(table: pa.Table) -> pa.Table:
    number = table.schema.get_field_index("samples_us")
    samples = table.column(number).combine_chunks()
    values = np.round(samples.values.to_numpy(), 3).astype(np.float32)
    table = table.set_column(
        number, table.schema.field(number), type(samples).from_arrays(samples.offsets, pa.array(values))
    )
    for name, digits in DIGITS.items():
        number = table.schema.get_field_index(name)
        values = table.column(number).to_numpy().round(digits)
        table = table.set_column(
            number, table.schema.field(number), pa.array(values, type=pa.float64(), from_pandas=True)
        )
    return table


if __name__ == "__main__":
    main()
