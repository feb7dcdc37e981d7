"""Loading case files: by path, under a private module name, as a test runner loads tests.

Ring 0: standard library only. A case file may take kernels from a file beside it with :func:`beside`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import pathlib
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Triton 3.0 leaves functions of modules named triton* out of its cache key, so the name starts otherwise.
_PREFIX = "_matrix_case_"
_beside: dict[str, set[str]] = {}


def load(path: str) -> ModuleType:
    """The file at ``path`` as a module; loaded once a process. Raises whatever the file raises."""
    stem = re.sub("[^A-Za-z0-9_]", "_", pathlib.Path(path).stem)
    name = f"{_PREFIX}{stem}_{hashlib.sha256(path.encode()).hexdigest()[:10]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def digest(path: str) -> str:
    """The digest of what the file at ``path`` holds; empty where there is no file that can be read."""
    found = hashlib.sha256()
    try:
        if not pathlib.Path(path).is_file():  # a pipe would be waited for
            return ""
        with pathlib.Path(path).open("rb") as file:
            while data := file.read(1 << 20):
                found.update(data)
    except OSError:
        return ""
    return found.hexdigest()


def beside(file: str, name: str) -> ModuleType:
    """The case file ``name`` as seen from ``file`` (its ``__file__``): ``beside(__file__, "../rms_norm.py")``.

    What changes there changes the results of ``file`` too. Raises ``FileNotFoundError``, or what the file raises.
    """
    path = str((pathlib.Path(file).parent / name).resolve(strict=True))
    _beside.setdefault(file, set()).add(path)
    return load(path)


def stands_on(path: str) -> set[str]:
    """The files that a loaded file took from beside it, and those that they took."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for other in _beside.get(waiting.pop(), set()) - found:
            found.add(other)
            waiting.append(other)
    return found
