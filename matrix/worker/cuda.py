"""The GPU of this process, and what an error on it means for the cell and for the process."""

from __future__ import annotations

import torch

from matrix.model import Outcome
from matrix.worker import failures
from matrix.worker.outputs import NoOutputsError


def current_device() -> torch.device:
    """The device that everything here runs on. The seam: tests stand a fake device in here."""
    return torch.device("cuda", torch.cuda.current_device())


def is_cuda_error(error: BaseException) -> bool:
    """Whether the error has (or may have) poisoned this process's CUDA context."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return False
    text = failures.full_text(error)
    if "captur" in text.lower():  # a capture that failed leaves the context as it was
        return False
    return any(sign in text for sign in ("CUDA error", "Triton Error [CUDA]", "CUBLAS_STATUS", "cudaError"))


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of a cell whose run raised ``error``, on a GPU or under the interpreter."""
    text = failures.full_text(error)
    if isinstance(error, NoOutputsError):
        return Outcome.CASE_ERROR
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "out of memory" in text:
        return Outcome.OUT_OF_MEMORY
    if "illegal memory access" in text:
        return Outcome.OUT_OF_BOUNDS
    if type(error).__name__ == "InterpreterError":
        return Outcome.RUN_ERROR
    if type(error).__module__.startswith("triton") or type(error).__name__ == "OutOfResources":
        return failures.compile_outcome(error)
    return Outcome.REFUSED if failures.is_refusal(error) else Outcome.RUN_ERROR
