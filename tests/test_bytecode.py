"""Bytecode is taken over from other environments: of the very same files alone, and Python takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.provisioning.bytecode import link_bytecode

SAID = "VALUE = 1\n\n\ndef where():\n    return where.__code__.co_filename\n"


def imported(site: Path, *options: str) -> list[str]:
    """What an interpreter tells of the package, and whether it compiled it."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import package.part as p; print(p.VALUE, p.where())"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, *options, "-v", "-c", code, str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    read = f"matches {site / 'package' / 'part.py'}" in done.stderr
    return [*done.stdout.split(), "read" if read else "compiled"]


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Path, Path]:
    """Two environments whose package is linked to one cache; the first has imported it."""
    first, second = tmp_path / "one", tmp_path / "other"
    for site in (first, second):
        (site / "package").mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("part.py", SAID)):
        (first / "package" / name).write_text(text)
        os.link(first / "package" / name, second / "package" / name)
    assert imported(first)[-1] == "compiled"
    return first, second


def test_the_same_file_is_compiled_once_and_says_where_it_is_imported_from(sites: tuple[Path, Path]) -> None:
    first, second = sites
    assert link_bytecode(second, [second.parent / "none", first]) == 2
    assert imported(second) == ["1", str(second / "package" / "part.py"), "read"]


def test_another_file_of_the_same_size_and_date_is_not_the_same(sites: tuple[Path, Path]) -> None:
    first, second = sites
    own = second / "package" / "part.py"
    told = own.stat()
    own.unlink()
    own.write_text(SAID.replace("1", "2"))
    os.utime(own, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert link_bytecode(second, [first]) == 1  # of the package itself
    assert imported(second) == ["2", str(own), "compiled"]


def test_what_cannot_be_linked_is_compiled_as_ever(sites: tuple[Path, Path]) -> None:
    first, second = sites
    (second / "package" / "__pycache__").write_text("in the way")
    assert link_bytecode(second, [first]) == 0
    assert imported(second)[-1] == "compiled"
