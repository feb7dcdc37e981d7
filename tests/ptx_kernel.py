"""Small kernels in PTX, and launches of them, for tests of the evaluator."""

from __future__ import annotations

from typing import Any

from matrix.memory.evidence import MemoryEvidence, memory_evidence

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.visible .entry kernel(
    .param .u64 .ptr .global .align 1 kernel_param_0,
    .param .u32 kernel_param_1
)
.reqntid {threads}
{{
{body}
    ret;
}}
"""


def ptx(body: str, threads: int = 32) -> str:
    return HEAD.format(threads=threads, body=body)


def tensor(name: str = "x", **given: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tensor", "dtype": "fp32", "shape": [1 << 20], "strides": [1], **given}


def number(value: int, name: str = "n") -> dict[str, Any]:
    return {"name": name, "kind": "int", "value": value}


def evaluated(
    body: str,
    *,
    n: int = 0,
    grid: tuple[int, ...] = (1,),
    threads: int = 32,
    target: str = "sm_90",
    x: dict[str, Any] | None = None,
    **held: int,
) -> MemoryEvidence:
    """The figures of a kernel ``(x: *fp32, n: i32)`` with this body; ``held``: what an SM holds of it."""
    arguments = [x or tensor(), number(n)]
    signature = {"x": "*fp32", "n": "i32"}
    return memory_evidence(ptx(body, threads), arguments, grid, target, signature=signature, **held)
