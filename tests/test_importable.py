"""What a case imports that no lock names: what is reused is what would be found again."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pandas as pd
from conftest import ROOT, Project, Workshop

from matrix.running.importable import importable

CASE = """
import torch
import triton
import triton.language as tl

from matrix import Case
from library.kernels import copy_kernel


def copy(x):
    from library import late

    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, BLOCK=256)
    return out


case = Case(name="copy", run=copy, inputs=lambda make, p: [make.normal((256,), "fp32")])
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))
"""


def test_names_and_order_count_and_contents_do_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first / "library", second / ".git"):
        folder.mkdir(parents=True)
    (first / "library" / "kernels.py").write_text("")
    seen = [importable([first, second])]
    (first / "library" / "kernels.py").write_text("changed = True")
    (second / ".git" / "hook.py").write_text("")
    assert importable([first, second]) == seen[0]
    seen.append(importable([second, first]))
    seen.append(importable([first]))
    (second / "library.py").write_text("")  # in front of the other, or where an import had failed
    seen.append(importable([first, second]))
    assert len(set(seen)) == 4


def test_what_is_imported_in_a_call_belongs_to_the_case(workshop: Workshop, project: Project) -> None:
    path = project.write("case.py", CASE)
    for name, text in {"__init__": "", "kernels": KERNEL, "late": ""}.items():
        project.write(f"src/library/{name}.py", text)
    code = """
        import json, sys
        sys.path[:0] = sys.argv[2:]
        from matrix.worker.cases import describe
        print(json.dumps(list(describe(sys.argv[1])["files"])))
        """
    command = [workshop.environment("3.9.0").interpreter, "-P", "-c", textwrap.dedent(code), path, ROOT]
    told = subprocess.run([*map(str, command), str(project.root / "src")], capture_output=True, text=True, check=True)
    assert {Path(each).name for each in json.loads(told.stdout)} == {"case.py", "__init__.py", "kernels.py", "late.py"}


def test_what_can_no_longer_be_imported_is_not_reused(workshop: Workshop, project: Project) -> None:
    workshop.environment("3.9.0"), workshop.environment("3.8.0")
    project.write("cases/case.py", CASE)
    for name, text in {"__init__": "", "kernels": KERNEL, "late": ""}.items():
        project.write(f"src/library/{name}.py", text)
    asked = ("run", "--baseline", "3.8.0", "--candidate", "3.9.0", "--targets", "sm_90", "--stages", "import,compile",
             "--no-builtin", "--kernels", "cases")  # fmt: skip
    project.write("matrix.toml", 'pythonpath = ["src"]\n')
    assert project.matrix(*asked).returncode == 0
    project.write("matrix.toml", "")
    assert project.matrix(*asked).returncode == 3
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells[cells.stage == "import"].outcome) == {"import_error"}
