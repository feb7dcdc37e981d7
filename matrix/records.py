"""The rows of the result tables. A field here is a Parquet column (see :mod:`matrix.store` for the schema)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class Verdict(enum.StrEnum):
    """What changed between the baseline's cell and the candidate's."""

    REGRESSED = "regressed"
    CODE_RISK = "code_risk"
    MIXED = "mixed"
    IMPROVED = "improved"
    CHANGED = "changed"  # other code, no risk seen
    IDENTICAL = "identical"  # the same SASS
    EQUAL = "equal"  # the same outcome, and no code to compare
    KNOWN = "known"  # a difference that the case expects, with reason and link
    UNEXPECTED_PASS = "unexpected_pass"  # noqa: S105 - no password
    UNSUPPORTED = "unsupported"  # in both environments
    INCOMPLETE = "incomplete"  # something needed for a verdict is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """One cell at one stage."""

    run_id: str
    host: str
    environment: str
    triton_version: str
    torch_version: str
    target: str
    case: str
    params: str
    cell_id: str
    stage: str
    outcome: str
    reason: str
    detail: str
    seconds: float
    started_at: datetime
    cached: bool = False
    expected: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """What the generated code of one kernel shows. Counts are SASS instructions, not executions.

    ``*_bits`` count accesses by width, ``{"128": 4}``; ``occupancy_share`` is of the target's warps.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int
    tensor_memory_columns: int
    occupancy_blocks: int
    occupancy_share: float
    occupancy_limit: str
    code_bytes: int
    instructions: int
    barriers: int
    shuffles: int
    atomics: int
    global_loads: int
    global_stores: int
    shared_loads: int
    shared_stores: int
    local_loads: int
    local_stores: int
    async_copies: int
    bulk_copies: int
    ldmatrix: int
    stmatrix: int
    fma: int
    global_load_bits: dict[str, int]
    global_store_bits: dict[str, int]
    shared_load_bits: dict[str, int]
    shared_store_bits: dict[str, int]
    matrix_ops: dict[str, int]
    matrix_pipe: dict[str, int]
    dtypes: list[str]
    ttir_hash: str
    ttgir_hash: str
    llir_hash: str
    ptx_hash: str
    cubin_hash: str
    sass_hash: str
    hazards: list[dict[str, str | int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """One compiled kernel: where it comes from, how it was compiled, and its facts."""

    run_id: str
    environment: str
    triton_version: str
    torch_version: str
    target: str
    case: str
    params: str
    cell_id: str
    kernel: str
    index: int
    config: str
    num_warps: int
    num_stages: int
    num_ctas: int
    options: dict[str, object]
    signature: dict[str, str]
    grid: list[int] | None
    arguments: list[dict[str, object]]
    source_file: str
    source_line: int
    ptxas_version: str
    seconds: dict[str, float]
    artifacts: dict[str, str]
    facts: KernelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRecord:
    """The candidate's cell against the baseline's, at one stage."""

    run_id: str
    baseline: str
    candidate: str
    target: str
    case: str
    params: str
    stage: str
    verdict: Verdict
    reason_code: str
    change: str
    baseline_value: float | None = None
    candidate_value: float | None = None
    severity: int = 0
    finding_id: str = ""
    known: str = ""
    link: str = ""
    kernel: str = ""
    baseline_cell_id: str = ""
    candidate_cell_id: str = ""
    detail: str = ""
