"""The rows of the result tables. A field here is a Parquet column (see :mod:`matrix.storage.store` for the schema)."""

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

    ``*_bits`` count accesses by width, ``{"128": 4}``; ``occupancy_share`` is of the target's warps. From
    ``shared_wavefronts`` on: executions, evaluated from the PTX and the launch (:mod:`matrix.memory`), means a
    block; None where the launch is not known. ``busy_us`` is the launch's, by resource.
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
    shared_wavefronts: float | None = None
    shared_wavefronts_ideal: float | None = None
    global_load_sectors: float | None = None
    global_store_sectors: float | None = None
    fetched_sectors: float | None = None  # of those loaded, what L1 lacks
    global_sectors_ideal: float | None = None
    global_bytes_used: float | None = None
    bulk_bytes: float | None = None
    lanes_an_address: int | None = None  # of an atomic, at most: they take turns
    executed_instructions: float | None = None  # of the PTX
    machine_instructions: float | None = None  # of the machine code, where its loops can be weighed
    local_sectors: float | None = None  # that spills load and store, likewise
    warp_clocks: float | None = None  # that one warp takes for itself, at the least; likewise
    memory_unknown: float | None = None  # share of requests that no figure counts
    memory_note: str | None = None
    busy_us: dict[str, float] | None = None
    memory_lines: list[dict[str, float | int | str]] | None = None


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
    seconds: dict[str, float]  # of processor time, a stage of the compiler each
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
    kind: str | None = None  # what the reason is about (matrix.judging.kinds)
    # Of the timing stage alone (judging.family): None elsewhere. Ratios are candidate over baseline, the interval
    # is the one that decides, ``allowed`` what counts as equal, ``smallest_detectable`` a relative slow-down.
    speed: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    allowed: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    smallest_detectable: float | None = None
    negative_control: bool | None = None  # the same machine code, launched alike on both sides
    method: str | None = None
    method_version: int | None = None
    parameters: str | None = None  # of the method, as JSON
    # Of rows of a finding about code, values or time (matrix.explaining.chain): the first link from source to time that
    # changed, and whose change that makes it; None elsewhere, and where neither is recorded of both sides.
    first_change: str | None = None
    whose_change: str | None = None
    # Why, by whom and until when the row decides nothing though it would (judging.waivers); None where it may decide.
    waived: str | None = None


class Role(enum.StrEnum):
    """What an environment's arm is in a timing."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"
    CONTROL = "control"  # the baseline environment once more, in a worker of its own


class Decision(enum.StrEnum):
    """What the rounds of a timing say about one candidate."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # within the margin, surely
    UNDECIDED = "undecided"


class Tuning(enum.StrEnum):
    """How an autotuned kernel's configuration was chosen."""

    NONE = ""  # nothing to tune
    PINNED = "pinned"  # the baseline's winning configuration in every environment
    RETUNED = "retuned"  # each environment's own


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionRecord:
    """One dimension of one cell at the correctness stage. ``digests`` are of all outputs or references."""

    run_id: str
    host: str
    gpu_uuid: str
    environment: str
    target: str
    case: str
    params: str
    cell_id: str
    dimension: str
    outcome: str
    reason: str
    worst: float | None = None  # share of the allowance that the largest error takes
    largest_error: float | None = None
    budget: str = ""  # the tolerance that was used, in words
    output_digest: str = ""  # on the row of ``values`` alone
    reference_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRecord:
    """One arm of one timed cell. Figures against the baseline are None in the baseline's own row.

    ``*_us`` are times of one call, ``ratio`` is time over the baseline's, with the interval that decided.
    """

    run_id: str
    host: str
    gpu: str
    gpu_uuid: str
    environment: str
    role: Role
    baseline: str
    triton_version: str
    torch_version: str
    target: str
    case: str
    params: str
    cell_id: str
    tuning: Tuning
    configurations: dict[str, object]  # by kernel, what an autotuned one was launched with
    cache: str  # what was judged: "cold" (flushed before each sample) or "warm"
    calls: int  # in one sample's window
    samples: int
    rounds: int
    blocks: int
    median_us: float
    p20_us: float
    p80_us: float
    warm_median_us: float | None
    clock_mhz: float | None
    clock_cv: float | None
    decision: str  # slower, faster, same, undecided
    decision_in_time: str
    decision_in_cycles: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    cycles_ratio: float | None
    margin: float  # log-ratio up to which arms count as the same
    alpha: float  # chance of a false "slower" or "faster", over all looks
    smallest_detectable: float | None  # the smallest relative slow-down found with 95 % power
    bytes_moved: float | None
    flops: float | None
    gb_s: float | None
    tflop_s: float | None
    share_of_ceiling: float | None  # of what this GPU measured for itself
    ceiling: str  # "copy" or "matmul"
    competitor: str  # name and version; empty where the case names none
    competitor_us: float | None
    launch_us: float | None  # host time of one call, the 20th percentile: what disturbs a host only adds
    first_call_seconds: float
    problems: list[str]
    warnings: list[str]
    # Of the whole cell, all arms: GPU time with flushes, in samples alone; wall time, and of that the set-up's.
    gpu_us: float
    arms_us: float
    wall_seconds: float
    setup_seconds: float
    stopped: str  # decided, budget or looks
    method: str
    # Standard errors of the two log-ratios over blocks; how often the rounds could have been looked at.
    standard_error: float | None = None
    cycles_error: float | None = None
    looks: int | None = None
    method_version: int | None = None
    warmup_us: float | None = None  # of the whole cell, all arms, as gpu_us
    parameters: dict[str, object] | None = None  # of the measurement: looks, margin, alpha, samples ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One arm's turn in one round: its raw samples and what the GPU was seen to do meanwhile."""

    run_id: str
    cell_id: str
    environment: str
    role: Role
    tuning: Tuning
    block: int
    round: int
    cache: str
    samples_us: list[float]
    queue_full: bool
    clock_mhz: float | None
    busy_us: float  # of the GPU, flushes included
    wall_us: float  # of the whole turn
    worker_us: float  # of that, in the worker
    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    reasons: list[str]
    throttled_ns: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterRecord:
    """What the hardware counted in one launch of a red cell; one row where it could not, with the reason.

    Shares are of the peak (0 to 1), ``stalls`` warps waiting per warp that issues, by reason, the largest few.
    """

    run_id: str
    host: str
    gpu_uuid: str
    environment: str
    target: str
    case: str
    params: str
    cell_id: str
    outcome: str
    reason: str
    kernel: str = ""
    index: int = 0  # of the launch in the call
    kernel_us: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    global_load_sectors_per_request: float | None = None
    global_store_sectors_per_request: float | None = None
    shared_bank_conflicts: float | None = None
    shared_wavefronts: float | None = None
    occupancy_share: float | None = None
    matrix_pipe_share: float | None = None
    stalls: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblyRecord:
    """One kernel's PTX with one side's assembler: ``of_candidate`` says whose PTX, ``by_candidate`` whose ptxas.

    ``shows``: the reasons that its code gives against the baseline's. ``reproduced``: it is the code that the side
    whose PTX it is recorded. ``reason``: ptxas's own words where it refused.
    """

    run_id: str
    finding_id: str
    baseline: str
    candidate: str
    target: str
    case: str
    params: str
    kernel: str
    config: str
    index: int
    of_candidate: bool
    by_candidate: bool
    ptxas_version: str
    outcome: str
    reason: str
    reproduced: bool
    shows: list[str]
    facts: dict[str, object]
    artifacts: dict[str, str]
