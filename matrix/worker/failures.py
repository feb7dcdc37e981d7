"""From an exception to an outcome and a line that says why."""

from __future__ import annotations

import re
import traceback

from matrix.model import Outcome

# What releases say when a target, a type or a feature is not theirs; everything else is an error of theirs.
_UNSUPPORTED = re.compile(
    r"not supported in this architecture"
    r"|is not defined for option 'gpu-name'"
    r"|not supported on (this|the) (target|arch|GPU)"
    r"|requires? (compute capability|sm_?\d+)"
    r"|only supported on .*(sm_?\d+|compute capability|Hopper|Blackwell)",
    re.IGNORECASE,
)

_NOT_UNDER_TEST = frozenset(("torch", "triton", "numpy"))
_VERSION = re.compile(r"\btriton\b\D{0,40}\d+\.\d+", re.IGNORECASE)


def compile_outcome(error: BaseException) -> Outcome:
    """The outcome of a launch whose compilation raised ``error``."""
    if isinstance(error, MemoryError):
        return Outcome.OUT_OF_MEMORY
    if type(error).__name__ == "OutOfResources":
        return Outcome.DOES_NOT_FIT
    if _UNSUPPORTED.search(full_text(error)):
        return Outcome.UNSUPPORTED
    return Outcome.COMPILE_ERROR


def is_refusal(error: BaseException) -> bool:
    """Whether an installed library raised of itself because of the Triton that it found.

    By what it says and by who says it: the line that raised is the library's, and it names Triton and a version.
    """
    frames = traceback.extract_tb(error.__traceback__)
    package = _package(frames[-1].filename) if frames else ""
    return bool(package) and package not in _NOT_UNDER_TEST and bool(_VERSION.search(str(error)))


def _package(file: str) -> str:
    """The installed package that a source file belongs to; empty for anything else."""
    found = re.search(r"/(?:site|dist)-packages/([^/.]+)", file)
    return found[1] if found else ""


def full_text(error: BaseException) -> str:
    """The error with all its causes, innermost last."""
    texts, seen = [], set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        texts.append(f"{type(current).__name__}: {current}")
        current = current.__cause__ or current.__context__
    return "\n".join(texts)


def reason(error: BaseException) -> str:
    """One line: the innermost error's type and its most telling line."""
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    lines = [line.strip() for line in str(innermost).splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower() or "fatal" in line.lower()), "")
    # Triton puts "at line:col:" and the source above the message.
    return f"{type(innermost).__name__}: {telling or (lines[-1] if lines else '')}"[:300]


def detail(error: BaseException, limit: int = 8000) -> str:
    """The traceback, its end kept where it is long."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return text if len(text) <= limit else "...\n" + text[-limit:]
