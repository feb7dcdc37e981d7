"""What case files hold, and what they stand on."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pathlib
import sys

from matrix.case import Case, Params, keyword_params
from matrix.loading import digest, load, stands_on
from matrix.model import Stage
from matrix.worker.reads import is_installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_STAGES = (Stage.COMPILE, Stage.INTERPRET, Stage.CORRECTNESS, Stage.TIMING)


def find(path: str, name: str) -> Case:
    """The case called ``name`` in the file at ``path``."""
    for case in cases_of(load(path)):
        if case.name == name:
            if case.torch_compile:
                # Before the first launch is observed: it goes through here.
                importlib.import_module("torch._inductor.runtime.triton_heuristics")
            return case
    raise LookupError(f"{path} holds no case named {name!r}")


def cases_of(module: ModuleType) -> list[Case]:
    """Every ``Case`` that the module holds, alone or in a list or tuple, in file order and once."""
    found: dict[int, Case] = {}
    for value in vars(module).values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Case):
                found.setdefault(id(item), item)
    return list(found.values())


def describe(path: str) -> dict[str, Any]:
    """Everything that planning needs to know of a case file, as JSON-able data."""
    before = set(sys.modules)
    module = load(path)
    files = {path, *_local_files(path, before)}
    return {
        "cases": [_describe(case) for case in cases_of(module)],
        "files": {name: digest(name) for name in sorted(files)},
    }


def _describe(case: Case) -> dict[str, Any]:
    points = {str(stage): [dict(p) for p in case.points(stage)] for stage in _STAGES}
    for stage_points in points.values():
        for point in stage_points:
            keyword_params(case.run, point)
            if case.reference is not None:
                keyword_params(case.reference, point)
    return {
        "name": case.name,
        "points": points,
        "targets": list(case.targets),
        "triton": case.triton,
        "tags": list(case.tags),
        "has_reference": case.reference is not None,
        "expectations": [dataclasses.asdict(expect) for expect in case.expectations],
    }


def _local_files(path: str, before: set[str]) -> set[str]:
    """Source files that the case file stands on and that are neither installed packages nor Python's own.

    What it brought in is one part; the other is what an earlier case file of this process had brought in
    already, found by following the imports in the sources.
    """
    files = {file for name in set(sys.modules) - before if (file := _local_file(name))} | stands_on(path)
    waiting = [path, *files]
    while waiting:
        for name in _imported(pathlib.Path(waiting.pop())):
            file = _local_file(name)
            if file and file not in files:
                files.add(file)
                waiting.append(file)
    return files


def _local_file(name: str) -> str:
    """The source of a module that is somebody's own, loaded or not yet; empty for any other."""
    if name == "matrix" or name.startswith("matrix."):
        return ""
    file = getattr(sys.modules[name], "__file__", None) if name in sys.modules else _findable(name)
    if not file or not file.endswith(".py") or is_installed(file):
        return ""
    return file if pathlib.Path(file).is_file() else ""  # torch makes modules that name no file there is


def _findable(name: str) -> str:
    """Where a module lies that is imported in a function's body, when it is called; empty where in no folder."""
    relative = pathlib.Path(*name.split("."))
    candidates = (
        pathlib.Path(folder, each)
        for folder in sys.path
        if folder
        for each in (relative / "__init__.py", relative.with_suffix(".py"))
    )
    return next((str(each) for each in candidates if each.is_file()), "")


def _imported(path: pathlib.Path) -> set[str]:
    """Every module name that the source may import, absolute imports only."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    parents = {name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)}
    return names | parents


def call(function: Any, inputs: list[Any], params: Params) -> Any:
    """``function(*inputs)`` with the keyword-only arguments that it asks for."""
    return function(*inputs, **keyword_params(function, params))
