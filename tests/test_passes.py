"""Passes of several kernels: built of other case files' kernels, right, and judged kernel by kernel."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterator

import pandas as pd
import pytest
from conftest import ROOT, Project, Workshop
from worker_client import Client

PASSES = ROOT / "kernels" / "passes"
BLOCK = PASSES / "transformer_block.py"
SMALL = {"tokens": 33, "heads": 2, "dim": 16, "hidden": 80, "tile": 32}


@pytest.fixture(scope="module")
def worker(workshop: Workshop) -> Iterator[Client]:
    with Client(workshop.environment("3.9.0").interpreter, "interpret") as client:
        yield client


@pytest.mark.parametrize("case", ["transformer_block", "transformer_block_training"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_a_transformer_block_is_right(worker: Client, case: str, dtype: str) -> None:
    part = worker("interpret", path=str(BLOCK), case=case, params={**SMALL, "dtype": dtype})
    assert part["outcome"] == "passed", part


def test_a_wrong_gradient_is_seen(worker: Client, project: Project) -> None:
    """Without the last of the three ways back to the input."""
    text = BLOCK.read_text()
    lacking = text.replace(
        "vector_add.add(vector_add.add(towards[0], towards[1]), towards[2])", "vector_add.add(*towards[:2])"
    )
    assert lacking != text
    path = project.write("wrong.py", lacking.replace('"../', f'"{ROOT}/kernels/'))
    asked = {"case": "transformer_block_training", "params": {**SMALL, "dtype": "fp32"}}
    part = worker("interpret", path=str(path), **asked)
    assert part["outcome"] == "wrong", part


def test_a_block_is_compiled_launch_by_launch_and_only_when_it_is_named(workshop: Workshop, project: Project) -> None:
    workshop.environment("3.9.0"), workshop.environment("3.8.0")
    planned = project.matrix("plan", "--baseline", "3.8.0", "--candidate", "3.9.0", "--targets", "sm_90", "--json")
    assert "transformer_block" not in planned.stdout
    done = project.matrix(
        "run", "--baseline", "3.8.0", "--candidate", "3.9.0", "--targets", "sm_90", "--stages", "import,compile",
        "--cases", "transformer_block", "--json",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    evidence = pd.read_parquet(project.latest / "evidence.parquet")
    for _, own in evidence.groupby("environment"):
        assert own.kernel.value_counts().to_dict() == {
            "matmul_kernel": 7, "rms_norm_kernel": 2, "rope_kernel": 2, "add_kernel": 2, "attention_kernel": 1,
            "swiglu_kernel": 1,
        }  # fmt: skip
    assert all("source" in json.loads(artifacts) for artifacts in evidence.artifacts)
    verdicts = pd.read_parquet(project.latest / "verdicts.parquet")
    assert set(verdicts[verdicts.stage == "compile"].verdict) <= {
        "identical",
        "changed",
        "improved",
        "code_risk",
        "mixed",
    }


def test_what_lies_beside_is_among_the_files_that_a_result_depends_on(workshop: Workshop, project: Project) -> None:
    """Whichever of the two was loaded first."""
    project.write("kernels/one.py", "from matrix import Case\nVALUE = 1\n")
    project.write("kernels/two.py", "from matrix import beside\none = beside(__file__, 'one.py')\n")
    project.write("kernels/three.py", "from matrix import beside\ntwo = beside(__file__, 'two.py')\n")
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from matrix.worker import cases
        folder = sys.argv[2]
        for name in ("one", "two", "three"):
            print(" ".join(sorted(path.rsplit("/", 1)[1] for path in cases.describe(f"{folder}/{name}.py")["files"])))
        """
    folder = str(project.root / "kernels")
    interpreter = workshop.environment("3.9.0").interpreter
    told = subprocess.run(
        [str(interpreter), "-c", textwrap.dedent(code), str(ROOT), folder], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["one.py", "one.py two.py", "one.py three.py two.py"]


def test_what_torch_compile_generates_is_captured_without_a_gpu(workshop: Workshop, project: Project) -> None:
    workshop.environment("3.9.0"), workshop.environment("3.6.0")
    done = project.matrix(
        "run", "--baseline", "3.6.0", "--candidate", "3.9.0", "--targets", "sm_90", "--stages", "import,compile",
        "--cases", "feed_forward_torch_compile", "--json",
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells.outcome) == {"passed"}, cells[["cell_id", "stage", "outcome", "reason"]].to_string()
    evidence = pd.read_parquet(project.latest / "evidence.parquet")
    for _, own in evidence.groupby("environment"):
        # One fused normalisation, and the gate in the two configurations that inductor would try.
        assert sorted(own.kernel.str.split("_").str[1]) == ["poi", "poi", "red"]
        assert own.config.nunique() == 3
    # The same torch wrote the same code: what differs is Triton's.
    sources = evidence.artifacts.map(lambda text: json.loads(text)["source"])
    assert evidence.assign(source=sources).groupby(["kernel", "config"]).source.nunique().eq(1).all()
    verdicts = pd.read_parquet(project.latest / "verdicts.parquet")
    assert set(verdicts[verdicts.stage == "compile"].verdict) <= {
        "identical",
        "changed",
        "improved",
        "code_risk",
        "mixed",
    }


def test_generated_launches_are_observed(workshop: Workshop, project: Project) -> None:
    """By inductor's own launcher, as on a GPU; here it launches nothing."""
    code = """
        import sys, types
        sys.path.insert(0, sys.argv[1])
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from matrix.worker import observe
        CachingAutotuner.run = lambda self, *args: "launched"
        tuner = object.__new__(CachingAutotuner)
        def fused(): pass
        tuner.fn = fused
        with observe.launches() as found:
            assert tuner.run(1, 2) == "launched"
        tuner.run()
        print([launch.name for launch in found])
        """
    interpreter = workshop.environment("3.9.0").interpreter
    told = subprocess.run(
        [str(interpreter), "-P", "-c", textwrap.dedent(code), str(ROOT)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "['fused']"


@pytest.mark.parametrize("version", ["3.0.0", "3.9.0"])
def test_launches_by_hand_are_observed(workshop: Workshop, version: str) -> None:
    """Of a compiled kernel that somebody kept; here it launches nothing."""
    code = """
        import sys, types
        sys.path.insert(0, sys.argv[1])
        from triton.compiler import CompiledKernel
        from matrix.worker import observe
        CompiledKernel.__getitem__ = lambda self, grid: lambda *args: ("launched", grid, args)
        kernel = object.__new__(CompiledKernel)
        def added(): pass
        kernel.src = types.SimpleNamespace(fn=types.SimpleNamespace(fn=added))
        with observe.launches() as found:
            assert kernel[(1, 1, 1)](2) == ("launched", (1, 1, 1), (2,))
        kernel[(1, 1, 1)](2)
        print([(launch.name, launch.by_hand) for launch in found])
        """
    interpreter = workshop.environment(version).interpreter
    told = subprocess.run(
        [str(interpreter), "-P", "-c", textwrap.dedent(code), str(ROOT)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[('added', True)]"


def test_a_torch_that_cannot_be_captured_says_so(workshop: Workshop, project: Project) -> None:
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import torch._inductor.runtime.triton_heuristics as heuristics
        del heuristics.StaticTritonCompileResult
        from matrix.worker.generated import Uncaptured, capturing
        try:
            with capturing(print):
                pass
        except Uncaptured as error:
            print(error)
        """
    interpreter = workshop.environment("3.9.0").interpreter
    told = subprocess.run(
        [str(interpreter), "-P", "-c", textwrap.dedent(code), str(ROOT)], capture_output=True, text=True, check=True,
        env={"TRITON_CACHE_DIR": str(project.root), "PATH": "/usr/bin"},
    )  # fmt: skip
    assert "torch.compile cannot be captured here" in told.stdout
