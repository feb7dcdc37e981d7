"""Other people's kernels: what a case file requires is installed, a refusal is the library's, suites run by name."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT, Project

from matrix.catalogue.suites import requirements_of, suite_files
from matrix.errors import ExitCode, UsageError
from matrix.resources import suites_folder

SUITES = sorted(path.stem for path in suites_folder().glob("*.py"))


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_pins_what_it_needs_and_has_a_section_in_the_documentation(name: str) -> None:
    requires = requirements_of(suite_files([name]))
    assert any("==" in each for each in requires)
    assert f"## `{name}`" in (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")


def test_everything_wrong_with_requirements_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('REQUIRES = ["no requirement at all"]\n')
    (tmp_path / "two.py").write_text("REQUIRES = [name for name in ()]\n")
    (tmp_path / "three.py").write_text("def broken(:\n")  # fails at its import, in words of its own
    with pytest.raises(UsageError) as caught:
        requirements_of(sorted(tmp_path.glob("*.py")))
    assert "one.py: REQUIRES: 'no requirement at all'" in str(caught.value)
    assert "two.py, line 1: REQUIRES is no plain list" in str(caught.value)


def test_an_annotated_list_of_requirements_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text('REQUIRES: list[str] = ["liger-kernel==0.8.5"]\n')
    assert requirements_of([path]) == ("liger-kernel==0.8.5",)
    path.write_text("REQUIRES: list[str] = [name for name in ()]\n")
    with pytest.raises(UsageError, match=r"one.py, line 1: REQUIRES is no plain list"):
        requirements_of([path])


def test_a_case_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    with pytest.raises(UsageError) as caught:
        requirements_of(sorted(tmp_path.glob("*.py")))
    assert "folder.py cannot be read: Is a directory" in str(caught.value)
    assert "link.py cannot be read: No such file" in str(caught.value)


def test_an_unknown_suite_is_a_usage_error(project: Project) -> None:
    done = project.matrix("plan", "--suite", "ligre")
    assert done.returncode == ExitCode.USAGE
    assert "no such suite: ligre" in done.stderr and "liger" in done.stderr


def test_suites_are_no_part_of_the_default_run(project: Project) -> None:
    planned = json.loads(project.matrix("plan", "--json").stdout)
    named = json.loads(project.matrix("plan", "--suite", "liger", "--json").stdout)
    assert planned["case_files"] > named["case_files"] == 1


def test_a_suite_is_installed_and_compiled_forward_and_backward(project: Project) -> None:
    done = project.matrix("run", "--suite", "liger", "--cases", "liger_rms_norm*,liger_swiglu*", "--targets", "sm_90",
                          "--stages", "import,compile", "--configs", "first", "--json")  # fmt: skip
    assert done.returncode == ExitCode.CLEAN, done.stderr
    evidence = pd.read_parquet(project.latest / "evidence.parquet")
    assert {"liger_rms_norm", "liger_rms_norm_backward", "liger_swiglu", "liger_swiglu_backward"} == set(evidence.case)
    kernels = set(evidence[evidence.case == "liger_rms_norm_backward"].kernel)
    assert len(kernels) == 2
    # In folders of their own: what a library pins must not become everybody's.
    folders = sorted(path.name for path in (project.root / ".matrix" / "environments").glob("triton3.9.0*+*"))
    assert len(folders) == 1
    locked = json.loads((project.latest / "run.json").read_text())["environments"]
    assert all("liger-kernel" in {package["name"] for package in each["lock"]} for each in locked)


REFUSING = """
import torch
import triton
import triton.language as tl

from matrix import Case
from {module} import checked


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def copy(x):
    checked()
    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, BLOCK=256)
    return out


case = Case(name="by_{module}", run=copy, inputs=lambda make, p: [make.normal((256,), "fp32")])
"""


def test_what_a_library_refuses_is_refused_in_its_own_words(project: Project) -> None:
    words = "Triton >= 3.4.0 gives wrong results here, please use 3.3"
    folders = {"library": "site-packages", "own_code": "src"}
    for module, folder in folders.items():
        project.write(f"{folder}/{module}.py", f"def checked():\n    raise RuntimeError({words!r})\n")
        project.write(f"cases/{module}.py", REFUSING.format(module=module))
    project.write("matrix.toml", f"pythonpath = {list(folders.values())}\n")
    project.matrix("run", "--no-builtin", "--kernels", "cases", "--targets", "sm_90", "--stages", "import,compile")
    cells = pd.read_parquet(project.latest / "cells.parquet")
    compiled = cells[cells.stage == "compile"]
    outcomes = compiled.groupby("case").outcome.agg(set).to_dict()
    assert outcomes == {"by_library": {"refused"}, "by_own_code": {"case_error"}}
    assert compiled.reason.str.contains(words, regex=False).all()


REFUSING_LATE = """
import torch
import triton
import triton.language as tl

from matrix import Case
from library import checked


def tuned(*blocks):
    @triton.autotune([triton.Config({"BLOCK": block}) for block in blocks], key=[])
    @triton.jit
    def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at))

    return copy_kernel


FIRST, SECOND = tuned(128, 256), tuned(64, *([32] if triton.__version__ >= "3.9" else []))


def copy(x):
    out = torch.empty_like(x)
    grid = lambda meta: (256 // meta["BLOCK"],)
    FIRST[grid](x, out)
    checked()
    SECOND[grid](x, out)
    return out


def copy_at_once(x):
    out = torch.empty_like(x)
    SECOND[lambda meta: (256 // meta["BLOCK"],)](x, out)
    return out


CASES = [
    Case(name=run.__name__, run=run, inputs=lambda make, p: [make.normal((256,), "fp32")])
    for run in (copy, copy_at_once)
]
"""


@pytest.mark.parametrize("configs", ["all", "first"])
def test_a_refused_call_is_refused_in_what_it_never_came_to_and_a_new_configuration_is_new(
    configs: str, project: Project
) -> None:
    words = "Triton 3.8 gives wrong results here"
    project.write(
        "site-packages/library.py",
        f"import triton\ndef checked():\n    if triton.__version__ < '3.9':\n        raise RuntimeError({words!r})\n",
    )
    project.write("cases/late.py", REFUSING_LATE)
    project.write("matrix.toml", 'pythonpath = ["site-packages"]\n')
    project.matrix("run", "--no-builtin", "--kernels", "cases", "--targets", "sm_90", "--stages", "import,compile",
                   "--configs", configs)  # fmt: skip
    verdicts = pd.read_parquet(project.latest / "verdicts.parquet").query("stage == 'compile'")
    said = {(row.case, row.params.removeprefix("config=")): row.reason_code for row in verdicts.itertuples()}
    seen = {block: said[place] for place in said if place[0] == "copy" for block in [place[1].split(".")[0]]}
    never = {"BLOCK64": "refused_gone", "": "refused_gone"}
    assert {block: seen[block] for block in never} == never
    assert verdicts[verdicts.reason_code == "refused_gone"].change.str.contains(words).all()
    if configs == "all":
        assert seen["BLOCK32"] == "refused_gone"
        assert said["copy_at_once", "BLOCK32.warps4"] == "configuration_gained"
    assert "incomplete" not in set(verdicts.verdict)
