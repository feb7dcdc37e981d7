"""Suites of other people's kernels, and what packages a case file needs in an environment.

A case file says so itself, in a plain module-level list ``REQUIRES = ["liger-kernel==0.8.5"]``, which is read
without importing it: the package has to be there before the file can be imported.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.resources import suites_folder
from matrix.settings.environments import requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_NAME = "REQUIRES"


def suite_files(names: Iterable[str]) -> tuple[Path, ...]:
    """The case files of the suites. Raises :class:`UsageError` that names every unknown one."""
    known = {path.stem: path for path in sorted(suites_folder().glob("*.py"))}
    wanted = list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"no such suite: {', '.join(unknown)}", hint=f"suites are: {', '.join(known)}")
    return tuple(known[name] for name in wanted)


def requirements_of(files: Sequence[Path]) -> tuple[str, ...]:
    """What the case files require, each once.

    Raises :class:`UsageError` with everything that is wrong: files that cannot be read, what is no requirement, and two
    files that ask for one package in two ways.
    """
    if unreadable := [problem for path in files if (problem := _unreadable(path))]:
        raise UsageError("\n".join(unreadable), hint="move away what is no file, or name case files alone")
    found: dict[str, Path] = {}
    problems: list[str] = []
    for path in files:
        for text in _declared(path, problems):
            try:
                found.setdefault(requirement("", text, path.parent), path)
            except ValueError as error:
                problems.append(f"{path}: {_NAME}: {error}")
    if problems:
        raise UsageError("\n".join(problems), hint=f'{_NAME} is a list such as ["liger-kernel==0.8.5"]')
    return tuple(found)


def _unreadable(path: Path) -> str:
    """Why the file cannot be read (a link that leads nowhere, a folder named like a file); empty where it can be."""
    try:
        path.open("rb").close()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    return ""


def _declared(path: Path, problems: list[str]) -> list[str]:
    """The file's own list. A file that does not parse fails at its import, in words of its own."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    for node in tree.body:
        given = _given(node)
        if given is not None:
            try:
                value = ast.literal_eval(given)
            except ValueError:
                value = None
            if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
                return list(value)
            problems.append(f"{path}, line {node.lineno}: {_NAME} is no plain list of texts")
    return []


def _given(node: ast.stmt) -> ast.expr | None:
    """What a statement assigns to ``REQUIRES``, annotated or not."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return value if any(isinstance(t, ast.Name) and t.id == _NAME for t in targets) else None
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return value if name == _NAME else None
        case _:
            return None
