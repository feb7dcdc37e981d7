"""Facts of compiled kernels, read off their artefacts: pure, apart from the disassembler's one call a batch.

Barriers, shuffles and accesses are counted in SASS: what the GPU executes, ptxas's work included. PTX differs
a little (fact F6's reduction has one ``shfl.sync`` more, for the warp's number, which ptxas removes).
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from matrix.code import cubin, disassembler, hazards, ir, ptx, sass
from matrix.code.occupancy import WARP_SIZE, occupancy
from matrix.errors import ExitCode, MatrixError
from matrix.memory.evidence import Compiled, memory_evidence
from matrix.records import KernelFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    _Loaded = tuple["Artifacts", cubin.CubinFunction]

# Figures that facts and matrix.memory.evidence name alike.
_MEMORY = (
    "shared_wavefronts",
    "shared_wavefronts_ideal",
    "global_load_sectors",
    "global_store_sectors",
    "fetched_sectors",
    "global_sectors_ideal",
    "global_bytes_used",
    "bulk_bytes",
    "lanes_an_address",
    "executed_instructions",
    "machine_instructions",
    "local_sectors",
    "warp_clocks",
    "busy_us",
)


class EvidenceError(MatrixError):
    """A kernel's artefacts are missing or cannot be read."""

    exit_code = ExitCode.INCOMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """What one kernel was compiled into. Texts of a stage that a release does not keep are empty."""

    ttir: str
    ttgir: str
    llir: str
    ptx: str
    cubin: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvidence:
    """The facts and the SASS text of one kernel, or the error that kept them from being read."""

    facts: KernelFacts | None
    sass: str = ""
    error: str = ""


def kernel_facts_batch(
    kernels: Sequence[Mapping[str, Any]], read_artifact: Callable[[str], bytes], target: str
) -> list[KernelEvidence]:
    """The evidence of many kernels of one target (``"sm_90"``), in order, through one disassembler call.

    ``kernels`` are as workers report them; ``read_artifact`` gives the bytes for a hash in their
    ``artifacts``. A kernel that cannot be read has its ``error`` set and costs no other its facts. Raises
    ``DisassemblerError`` where there is no working disassembler, ``UnknownTargetError`` for a target
    without limits.
    """
    loaded = [_loaded(kernel, read_artifact) for kernel in kernels]
    codes = [item[1].text if isinstance(item, tuple) else b"" for item in loaded]
    texts = disassembler.disassemble(codes, target)
    rows = zip(kernels, loaded, texts, strict=True)
    return [_evidence(kernel, item, text, target) for kernel, item, text in rows]


def facts(
    kernel: Mapping[str, Any],
    artifacts: Artifacts,
    function: cubin.CubinFunction,
    sass_text: str,
    target: str,
) -> KernelFacts:
    """The facts of one kernel, given its machine code (``function``) and that code's SASS text."""
    counts = sass.count(sass_text)
    shared_bytes = int(kernel.get("shared_bytes") or 0)
    columns = int(kernel.get("tensor_memory_columns") or 0)
    fit = occupancy(
        target,
        registers=function.registers,
        num_warps=ptx.threads(artifacts.ptx) // WARP_SIZE or int(kernel["num_warps"]),
        shared_bytes=shared_bytes,
        tensor_memory_columns=columns,
    )
    return KernelFacts(
        registers=function.registers,
        stack_bytes=function.stack_bytes,
        shared_bytes=shared_bytes,
        tensor_memory_columns=columns,
        occupancy_blocks=fit.blocks,
        occupancy_share=fit.share,
        occupancy_limit=str(fit.limit),
        code_bytes=len(function.text),
        **asdict(counts),
        global_loads=counts.global_loads,
        global_stores=counts.global_stores,
        shared_loads=counts.shared_loads,
        shared_stores=counts.shared_stores,
        matrix_ops=ptx.matrix_ops(artifacts.ptx),
        dtypes=ir.interface_dtypes(artifacts.ttir),
        ttir_hash=_hash_text(ir.canonical_mlir(artifacts.ttir)),
        ttgir_hash=_hash_text(ir.canonical_mlir(artifacts.ttgir)),
        llir_hash=_hash_text(ir.canonical_llir(artifacts.llir)),
        ptx_hash=_hash_text(ptx.canonical(artifacts.ptx)),
        cubin_hash=_hash(artifacts.cubin),
        sass_hash=_hash(function.text),
        hazards=[asdict(hazard) for hazard in hazards.hazards(artifacts.ttir)],
        **_memory(
            kernel,
            artifacts.ptx,
            target,
            Compiled(resident=fit.blocks, shared_bytes=shared_bytes, sass=sass_text, code=function.text),
        ),
    )


def _memory(kernel: Mapping[str, Any], text: str, target: str, compiled: Compiled) -> dict[str, Any]:
    """Figures of the launch's memory traffic; none where the launch is not known or cannot be evaluated."""
    if not kernel.get("grid") or not text:
        return {}
    try:
        found = memory_evidence(
            text,
            kernel["arguments"],
            kernel["grid"],
            target,
            signature=kernel["signature"],
            threads=int(kernel["num_warps"]) * WARP_SIZE,
            compiled=compiled,
        )
    except ValueError as error:
        return {"memory_note": str(error)}
    return {
        "memory_unknown": found.unknown,
        "memory_note": found.note,
        "memory_lines": found.lines,
        **{name: getattr(found, name) for name in _MEMORY},
    }


def _loaded(kernel: Mapping[str, Any], read_artifact: Callable[[str], bytes]) -> _Loaded | MatrixError:
    try:
        artifacts = _artifacts(kernel, read_artifact)
        return artifacts, cubin.function(artifacts.cubin, str(kernel["name"]))
    except MatrixError as error:
        return error


def _artifacts(kernel: Mapping[str, Any], read_artifact: Callable[[str], bytes]) -> Artifacts:
    hashes = kernel["artifacts"]
    if "cubin" not in hashes:
        raise EvidenceError(f"kernel {kernel['name']}: no cubin among its artefacts ({', '.join(hashes)})")
    texts = {
        kind: read_artifact(hashes[kind]).decode("utf-8", "replace") if kind in hashes else ""
        for kind in ("ttir", "ttgir", "llir", "ptx")
    }
    return Artifacts(**texts, cubin=read_artifact(hashes["cubin"]))


def _evidence(kernel: Mapping[str, Any], loaded: _Loaded | MatrixError, text: str, target: str) -> KernelEvidence:
    if isinstance(loaded, MatrixError):
        return KernelEvidence(facts=None, error=str(loaded))
    if not text:
        error = f"kernel {kernel['name']}: its code does not disassemble as {target}"
        return KernelEvidence(facts=None, error=error)
    artifacts, function = loaded
    return KernelEvidence(facts=facts(kernel, artifacts, function, text, target), sass=text)


def _hash_text(text: str) -> str:
    return _hash(text.encode()) if text.strip() else ""


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
