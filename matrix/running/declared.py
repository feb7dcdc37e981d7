"""What cases a file declares, read without importing it, so that a run need not import what it does not ask for.

Nothing is guessed: of a file whose cases could come from anywhere but ``Case(name="...")`` in its own text, nothing is
known, and it is imported.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from matrix.model import CPU, Target, safe
from matrix.running.plan import unmatched_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# What brings no case into a file and makes none.
_HARMLESS = frozenset(
    ("__future__", "collections", "functools", "inspect", "itertools", "math", "numpy", "operator", "torch", "triton")
)
_OURS = frozenset(("Case", "Expect", "Params", "Tolerance"))
# By these, a file could hold cases that its text does not show.
_OPAQUE = frozenset(("__class__", "__import__", "eval", "exec", "globals", "setattr", "type", "vars"))
_SET = re.compile(r"\[!?\]?[^\]]*\]")
# In the shape of an id: any target, any params. What separates an id's parts is in neither.
_PART = "\0"
_TARGETS = tuple(f"{target}/" for target in (CPU, *Target))
_WILD = re.compile(r"[*?\[]")


def narrowed(
    files: Sequence[Path], globs: Sequence[str], environments: Sequence[str]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Of the files, those that may hold a case that a glob selects; and the cases that the others declare.

    Raises :class:`UsageError` where it is known without importing anything that a glob matches nothing.
    """
    declared = {file: declared_names(file) for file in files}
    known = {name for names in declared.values() if names for name in names}
    if None not in declared.values():
        # A file that is imported nowhere goes by its own name.
        words = [*known, *(file.stem for file in files)]
        if idle := [glob for glob in globs if not could_match(words, (glob,), environments)]:
            raise unmatched_error(idle, known)
    kept = tuple(
        file
        for file, names in declared.items()
        if names is None or could_match((*names, file.stem), globs, environments)
    )
    others = {name for file, names in declared.items() if names and file not in kept for name in names}
    return kept, tuple(sorted(others))


def declared_names(path: Path) -> frozenset[str] | None:
    """The names of the file's cases; ``None`` where the text alone does not tell them."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    calls = [node for node in nodes if isinstance(node, ast.Call) and _is_case(node.func)]
    names = [_name_of(call) for call in calls]
    told = {id(call.func) for call in calls}
    beyond = any(_is_case(node) and id(node) not in told for node in nodes)
    if beyond or any(map(_is_opaque, nodes)):
        return None
    known = frozenset(name for name in names if name is not None)
    return known if None not in names else None


def _is_case(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "Case"


def _name_of(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            return keyword.value.value
    return None


def _is_opaque(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=aliases):
            return any(alias.name.split(".")[0] not in _HARMLESS for alias in aliases)
        case ast.ImportFrom(module="matrix" | "matrix.case", names=aliases, level=0):
            return any(alias.name not in _OURS or alias.asname for alias in aliases)
        case ast.ImportFrom(module=module, level=level):
            return level > 0 or (module or "").split(".")[0] not in _HARMLESS
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return word in _OPAQUE
        case _:
            return False


def could_match(names: Iterable[str], globs: Iterable[str], environments: Sequence[str]) -> bool:
    """Whether a glob matches a cell of a case so called, in one of these environments, of any target and params."""
    return any(_meet(glob, safe(name), environments) for glob in globs for name in names)


def _meet(glob: str, name: str, environments: Sequence[str]) -> bool:
    if not _WILD.search(glob):
        return name in {text.partition(":")[0] for text in (glob, glob.split("/", 2)[-1])}
    plain = _SET.sub("?", glob)
    befores = ("", *_TARGETS, *(f"{safe(each)}/{_PART}/" for each in environments))
    return any(_overlap(plain, f"{before}{name}{after}") for before in befores for after in ("", f":{_PART}"))


def _overlap(glob: str, shape: str) -> bool:
    """Whether there is a text that the glob matches and that has the shape of an id."""
    seen: set[tuple[int, int]] = set()
    waiting = [(0, 0)]
    while waiting:
        at = i, j = waiting.pop()
        if at == (len(glob), len(shape)):
            return True
        if at not in seen:
            seen.add(at)
            waiting += _onwards(glob[i : i + 1], shape[j : j + 1], i, j)
    return False


def _onwards(wanted: str, given: str, i: int, j: int) -> list[tuple[int, int]]:
    """Where in both one may be after a further character, or none, of the text; an empty one is at its end."""
    past = [(i, j + 1)] if given and (wanted == "*" or given == _PART) else []
    if wanted == "*" or (given == _PART and wanted and wanted not in "/:"):
        return [*past, (i + 1, j)]
    return [*past, (i + 1, j + 1)] if wanted and (wanted == given or (given and wanted == "?")) else past
