"""Correctness in all its dimensions, by real workers under the interpreter: the planted-bug suite and more.

The same case files run on a GPU by the worker of kind ``gpu``; what only a GPU can show is not asserted here.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from worker_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Workshop

PLANTED = Path(__file__).parent / "planted"
HARMLESS = {"passed", "invalid", "refused", "not_run"}
ALL = [
    "launched",
    "bounds",
    "written",
    "inputs",
    "values",
    "fresh",
    "repeat",
    "races",
    "undefined_lanes",
    "special_values",
    "large_values",
    "small_values",
    "strided",
    "misaligned",
    "exact",
    "gradients",
]

# Which dimension sees which bug. Where several do, the first that is reported.
SEEN_BY = {
    "tail_mask_one_too_many": "bounds",
    "grid_rounded_down": "written",
    "grid_rounded_down_onto_zeros": "values",
    "assumes_contiguous": "strided",
    "never_launched": "launched",
    "cached_answer": "fresh",
    "swallows_nan": "special_values",
    "overflows": "large_values",
    "input_modified": "inputs",
    "gradient_factor_lost": "gradients",
    "max_without_other": "undefined_lanes",
    "sum_without_other": "undefined_lanes",
    "accumulates_in_fp16": "values",
    "softmax_without_shift": "special_values",
    "variance_cancels": "values",
    "fixed_count": "values",
    "half_written": "written",
    "narrow_index": "values",
    "matmul_drops_tail": "values",
    "second_program_id_unused": "written",
    "wrong_stride": "written",
    "race_on_a_sum": "races",
    "race_between_blocks": "races",
    "wrong_batch_step": "values",
}


@pytest.fixture(scope="module")
def interpreter(workshop: Workshop) -> Path:
    return workshop.environment("triton3.9.0-torch2.15.0").interpreter


@pytest.fixture(scope="module")
def worker(interpreter: Path) -> Iterator[Client]:
    with Client(interpreter, "interpret") as client:
        yield client


@pytest.fixture(scope="module")
def planted(interpreter: Path) -> list[tuple[str, dict[str, Any]]]:
    found = []
    with Client(interpreter, "collect", interpreted=False) as collect:
        for path in sorted(PLANTED.glob("*.py")):
            part = collect("collect", path=str(path))
            assert part["outcome"] == "passed", part["detail"]
            found += [(str(path), case) for case in part["cases"]]
    return found


def tagged(planted: list[tuple[str, dict[str, Any]]], tag: str) -> list[tuple[str, dict[str, Any]]]:
    return [(path, case) for path, case in planted if tag in case["tags"]]


def check(worker: Client, path: str, name: str, params: dict[str, Any], dimensions: list[str]) -> dict[str, Any]:
    return worker("interpret", path=path, case=name, params=params, dimensions=dimensions)


def failures(part: dict[str, Any]) -> list[str]:
    return [d["name"] for d in part["dimensions"] if d["outcome"] not in HARMLESS]


def test_all_planted_bugs_are_caught(worker: Client, planted: list[tuple[str, dict[str, Any]]]) -> None:
    bugs, missed, seen = tagged(planted, "bug"), [], {}
    for path, case in bugs:
        for params in reversed(case["points"]["interpret"]):
            found = failures(check(worker, path, case["name"], params, ALL))
            if SEEN_BY[case["name"]] in found:
                seen[case["name"]] = found
                break
        else:
            missed.append(case["name"])
    print(f"planted bugs caught on the interpreter: {len(seen)} of {len(bugs)}")
    assert not missed
    assert len(bugs) == len(SEEN_BY) >= 12


def test_all_controls_pass(worker: Client, planted: list[tuple[str, dict[str, Any]]]) -> None:
    controls, failed = tagged(planted, "control"), []
    for path, case in controls:
        for params in case["points"]["interpret"]:
            part = check(worker, path, case["name"], params, ALL)
            if part["outcome"] != "passed" or failures(part):
                failed.append((case["name"], params, part["outcome"], part["reason"]))
    passed = len(controls) - len({name for name, *_ in failed})
    print(f"controls passed on the interpreter: {passed} of {len(controls)}")
    assert not failed
    assert len(controls) >= 20


NAIVE = """
import importlib.util, json, sys, types
import torch
path, package = sys.argv[1:]
spec = importlib.util.spec_from_file_location("matrix", package + "/__init__.py", submodule_search_locations=[package])
module = importlib.util.module_from_spec(spec)
sys.modules["matrix"] = module
spec.loader.exec_module(module)
from matrix.worker import cases
from matrix.worker.seeds import inputs_of
passed = {}
for case in cases.cases_of(cases.load(path)):
    if "bug" in case.tags:
        params = case.points("interpret")[0]
        copies = [inputs_of(case, params) for _ in range(2)]
        out, ref = cases.call(case.run, copies[0], params), cases.call(case.reference, copies[1], params)
        passed[case.name] = torch.allclose(out.detach().double(), ref.double(), rtol=1e-2, atol=1e-2)
print(json.dumps(passed))
"""


@pytest.mark.parametrize("file", ["elementwise", "rows", "programs"])
def test_a_fixed_shape_allclose_passes_every_planted_bug(interpreter: Path, file: str) -> None:
    """Else catching them would show nothing."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"TRITON_INTERPRET": "1"}
    package = str(Path(__file__).resolve().parent.parent / "matrix")
    command = [str(interpreter), "-I", "-c", NAIVE, str(PLANTED / f"{file}.py"), package]
    passed = json.loads(subprocess.run(command, env=kept, capture_output=True, text=True, check=True).stdout)
    assert passed
    assert all(passed.values()), passed


