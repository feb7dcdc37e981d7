"""The part of a Python source that some of its names stand on, as it is written, comments and all."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OURS = "matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """``text`` without what it imports from us, which is named in ``ours``.

    ``packages`` are the distributions beyond Python's own that it imports; ``future`` what it takes from
    ``__future__``, which must stand at the head of a file.
    """

    text: str
    ours: tuple[str, ...]
    packages: tuple[str, ...]
    future: tuple[str, ...]


@dataclass(slots=True)
class _Statement:
    node: ast.stmt
    text: str
    defines: frozenset[str]
    names: frozenset[str]
    acts: bool  # it is there for its effect, and not for a name
    first: int


def excerpt(
    source: str, roots: Iterable[str], *, rewritten: dict[str, str] | None = None, imports: bool = True
) -> Excerpt:
    """What ``roots`` need of ``source``. No roots: everything but the docstring.

    ``rewritten`` gives another text for the statements that define these names; without ``imports`` they are left
    to who takes the text. Raises ``SyntaxError``.
    """
    statements = list(_statements(source, rewritten or {}))
    wanted = set(roots)
    kept = statements if not wanted else _needed(statements, wanted)
    ours = [alias.asname or alias.name for each in kept for alias in _imports(each.node, _OURS)]
    future = [alias.name for each in statements for alias in _imports(each.node, "__future__")]
    left = [each for each in kept if not any(_imports(each.node, name) for name in (_OURS, "__future__"))]
    told = left if imports else [each for each in left if not isinstance(each.node, (ast.Import, ast.ImportFrom))]
    return Excerpt(
        text=_joined(told),
        ours=tuple(dict.fromkeys(ours)),
        packages=tuple(dict.fromkeys(name for each in left for name in _packages(each.node))),
        future=tuple(dict.fromkeys(future)),
    )


def _statements(source: str, rewritten: dict[str, str]) -> Iterator[_Statement]:
    lines = source.splitlines()
    for place, node in enumerate(ast.parse(source).body):
        if _is_text(node) and not place:
            continue
        if isinstance(node, ast.If) and {"TYPE_CHECKING", "__name__"} & set(_names(node.test)):
            continue
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        text = "\n".join(lines[first - 1 : node.end_lineno])
        defines = frozenset(_defined(node))
        new = next((rewritten[name] for name in defines if name in rewritten), "")
        names = frozenset(_names(ast.parse(new) if new else node))
        yield _Statement(node, new or text, defines, names, acts=_acts(node), first=first)


def _needed(statements: list[_Statement], wanted: set[str]) -> list[_Statement]:
    kept = [each for each in statements if each.acts or each.defines & wanted]
    while True:
        names = wanted.union(*(each.names for each in kept))
        grown = [each for each in statements if each.acts or each.defines & names]
        if len(grown) == len(kept):
            return grown
        kept = grown


def _joined(statements: list[_Statement]) -> str:
    """Two empty lines around definitions, one where the source had any."""
    parts: list[str] = []
    last: _Statement | None = None
    for each in statements:
        if last is not None:
            apart = isinstance(each.node, _DEFINITIONS) or isinstance(last.node, _DEFINITIONS)
            close = each.first - (last.node.end_lineno or 0) <= 1
            parts.append("\n\n\n" if apart else "\n" if close else "\n\n")
        parts.append(each.text)
        last = each
    return "".join(parts) + "\n"


def _defined(node: ast.stmt) -> Iterator[str]:
    """The names that a statement gives a value at the top of the module."""
    if isinstance(node, _DEFINITIONS):
        yield node.name
        return
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.alias):
            yield (each.asname or each.name).partition(".")[0]


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _acts(node: ast.stmt) -> bool:
    """Whether it does something beyond giving names a value: a call, a change of something that is there."""
    if isinstance(node, (*_DEFINITIONS, ast.Import, ast.ImportFrom)) or _is_text(node):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if targets:
        parts = [part for target in targets for part in getattr(target, "elts", [target])]
        return not all(isinstance(part, (ast.Name, ast.Starred)) for part in parts)
    return True


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(node: ast.stmt, package: str) -> list[ast.alias]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package and not node.level:
        return node.names
    named = isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == package for alias in node.names)
    return node.names if isinstance(node, ast.Import) and named else []


def _packages(node: ast.stmt) -> Iterator[str]:
    for each in ast.walk(node):
        names: list[str] = []
        if isinstance(each, ast.Import):
            names = [alias.name for alias in each.names]
        elif isinstance(each, ast.ImportFrom):
            names = ["." if each.level else str(each.module)]
        for name in names:
            top = name.partition(".")[0] or name
            if top not in sys.stdlib_module_names:
                yield top
