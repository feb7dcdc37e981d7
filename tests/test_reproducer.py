"""Reproducers: one file that shows a red cell on both sides, or none."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import Project, Workshop
from reproducers import executed, shown

from matrix.causes.draft import case_statement, uv_line
from matrix.causes.excerpt import excerpt
from matrix.causes.redcell import RedCell
from matrix.causes.reproducer import NotShown, _deciding
from matrix.commands import main as cli
from matrix.errors import ExitCode, UsageError
from matrix.model import Stage
from matrix.resources import sample_folder
from matrix.settings.environments import Environment
from matrix.storage.runfolder import load

SPILLS = "sm_80/regression_triton_5572:warps=4,k=256"
ZERO = "regression_triton_11741a:n=256"


def packages(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def test_a_kernel_that_spills_is_shown_by_its_stack(project: Project, workshop: Workshop) -> None:
    done = project.matrix("repro", SPILLS, "--good", "3.2.0", "--bad", "3.4.0", "-o", "spills.py", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    file = project.root / "spills.py"
    assert packages(file) == {"torch", "triton"}
    text = file.read_text(encoding="utf-8")
    assert "--with triton==3.2.0 --with torch==2.6.0" in text and "--with triton==3.4.0 --with torch==2.8.0" in text
    # Each side ended with its own exit status before the file was written.
    assert shown(done.stdout)["registers"] == ("40", "255") and shown(done.stdout)["stack_bytes"] == ("0", "16")
    assert executed(workshop, "3.5.1", file)[0] == 0  # repaired there
    assert not (project.root / ".matrix" / "runs" / "latest").exists()  # a question is not the latest run


def test_values_are_shown_by_the_interpreter(project: Project, workshop: Workshop) -> None:
    done = project.matrix("repro", ZERO, "--good", "3.9.0", "--bad", "3.8.0", "-o", "zero.py", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    code, bad = executed(workshop, "3.8.0", project.root / "zero.py")
    assert code == 1 and bad["outcome"] == "wrong"
    assert shown(done.stdout)["outcome"] == ("passed", "wrong")


def test_an_import_that_fails_is_shown_by_its_message(project: Project, workshop: Workshop) -> None:
    cell = "regression_triton_key_moved"
    done = project.matrix("repro", cell, "--good", "3.4.0", "--bad", "3.5.1", "-o", "key.py", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    code, bad = executed(workshop, "3.5.1", project.root / "key.py")
    assert code == 1 and "cannot import name 'triton_key'" in str(bad["said"])
    text = (project.root / "key.py").read_text(encoding="utf-8")
    assert str(workshop.root) not in text and str(project.root) not in text  # it is to be shown to others


@pytest.mark.parametrize(
    ("cell", "said", "hint"),
    [
        ("sm_90/vector_add:*", "nothing got worse", ""),
        # Slower on the H200 with no mark in the code that a rule knows.
        ("layer_norm_backward:*", "(slower) here: nothing got worse in its code, and this host has no GPU of sm_90",
         "on a host that has one: triton-matrix repro sm_90/layer_norm_backward:"),
    ],
)  # fmt: skip
def test_what_does_not_show_is_not_written(
    cell: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["repro", cell, "--sample", "--good", "3.5.1", "--bad", "3.7.1", "-q"]
    done = CliRunner().invoke(cli.main, asked, standalone_mode=False)
    assert isinstance(done.exception, UsageError) and said in str(done.exception)
    assert (done.exception.hint or "").startswith(hint)
    assert not list(tmp_path.glob("repro-*"))


def test_figures_that_are_the_same_on_both_sides_decide_nothing() -> None:
    (row,) = (row for row in load(sample_folder()).verdicts if row.candidate == "host"
              and row.case == "column_max_tma" and row.stage == "compile" and "block_m=16" in row.params)  # fmt: skip
    red = RedCell(verdict=row, others=(), run=load(sample_folder(), judged=False))
    good, bad = {"shuffles": 0, "barriers": 5}, {"shuffles": 16, "barriers": 5}
    assert _deciding(red, Stage.COMPILE, good, bad, 1.03) == "shuffles"
    with pytest.raises(NotShown, match="does not show the difference"):
        _deciding(red, Stage.COMPILE, good, good, 1.03)
    slow = replace(red, verdict=replace(row, stage="timing", reason_code="slower"))
    assert _deciding(slow, Stage.TIMING, {"median_us": 50.0}, {"median_us": 60.0}, 1.03) == "median_us"
    with pytest.raises(NotShown):
        _deciding(slow, Stage.TIMING, {"median_us": 50.0}, {"median_us": 51.0}, 1.03)


SOURCE = '''"""A file."""

from __future__ import annotations

import torch
import liger_kernel
from matrix import Case, Expect

SIZE = 4  # one
# Of the kernel.
STEP = SIZE * 2
UNUSED = liger_kernel.x
torch.backends.fp32 = True


def kernel(x):
    return x + STEP  # kept


case = Case(name="a", run=kernel, inputs=lambda make, p: [make.zeros((SIZE,), "fp32")], tags=["x"])
cases = [Case(name=f"b{n}", run=kernel, inputs=None) for n in range(2)]
'''


def test_an_excerpt_has_what_its_names_stand_on() -> None:
    found = excerpt(SOURCE, ["kernel"])
    assert found.packages == ("torch",) and found.ours == () and found.future == ("annotations",)
    assert "# Of the kernel.\nSTEP = SIZE * 2\n" in found.text and "SIZE = 4  # one" in found.text
    assert "UNUSED" not in found.text and "torch.backends.fp32 = True" in found.text
    assert excerpt(SOURCE, ["UNUSED"]).packages == ("torch", "liger_kernel")


def test_a_case_statement_keeps_what_a_reproducer_uses() -> None:
    name, rewritten = case_statement(SOURCE, "a")
    assert name == "case" and "tags" not in rewritten["case"] and "run=kernel" in rewritten["case"]
    assert case_statement(SOURCE, "b1") == ("", {})


def test_inputs_have_the_harness_own_bits() -> None:
    """The text in a reproducer is that of the input generator itself, which tests compare with NumPy's."""
    from matrix.causes.draft import _part

    assert "np." not in _part("inputs.py", "Make", "NAMES") + _part("philox.py", "by_torch")
    assert "def normal" in _part("inputs.py", "Make", "NAMES")


@pytest.mark.parametrize("index", ["", "https://example.org/simple"])
def test_the_command_says_everything_that_the_environment_declares(index: str) -> None:
    told = Environment(id="x", triton="triton==3.9.0", torch="torch==2.15.0", requires=("numpy", "numpy<2.4"),
                       variables={"TRITON_DEFAULT_FP_FUSION": "0"}, index=index)  # fmt: skip
    line = uv_line(told, "a.py")
    assert line.startswith("TRITON_DEFAULT_FP_FUSION=0 uv run --no-project --python 3.11 ")
    assert line.endswith("--with triton==3.9.0 --with torch==2.15.0 --with 'numpy<2.4' a.py")
    assert ("--default-index https://example.org/simple" in line) == bool(index)
