"""The evaluator on small kernels whose traffic a person can count."""

from __future__ import annotations

import json

import numpy as np
import pytest
import recorded
from ptx_kernel import ADDRESS, TID, evaluated, ptx, tensor

from matrix.memory import evaluation, loops, machine
from matrix.memory.accesses import Access, Kind, access_of
from matrix.memory.banks import matrix_wavefronts, wavefronts
from matrix.memory.evidence import memory_evidence
from matrix.memory.launch import sample, spread_sample
from matrix.memory.parsing import parse
from matrix.memory.pipe import operand_bytes
from matrix.memory.sectors import most_on_one_address, sectors
from matrix.memory.tensormaps import host_map

LANES = np.arange(32)
OWN = 1  # a warp's own wavefront, whatever it does
ALL = np.ones((1, 32), bool)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    evaluation.remembered.cache_clear()


def one(addresses: np.ndarray, width: int, active: np.ndarray = ALL) -> tuple[int, int]:
    total, ideal = wavefronts(addresses[None, :], active, width)
    return int(total[0]), int(ideal[0])


@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        (LANES * 4, 4, (1, 1)),
        (LANES * 8, 4, (2, 1)),  # every other bank
        (LANES * 128, 4, (32, 1)),  # all in one bank
        (LANES * 132, 4, (1, 1)),  # padded by one bank
        (LANES * 0, 4, (1, 1)),  # one word for all
        (LANES * 2, 2, (1, 1)),  # two lanes a word
        (LANES * 8, 8, (2, 2)),
        (LANES // 2 * 8, 8, (1, 1)),  # neighbours share: both half warps at once
        (LANES * 16, 16, (4, 4)),
        (LANES * 128, 16, (32, 4)),  # eight lanes of a quarter warp on four banks
    ],
)
def test_bank_conflicts(addresses: np.ndarray, width: int, expected: tuple[int, int]) -> None:
    assert one(addresses, width) == expected


def test_lanes_that_take_no_part_conflict_with_none() -> None:
    assert one(LANES * 128, 4, (LANES < 8)[None, :]) == (8, 1)


def test_matrices_are_read_eight_rows_at_a_time() -> None:
    total, ideal = matrix_wavefronts((LANES * 128)[None, :], ALL, 4)
    assert (int(total[0]), int(ideal[0])) == (32, 4)
    swizzled = LANES * 128 + (LANES % 8) * 16
    assert int(matrix_wavefronts(swizzled[None, :], ALL, 4)[0][0]) == 4


@pytest.mark.parametrize(
    ("addresses", "width", "expected"),
    [
        (LANES * 4, 4, (4, 4, 128)),
        (LANES * 4 + 16, 4, (5, 4, 128)),  # begins in the middle of a sector
        (LANES * 32, 4, (32, 4, 128)),
        (LANES * 16, 16, (16, 16, 512)),
        (LANES * 0, 4, (1, 1, 4)),
    ],
)
def test_sectors(addresses: np.ndarray, width: int, expected: tuple[int, int, int]) -> None:
    assert tuple(int(figure[0]) for figure in sectors(addresses[None, :], ALL, width)) == expected


