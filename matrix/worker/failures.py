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


def compile_outcome(error: BaseException) -> Outcome:
    """The outcome of a launch whose compilation raised ``error``."""
    if isinstance(error, MemoryError):
        return Outcome.OUT_OF_MEMORY
    if type(error).__name__ == "OutOfResources":
        return Outcome.DOES_NOT_FIT
    if _UNSUPPORTED.search(full_text(error)):
        return Outcome.UNSUPPORTED
    return Outcome.COMPILE_ERROR


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
