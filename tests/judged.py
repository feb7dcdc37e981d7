"""Records to judge: an ordinary kernel in an ordinary cell, and what a test changes about it."""

from __future__ import annotations

import dataclasses
import datetime as dt

from matrix.case import Expect
from matrix.records import CellRecord, KernelFacts, KernelRecord

BASELINE = "triton3.5.1"
CANDIDATE = "triton3.6.0"
_EMPTY = {"int": 0, "float": 0.0, "str": ""}
_STARTED = dt.datetime(2026, 11, 30, tzinfo=dt.timezone.utc)


def facts(**given: object) -> KernelFacts:
    """An ordinary kernel: no spills, full occupancy, wide accesses."""
    values = {
        f.name: None if "None" in str(f.type) else _EMPTY.get(str(f.type), {}) for f in dataclasses.fields(KernelFacts)
    }
    values |= {"dtypes": [], "hazards": [], "sass_hash": "a", "occupancy_limit": "warps"}
    values |= {"registers": 32, "occupancy_blocks": 16, "occupancy_share": 1.0, "code_bytes": 4096}
    values |= {"global_load_bits": {"128": 4}, "global_store_bits": {"128": 4}, **given}
    return KernelFacts(**values)  # type: ignore[arg-type]


def other(**given: object) -> KernelFacts:
    """The same kernel as other code."""
    return facts(sass_hash="b", **given)


def cell(environment: str, outcome: str = "passed", **given: object) -> CellRecord:
    values: dict[str, object] = {
        "run_id": "r",
        "host": "h",
        "environment": environment,
        "triton_version": environment.removeprefix("triton"),
        "torch_version": "2.13.0",
        "target": "sm_90",
        "case": "softmax",
        "params": "rows=8,dtype=fp16",
        "stage": "compile",
        "outcome": outcome,
        "reason": "",
        "detail": "",
        "seconds": 1.0,
        "started_at": _STARTED,
        **given,
    }
    values.setdefault("cell_id", f"{environment}/{values['target']}/{values['case']}:{values['params']}")
    return CellRecord(**values)  # type: ignore[arg-type]


def kernel(environment: str, code: KernelFacts | None = None, **given: object) -> KernelRecord:
    row = cell(environment)
    values: dict[str, object] = {
        **{name: getattr(row, name) for name in ("run_id", "environment", "triton_version", "torch_version")},
        **{name: getattr(row, name) for name in ("target", "case", "params", "cell_id")},
        "kernel": "softmax_kernel",
        "index": 0,
        "config": "",
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1,
        "options": {},
        "signature": {},
        "grid": [1, 1, 1],
        "arguments": [],
        "source_file": "s.py",
        "source_line": 1,
        "ptxas_version": "12.8.93",
        "seconds": {"ttir": 0.1},
        "artifacts": {},
        "facts": code or facts(),
        **given,
    }
    return KernelRecord(**values)  # type: ignore[arg-type]


def expect(**given: object) -> Expect:
    return Expect(**{"reason": "no such unit", "link": "https://example.org/1", **given})  # type: ignore[arg-type]
