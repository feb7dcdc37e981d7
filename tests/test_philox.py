"""The same words by NumPy, by torch and, where there is a GPU, by the kernel of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Workshop

ROOT = Path(__file__).resolve().parent.parent
COMPARED = """
import numpy as np, torch
from matrix.worker import philox, philox_kernel
for key in ((1, 2), (2**64 - 1, 2**63 + 5)):
    for n in (0, 1, 4, 1001, 4096):
        drawn = np.atleast_1d(np.random.Philox(key=np.array(key, dtype=np.uint64)).random_raw(n)).view(np.int64)[:n]
        for device in DEVICES:
            for made in MAKERS:
                found = made(key, n, torch.device(device)).cpu().numpy()
                assert found.tolist() == drawn.tolist(), (key, n, device, made)
print("same")
"""


@pytest.fixture(scope="module")
def interpreter(workshop: Workshop) -> Path:
    return workshop.environment("triton3.9.0-torch2.15.0").interpreter


def run(interpreter: Path, code: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    done = subprocess.run([interpreter, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compared(devices: str, makers: str) -> str:
    return COMPARED.replace("DEVICES", devices).replace("MAKERS", makers)


def test_torch_and_numpy_make_the_same_words(interpreter: Path) -> None:
    assert run(interpreter, compared('["cpu"]', "[philox.words, philox.by_torch]")) == "same"


DRAWN = """
import torch
from matrix.memory.drawn import Drawn
from matrix.worker.inputs import Blank, Make
import numpy as np
made, blank = Make("case:n=1"), Blank("case:n=1")
def inputs(make):
    yield make.normal((3, 5), "fp16")
    yield make.integers((7, 11), -5, 1 << 40)
    yield make.permutation(9)
    yield make.integers((100,), 0, 256, "uint8")
    yield make.integers((4,), 0, 9, "fp32")
    yield make.uniform((2,), "bf16")
    yield make.zeros((3,), "int32")
    yield make.integers((33,), -(2**31), 2**31, "int32")
compared = 0
for real, hollow in zip(inputs(made), inputs(blank)):
    assert (real.shape, real.dtype) == (hollow.shape, hollow.dtype)
    told = blank.drawn.get(hollow.untyped_storage().data_ptr())
    if told:
        assert Drawn.of(told).at(np.arange(real.numel())).tolist() == real.flatten().tolist()
        compared += 1
print(compared)
"""


def test_the_evaluator_draws_the_integers_that_the_input_generator_makes(interpreter: Path) -> None:
    assert run(interpreter, DRAWN) == "3"


def test_a_gpu_makes_the_same_words(interpreter: Path) -> None:
    if run(interpreter, "import torch; print(torch.cuda.is_available())") != "True":
        pytest.skip("only a GPU shows it")
    assert run(interpreter, compared('["cuda"]', "[philox.words, philox.by_torch]")) == "same"


@pytest.fixture(scope="module")
def made(interpreter: Path) -> tuple[str, str]:
    """The kernel as text, and where the release has its assemblers."""
    kernel = run(interpreter, "from matrix.worker.philox_kernel import kernel; print(kernel())")
    return kernel, run(interpreter, "import triton.backends.nvidia as n; print(n.__path__[0])")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_is_ptx_that_every_target_s_assembler_takes(
    made: tuple[str, str], tmp_path: Path, architecture: str
) -> None:
    """ptxas of the release; the driver's own assembler is asked on a GPU alone."""
    kernel, found = made
    (tmp_path / "kernel.ptx").write_text(kernel)
    name = "ptxas" if architecture in {"sm_80", "sm_90"} else "ptxas-blackwell"
    command = [f"{found}/bin/{name}", f"-arch={architecture}", "kernel.ptx", "-o", "kernel.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
