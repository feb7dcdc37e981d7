"""Assembling PTX, whoever wrote it, as this environment's Triton has its own assembled: its ptxas, its options."""

from __future__ import annotations

import hashlib
import pathlib
import re
import time

import triton
from triton.backends.compiler import GPUTarget

from matrix.model import Outcome
from matrix.worker import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from matrix.worker.target import Profile

# Of a kernel's options, those that a release hands to its assembler.
_ASSEMBLERS = ("enable_fp_fusion", "ptx_options")


def answer(request: dict[str, Any], profile: Profile, ptxas_version: str) -> dict[str, Any]:
    """The cubin's digest in the spool, or ptxas's own words for refusing the text."""
    spool, started = pathlib.Path(request["spool"]), time.perf_counter()
    part = {"config": "", "kernels": [], "ptxas_version": ptxas_version, "cubin": ""}
    try:
        cubin = _assemble(pathlib.Path(request["ptx"]).read_text(), request["options"], profile)
    except Exception as error:  # whatever the release makes of its assembler's failure
        said = _own_words(failures.full_text(error))
        reason = said or failures.reason(error)
        outcome = Outcome.COMPILE_ERROR if said else Outcome.CRASH
        seconds = time.perf_counter() - started
        return {**part, "outcome": outcome, "reason": reason, "detail": failures.detail(error), "seconds": seconds}
    digest = hashlib.sha256(cubin).hexdigest()
    (spool / digest).write_bytes(cubin)
    seconds = time.perf_counter() - started
    return {**part, "outcome": Outcome.PASSED, "reason": "", "detail": "", "seconds": seconds, "cubin": digest}


def _assemble(text: str, options: dict[str, Any], profile: Profile) -> bytes:
    backend = triton.backends.backends["nvidia"].compiler(GPUTarget(profile.backend, profile.arch, profile.warp_size))
    given = {name: options[name] for name in _ASSEMBLERS if options.get(name) is not None}
    code: bytes = backend.make_cubin(text, {}, backend.parse_options(given), profile.arch)
    return code


def _own_words(text: str) -> str:
    """The first complaint of ptxas, without the name of the temporary file; empty where it has none."""
    lines = (re.sub(r"^ptxas \S+\.ptx, ", "ptxas ", line.strip()) for line in text.splitlines())
    said = [" ".join(line.split()) for line in lines if re.match(r"ptxas .*(error|fatal)", line)]
    return said[0] if said else ""
