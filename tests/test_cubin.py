"""Cubins: resources as cuobjdump prints them, code bytes, and files that are no cubins."""

from __future__ import annotations

import importlib.metadata
import re
import struct
import subprocess

import pytest
import recorded

from matrix import resources
from matrix.code import cubin


def _cuobjdump() -> str:
    files = importlib.metadata.distribution("nvidia-cuda-cuobjdump").files or []
    return str(next(file.locate() for file in files if file.name == "cuobjdump"))


@pytest.mark.parametrize("name", recorded.names(".cubin"))
def test_resources_are_those_of_cuobjdump(name, tmp_path):
    file = tmp_path / "kernel.cubin"
    file.write_bytes(recorded.read(name))
    printed = subprocess.run([_cuobjdump(), "-res-usage", str(file)], capture_output=True, text=True, check=True).stdout
    expected = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", printed)
    found = [
        (f.name, str(f.registers), str(f.stack_bytes), str(f.shared_bytes))
        for f in cubin.functions(recorded.read(name))
    ]
    assert found == expected
    assert expected


@pytest.fixture(scope="module")
def told_by_a_reproducer():
    source = (resources.reports_folder() / "reproducer.py.jinja").read_text(encoding="utf-8")
    names = {"struct": struct}
    exec(re.search(r"^def code_bytes.*?(?=^def )", source, re.MULTILINE | re.DOTALL)[0], names)
    return names["code_bytes"]


@pytest.mark.parametrize("name", recorded.names(".cubin"))
def test_a_reproducer_counts_code_bytes_as_evidence_does(name, told_by_a_reproducer):
    file = recorded.read(name)
    assert told_by_a_reproducer(file) == sum(len(f.text) for f in cubin.functions(file)) < len(file)
    assert told_by_a_reproducer(b"") == 0


def test_stack_is_seen():
    assert cubin.function(recorded.read("3.6.0/sm_120/matmul_tma.cubin"), "matmul_tma_kernel").stack_bytes == 8


@pytest.mark.parametrize("name", recorded.names(".cubin"))
def test_code_is_whole_instructions(name):
    for function in cubin.functions(recorded.read(name)):
        assert function.text
        assert len(function.text) % 16 == 0


@pytest.mark.parametrize("name", ["add_kernel", "a name that ptxas changed"])
def test_the_only_function_is_found_by_any_name(name):
    assert cubin.function(recorded.read("3.0.0/sm_80/add.cubin"), name).name == "add_kernel"


@pytest.mark.parametrize("keep", [0, 3, 16, 64, 1000, 5000])
def test_truncated(keep):
    with pytest.raises(cubin.CubinError, match="not a readable cubin"):
        cubin.functions(recorded.read("3.0.0/sm_80/add.cubin")[:keep])


def test_foreign_elf():
    content = bytearray(recorded.read("3.0.0/sm_80/add.cubin"))
    content[18:20] = (62).to_bytes(2, "little")  # x86-64
    with pytest.raises(cubin.CubinError, match="machine type CUDA"):
        cubin.functions(bytes(content))
