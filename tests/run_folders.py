"""Synthetic run folders: what a run of 3.5.1 against 3.6.0 and 3.9.0 leaves, made without any compiler.

The rows go through the program's own judge and store, so that a folder from here is laid out like a real one.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import judged
import timed

from matrix.case import Expect
from matrix.judging.judge_tables import judge
from matrix.judging.thresholds import Thresholds
from matrix.model import CPU, DEFAULT_TARGETS, Cell, Outcome, Stage, Target, safe
from matrix.records import ArmRecord, CellRecord, DimensionRecord, KernelFacts, KernelRecord, RoundRecord
from matrix.storage import store
from matrix.storage.artifacts import Artifacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Point = dict[str, int | str]

BASELINE = "triton3.5.1-torch2.9.1"
NEXT = "triton3.6.0-torch2.11.0"
NEWEST = "triton3.9.0-torch2.15.0"
TORCH_BUILD = "2.13.0+cpu"
HOSTILE = "<script>alert(1)</script>"
STARTED = dt.datetime(2026, 11, 30, 1, 48, 7, tzinfo=dt.UTC)

_TRITON = {BASELINE: "3.5.1", NEXT: "3.6.0", NEWEST: "3.9.0"}
_TORCH = {BASELINE: "2.9.1", NEXT: "2.11.0", NEWEST: "2.15.0"}
_PTXAS = {BASELINE: ("12.8.93", "12.8.93"), NEXT: ("12.8.93", "12.9.86"), NEWEST: ("12.9.86", "13.4.59")}
_POINTS = ({"rows": 8192, "cols": 4096, "dtype": "fp16"}, {"rows": 4097, "cols": 1023, "dtype": "bf16"})
_SHAPES = ({"rows": 1, "cols": 1}, {"rows": 4097, "cols": 4096})
_BUILT_IN = (
    "vector_add",
    "softmax",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "column_max_tma",
    "column_max_pointers",
    "cross_entropy",
    "rope",
    "swiglu",
    "cumsum",
    "associative_scan",
    "top_k",
    "embedding_gather",
    "histogram_atomics",
    "matmul_pointers",
    "matmul_tma",
    "matmul_persistent",
    "matmul_fp8",
    "matmul_split_k",
    "attention_forward",
    "dequantise_int4_matmul",
    "philox_dropout",
)
_DOCUMENTED = ("upcast_dot_spills", "fp8_dot_on_blackwell", "negative_zero_constant", "block_pointers")
_NOT_BEFORE_HOPPER = {"column_max_tma", "matmul_tma", "matmul_persistent"}

TTGIR = """\
#blocked = #ttg.blocked<{{sizePerThread = {per_thread}, threadsPerWarp = {per_warp}, order = [1, 0]}}>
#loc1 = loc("/somewhere/kernels/column_max.py":31:0)
module attributes {{"ttg.num-warps" = 4 : i32, ttg.target = "cuda:{arch}"}} {{
  tt.func public @{kernel}(%x: !tt.tensordesc<tensor<16x128xf16>>, %n: i32) {{
    %c0 = arith.constant {constant} : i32 loc(#loc1)
    %buffer = ttg.local_alloc : () -> !ttg.memdesc<16x128xf16, #shared, #smem, mutable> loc(#loc1)
    %tile = ttg.local_load %buffer : !ttg.memdesc<16x128xf16, #shared, #smem> -> tensor<16x128xf16, #blocked>
    %best = "tt.reduce"(%tile) <{{axis = 0 : i32}}> ({{
    ^bb0(%a: f16, %b: f16):
      %m = arith.maxnumf %a, %b : f16
      tt.reduce.return %m : f16
    }}) : (tensor<16x128xf16, #blocked>) -> tensor<128xf16, #ttg.slice<{{dim = 0, parent = #blocked}}>>
    tt.return loc(#loc1)
  }}
}}
"""


def build(
    folder: Path,
    *,
    candidates: Sequence[str] = (NEXT,),
    quiet: bool = False,
    host: str = "builder-1",
    run_id: str = "20261130T014807Z-7f3a",
    hostile: bool = True,
    gpu: bool = False,
) -> Path:
    """A run folder; ``quiet``: every environment makes the same code; ``gpu``: with cells of an H200."""
    folder.mkdir(parents=True)
    names = [*_BUILT_IN, *_DOCUMENTED, *([HOSTILE] if hostile else [])]
    cells, kernels = [], []
    artifacts = Artifacts(folder / "artifacts")
    artifacts.folder.mkdir()
    for environment in (BASELINE, *candidates):
        for name in names:
            for cell in _cells(environment, name, run_id=run_id, host=host, quiet=quiet):
                cells.append(cell)
                if cell.stage == Stage.COMPILE and cell.outcome == Outcome.PASSED:
                    kernels.append(_kernel(cell, artifacts, quiet=quiet))
    arms, rounds, dimensions = _on_a_gpu(candidates, run_id, host) if gpu else ([], [], [])
    cells += _gpu_cells(arms, dimensions)
    verdicts = judge(
        cells,
        kernels,
        run_id=run_id,
        baseline=BASELINE,
        candidates=candidates,
        expectations=_expectations(),
        thresholds=Thresholds(),
        timings=arms,
        dimensions=dimensions,
    )
    store.write_cells(folder, cells)
    store.write_evidence(folder, kernels)
    store.write_verdicts(folder, verdicts)
    store.write_timings(folder, arms)
    store.write_rounds(folder, rounds)
    store.write_dimensions(folder, dimensions)
    meta = _meta(run_id, host, names, candidates) | (_gpu_meta() if gpu else {})
    (folder / "run.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder


def _expectations() -> dict[str, list[Expect]]:
    block_pointers = Expect(
        reason="3.9 removed block pointers; the descriptor twin replaces them",
        link="https://github.com/pytorch/pytorch/issues/191012",
        outcome="compile_error",
        triton=">=3.9",
    )
    spills = Expect(
        reason="the upcast operand goes through registers",
        link="triton#11526",
        change="spills_appeared",
        triton=">=3.6",
    )
    hostile = Expect(reason="never mind", link="javascript:alert(1)", change="spills_appeared")
    return {"block_pointers": [block_pointers], "upcast_dot_spills": [spills], HOSTILE: [hostile]}


def _cells(environment: str, name: str, *, run_id: str, host: str, quiet: bool) -> Iterator[CellRecord]:
    yield _cell(environment, CPU, name, {}, Stage.IMPORT, quiet=quiet, run_id=run_id, host=host)
    for target in DEFAULT_TARGETS:
        for point in _POINTS:
            yield _cell(environment, str(target), name, point, Stage.COMPILE, quiet=quiet, run_id=run_id, host=host)
    for point in _SHAPES:
        yield _cell(environment, CPU, name, point, Stage.INTERPRET, quiet=quiet, run_id=run_id, host=host)


def _cell(
    environment: str,
    target: str,
    name: str,
    point: Point,
    stage: Stage,
    *,
    quiet: bool,
    run_id: str,
    host: str,
) -> CellRecord:
    cell = Cell.of(environment, target, name, point)
    outcome, reason, detail = _outcome(environment, target, name, point, stage, quiet=quiet)
    return CellRecord(
        run_id=run_id,
        host=host,
        environment=environment,
        triton_version=_TRITON[environment],
        torch_version=TORCH_BUILD,
        target=target,
        case=name,
        params=",".join(f"{key}={value}" for key, value in point.items()),
        cell_id=cell.id,
        stage=stage,
        outcome=outcome,
        reason=reason,
        detail=detail,
        seconds=0.12,
        started_at=STARTED,
        cached=target == Target.SM_80,
    )


def _outcome(  # noqa: PLR0911
    environment: str, target: str, name: str, point: Point, stage: Stage, *, quiet: bool
) -> tuple[Outcome, str, str]:
    if name in _NOT_BEFORE_HOPPER and target == Target.SM_80:
        return Outcome.UNSUPPORTED, "TMA descriptors need sm_90", ""
    if name == "matmul_fp8" and target == Target.SM_80:
        return Outcome.UNSUPPORTED, "fp8e4nv is not supported on sm_80", ""
    if name == "matmul_persistent" and target == Target.SM_120:
        return (
            Outcome.DOES_NOT_FIT,
            "out of resource: shared memory, 131072 B required, 101376 B available",
            "",
        )
    if quiet or environment == BASELINE:
        return Outcome.PASSED, "", ""
    if name == "embedding_gather" and target == Target.SM_120 and environment == NEXT:
        stderr = "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.ldmatrix.sync\nPlease submit a bug report"
        return Outcome.COMPILER_ABORT, "SIGABRT in the compile of _gather_kernel (make_llir)", stderr
    if name == "block_pointers" and environment == NEWEST and stage == Stage.COMPILE:
        return (
            Outcome.COMPILE_ERROR,
            "CompilationError: block pointers were removed",
            "at 12:18: tl.make_block_ptr(",
        )
    if name == "associative_scan" and stage == Stage.INTERPRET and point["rows"] == 4097:
        detail = "max |out - ref| = 3.7 at [4096, 17]; tolerance 0.001; 1023 of 16781312 elements"
        return Outcome.WRONG, "", detail
    if name == "philox_dropout" and environment == NEWEST and target == Target.SM_100:
        return Outcome.TIMEOUT if point["rows"] == 4097 else Outcome.INTERRUPTED, "no answer for 120 s", ""
    return Outcome.PASSED, "", ""


def _facts(name: str, point_rows: str) -> KernelFacts:
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:6], 16)
    matrix = "matmul" in name or "attention" in name or "dot" in name
    return KernelFacts(
        registers=24 + seed % 90,
        stack_bytes=0,
        shared_bytes=4104 + 1024 * (seed % 7),
        tensor_memory_columns=0,
        occupancy_blocks=16,
        occupancy_share=1.0,
        occupancy_limit="warps",
        code_bytes=1800 + seed % 9000,
        instructions=110 + seed % 560,
        barriers=5,
        shuffles=0 if "column" in name else 10,
        atomics=2 if "atomics" in name else 0,
        global_loads=4,
        global_stores=2,
        shared_loads=6,
        shared_stores=14,
        local_loads=0,
        local_stores=0,
        async_copies=0,
        bulk_copies=1 if "tma" in name else 0,
        ldmatrix=0,
        stmatrix=0,
        fma=seed % 40,
        global_load_bits={"128": 4},
        global_store_bits={"128": 2},
        shared_load_bits={"128": 4, "32": 2},
        shared_store_bits={"64": 14},
        matrix_ops={"wgmma.m64n128k16.f32.f16.f16": 8} if matrix else {},
        matrix_pipe={"HGMMA": 8} if matrix else {},
        dtypes=["fp16"],
        ttir_hash=_digest(name, "ttir"),
        ttgir_hash=_digest(name, "ttgir"),
        llir_hash=_digest(name, "llir"),
        ptx_hash=_digest(name, "ptx"),
        cubin_hash=_digest(name, "cubin"),
        sass_hash=_digest(name, "sass", point_rows),
        hazards=[
            {
                "kind": "masked_load_without_other",
                "line": 14,
                "file": f"{name}.py",
                "detail": "the undefined lanes of %x reach tt.reduce",
            }
        ]
        if name in {"rms_norm", HOSTILE}
        else [],
    )


def _moved(environment: str, target: str, name: str, facts: KernelFacts) -> KernelFacts:  # noqa: PLR0911
    """What the candidates do to the code, case by case."""

    def code(*stages: str) -> dict[str, str]:
        return {f"{stage}_hash": _digest(name, stage, environment) for stage in (*stages, "cubin", "sass")}

    late = code("ttgir", "llir", "ptx")
    if name == "column_max_tma" and environment == NEXT and target != Target.SM_120:
        return replace(facts, registers=25, barriers=10, shuffles=16, shared_stores=26,
                       shared_store_bits={"64": 26}, instructions=facts.instructions + 81,
                       code_bytes=facts.code_bytes + 1296, **late)  # fmt: skip
    if name == "layer_norm_backward" and environment == NEXT and target == Target.SM_100:
        return replace(facts, registers=168, occupancy_share=0.5, occupancy_blocks=8,
                       occupancy_limit="registers", **code("ptx"))  # fmt: skip
    if name == "matmul_split_k" and environment == NEWEST:
        return replace(facts, stack_bytes=288, local_loads=31, local_stores=24, registers=255, **late)
    if name == "matmul_split_k":
        return replace(facts, stack_bytes=48, local_loads=6, local_stores=6, shared_bytes=1024,
                       occupancy_share=1.0, **late)  # fmt: skip
    if name in {"upcast_dot_spills", HOSTILE}:
        return replace(facts, stack_bytes=64, local_loads=8, local_stores=8, **late)
    if name == "fp8_dot_on_blackwell" and target == Target.SM_120:
        return replace(facts, matrix_ops={"mma.m16n8k32.f32.e4m3.e4m3": 8}, matrix_pipe={"QMMA": 8}, **late)
    if name == "top_k" and target != Target.SM_80:
        return replace(facts, barriers=2, shuffles=2, shared_stores=4, shared_store_bits={"64": 4},
                       registers=facts.registers - 4, **late)  # fmt: skip
    if name in {"swiglu", "rope", "attention_forward", "cross_entropy"}:
        return replace(facts, registers=facts.registers + 1, **code("ttir", "ttgir", "llir", "ptx"))
    return facts


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def _kernel(cell: CellRecord, artifacts: Artifacts, *, quiet: bool) -> KernelRecord:
    facts = _facts(cell.case, cell.params)
    if cell.case == "fp8_dot_on_blackwell" and cell.target == Target.SM_120:
        facts = replace(facts, matrix_ops={"mma.m16n8k16.f32.f16.f16": 16}, matrix_pipe={"HMMA": 16})
    if cell.environment != BASELINE and not quiet:
        facts = _moved(cell.environment, cell.target, cell.case, facts)
    kernel = f"_{cell.case}_kernel"
    newer = cell.environment != BASELINE
    hopper, blackwell = _PTXAS[cell.environment]
    return KernelRecord(
        run_id=cell.run_id,
        environment=cell.environment,
        triton_version=cell.triton_version,
        torch_version=cell.torch_version,
        target=cell.target,
        case=cell.case,
        params=cell.params,
        cell_id=cell.cell_id,
        kernel=kernel,
        index=0,
        config="",
        num_warps=4,
        num_stages=3,
        num_ctas=1,
        options={"num_warps": 4, "enable_fp_fusion": True, "extern_libs": f"/{cell.environment}/libdevice.bc"}
        | ({"instrumentation_mode": ""} if newer else {}),
        signature={"x_ptr": "*fp16", "n": "i32"},
        grid=[64, 1, 1],
        arguments=[{"name": "x_ptr", "kind": "tensor", "dtype": "fp16", "shape": [8192, 4096]}],
        source_file=f"{cell.case}.py",
        source_line=12,
        ptxas_version=blackwell if cell.target in {Target.SM_100, Target.SM_120} else hopper,
        seconds={"ttir": 0.01, "ttgir": 0.02, "llir": 0.04, "ptx": 0.02, "cubin": 0.05},
        artifacts={kind: artifacts.put(text.encode()) for kind, text in _code(cell, kernel, facts).items()},
        facts=facts,
    )


def _code(cell: CellRecord, kernel: str, facts: KernelFacts) -> dict[str, str]:
    wide = facts.barriers <= 5
    ttgir = TTGIR.format(
        kernel=kernel,
        constant=int(facts.ttgir_hash[:4], 16),
        arch=cell.target.removeprefix("sm_"),
        per_thread="[1, 1]" if wide else "[1, 8]",
        per_warp="[1, 32]" if wide else "[2, 16]",
    )
    source = f"def {kernel}(x_ptr, n, BLOCK: tl.constexpr):\n    offs = tl.arange(0, BLOCK)\n"
    source += "    x = tl.load(x_ptr + offs, mask=offs < n)\n    tl.store(x_ptr, tl.max(x, axis=0))\n"
    return {
        "source": source,
        "ttir": f"module {{\n  tt.func public @{kernel}() {{\n    tt.return\n  }}\n}}\n",
        "ttgir": ttgir,
        "ptx": _ptx(kernel, cell.target, facts),
        "sass": _sass(facts),
    }


def _ptx(kernel: str, target: str, facts: KernelFacts) -> str:
    lines = [f".version 8.7\n.target {target}a\n.visible .entry {kernel}() {{"]
    lines.append(f"    mov.b32 %r0, 0x{facts.ptx_hash[:6]};")
    lines += [f"    bar.sync {place};" for place in range(facts.barriers)]
    lines += [f"    shfl.sync.bfly.b32 %r{place}, %r{place + 1}, 16, 31, -1;" for place in range(facts.shuffles)]
    lines += [f"    st.shared.v2.b32 [%r{place}], {{%r1, %r2}};" for place in range(facts.shared_stores)]
    return "\n".join([*lines, "    ret;", "}", "    .section .debug_info { 1 }"])


def _sass(facts: KernelFacts) -> str:
    code = ["LDC R1, c[0x0][0x28]", "S2R R0, SR_TID.X"]
    code += ["LDG.E.128 R4, desc[UR4][R2.64]"] * facts.global_loads
    code += ["STS.64 [R6], R4"] * facts.shared_stores
    code += ["BAR.SYNC.DEFER_BLOCKING 0x0"] * facts.barriers
    code += ["SHFL.BFLY PT, R9, R8, 0x10, 0x1f"] * facts.shuffles
    code += ["@!P0 LDL R7, [R1]"] * facts.local_loads + ["STL [R1], R7"] * facts.local_stores
    code += [f"FADD R{10 + place % 60}, R{place % 9}, R{place % 7}" for place in range(80)]
    return "\n".join(
        f"        /*{16 * place:04x}*/                   {line} ;   /* 0x{place:016x} */"
        for place, line in enumerate([*code, "EXIT"])
    )


def _meta(run_id: str, host: str, names: Sequence[str], candidates: Sequence[str]) -> dict[str, object]:
    return {
        "schema": store.SCHEMA_VERSION,
        "run_id": run_id,
        "started_at": STARTED.isoformat(),
        "finished_at": (STARTED + dt.timedelta(seconds=94.2)).isoformat(),
        "request": {
            "baseline": BASELINE,
            "candidates": list(candidates),
            "targets": [str(target) for target in DEFAULT_TARGETS],
            "cases": [],
            "stages": ["import", "compile", "interpret"],
            "kernels": [],
        },
        "host": {
            "name": host,
            "system": "Linux 6.1.0",
            "processor": "x86_64",
            "cores": 2,
            "memory_bytes": 16 << 30,
        },
        "environments": [_environment(name) for name in (BASELINE, *candidates)],
        "cases": [
            {
                "name": name,
                "file": f"kernels/{'regressions/' if name in _DOCUMENTED else ''}{safe(name)}.py",
                "digest": _digest(name),
                "tags": ["builtin"],
                "targets": [],
                "expectations": [],
            }
            for name in names
        ],
        "not_run": [{"what": "correctness, timing, counters", "why": "this host has no GPU"}],
        "exit_code": 1,
        "thresholds": asdict(Thresholds()),
        "tools": {"nvdisasm": "13.5.37", "cuobjdump": "13.5.37", "uv": "0.9.1"},
    }


def _on_a_gpu(
    candidates: Sequence[str], run_id: str, host: str
) -> tuple[list[ArmRecord], list[RoundRecord], list[DimensionRecord]]:
    """What an H200 measured of 3.5.1 and 3.6.0 for the first candidate, and cells of every other verdict."""
    candidate = candidates[0]
    of_run = {"run_id": run_id, "host": host, "torch_version": TORCH_BUILD}
    arms, rounds = timed.recorded(BASELINE, candidate, **of_run)
    rounds = [replace(r, run_id=run_id) for r in rounds]

    def cell(case: str, params: str, given: dict[str, object], **both: object) -> None:
        for role in timed.Role:
            environment = candidate if role is timed.Role.CANDIDATE else BASELINE
            own = {"environment": environment, "cell_id": f"{environment}/sm_90/{case}:{params}", "baseline": BASELINE}
            own |= {"case": case, "params": params, **of_run, **both}
            arms.append(timed.arm(role, **{**own, **(given if role is timed.Role.CANDIDATE else {})}))

    cell("top_k", "rows=4096,dtype=fp16", timed.ratio(0.62, "faster"), competitor="torch 2.13.0", competitor_us=210.0)
    cell(
        "rope",
        "rows=4096,dtype=fp16",
        timed.ratio(1.013, "slower"),
        tflop_s=612.0,
        ceiling="matmul",
        share_of_ceiling=0.82,
    )
    cell("swiglu", "rows=8,dtype=fp16", timed.ratio(1.02, "undecided", spread=0.05))
    cell("cumsum", "rows=8,dtype=fp32", {"problems": ["hw_thermal_slowdown in one arm and not in the other"]})
    cell("softmax", "rows=4096,dtype=fp16", {"launch_us": 48.0, "warnings": ["sw_power_cap for 12.0 ms"]})
    for tuning, given in (("pinned", {}), ("retuned", timed.ratio(1.31, "slower"))):
        chosen = {"matmul_kernel": {"BLOCK_M": 64 if tuning == "retuned" else 128, "num_warps": 8}}
        before = {"matmul_kernel": {"BLOCK_M": 128, "num_warps": 8}}
        cell("matmul_autotuned", f"m=4096,tuning={tuning}", {**given, "configurations": chosen},
             tuning=timed.Tuning(tuning), configurations=before)  # fmt: skip
    return arms, rounds, list(_dimensions(candidate, run_id, host))


def _dimensions(candidate: str, run_id: str, host: str) -> Iterator[DimensionRecord]:
    for environment in (BASELINE, candidate):
        newer = environment == candidate
        for case in ("softmax", "rms_norm", "layer_norm", "cross_entropy", "matmul_tma"):
            params = "rows=4097,dtype=fp16"
            place = {"run_id": run_id, "host": host, "case": case, "params": params}
            place |= {"cell_id": f"{environment}/sm_90/{case}:{params}"}
            values = {"output_digest": "f" * 64} if newer and case in ("rms_norm", "layer_norm") else {}
            values |= {"largest_error": 4e-4, "worst": 0.71} if newer and case == "rms_norm" else {}
            values |= {"reference_digest": "e" * 64} if newer and case == "cross_entropy" else {}
            yield timed.dimension(environment, **place, **values)
            wrong = newer and case == "matmul_tma"
            said = {"outcome": "wrong", "reason": "NaN at [3, 7] did not propagate"} if wrong else {}
            yield timed.dimension(environment, "special_values", **place, **said)
            yield timed.dimension(environment, "strided", "refused", reason="ValueError: strides", **place)


def _gpu_cells(arms: Sequence[ArmRecord], dimensions: Sequence[DimensionRecord]) -> Iterator[CellRecord]:
    places = {(a.environment, a.case, a.params): ("timing", "passed") for a in arms}
    for row in dimensions:
        key = (row.environment, row.case, row.params)
        failed = row.outcome == "wrong" or places.get(key) == ("correctness", "wrong")
        places[key] = ("correctness", "wrong" if failed else "passed")
    of_run = {name: getattr(arms[0], name) for name in ("run_id", "host", "torch_version")} if arms else {}
    for (environment, case, params), (stage, outcome) in places.items():
        version = {"triton_version": _TRITON[environment]}
        yield judged.cell(environment, outcome, case=case, params=params, stage=stage, **of_run, **version)


def _gpu_meta() -> dict[str, object]:
    spins = ("20.0 us", "100.0 us", "1 ms")
    proofs = [{"name": f"spin of {each}", "found": "read +0.20% off", "fit": True, "figures": {}} for each in spins]
    gpu = {
        "uuid": timed.UUID, "name": timed.GPU, "driver": "580.159.04", "target": "sm_90", "power_limit_w": 700.0,
        "largest_sm_mhz": 1980, "memory_bytes": 150754820096, "l2_bytes": 62914560, "copy_gb_s": 4297.1,
        "matmul_bf16_tflop_s": 742.4, "proofs": proofs, "flushes_gpu_s": 20.0,
        "timing_wall_s": 140.0, "arms_gpu_s": 103.0,
    }  # fmt: skip
    return {"gpus": [gpu], "not_run": [{"what": "counters", "why": "not part of this release"}]}


def _environment(name: str) -> dict[str, object]:
    packages = {
        "triton": _TRITON[name],
        "torch": TORCH_BUILD,
        "numpy": "2.3.5",
        "sympy": "1.14.0",
        "filelock": "3.20.0" if name == BASELINE else "3.21.2",
        "jinja2": "3.1.6",
        "networkx": "3.5",
    }
    return {
        "id": name,
        "triton": _TRITON[name],
        "torch": _TORCH[name],
        "torch_build": TORCH_BUILD,
        "python": "3.12.11",
        "numpy": "2.3.5",
        "stock": True,
        "tags": [],
        "as_of": {BASELINE: "2025-11-12", NEXT: "2026-01-21", NEWEST: "2026-11-20"}[name],
        "variables": {},
        "digest": _digest(name, "environment"),
        "lock": [{"name": k, "version": v, "sha256": _digest(k, v)} for k, v in packages.items()],
        "label": "torch 2.13.0+cpu supplies tensors and references only",
        "error": "",
    }
