"""PTX of real releases: target, threads, matrix instructions, and what a hash leaves out."""

from __future__ import annotations

import pytest
import recorded

from matrix.code import ptx


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("3.0.0/sm_80/add", "sm_80"),
        ("3.9.0/sm_90/add", "sm_90a"),
        ("3.9.0/sm_100/matmul_fp8", "sm_100a"),
        ("3.9.0/sm_120/matmul_fp8", "sm_120a"),
    ],
)
def test_target(name, target):
    assert ptx.target(recorded.text(f"{name}.ptx")) == target


def test_target_of_nothing():
    assert not ptx.target("")


def test_threads_under_either_directive():
    old, new = recorded.text("3.0.0/sm_80/add.ptx"), recorded.text("3.9.0/sm_90/add.ptx")
    assert ".maxntid" in old
    assert ".reqntid" in new
    assert (ptx.threads(old), ptx.threads(new), ptx.threads("")) == (128, 128, 0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("3.6.0/sm_80/matmul_small", {"mma.m16n8k16.f32.f16.f16": 4}),
        ("3.0.0/sm_90/matmul_fp8", {"wgmma.m64n128k32.f32.e4m3.e4m3": 2}),
        ("3.9.0/sm_90/matmul_fp8", {"wgmma.m64n128k32.f32.e4m3.e4m3": 2}),
        ("3.9.0/sm_100/matmul_fp8", {"tcgen05.mma.m128n128k32.f32.e4m3.e4m3": 4}),
        ("3.9.0/sm_120/matmul_fp8", {"mma.m16n8k32.f32.e4m3.e4m3": 32}),
        ("3.9.0/sm_90/add", {}),
    ],
)
def test_matrix_ops(name, expected):
    assert ptx.matrix_ops(recorded.text(f"{name}.ptx")) == expected


def test_descriptor_that_is_no_constant():
    text = recorded.text("3.9.0/sm_100/matmul_fp8.ptx")
    unknown = text.replace("mov.b32", "add.s32")
    assert ptx.matrix_ops(unknown) == {"tcgen05.mma.kind::f8f6f4": 4}


@pytest.mark.parametrize("name", recorded.names(".ptx"))
def test_canonical_text_has_code_and_nothing_else(name):
    text = recorded.text(name)
    canonical = ptx.canonical(text)
    for left_out in ("//", ".loc", ".file", ".section", "\n.b8", "$L__tmp", "samples.py"):
        assert left_out not in canonical
    assert canonical.rstrip().endswith("}")
    for kept in ("ld.param", "st.global", "ret;"):
        assert canonical.count(kept) == sum(kept in line.split("//")[0] for line in text.splitlines())
    assert ptx.canonical(canonical) == canonical
