"""Loads of a case's own integers: evaluated for what the input generator puts there, and for nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx_kernel import TID, evaluated, ptx, tensor

from matrix.memory import evaluation
from matrix.memory.drawn import Drawn
from matrix.memory.evidence import MemoryEvidence, memory_evidence

KEY = (7, 2**63 + 5)
COUNT = 1 << 12
TOLD = {"key": [hex(half) for half in KEY], "low": 0, "high": 1 << 10, "count": COUNT, "dtype": "int64"}
WORDS = np.random.Philox(key=np.array(KEY, np.uint64)).random_raw(COUNT)
VALUES = (WORDS >> np.uint64(11)).astype(np.int64) % (1 << 10)

OWN_INDEX = "mul.wide.u32 %rd2, %r1, 8;\nadd.s64 %rd3, %rd1, %rd2;\nld.global.b64 {%rd4}, [%rd3];\n"
ROW = "shl.b64 %rd5, %rd4, 7;\nadd.s64 %rd7, %rd6, %rd5;\nadd.s64 %rd7, %rd7, 1099511627776;\n"
GATHER = "mov.b64 %rd6, %rd1;\n" + OWN_INDEX + ROW  # from the storage behind: 128 bytes a row


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    evaluation.remembered.cache_clear()


def given(body: str, **changed: Any) -> MemoryEvidence:
    drawn = tensor(dtype="int64", shape=[COUNT], storage=0, offset_bytes=0, drawn={**TOLD, **changed})
    return evaluated(TID + body, x=drawn)


def test_elements_are_those_of_the_stream() -> None:
    drawn = Drawn.of({**TOLD, "low": -3, "high": 50})
    places = np.array([[0, 1, 7, COUNT - 1], [5, 5, 2, 4]])
    assert drawn.at(places).tolist() == ((WORDS[places] >> np.uint64(11)).astype(np.int64) % 53 - 3).tolist()


def test_a_gather_by_the_cases_own_indices_is_counted() -> None:
    found = given(GATHER + "ld.global.b32 %r2, [%rd7];")
    assert found.unknown == 0
    assert found.global_load_sectors == 8 + len(set(VALUES[:32]))


def test_atomics_on_the_cases_own_bins_are_counted() -> None:
    found = given(GATHER + "red.global.add.u32 [%rd7], 1;")
    assert found.lanes_an_address == np.bincount(VALUES[:32]).max()


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (GATHER, {"dtype": "int32"}),  # a load of two elements at once
        (GATHER, {"count": 31}),  # beyond the tensor
        (GATHER + "st.global.b64 [%rd3], %rd4;\n", {}),  # the kernel writes there
    ],
)
def test_what_may_be_anything_else_is_unknown(body: str, changed: dict[str, Any]) -> None:
    found = given(body + "ld.global.b32 %r2, [%rd7];", **changed)
    assert found.unknown > 0


def test_without_the_harness_own_inputs_nothing_is_known() -> None:
    launch = ptx(TID + GATHER + "ld.global.b32 %r2, [%rd7];"), [tensor()], (1,), "sm_90"
    assert memory_evidence(*launch).unknown == 0.5


def test_lanes_that_are_masked_keep_what_they_had() -> None:
    """As Triton masks a load: the register first, then the load of some lanes."""
    masked = "setp.lt.s32 %p1, %r1, 4;\nmov.b64 %rd4, 0;\n" + OWN_INDEX.replace("ld.global", "@%p1 ld.global")
    found = given("mov.b64 %rd6, %rd1;\n" + masked + ROW + "ld.global.b32 %r2, [%rd7];")
    assert found.unknown == 0
    assert found.global_load_sectors == 1 + len({0, *VALUES[:4]})