def test_atomics_take_turns_on_an_address() -> None:
    assert most_on_one_address((LANES // 8 * 4)[None, :], ALL).tolist() == [8]
    assert most_on_one_address(LANES[None, :], ~ALL).tolist() == [0]


def test_a_coalesced_load_and_a_strided_one() -> None:
    wide = evaluated(TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];")
    apart = evaluated(TID + ADDRESS.format(stride=64) + "ld.global.b32 %r2, [%rd3];")
    assert (wide.global_load_sectors, apart.global_load_sectors) == (4, 32)
    assert apart.global_sectors_ideal == 4


OP_OF_WIDTH = {1: "b8", 2: "b16", 4: "b32", 8: "v2.b32", 16: "v4.b32", 32: "v8.b32"}


@pytest.mark.parametrize("width", OP_OF_WIDTH)
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 8, 33])
def test_sectors_of_any_width_and_stride(width: int, stride: int) -> None:
    """Lanes so many elements apart: as many sectors as they touch, against those that the same bytes would fill."""
    value = "{" + ", ".join(f"%r{10 + i}" for i in range(max(1, width // 4))) + "}"
    body = TID + ADDRESS.format(stride=stride * width) + f"ld.global.{OP_OF_WIDTH[width]} {value}, [%rd3];"
    found = evaluated(body)
    touched = {byte // 32 for lane in range(32) for byte in range(lane * stride * width, lane * stride * width + width)}
    assert (found.global_load_sectors, found.global_sectors_ideal) == (len(touched), width)
    assert found.global_bytes_used == 32 * width


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("pitch", [1, 2, 3, 4, 8, 16, 32, 33, 36])
def test_wavefronts_of_any_width_and_pitch(width: int, pitch: int) -> None:
    """Rows so many accesses apart, each lane in its own: the most that any bank has to give, group by group."""
    value = "{" + ", ".join(f"%r{10 + i}" for i in range(width // 4)) + "}"
    body = TID + f"mul.lo.s32 %r2, %r1, {pitch * width};\nld.shared.{OP_OF_WIDTH[width]} {value}, [%r2];"
    lanes = 32 * 4 // width
    words = [
        [(lane * pitch * width // 4 + i) % 32 for lane in group for i in range(width // 4)]
        for group in (range(start, start + lanes) for start in range(0, 32, lanes))
    ]
    assert evaluated(body).shared_wavefronts == OWN + sum(max(map(group.count, group)) for group in words)


@pytest.mark.parametrize(("swizzle", "expected"), [("mov.b32 %r6, 0;", 32), ("shl.b32 %r6, %r4, 4;", 4)])
def test_a_swizzle_spreads_a_column_over_the_banks(swizzle: str, expected: int) -> None:
    """Eight rows of 128 bytes; each lane reads 16 bytes of column 0, moved by its row or not."""
    body = TID + "and.b32 %r4, %r1, 7;\nshl.b32 %r5, %r1, 7;\n" + swizzle + "\nxor.b32 %r7, %r5, %r6;\n"
    assert evaluated(body + "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r7];").shared_wavefronts == OWN + expected


@pytest.mark.parametrize("op", ["red.global.gpu.relaxed.add.u32 [%rd3], 1;", "atom.global.add.f32 %r5, [%rd3], %r4;"])
@pytest.mark.parametrize(("stride", "lanes", "touched"), [(0, 32, 1), (4, 1, 4), (256, 1, 32)])
def test_lanes_that_take_turns_on_one_address(op: str, stride: int, lanes: int, touched: int) -> None:
    found = evaluated(TID + ADDRESS.format(stride=stride) + op)
    assert (found.lanes_an_address, found.global_store_sectors) == (lanes, touched)
    assert found.dram_read_bytes == 32 * touched  # L2 adds to what is there


def test_the_tail_of_a_grid_is_its_last_block() -> None:
    """1000 elements by 128 threads: seven whole blocks, and one with three warps and a quarter."""
    block = "mov.u32 %r3, %ctaid.x;\nshl.b32 %r4, %r3, 7;\nadd.s32 %r5, %r4, %r1;\nsetp.lt.s32 %p1, %r5, %r9;\n"
    body = TID + block + "mul.wide.s32 %rd2, %r5, 2;\nadd.s64 %rd3, %rd1, %rd2;\n@%p1 ld.global.b16 %rs1, [%rd3];"
    found = evaluated(body, n=1000, grid=(8,), threads=128)
    assert found.global_load_sectors * 8 == pytest.approx(63, abs=0.1)  # 62.5, and the rest of the last one
    assert found.requests * 8 == 7 * 4 + 4


def test_a_prefetch_touches_nothing_and_rows_are_gathered_one_by_one() -> None:
    assert access_of("cp.async.bulk.prefetch.tensor.2d.L2.global.tile", 2) is None
    gather = "cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.mbarrier::complete_tx::bytes"
    assert access_of(gather, 3) == Access(Kind.BULK_LOAD, 0, (1,))
    rows = host_map(2, [1000, 256], [1, 64])
    assert rows.rows(0, [5, 17, 999, None]) == (4 * 128, 4 * 4, 4 * 128)
    assert rows.rows(0, [5, 17, 999, 1000]) == (4 * 128, 3 * 4, 3 * 128)  # outside: filled, and never read


def test_masked_lanes_are_not_counted() -> None:
    body = TID + ADDRESS.format(stride=4) + "setp.lt.s32 %p1, %r1, %r9;\n@%p1 st.global.b32 [%rd3], %r1;"
    assert evaluated(body, n=9).global_store_sectors == 2
    assert evaluated(body, n=0).requests == 0


def test_blocks_are_weighted_by_the_grid() -> None:
    """Only the last of 100 blocks has a tail: one store less in it."""
    body = (
        TID
        + "mov.u32 %r3, %ctaid.x;\nshl.b32 %r4, %r3, 5;\nadd.s32 %r5, %r4, %r1;\nsetp.lt.s32 %p1, %r5, %r9;\n"
        + "mul.wide.s32 %rd2, %r5, 4;\nadd.s64 %rd3, %rd1, %rd2;\n@%p1 st.global.b32 [%rd3], %r1;"
    )
    assert evaluated(body, n=3200 - 24, grid=(100,)).global_store_sectors == pytest.approx(4 - 3 / 100)


@pytest.mark.parametrize("grid", [(1,), (2,), (3, 1, 1), (128, 64), (5, 7, 9)])
def test_a_sample_stands_for_all_blocks(grid: tuple[int, ...]) -> None:
    found = sample(grid)
    assert sum(found.weights) == pytest.approx(1)
    assert found.total == np.prod(grid)
    assert len(set(found.blocks)) == len(found.blocks)


@pytest.mark.parametrize("grid", [(1,), (2,), (3, 1, 1), (128, 64), (5, 7, 9), (64, 16, 64)])
def test_a_wider_sample_stands_for_all_blocks(grid: tuple[int, ...]) -> None:
    found = spread_sample(grid)
    assert sum(found.weights) == pytest.approx(1)
    assert all(place < size for block in found.blocks for place, size in zip(block, grid, strict=False))


def test_blocks_that_take_ways_of_their_own_are_sampled_more_widely() -> None:
    """Block y of 16 stores in every fourth: three samples could not tell."""
    body = (
        TID
        + ADDRESS.format(stride=4)
        + "mov.u32 %r3, %ctaid.y;\nand.b32 %r4, %r3, 3;\nsetp.ne.s32 %p1, %r4, 1;\n@%p1 bra $L__A;\n"
        + "st.global.b32 [%rd3], %r1;\n$L__A:\nret;"
    )
    assert evaluated(body, grid=(4, 16)).global_store_sectors == pytest.approx(4 / 4, rel=0.1)


def test_an_address_that_was_loaded_is_unknown_and_never_guessed() -> None:
    body = TID + ADDRESS.format(stride=4)
    body += (
        "ld.global.b32 %r2, [%rd3];\nmul.wide.s32 %rd4, %r2, 4;\nadd.s64 %rd5, %rd1, %rd4;\nld.global.b32 %r3, [%rd5];"
    )
    found = evaluated(body)
    assert found.unknown == 0.5
    assert found.global_load_sectors == 4


LOOP = """
mov.b32 %r10, 0;
mov.b32 %r11, -1;
mov.b64 %rd4, %rd3;
$L__BB0_1:
add.s32 %r12, %r11, 1;
setp.gt.s32 %p2, %r12, 2;
selp.b32 %r11, 0, %r12, %p2;
shl.b32 %r13, %r11, 7;
shl.b32 %r14, %r1, 2;
add.s32 %r15, %r13, %r14;
ld.global.b32 %r2, [%rd4];
st.shared.b32 [%r15], %r2;
add.s64 %rd4, %rd4, 128;
add.s32 %r10, %r10, 1;
setp.lt.s32 %p1, %r10, %r9;
@%p1 bra $L__BB0_1;
"""


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 10, 23, 24, 25, 1000, 1_000_003])
def test_long_loops_are_sampled_and_weighted(n: int) -> None:
    """A ring of three buffers, entered as compilers enter it: with an index of -1."""
    found = evaluated(TID + ADDRESS.format(stride=4) + LOOP, n=n)
    assert found.global_load_sectors == 4 * n
    assert found.shared_wavefronts == n + OWN
    assert ("sampled" in found.note) == (n > 20)


def test_a_loop_whose_bound_was_loaded_is_one_iteration_and_says_so() -> None:
    body = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r9, [%rd1];" + LOOP
    found = evaluated(body)
    assert found.shared_wavefronts == 1 + OWN
    assert "depend on loaded values" in found.note


def test_both_sides_of_an_unknown_branch_are_in_doubt() -> None:
    body = (
        TID
        + ADDRESS.format(stride=4)
        + "ld.global.b32 %r2, [%rd1];\nsetp.eq.s32 %p1, %r2, 0;\nmov.b32 %r5, 0;\n@%p1 bra $L__A;\n"
        + "mov.b32 %r5, 4;\nst.shared.b32 [%r5], %r1;\nbra.uni $L__B;\n"
        + "$L__A:\nst.shared.b32 [0], %r1;\n$L__B:\nst.shared.b32 [%r5], %r1;"
    )
    found = evaluated(body)
    assert found.requests == 4
    assert found.unknown == 0.75  # both stores, and the one whose address the branch chose


def test_lanes_that_part_run_both_paths() -> None:
    body = (
        TID
        + "setp.lt.s32 %p1, %r1, %r9;\n@%p1 bra $L__A;\nshl.b32 %r5, %r1, 7;\nbra.uni $L__B;\n"
        + "$L__A:\nshl.b32 %r5, %r1, 2;\n$L__B:\nst.shared.b32 [%r5], %r1;"
    )
    assert evaluated(body, n=32).shared_wavefronts == 1 + OWN
    assert evaluated(body, n=0).shared_wavefronts == 32 + OWN
    assert evaluated(body, n=16).shared_wavefronts == 17 + OWN  # 16 lanes in bank 0, with lane 0 of the others


def test_a_view_keeps_its_offset() -> None:
    body = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];"
    assert evaluated(body, x=tensor(offset_bytes=4)).global_load_sectors == 5


def test_a_copy_passes_the_pipe_once_whatever_it_reads() -> None:
    body = (
        TID
        + ADDRESS.format(stride=16)
        + "shl.b32 %r3, %r1, 4;\nsetp.lt.s32 %p1, %r1, %r9;\nselp.b32 %r4, 16, 0, %p1;\n"
        + "cp.async.cg.shared.global [%r3], [%rd3], 0x10, %r4;"
    )
    found = evaluated(body, n=8)
    assert (found.global_load_sectors, found.shared_wavefronts) == (4, 1 + OWN)


def test_shuffles_pass_the_pipe_of_shared_memory() -> None:
    """But neither one that nobody reads, nor one that hands on a lane's value of what indices decide."""
    load = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];\n"
    read = load + "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;\nadd.s32 %r4, %r3, %r2;\nst.global.b32 [%rd3], %r4;"
    assert evaluated(read).shared_wavefronts == 1 + OWN
    assert evaluated(load + "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;").shared_wavefronts == OWN
    warp = "shr.u32 %r3, %r1, 5;\nshfl.sync.idx.b32 %r4, %r3, 0, 31, -1;\nadd.s32 %r5, %r4, 1;"
    assert evaluated(TID + warp).shared_wavefronts == OWN


def test_a_warp_that_takes_no_part_still_issues() -> None:
    body = TID + "shl.b32 %r2, %r1, 2;\nsetp.lt.s32 %p1, %r1, %r9;\n@%p1 st.shared.b32 [%r2], %r1;"
    found = evaluated(body, n=8, threads=128)
    assert (found.shared_wavefronts, found.requests) == (4 + 4 * OWN, 1)
    assert found.shared_wavefronts_ideal == found.shared_wavefronts


@pytest.mark.parametrize(
    ("op", "first", "expected"),
    [
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", True, (64 + 128) * 16 * 2),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", False, 64 * 16 * 2),
        ("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3", True, (64 + 128) * 32),
        ("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", True, (64 + 64) * 8 * 4),
    ],
)
def test_bytes_that_a_wgmma_reads_of_shared_memory(op: str, first: bool, expected: int) -> None:
    assert operand_bytes(op, first=first) == expected


def test_operands_of_a_wgmma_pass_the_pipe() -> None:
    both = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1, %f2}, %rd4, %rd5, 1, 1, 1, 0, 0;"
    one = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1, %f2}, {%r1, %r2}, %rd5, 1, 1, 1, 0;"
    assert evaluated(both, threads=128).shared_wavefronts == 32 + 4 * OWN
    assert evaluated(one, threads=128).shared_wavefronts == 16 + 4 * OWN


@pytest.mark.parametrize(("lanes", "expected"), [(8, 16), (16, 16), (32, 16)])
def test_eights_of_a_wide_async_copy_ask_for_themselves(lanes: int, expected: int) -> None:
    """Groups of so many lanes copy the same bytes, 16 a lane: a load would ask once for them."""
    address = f"and.b32 %r2, %r1, {lanes - 1};\nmul.wide.u32 %rd2, %r2, 16;\nadd.s64 %rd3, %rd1, %rd2;\n"
    to = "shl.b32 %r3, %r1, 4;\n"
    found = evaluated(TID + address + to + "cp.async.cg.shared.global [%r3], [%rd3], 0x10;")
    loaded = evaluated(TID + address + "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd3];")
    assert (found.global_load_sectors, found.fetched_sectors) == (expected, expected)
    assert loaded.global_load_sectors == lanes * 16 / 32


def test_a_descriptor_that_each_block_makes_takes_its_time() -> None:
    made = (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%rd2], 0x80;"
    )
    found = evaluated(TID + "mov.b64 %rd2, 0;\n" + made, grid=(264,))
    assert found.busy_us["descriptors"] == pytest.approx(2 * 300 / 1980, abs=1e-3)
    assert "descriptors" not in evaluated(TID, grid=(264,)).busy_us


