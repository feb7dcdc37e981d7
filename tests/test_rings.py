"""Which way imports point: ring 0 on the standard library alone, rings 1 and 2 never on each other."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "matrix"
RING_0 = {"matrix", "matrix.baton", "matrix.case", "matrix.errors", "matrix.loading", "matrix.model", "matrix.indexes"}
OUTSIDE_OF_RING_1 = {"numpy", "torch", "triton"}


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def ring(module: str) -> int:
    if module in RING_0:
        return 0
    return 1 if module == "matrix.worker" or module.startswith("matrix.worker.") else 2


def imports(path: Path) -> set[str]:
    """Modules imported anywhere in the file, `if TYPE_CHECKING` blocks left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_inwards(name: str) -> None:
    known = modules()
    for imported in imports(known[name]):
        if imported in known:
            assert ring(imported) == 0 or ring(imported) == ring(name), f"{name} imports {imported}"
        elif ring(name) == 0:
            top = imported.split(".")[0]
            assert top in sys.stdlib_module_names | {"matrix", "__future__"}, f"{name} imports {imported}"
        elif ring(name) == 1:
            top = imported.split(".")[0]
            allowed = sys.stdlib_module_names | OUTSIDE_OF_RING_1 | {"matrix", "__future__"}
            assert top in allowed, f"{name} imports {imported}"


def test_the_data_folders_are_not_importable() -> None:
    for folder in ("kernels", "reports"):
        assert not list((PACKAGE.parent / folder).rglob("__init__.py"))
    code = "import importlib.util as u; print([n for n in ('kernels', 'reports') if u.find_spec(n)])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/", env={}
    )
    assert done.stdout.strip() == "[]"
