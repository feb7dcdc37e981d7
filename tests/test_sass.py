"""Counts by instruction class, on SASS of real kernels and line by line."""

from __future__ import annotations

import dataclasses

import pytest
import recorded

from matrix.code import cubin, disassembler, sass


def counts(target: str, *names: str) -> list[sass.SassCounts]:
    codes = [cubin.functions(recorded.read(f"{name}.cubin"))[0].text for name in names]
    return [sass.count(text) for text in disassembler.disassemble(codes, target)]


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_the_reduction_of_fact_f6(target):
    """triton#9703: barriers 5 to 10, shuffles 0 to 16 in SASS (PTX has one shuffle more on both sides).

    Shared stores depend on the type of the result: 15 to 29 for fp32, 15 to 35 for the fp16 recorded here.
    """
    versions = ("3.5.1", "3.6.0", "3.9.0")
    tma = counts(target, *(f"{version}/{target}/colmax_tma" for version in versions))
    assert [c.barriers for c in tma] == [5, 10, 14]
    assert [c.shuffles for c in tma] == [0, 16, 25]
    assert [c.shared_stores for c in tma] == [15, 35, 22]
    assert [c.bulk_copies for c in tma] == [1, 1, 1]
    old, new = counts(target, *(f"{version}/{target}/colmax_ptr" for version in versions[:2]))
    assert dataclasses.replace(new, instructions=old.instructions) == old  # the twin moves by one at most
    assert abs(new.instructions - old.instructions) <= 1


def test_vector_width_and_copies():
    (add,) = counts("sm_90", "3.9.0/sm_90/add")
    assert add.global_load_bits == {"128": 4}
    assert add.global_store_bits == {"128": 2}
    assert (add.barriers, add.shared_loads, add.atomics, add.local_stores) == (0, 0, 0, 0)
    (matmul,) = counts("sm_80", "3.6.0/sm_80/matmul_small")
    assert matmul.matrix_pipe.keys() == {"HMMA"}
    assert matmul.async_copies
    assert matmul.ldmatrix


@pytest.mark.parametrize(("target", "pipe"), [("sm_90", "QGMMA"), ("sm_100", "UTCQMMA"), ("sm_120", "QMMA")])
def test_matrix_pipe(target, pipe):
    (found,) = counts(target, f"3.9.0/{target}/matmul_fp8")
    assert found.matrix_pipe.keys() == {pipe}


# Lines as nvdisasm prints them for kernels of 3.0 to 3.9, sm_80 to sm_120.
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("BAR.SYNC.DEFER_BLOCKING 0x0", {"barriers": 1}),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR6+0x1000], RZ", {}),
        ("MEMBAR.ALL.CTA", {}),
        ("WARPSYNC.ALL", {}),
        ("@P0 SHFL.BFLY PT, R5, R4, 0x10, 0x1f", {"shuffles": 1}),
        ("REDUX.OR UR4, R2", {}),
        ("LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", {"global_load_bits": {"128": 1}}),
        ("@!P0 LDG.E.U16 R4, desc[UR4][R2.64]", {"global_load_bits": {"16": 1}}),
        ("LDG.E R4, [R2.64]", {"global_load_bits": {"32": 1}}),
        ("STG.E.64 desc[UR4][R2.64], R4", {"global_store_bits": {"64": 1}}),
        ("LDS.U16 R4, [R2]", {"shared_load_bits": {"16": 1}}),
        ("STS.U8 [R2], R4", {"shared_store_bits": {"8": 1}}),
        ("STS.128 [R2+UR4], R4", {"shared_store_bits": {"128": 1}}),
        ("LDSM.16.MT88.4 R4, [R2]", {"ldmatrix": 1}),
        ("STSM.16.M88.4 [R2], R4", {"stmatrix": 1}),
        ("LDL.LU R4, [R1+0x8]", {"local_loads": 1}),
        ("STL [R1+0x8], R4", {"local_stores": 1}),
        ("LDGSTS.E.BYPASS.LTC128B.128 [R2], desc[UR4][R4.64], P0", {"async_copies": 1}),
        ("LDGDEPBAR", {}),
        ("@UP1 UTMALDG.2D [UR12], [UR4]", {"bulk_copies": 1}),
        ("UTMACCTL.IV [UR4]", {}),
        ("REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R4", {"atomics": 1}),
        ("ATOMS.OR RZ, [UR4], R2", {"atomics": 1}),
        ("FFMA R4, R5, R6, R7", {"fma": 1}),
        ("HFMA2 R4, R5.H0_H0, R6, R7", {"fma": 1}),
        ("HFMA2.MMA R4, -RZ, RZ, 0, 0", {}),
        (
            "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
            {"matrix_pipe": {"UTCHMMA": 1}},
        ),
    ],
)
def test_each_class(line, expected):
    nothing = sass.count("    NOP\n")
    found = sass.count(f"    {line}\n")
    changed = {name: getattr(found, name) for name in found.__slots__ if getattr(found, name) != getattr(nothing, name)}
    assert changed == expected


def test_labels_are_no_instructions():
    assert sass.count("    EXIT\n.L0:\n    BRA .L0\n").instructions == 2