TCGEN05 = """mov.b32 %r2, {descriptor};
elect.sync %r3|%p1, -1;
@%p1 tcgen05.mma.cta_group::1.kind::f16 [ %r4 + 0 ], {first}, %rd5, %r2, %p2;"""


@pytest.mark.parametrize(
    ("descriptor", "first", "expected"),
    [
        ("136314896", "%rd4", (128 + 128) * 32 // 128),  # m128n128
        ("136314896", "[ %r5 + 0 ]", 128 * 32 // 128),  # the first factor in tensor memory
        ("%r9", "%rd4", 0),  # an argument: not known, and not guessed
    ],
)
def test_operands_of_a_tcgen05_pass_the_pipe_once_a_block(descriptor: str, first: str, expected: int) -> None:
    found = evaluated(TCGEN05.format(descriptor=descriptor, first=first), threads=128, target="sm_100")
    assert found.shared_wavefronts == expected + 4 * OWN


AGAIN = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];\nld.global{how}.b32 %r3, [%rd3];"


def test_l1_has_what_the_block_just_read() -> None:
    found = evaluated(AGAIN.format(how=""))
    assert (found.global_load_sectors, found.fetched_sectors) == (8, 4)
    assert evaluated(AGAIN.format(how=".cv")).fetched_sectors == 8
    assert evaluated(AGAIN.format(how=".L1::no_allocate")).fetched_sectors == 8


def test_l1_has_lost_what_too_much_came_between() -> None:
    """132 SMs with 8 blocks each: 256 KiB, or what 27 KiB of shared memory a block leave of them, for all eight."""
    far = "".join(f"ld.global.b32 %r4, [%rd3 + {4096 * i}];\n" for i in range(1, 257))
    body = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];\n" + far + "ld.global.b32 %r3, [%rd3];"
    first = 4 * 257
    assert evaluated(body, grid=(1056,), resident=1).fetched_sectors == pytest.approx(first * 132 / 1056)
    assert evaluated(body, grid=(1056,), resident=8).fetched_sectors == first + 4
    assert evaluated(body, grid=(132,), resident=8).fetched_sectors == first
    crowded = evaluated(body, grid=(1056,), resident=1, shared_bytes=226 << 10)
    assert crowded.fetched_sectors == first + 4


