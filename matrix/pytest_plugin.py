"""The pytest plug-in: ``pytest --matrix`` collects case files as tests, one a cell of the current environment.

Every cell is compiled for its targets and interpreted in a worker of its own, with the interpreter that runs pytest:
a compiler that aborts fails one test. Without the flag nothing of this package is imported but this module.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.running.here import Here
    from matrix.running.plan import PlannedCell

_HERE = pytest.StashKey["Here"]()


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
    return any(_takes_case(node) for node in ast.walk(tree))


def _takes_case(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module="matrix" | "matrix.case", names=names):
            return any(alias.name in {"Case", "*"} for alias in names)
        case ast.Attribute(value=ast.Name(id="matrix"), attr="Case"):
            return True
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
        for cell in here.cells(collected):
            name = f"{cell.stage}/{cell.cell.target}/{cell.cell.point}"
            yield Cell.from_parent(self, name=name, planned=cell)


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
