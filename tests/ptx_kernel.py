"""Small kernels in PTX, and launches of them, for tests of the evaluator."""

from __future__ import annotations

from typing import Any

from matrix.memory.evidence import Compiled, MemoryEvidence, memory_evidence

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

# The thread and the parameters; the address of its element, so many bytes apart.
TID = "mov.u32 %r1, %tid.x;\nld.param.b64 %rd1, [kernel_param_0];\nld.param.b32 %r9, [kernel_param_1];\n"
ADDRESS = "mul.wide.u32 %rd2, %r1, {stride};\nadd.s64 %rd3, %rd1, %rd2;\n"


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
    **compiled: Any,
) -> MemoryEvidence:
    """The figures of a kernel ``(x: *fp32, n: i32)`` with this body; ``compiled``: what ptxas made of it."""
    arguments = [x or tensor(), number(n)]
    signature = {"x": "*fp32", "n": "i32"}
    made = Compiled(**compiled)
    return memory_evidence(ptx(body, threads), arguments, grid, target, signature=signature, compiled=made)