def test_what_all_blocks_read_is_fetched_once_an_sm() -> None:
    found = evaluated(TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];", grid=(1320,))
    assert found.fetched_sectors == pytest.approx(4 * 132 / 1320)


def test_a_tensor_that_is_read_often_goes_over_dram_once() -> None:
    found = evaluated(
        TID + ADDRESS.format(stride=4) + "ld.global.cv.b32 %r2, [%rd3];", x=tensor(shape=[32]), grid=(99,)
    )
    assert found.dram_read_bytes == 32 * 4


def test_the_users_own_line_of_what_was_inlined() -> None:
    body = TID + "\t.loc\t2 191 40 // standard.py:191:40 @[ my_kernel.py:26:52 ]\nst.shared.b32 [0], %r1;"
    (line,) = evaluated(body).lines
    assert (line["file"], line["line"]) == ("my_kernel.py", 26)


def test_a_kernel_that_takes_too_long_is_cut_off_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BUDGET", 50)
    assert evaluated(TID + ADDRESS.format(stride=4) + LOOP, n=1000).note.startswith("cut off")


BY_BLOCK = """mov.u32 %r3, %ctaid.x;
add.s32 %r4, %r3, %r9;
mov.b32 %r5, 0;
bra.uni $L__BODY;
$L__HEAD:
add.s32 %r5, %r5, 1;
setp.lt.s32 %p1, %r5, %r4;
@!%p1 bra $L__END;
$L__BODY:
ld.global.b32 %r2, [%rd3];
add.s64 %rd3, %rd3, 4096;
bra.uni $L__HEAD;
$L__END:
"""


