"""What a case reads beside its sources: a result is reused while variables and data are what they were."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT, Project, Workshop

from matrix.storage.cache import Cache
from matrix.worker.reads import is_installed

CASE = """
import torch
import triton
from matrix import Case
from sized import copy_kernel, size


def copy(x):
    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, BLOCK=size())
    return out


case = Case(name="copy", run=copy, inputs=lambda make, p: [make.normal((256,), "fp32")])
"""
KERNEL = """
import json, os
from pathlib import Path

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def tuned():
    path = Path(__file__).with_name("tuned.json")
    try:
        return json.loads(path.read_text())["block"]
    except FileNotFoundError:
        return 100


def tuned_if_there():
    path = Path(__file__).with_name("tuned.json")
    return json.loads(path.read_text())["block"] if path.exists() else 100


"""
# Read when the module is imported, and read anew by every call.
AT_IMPORT = "SIZE = {}\n\n\ndef size():\n    return SIZE\n"
IN_A_CALL = "def size():\n    return {}\n"
VARIABLE = 'int(os.environ.get("PK_BLOCK", "256"))'
WHEN = pytest.mark.parametrize("when", [AT_IMPORT, IN_A_CALL], ids=["at import", "in a call"])
ASKED = ("run", "--baseline", "3.8.0", "--candidate", "3.9.0", "--targets", "sm_90", "--stages", "import,compile",
         "--no-builtin", "--kernels", "cases")  # fmt: skip


@pytest.fixture
def reading(workshop: Workshop, project: Project) -> Project:
    workshop.environment("3.9.0"), workshop.environment("3.8.0")
    project.write("matrix.toml", 'pythonpath = ["src"]\n')
    project.write("cases/case.py", CASE)
    project.write("cases/other.py", CASE.replace('name="copy"', 'name="other"'))  # imports nothing anew
    project.write("src/tuned.json", '{"block": 256}')
    return project


def ran(project: Project, *more: str, **variables: str) -> tuple[set[str], set[bool]]:
    """The outcomes of the cells compiled, and whether they were reused."""
    done = project.matrix(*ASKED, *more, **variables)
    cells = pd.read_parquet(project.latest / "cells.parquet")
    compiled = cells[cells.stage == "compile"]
    assert len(compiled) == 4, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr  # what fails in both is no regression
    return set(compiled.outcome), set(map(bool, compiled.cached))


@WHEN
def test_a_variable_counts_while_it_is_read(reading: Project, when: str) -> None:
    reading.write("src/sized.py", KERNEL + when.format(VARIABLE))
    assert ran(reading) == ({"passed"}, {False})
    assert ran(reading, PK_OTHER="1") == ({"passed"}, {True})
    assert ran(reading, PK_BLOCK="100") == ({"compile_error"}, {False})
    assert ran(reading, PK_BLOCK="128") == ({"passed"}, {False})
    assert ran(reading, PK_BLOCK="128") == ({"passed"}, {True})


@WHEN
@pytest.mark.parametrize("how", ["tuned", "tuned_if_there"])
def test_data_count_while_they_are_read(reading: Project, when: str, how: str) -> None:
    reading.write("src/sized.py", KERNEL + when.format(f"{how}()"))
    reading.write("src/unread.json", "{}")
    assert ran(reading) == ({"passed"}, {False})
    reading.write("src/unread.json", "[]")
    assert ran(reading) == ({"passed"}, {True})
    reading.write("src/tuned.json", '{"block": 100}')
    assert ran(reading) == ({"compile_error"}, {False})
    reading.write("src/tuned.json", '{"block": 128}')
    assert ran(reading) == ({"passed"}, {False})
    assert ran(reading) == ({"passed"}, {True})
    (reading.root / "src" / "tuned.json").unlink()
    assert ran(reading) == ({"compile_error"}, {False})
    assert ran(reading) == ({"compile_error"}, {True})  # it is absent, and that counts
    reading.write("src/tuned.json", '{"block": 64}')
    assert ran(reading) == ({"passed"}, {False})


def test_fresh_reuses_nothing_and_is_reused(reading: Project) -> None:
    reading.write("src/sized.py", KERNEL + AT_IMPORT.format(256))
    assert ran(reading) == ({"passed"}, {False})
    kept = {path: path.stat().st_ino for path in (reading.root / ".matrix" / "cache").rglob("*.json")}
    assert ran(reading, "--fresh") == ({"passed"}, {False})
    assert kept
    assert all(path.stat().st_ino != before for path, before in kept.items())  # each is written anew
    assert ran(reading) == ({"passed"}, {True})
    plan = json.loads(reading.matrix("plan", *ASKED[1:], "--json").stdout)
    assert len(plan["cells"]) == 4


def test_a_fresh_cache_has_what_was_put_into_it(project: Project) -> None:
    Cache(project.root).put("ab", 1)
    fresh = Cache(project.root, fresh=True)
    assert fresh.get("ab") is None
    fresh.put("ab", 2)
    assert [fresh.get("ab"), Cache(project.root).get("ab")] == [2, 2]


def told(workshop: Workshop, folder: Path, text: str) -> dict[str, dict[str, Any]]:
    """What a worker tells of code that is imported from a folder."""
    path = folder / "reader.py"
    path.write_text(text)
    code = """
        import json, os, sys
        sys.path[:0] = sys.argv[2:]
        from matrix.loading import load
        from matrix.worker.reads import Reads
        reads = Reads([])
        reads.watch()
        reads.begin(sys.argv[1])
        load(sys.argv[1])
        print(json.dumps(reads.told()))
        """
    command = [workshop.environment("3.9.0").interpreter, "-P", "-c", textwrap.dedent(code), path, ROOT]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert read[""] == read[str(path)]
    return read


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("os.environ['PK_A'] = '1'", ["HOME"]),  # written, not read
        ("os.getenv('PK_A'), 'PK_B' in os.environ, os.environ.pop('PK_C', 1)", ["HOME", "PK_A", "PK_B", "PK_C"]),
        ("os.environb.get(b'PK_A'), os.path.expandvars('$PK_B')", ["HOME", "PK_A", "PK_B"]),
        ("[name for name in os.environ]", ["*", "HOME"]),
    ],
)
def test_variables_are_seen_however_they_are_read(
    workshop: Workshop, tmp_path: Path, text: str, names: list[str]
) -> None:
    read = told(workshop, tmp_path, f"import os\nos.environ['HOME']\nimport numpy\n{text}\n")
    assert read[""]["variables"] == names


def test_files_are_seen_that_are_read_and_not_those_that_are_written(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    for name in ("read.json", "array.txt", ".hidden/read.json"):
        (tmp_path / name).write_text("1")
    text = """
        import os
        from pathlib import Path
        import numpy
        here = Path(__file__).parent
        numpy.loadtxt(here / "array.txt")
        (here / "made.json").write_text("1")
        for name in ("read.json", "made.json", ".hidden/read.json"):
            (here / name).read_text()
        os.path.exists(here / "absent.json")
        open(os.devnull).close()
        """
    read = told(workshop, tmp_path, textwrap.dedent(text))
    files = {Path(name).name: digest for name, digest in read[""]["files"].items() if name.endswith(("json", "txt"))}
    assert files == {"read.json": digest_of("1"), "array.txt": digest_of("1"), "absent.json": ""}


def test_a_compiled_function_may_read_a_variable(workshop: Workshop, tmp_path: Path) -> None:
    text = """
        import os, torch

        @torch.compile(fullgraph=True, backend="eager")
        def scaled(x):
            return x * int(os.environ.get("PK_A", "3"))

        assert scaled(torch.ones(2)).tolist() == [3, 3]
        """
    assert "PK_A" in told(workshop, tmp_path, textwrap.dedent(text))[""]["variables"]


def test_code_below_a_system_s_prefix_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prefix", "base_prefix", "exec_prefix"):
        monkeypatch.setattr(sys, name, "/usr")
    monkeypatch.setattr(sys, "path", ["/usr/src/app", "/usr/lib/python3/dist-packages"])
    assert not is_installed("/usr/src/app/kernels.py")
    assert is_installed("/usr/lib/python3/dist-packages/numpy/__init__.py")
    assert is_installed(os.__file__)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
