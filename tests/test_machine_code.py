"""What warps execute of the machine code: loops weighed by what is known of the PTX, pipes, spills."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recorded
from ptx_kernel import ADDRESS, TID, evaluated, number, tensor

from matrix.code.evidence import kernel_facts_batch
from matrix.memory.control_flow import certain, natural_loops
from matrix.memory.latencies import Latencies
from matrix.memory.machine_code import MachineWork
from matrix.memory.machine_code import machine_work as weighed
from matrix.memory.schedule import Slot, clocks, once, slots

STRAIGHT = """
    S2R R0, SR_TID.X
    IMAD.WIDE R2, R0, 0x4, R4
    LDG.E R6, desc[UR4][R2.64]
    FADD R6, R6, 1
    MUFU.EX2 R6, R6
    STG.E desc[UR4][R2.64], R6
    EXIT
.L_1:
    BRA .L_1
    NOP
"""
LOOP = """
    S2R R0, SR_TID.X
.L_1:
    LDG.E R6, desc[UR4][R2.64]
    LDG.E R7, desc[UR4][R2.64+0x4]
    IADD3 R2, P0, R2, 0x8, RZ
    ISETP.NE.AND P0, PT, R2, R9, PT
    @P0 BRA .L_1
.L_2:
    LDG.E R6, desc[UR4][R2.64]
    ISETP.NE.AND P0, PT, R2, R9, PT
    @P0 BRA .L_2
    STG.E desc[UR4][R2.64], R6
    EXIT