def test_blocks_go_round_a_loop_as_often_as_each_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block x of 200 goes round x + 20 times; sampled blocks are stepped over together, each as far as it goes."""
    body = TID + ADDRESS.format(stride=4) + BY_BLOCK
    found = evaluated(body, n=20, grid=(200,))
    monkeypatch.setattr(loops, "_LOOKS", ())
    evaluation.remembered.cache_clear()
    whole = evaluated(body, n=20, grid=(200,))
    assert found.note == "1 loops sampled"
    assert not whole.note
    for figure in ("requests", "global_load_sectors", "executed_instructions"):
        assert getattr(found, figure) == pytest.approx(getattr(whole, figure)), figure


def test_an_inner_loop_that_is_entered_in_its_middle_is_sampled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times four hundred iterations; the address moves on, so that no two rounds are alike."""
    outer = "mov.b32 %r10, 0;\n$L__OUTER:\n" + BY_BLOCK + "add.s32 %r10, %r10, 1;\n"
    body = TID + ADDRESS.format(stride=4) + outer + "setp.lt.s32 %p2, %r10, 20;\n@%p2 bra $L__OUTER;"
    monkeypatch.setattr(machine, "BUDGET", 2_000)  # the whole is 48,000
    found = evaluated(body, n=400)
    assert found.note.endswith("loops sampled")
    assert found.global_load_sectors == 20 * 400 * 4


