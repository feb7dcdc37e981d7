"""The pytest plug-in: ``pytest --matrix`` collects case files as tests, one a cell of the current environment.

Every cell is compiled for its targets and interpreted in a worker of its own, with the interpreter that runs pytest:
a compiler that aborts fails one test. Without the flag nothing of this package is imported but this module.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from matrix.running.here import Here
    from matrix.running.plan import Collected, PlannedCell

_HERE = pytest.StashKey["Here"]()
_COLLECTED = pytest.StashKey["dict[Path, Collected]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("triton-matrix")
    group.addoption("--matrix", action="store_true", help="Collect triton-matrix case files as tests.")
    group.addoption(
        "--matrix-targets", default="", metavar="SM,...", help="Targets to compile for; by default the usual four."
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.getoption("matrix") or file_path.suffix != ".py":
        return None
    return CaseFile.from_parent(parent, path=file_path) if _is_case_file(file_path.read_bytes()) else None


def pytest_unconfigure(config: pytest.Config) -> None:
    here = config.stash.get(_HERE, None)
    if here is not None:
        here.close()


def _is_case_file(text: bytes) -> bool:
    """Whether it takes ``Case`` from this package, however the import is written; what does not parse may.

    As a case file it then fails in its own words, where passing it by would be silent.
    """
    if b"matrix" not in text or b"Case" not in text:
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    modules = {name for node in ast.walk(tree) for name in _as_module(node)}
    return any(_takes_case(node, modules) for node in ast.walk(tree))


def _as_module(node: ast.AST) -> Iterator[str]:
    """The names by which an import has this package, or its module of cases."""
    match node:
        case ast.Import(names=names):
            yield from (a.asname or "matrix" for a in names if a.name in {"matrix", "matrix.case"})
        case ast.ImportFrom(module="matrix", names=names):
            yield from (alias.asname or alias.name for alias in names if alias.name == "case")


def _takes_case(node: ast.AST, modules: Collection[str]) -> bool:
    match node:
        case ast.ImportFrom(module="matrix" | "matrix.case", names=names):
            return any(alias.name in {"Case", "*"} for alias in names)
        case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name), attr="case"), attr="Case"):
            return name in modules
        case _:
            return False


def _here(config: pytest.Config) -> Here:
    from matrix.running.here import Here

    if _HERE not in config.stash:
        config.stash[_HERE] = Here.open(config.getoption("matrix_targets"), config.rootpath)
    return config.stash[_HERE]


class CaseFile(pytest.File):
    """One case file; it is imported in a worker."""

    def collect(self) -> Iterator[pytest.Item]:
        here = _here(self.config)
        collected = here.collect(self.path)
        if not collected.cases:
            raise self.CollectError(collected.detail or collected.reason or "the file holds no case")
        self._check_names(collected)
        for cell in here.cells(collected):
            name = f"{cell.stage}/{cell.cell.target}/{cell.cell.point}"
            yield Cell.from_parent(self, name=name, planned=cell)

    def _check_names(self, collected: Collected) -> None:
        """As in a run, cases of one name are an error, in this file or with one that was collected before."""
        from matrix.errors import UsageError
        from matrix.running.plan import check_names

        others = self.config.stash.setdefault(_COLLECTED, {})
        try:
            check_names([*(other for path, other in others.items() if path != self.path), collected])
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        others[self.path] = collected


class Cell(pytest.Item):
    """One cell at one stage."""

    def __init__(self, *, planned: PlannedCell, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._planned = planned

    def runtest(self) -> None:
        verdict = _here(self.config).run(self._planned)
        if verdict.skipped:
            pytest.skip(verdict.text)
        if verdict.expected:
            pytest.xfail(f"{verdict.expected}: {verdict.text}")
        if verdict.text:
            raise CellFailure(verdict.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        if isinstance(excinfo.value, CellFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class CellFailure(Exception):
    """A cell that did not pass, in its own words."""