CASE = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def kernel(x, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * step, mask=i < n) * 2, mask=i < n)

@triton.jit
def other_kernel(x, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * step, mask=i < n) * 2, mask=i < n)

def run(x):
    {before}
    out = torch.empty_like(x)
    {which}[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), x.stride(0), BLOCK=128)
    return out

case = Case(
    name="case", run=run, reference=lambda x: {reference}, inputs=lambda make, p: [make.normal((100,), "fp32")],
    interpret=[{{}}], {fields}
)
"""


def write(
    folder: Path, *, before: str = "pass", which: str = "kernel", reference: str = "x * 2", fields: str = ""
) -> str:
    path = folder / "case.py"
    path.write_text(textwrap.dedent(CASE).format(before=before, which=which, reference=reference, fields=fields))
    return str(path)


def by_name(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {d["name"]: d for d in part["dimensions"]}


def test_the_interpret_stage_looks_at_one_run_unless_asked(worker: Client, tmp_path: Path) -> None:
    part = worker("interpret", path=write(tmp_path), case="case", params={})
    assert part["outcome"] == "passed"
    assert list(by_name(part)) == ALL[:5]
    assert part["figures"]["budget"]
    assert [len(d) for d in part["digests"]["outputs"]] == [64]


def test_a_dimension_left_out_says_why(worker: Client, tmp_path: Path) -> None:
    path = write(tmp_path, fields='without={"strided": "contiguous inputs only"}')
    found = by_name(check(worker, path, "case", {}, ALL))["strided"]
    assert (found["outcome"], found["reason"]) == ("not_run", "contiguous inputs only")


def test_a_refusal_of_difficult_inputs_is_no_failure(worker: Client, tmp_path: Path) -> None:
    path = write(tmp_path, before="if x.stride(0) != 1: raise ValueError('contiguous, please')")
    part = check(worker, path, "case", {}, ALL)
    assert part["outcome"] == "passed"
    found = by_name(part)["strided"]
    assert (found["outcome"], found["reason"]) == ("refused", "ValueError: contiguous, please")


def test_what_a_library_refuses_as_it_runs_is_refused(worker: Client, tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    folder.joinpath("declining.py").write_text("def run(): raise RuntimeError('Triton < 3.7.1 is wrong here')")
    path = write(tmp_path, before=f"import sys; sys.path.insert(0, {str(folder)!r}); import declining; declining.run()")
    part = check(worker, path, "case", {}, ALL)
    assert (part["outcome"], part["reason"]) == ("refused", "RuntimeError: Triton < 3.7.1 is wrong here")


def test_a_fall_back_path_is_named(worker: Client, tmp_path: Path) -> None:
    part = check(worker, write(tmp_path, which="other_kernel", fields='kernels=["kernel"]'), "case", {}, ALL)
    assert part["outcome"] == "not_launched"
    assert "did not launch kernel; it launched other_kernel" in part["reason"]


def test_nothing_further_is_run_once_the_first_run_failed(worker: Client, tmp_path: Path) -> None:
    part = check(worker, write(tmp_path, reference="x * 3"), "case", {}, ALL)
    assert part["outcome"] == "wrong"
    assert {d["outcome"] for name, d in by_name(part).items() if name not in ALL[:5]} == {"not_run"}


def test_an_ill_conditioned_gate_is_invalid_and_not_passed(worker: Client, tmp_path: Path) -> None:
    cancels = "((x + 1e9) - 1e9) * 2 if x.dtype == torch.float32 else x * 2"
    part = check(worker, write(tmp_path, reference=cancels), "case", {}, ALL)
    assert part["outcome"] == "invalid"
    assert "ill-conditioned" in part["reason"]


def test_a_case_without_a_reference_is_the_cases_mistake(worker: Client, tmp_path: Path) -> None:
    path = write(tmp_path)
    Path(path).write_text(Path(path).read_text().replace("reference=lambda x: x * 2,", ""))
    part = check(worker, path, "case", {}, ALL)
    assert part["outcome"] == "case_error"
    assert "no reference" in part["reason"]


def test_another_seed_gives_other_inputs_and_the_same_seed_the_same(worker: Client, tmp_path: Path) -> None:
    path = write(tmp_path)
    asked = [worker("interpret", path=path, case="case", params={}, seed=seed) for seed in ("", "7", "7")]
    digests = [part["digests"]["reference"] for part in asked]
    assert digests[0] != digests[1] == digests[2]
    assert all(part["outcome"] == "passed" for part in asked)


TUNED = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 32)], key=["n"])
@triton.jit
def block_kernel(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.full((BLOCK,), BLOCK, tl.float32), mask=i < n)

def block(x):
    out = torch.empty_like(x)
    block_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x.numel())
    return out

case = Case(name="tuned", run=block, reference=lambda x: torch.full_like(x, 16), interpret=[{}],
            inputs=lambda make, p: [make.normal((64,), "fp32")])
"""


@pytest.mark.parametrize("environment", ["triton3.6.0-torch2.11.0", "triton3.9.0-torch2.15.0"])
def test_a_tuned_kernel_is_interpreted_by_its_first_configuration_whatever_was_asked_for(
    workshop: Workshop, tmp_path: Path, environment: str
) -> None:
    path = tmp_path / "tuned.py"
    path.write_text(TUNED)
    with Client(workshop.environment(environment).interpreter, "interpret") as client:
        first = client("interpret", path=str(path), case="tuned", params={}, configs=1)
        both = client("interpret", path=str(path), case="tuned", params={})
    assert first["outcome"] == both["outcome"] == "passed"