def test_text_that_is_no_kernel() -> None:
    with pytest.raises(ValueError, match=r"no \.entry"):
        parse(".version 8.7\n")
    with pytest.raises(ValueError, match="no whole warps"):
        memory_evidence(ptx("").replace(".reqntid 32", ""), [], (1,), "sm_90")


def test_statements_in_every_shape() -> None:
    text = ptx(
        "{ .reg .pred p; setp.eq.s32 p, %r1, 0; @!p bra skip; }\n"
        "skip: mov.u32 %r1, %tid.x;\n"
        "\tcall.uni\n\tf,\n\t(\n\tp0\n\t);"
    )
    assert [i.op for i in parse(text).instructions] == ["setp.eq.s32", "bra", "mov.u32", "call.uni", "ret"]
    assert parse(text).labels == {"skip": [2]}


def launches() -> list[str]:
    known = {name.removesuffix(".json") for name in recorded.names(".json")}
    return [prefix for name in recorded.names(".ptx") if (prefix := name.removesuffix(".ptx")) in known]


def test_recorded_kernels_have_loops_that_are_sampled() -> None:
    assert sum("bra" in recorded.text(f"{prefix}.ptx") for prefix in launches()) > 3


@pytest.mark.parametrize("prefix", launches())
def test_sampling_changes_no_figure_of_real_kernels(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recorded kernel, with all its integers at 4096 and its loops run to the end."""
    metadata = json.loads(recorded.read(f"{prefix}.json"))
    program = parse(recorded.text(f"{prefix}.ptx"))
    arguments = [
        tensor(name, shape=[1 << 24]) if kind.endswith("64") else {"name": name, "kind": "int", "value": 4096}
        for name, kind, _ in program.params
    ]
    signature = {name: "*fp16" if kind.endswith("64") else "i32" for name, kind, _ in program.params}
    launch = (recorded.text(f"{prefix}.ptx"), arguments, (8, 8, 1), prefix.split("/")[1])
    threads = 32 * metadata["num_warps"]
    short = memory_evidence(*launch, signature=signature, threads=threads)
    monkeypatch.setattr(loops, "_LOOKS", ())
    evaluation.remembered.cache_clear()
    monkeypatch.setattr(machine, "BUDGET", 10**7)
    whole = memory_evidence(*launch, signature=signature, threads=threads)
    for figure in ("requests", "unknown", "shared_wavefronts", "global_load_sectors", "executed_instructions"):
        assert getattr(short, figure) == pytest.approx(getattr(whole, figure)), figure
