"""Facts of whole kernels, recorded from real releases."""

from __future__ import annotations

import dataclasses
import json

import pytest
import recorded

from matrix.code.evidence import KernelEvidence, kernel_facts_batch
from matrix.records import KernelFacts


def batch(*prefixes: str) -> list[KernelEvidence]:
    kernels = [recorded.kernel(prefix) for prefix in prefixes]
    return kernel_facts_batch(kernels, recorded.read, prefixes[0].split("/")[1])


def facts(*prefixes: str) -> list[KernelFacts]:
    found = [evidence.facts for evidence in batch(*prefixes)]
    assert None not in found
    return found


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_the_regression_of_fact_f6_shows(target):
    old, new = facts(f"3.5.1/{target}/colmax_tma", f"3.6.0/{target}/colmax_tma")
    assert (old.barriers, new.barriers) == (5, 10)
    assert (old.shuffles, new.shuffles) == (0, 16)
    assert old.ttir_hash == new.ttir_hash  # the same program: what changed is the compiler
    assert old.ttgir_hash != new.ttgir_hash
    assert old.sass_hash != new.sass_hash
    assert old.dtypes == new.dtypes == ["fp16", "fp16"]
    assert old.hazards == new.hazards == []


def test_all_facts_of_one_kernel():
    (found,) = facts("3.9.0/sm_100/matmul_fp8")
    assert found.registers == 94
    assert (found.stack_bytes, found.local_loads, found.local_stores) == (0, 0, 0)
    assert (found.shared_bytes, found.tensor_memory_columns) == (49168, 128)
    assert (found.occupancy_blocks, found.occupancy_share, found.occupancy_limit) == (2, 0.25, "registers")
    assert found.matrix_ops == {"tcgen05.mma.m128n128k32.f32.e4m3.e4m3": 4}
    assert found.matrix_pipe == {"UTCQMMA": 4}
    assert found.code_bytes >= 16 * found.instructions > 0
    assert found.async_copies == 16


def test_facts_are_json():
    (found,) = facts("3.0.0/sm_80/add")
    assert KernelFacts(**json.loads(json.dumps(dataclasses.asdict(found)))) == found


def test_hashes_of_what_is_missing_are_empty():
    (found,) = facts("3.9.0/sm_100/matmul_fp8")  # recorded without its IR
    assert (found.ttir_hash, found.ttgir_hash, found.llir_hash, found.dtypes) == ("", "", "", [])
    assert len(found.ptx_hash) == len(found.cubin_hash) == len(found.sass_hash) == 64


def test_sass_text_comes_along():
    (evidence,) = batch("3.9.0/sm_90/add")
    assert "LDG.E.128" in evidence.sass


def test_unreadable_kernels_cost_no_other_its_facts():
    good = recorded.kernel("3.9.0/sm_90/add")
    no_cubin = {**good, "artifacts": {"ptx": "3.9.0/sm_90/add.ptx"}}
    no_elf = {**good, "artifacts": {**good["artifacts"], "cubin": "3.9.0/sm_90/add.ptx"}}
    found = kernel_facts_batch([no_cubin, good, no_elf], recorded.read, "sm_90")
    assert [evidence.facts is None for evidence in found] == [True, False, True]
    assert "no cubin" in found[0].error
    assert "not a readable cubin" in found[2].error
    assert not found[1].error


def test_code_of_another_target():
    (evidence,) = kernel_facts_batch([recorded.kernel("3.9.0/sm_100/matmul_fp8")], recorded.read, "sm_80")
    assert evidence.facts is None
    assert "does not disassemble as sm_80" in evidence.error
