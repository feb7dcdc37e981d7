"""Canonical IR: equal across releases where the IR is, and free of everything that names a place."""

from __future__ import annotations

import pytest
import recorded

from matrix.code import ir

KERNELS = ["add", "softmax", "pool737", "embed", "cumsum", "early_ok", "while_ok", "if_ok", "trans_ok"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_named_by_number_and_by_variable_are_one_text(kernel):
    """3.4 names values ``%0, %1``, 3.6 after the source's variables."""
    old, new = (recorded.text(f"{version}/sm_90/{kernel}.ttir") for version in ("3.4.0", "3.6.0"))
    assert old != new
    assert ir.canonical_mlir(old) == ir.canonical_mlir(new)


@pytest.mark.parametrize("name", recorded.names(".ttir") + recorded.names(".ttgir"))
def test_canonical_mlir(name):
    canonical = ir.canonical_mlir(recorded.text(name))
    for left_out in ("loc(", "#loc", ".py", "/"):
        assert left_out not in canonical
    assert ir.canonical_mlir(canonical) == canonical
    lines = [line for line in recorded.text(name).splitlines() if line and not line.startswith("#loc")]
    assert len(canonical.splitlines()) == len(lines)


def test_a_changed_operation_changes_the_text():
    text = recorded.text("3.6.0/sm_90/add.ttir")
    assert ir.canonical_mlir(text) != ir.canonical_mlir(text.replace("arith.addf", "arith.subf"))
    assert ir.canonical_mlir(text) != ir.canonical_mlir(text.replace("end = 1024", "end = 2048"))


@pytest.mark.parametrize("name", recorded.names(".llir"))
def test_canonical_llir(name):
    canonical = ir.canonical_llir(recorded.text(name))
    for left_out in ("!dbg", "DILocation", "DIFile", "samples.py", "ModuleID", "llvm.module.flags"):
        assert left_out not in canonical
    assert "define " in canonical
    assert "ret void" in canonical
    assert ir.canonical_llir(canonical) == canonical


@pytest.mark.parametrize("version", ["3.0.0", "3.4.0", "3.6.0", "3.9.0"])
@pytest.mark.parametrize(
    ("kernel", "dtypes"),
    [
        ("add", ["fp32", "fp32", "fp32"]),
        ("softmax", ["fp16", "fp16"]),
        ("swiglu", ["bf16", "bf16", "bf16"]),
        ("embed", ["int64", "fp32", "fp32"]),
        ("hist", ["int32", "int32"]),
        ("matmul_fp8", ["fp8e4nv", "fp8e4nv", "fp16"]),
    ],
)
def test_interface_dtypes_have_one_name_in_all_releases(version, kernel, dtypes):
    assert ir.interface_dtypes(recorded.text(f"{version}/sm_90/{kernel}.ttir")) == dtypes


@pytest.mark.parametrize(
    ("argument", "dtypes"),
    [
        ("!tt.ptr<f16, 1>", ["fp16"]),
        ("!tt.ptr<i1>", ["int1"]),
        ("!tt.tensordesc<tensor<64x64xbf16>>", ["bf16"]),
        ("!tt.ptr<tensor<64x64xf8E5M2>>", ["fp8e5"]),
        ("i32", []),
    ],
)
def test_other_spellings(argument, dtypes):
    assert ir.interface_dtypes(f"  tt.func public @k(%arg0: {argument}) {{") == dtypes


def test_empty():
    assert ir.interface_dtypes("") == []
