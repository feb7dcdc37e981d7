"""From an exception to an outcome and a line that says why."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
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
_OURS = str(pathlib.Path(__file__).parent.parent)
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
    innermost = _innermost(error)
    lines = [line.strip() for line in str(innermost).splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower() or "fatal" in line.lower()), "")
    # Triton puts "at line:col:" and the source above the message.
    return f"{type(innermost).__name__}: {telling or (lines[-1] if lines else '')}"[:300]


def import_reason(error: BaseException, path: str) -> str:
    """One line: why the case file at ``path`` does not import, with the line that raised, and what gives a package.

    An import that fails in the case file itself is told by its name alone: so files that lack one thing are one reason.
    """
    innermost, said = _innermost(error), reason(error)
    own = [frame for frame in traceback.extract_tb(innermost.__traceback__) if _is_own(frame.filename)]
    imports = isinstance(innermost, ImportError)
    if own and not isinstance(innermost, SyntaxError) and not (imports and own[-1].filename == path):
        said += f" at {_short(own[-1].filename)}:{own[-1].lineno}"
    missing = (getattr(innermost, "name", None) or "").partition(".")[0] if imports else ""
    if isinstance(innermost, ModuleNotFoundError) and missing and not _is_found(missing):
        said += f'; if it is a package: REQUIRES = ["{missing}"] in the case file'
    return said


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_own(file: str) -> bool:
    """Whether a line of a traceback is in somebody's own source: not ours, Python's or an installed package's."""
    python = str(pathlib.Path(traceback.__file__).parent)
    return not (file.startswith(("<", python, _OURS)) or _package(file))


def _short(file: str) -> str:
    """As it is found by an import; the name alone of what is in no folder that is searched."""
    within = [folder for folder in sys.path if folder and file.startswith(f"{folder.rstrip('/')}/")]
    return file[len(max(within, key=len).rstrip("/")) + 1 :] if within else pathlib.Path(file).name


def _is_found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def detail(error: BaseException, limit: int = 8000) -> str:
    """The traceback, its end kept where it is long."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return text if len(text) <= limit else "...\n" + text[-limit:]
