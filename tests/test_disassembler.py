"""The disassembler: batches, bad code among good, labels, and its absence."""

from __future__ import annotations

import functools
import importlib.metadata

import pytest
import recorded

from matrix.code import cubin, disassembler

GARBAGE = bytes(range(256)) * 4


@functools.cache
def code(name: str) -> bytes:
    return cubin.functions(recorded.read(f"{name}.cubin"))[0].text


ADD = code("3.9.0/sm_90/add")
REDUCTION = code("3.6.0/sm_90/colmax_tma")
MATMUL = code("3.9.0/sm_90/matmul_fp8")


def test_place_in_the_batch_does_not_matter():
    alone = [disassembler.disassemble([each], "sm_90")[0] for each in (ADD, REDUCTION, MATMUL)]
    assert disassembler.disassemble([MATMUL, ADD, REDUCTION], "sm_90") == [alone[2], alone[0], alone[1]]


def test_one_call_for_many_and_equal_codes_once(monkeypatch):
    sizes = []
    run = disassembler._run_nvdisasm
    monkeypatch.setattr(
        disassembler, "_run_nvdisasm", lambda code, target: (sizes.append(len(code)), run(code, target))[1]
    )
    first, second, third = disassembler.disassemble([ADD, REDUCTION, ADD], "sm_90")
    assert sizes == [len(ADD) + len(REDUCTION)]
    assert first == third != second


@pytest.mark.parametrize("bad", [GARBAGE, b"", ADD[:-8]], ids=["garbage", "empty", "half an instruction"])
def test_bad_code_costs_no_other_its_text(bad):
    good, lost, other = disassembler.disassemble([ADD, bad, REDUCTION], "sm_90")
    assert not lost
    assert "EXIT" in good
    assert "UTMALDG.2D" in other


def test_nothing():
    assert disassembler.disassemble([], "sm_90") == []


@pytest.mark.parametrize(
    ("name", "opcode"),
    [
        ("3.0.0/sm_80/add", "LDG.E.128"),
        ("3.9.0/sm_90/matmul_fp8", "QGMMA.64x128x32.F32.E4M3.E4M3"),
        ("3.9.0/sm_100/matmul_fp8", "UTCQMMA"),
        ("3.9.0/sm_120/matmul_fp8", "QMMA.16832.F32.E4M3.E4M3"),
    ],
)
def test_every_target(name, opcode):
    (text,) = disassembler.disassemble([code(name)], name.split("/")[1])
    assert opcode in text


def test_branches_have_labels_and_no_addresses():
    (text,) = disassembler.disassemble([REDUCTION], "sm_90")
    lines = text.splitlines()
    branches = [line for line in lines if " BRA " in line]
    assert branches
    for line in branches:
        assert f"{line.split()[-1]}:" in lines
    assert "/*" not in text
    assert lines[-1].strip() != "NOP"


def test_a_target_that_nvdisasm_does_not_know():
    with pytest.raises(disassembler.DisassemblerError, match="sm_1"):
        disassembler.disassemble([ADD], "sm_1")


def test_not_installed(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    disassembler.version.cache_clear()
    disassembler._executable.cache_clear()
    try:
        with pytest.raises(disassembler.DisassemblerError, match="not installed") as caught:
            disassembler.disassemble([ADD], "sm_90")
        assert "pip install" in caught.value.hint
    finally:
        disassembler.version.cache_clear()
        disassembler._executable.cache_clear()


def test_version():
    assert disassembler.version()[0].isdigit()