"""


LATENCIES = Latencies(
    clocks={"l1": 40, "l2": 250, "dram": 500, "shared": 30, "shuffle": 25, "other": 20},
    waiting=1.0,
    by_load=(),
    in_l2=0.0,
    special_interval=8,
)


def machine_work(sass: str, executions: dict[str, float], warps: int) -> MachineWork | None:
    return weighed(sass, b"", executions, warps, LATENCIES)


def test_straight_code_is_run_once_by_every_warp() -> None:
    found = machine_work(STRAIGHT, {"LDG": 4.0, "STG": 4.0}, warps=4)
    assert found is not None
    assert (found.instructions, found.alu, found.fma, found.special) == (4 * 7, 0, 4 * 2, 4)
    assert found.local_sectors == 0


def test_loops_are_gone_through_as_often_as_their_loads_say() -> None:
    """Unrolled by two, with a remainder: 20 loads a warp were 9 rounds and 2, or any other way that adds up to 20."""
    found = machine_work(LOOP, {"LDG": 40.0, "STG": 2.0}, warps=2)
    assert found is not None
    assert found.instructions == pytest.approx(2 * 3 + 40 / 2 * 5, rel=0.25)
    assert found.alu == pytest.approx(40, rel=0.25)


@pytest.mark.parametrize("executions", [{"LDG": 400.0, "STG": 4.0}, {"LDG": 4.0, "STG": 4.0, "BAR": 8.0}])
def test_code_that_does_not_what_the_ptx_does_says_nothing(executions: dict[str, float]) -> None:
    assert machine_work(STRAIGHT, executions, warps=4) is None


def test_a_wait_behind_the_code_is_no_loop_of_all_that_it_returns_into() -> None:
    """Blocks 0, 1, 2; 0 may leave for 3, which waits for itself and returns to 1."""
    assert natural_loops([[3, 1], [2], [], [3, 1]]) == [frozenset({3})]
    assert certain([[3, 1], [2], [], [3, 1]]) == {0, 1, 2}


def test_a_loop_in_a_loop() -> None:
    assert natural_loops([[1], [2], [2, 3], [1, 4], []]) == [frozenset({2}), frozenset({1, 2, 3})]


def test_code_that_some_warps_pass_by_counts_as_often_as_its_stores() -> None:
    passed = STRAIGHT.replace("    FADD R6, R6, 1\n", "    @P0 BRA .L_2\n    STS [R0], R6\n.L_2:\n")
    found = machine_work(passed, {"LDG": 4.0, "STG": 4.0, "STS": 1.0}, warps=4)
    assert found is not None
    assert found.instructions == pytest.approx(4 * 7 + 1)


def test_nothing_is_said_of_no_code() -> None:
    assert machine_work("", {}, warps=4) is None


def coded(stall: int, *, sets: int = 7, frees: int = 7, waits: int = 0) -> bytes:
    return (stall << 105 | sets << 110 | frees << 113 | waits << 116 | 0xABC).to_bytes(16, "little")


def test_the_schedule_of_an_instruction() -> None:
    assert slots(coded(4, sets=2, waits=0b101) + coded(0)) == [
        Slot(stall=4, sets=2, frees=-1, waits=0b101),
        Slot(stall=1, sets=-1, frees=-1, waits=0),
    ]


def test_one_warp_waits_for_what_it_loads() -> None:
    arrivals = LATENCIES.arrivals(["LDG", "IADD3", "FADD"])
    schedule = slots(coded(2, sets=0) + coded(4) + coded(5, waits=1))
    assert once(schedule, arrivals, range(3)) == 500 + 5
    assert clocks(schedule, arrivals, range(3)) == 500 + 5  # round after round


def test_a_loop_that_loads_ahead_waits_only_for_the_rest() -> None:
    """The load of the round before is used before the next is issued: its latency less the arithmetic."""
    arrivals = LATENCIES.arrivals(["FADD", "LDG", *["FFMA"] * 50])
    schedule = slots(coded(4, waits=1) + coded(1, sets=0) + coded(4) * 50)
    assert clocks(schedule, arrivals, range(52)) == 500 + 4
    assert clocks(schedule, arrivals, range(2)) == 500 + 4
    assert once(schedule, arrivals, range(52)) == 4 + 1 + 200


def test_loads_that_are_waited_for_together_take_as_long_as_the_slowest() -> None:
    """Four loads, one clock apart, of which each misses L1 once in two: all four hit once in sixteen."""
    schedule = slots(coded(1, sets=0) * 4 + coded(1, waits=1))
    opcodes = ["LDG"] * 4 + ["FADD"]
    half = replace(LATENCIES, waiting=0.5).arrivals(opcodes)
    slowest = [500 + 3, 500 + 2, 500 + 1, 500]  # by the last that misses
    expected = sum(after / 2 ** (i + 1) for i, after in enumerate(slowest)) + (40 + 3) / 16
    assert once(schedule, half, range(5)) == pytest.approx(expected + 1, abs=0.5)
    last = replace(LATENCIES, by_load=(0, 0, 1, 0)).arrivals(opcodes)
    assert once(schedule, last, range(5)) == 500 + 2 + 1


def test_special_functions_arrive_no_faster_than_their_unit_makes_them() -> None:
    arrivals = LATENCIES.arrivals(["MUFU"] * 10 + ["FADD"])
    schedule = slots(coded(1, sets=0) * 10 + coded(1, waits=1))
    assert once(schedule, arrivals, range(11)) == 9 * 8 + 20 + 1


def test_warps_and_blocks_make_the_launch() -> None:
    body = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];\nst.global.b32 [%rd3], %r2;"
    code = coded(1) * 2 + coded(1, sets=0) + coded(1, waits=1) + coded(1) * 6
    found = evaluated(body, sass=STRAIGHT, code=code, resident=2, grid=(1056,))
    assert found.warp_clocks is not None
    assert found.warp_clocks > 41  # all blocks read the same line: most find it in L1
    assert found.busy_us["latency"] == pytest.approx(4 * found.warp_clocks / 1980, rel=0.01)
    assert "latency" not in evaluated(body, sass=STRAIGHT, code=code, grid=(1056,)).busy_us


def test_what_spills_move() -> None:
    """A warp's register is 128 bytes, four sectors; two together eight."""
    spilling = STRAIGHT.replace("FADD R6, R6, 1", "STL [R1], R6\n    STL.64 [R1+0x8], R8\n    LDL R6, [R1]")
    found = machine_work(spilling, {"LDG": 4.0, "STG": 4.0}, warps=4)
    assert found is not None
    assert found.local_sectors == 4 * (4 + 8 + 4)


def test_the_machine_code_decides_what_is_issued() -> None:
    body = TID + ADDRESS.format(stride=4) + "ld.global.b32 %r2, [%rd3];\nst.global.b32 [%rd3], %r2;"
    by_ptx, by_code = evaluated(body), evaluated(body, sass=STRAIGHT)
    assert by_ptx.machine_instructions is None
    assert (by_code.machine_instructions, by_code.local_sectors) == (7, 0)
    assert by_code.executed_instructions == by_ptx.executed_instructions == 8
    assert set(by_code.busy_us) - set(by_ptx.busy_us) == {"fma", "special"}


def test_real_machine_code_without_loops() -> None:
    """Every warp executes all of it once, but for the padding behind the last branch to itself."""
    given = {"arguments": [tensor("x"), tensor("y"), tensor("o"), number(1 << 20)], "grid": [1024, 1, 1]}
    signature = {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "i32"}
    kernel = {**recorded.kernel("3.9.0/sm_90/add"), **given, "signature": signature}
    (found,) = kernel_facts_batch([kernel], recorded.read, "sm_90")
    assert found.facts is not None
    written = [line for line in found.sass.splitlines() if line[:1] == " " and "NOP" not in line]
    assert "BRA" in written[-1]
    assert found.facts.machine_instructions == kernel["num_warps"] * (len(written) - 1)
    assert found.facts.local_sectors == 0
