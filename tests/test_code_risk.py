"""Code risk: each rule both ways, the documented moves it must see and those it must not."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from judged import facts, other

from matrix.judging.changes import PAIRS, CodeReason, Direction, code_titles, decode, encode
from matrix.judging.code_risk import RULES, compile_time_changes, identical, risk_changes
from matrix.judging.thresholds import PRESETS, Thresholds
from matrix.records import KernelFacts

DEFAULT = Thresholds()
MIRROR = {str(pair.worse): str(pair.better) for pair in PAIRS}
MIRROR |= {better: worse for worse, better in MIRROR.items()}


def reasons(baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds = DEFAULT) -> list[str]:
    return [str(change.reason_code) for change in risk_changes(baseline, candidate, thresholds)]


def launch(**given: object) -> dict[str, object]:
    """Facts of an evaluated launch: microseconds by resource, and figures by name."""
    busy = {name: given.pop(name) for name in ("shared", "dram", "l2", "issue") if name in given}
    return {"busy_us": busy, "memory_unknown": 0.0, "memory_note": "", **given}


TF32 = {"matrix_ops": {"mma.m16n8k8.f32.tf32.tf32": 12}}
LOSSES = {
    "spills appeared": ({}, {"stack_bytes": 16}, "spills_appeared"),
    "spills grew": ({"stack_bytes": 32}, {"stack_bytes": 360}, "spills_grew"),
    "occupancy halved": (
        {"occupancy_blocks": 4},
        {"occupancy_blocks": 2, "occupancy_share": 0.5, "occupancy_limit": "registers"},
        "occupancy_lost",
    ),
    "triton#11526": ({"shared_bytes": 1536} | TF32, {"shared_bytes": 3584} | TF32, "shared_memory"),
    "one more pipeline buffer": (
        {"shared_bytes": 65536, "async_copies": 2},
        {"shared_bytes": 98304, "async_copies": 3},
        "shared_memory",
    ),
    "past the limit of sm_120": ({"shared_bytes": 101_376}, {"shared_bytes": 101_888}, "shared_memory"),
    "loads got narrower": ({}, {"global_load_bits": {"32": 16}}, "vector_width_lost"),
    "stores got narrower": ({}, {"global_store_bits": {"128": 1, "32": 12}}, "vector_width_lost"),
    "wgmma to mma": (
        {"matrix_ops": {"wgmma.m64n128k16.f32.f16.f16": 4}},
        {"matrix_ops": {"mma.m16n8k16.f32.f16.f16.f32": 64}},
        "matrix_class_lost",
    ),
    "tcgen05 to mma": (
        {"matrix_ops": {"tcgen05.mma.cta_group::1.kind::f16": 4}},
        {"matrix_ops": {"mma.m16n8k16.f32.f16.f16.f32": 64}},
        "matrix_class_lost",
    ),
    "mma to fma": ({"matrix_ops": {"mma.m16n8k8.f32.tf32": 8}}, {"fma": 4096}, "matrix_class_lost"),
    "products and sums no longer fused": ({"fma": 2}, {"fma": 0, "instructions": 10_000}, "contraction_lost"),
    "undefined lanes get through": (
        {},
        {"hazards": [{"kind": "masked_load_without_other", "file": "pool.py", "line": 7, "detail": ""}]},
        "hazard_appeared",
    ),
    "the weaker of two": (
        {"matrix_ops": {"wgmma.m64n64k16.f32.f16.f16": 8}},
        {"matrix_ops": {"wgmma.m64n64k16.f32.f16.f16": 4, "mma.m16n8k16.f32.f16.f16": 32}},
        "matrix_class_lost",
    ),
    "fp8 as fp16": (
        {"matrix_ops": {"mma.m16n8k32.f32.e4m3.e4m3.f32": 8}},
        {"matrix_ops": {"mma.m16n8k16.f32.f16.f16.f32": 16}},
        "matrix_type_widened",
    ),
    "kinds of tcgen05": (
        {"matrix_ops": {"tcgen05.mma.cta_group::1.kind::f8f6f4": 4}},
        {"matrix_ops": {"tcgen05.mma.cta_group::1.kind::f16": 4}},
        "matrix_type_widened",
    ),
    "F6, 3.5.1 to 3.6.0": (
        {"barriers": 5, "shuffles": 0, "shared_stores": 14},
        {"barriers": 10, "shuffles": 16, "shared_stores": 26},
        "exchange_multiplied",
    ),
    "triton#9703, bf16 32x128": (
        {"barriers": 5, "shuffles": 1, "shared_stores": 1},
        {"barriers": 10, "shuffles": 17, "shared_stores": 15},
        "exchange_multiplied",
    ),
    "triton#9703, what it costs": (
        launch(shared=8.2, dram=31.5, shared_wavefronts=65.0, shared_wavefronts_ideal=65.0, barriers=5),
        launch(shared=141.5, dram=31.5, shared_wavefronts=1125.0, shared_wavefronts_ideal=165.0, barriers=10),
        "shared_traffic_multiplied",
    ),
    "triton#9834, no longer coalesced": (
        launch(l2=0.4, dram=0.9, global_load_sectors=64.0),
        launch(l2=2.0, dram=1.3, global_load_sectors=512.0),
        "global_traffic_multiplied",
    ),
    "more work for the schedulers": (
        launch(issue=20.0, dram=10.0, executed_instructions=700.0),
        launch(issue=60.0, dram=10.0, executed_instructions=2100.0),
        "execution_multiplied",
    ),
    "counts, where traffic is unknown": (
        launch(dram=9.0, memory_unknown=0.4, barriers=5),
        launch(dram=9.0, memory_unknown=0.4, barriers=10, shuffles=16),
        "exchange_multiplied",
    ),
    "pipeline lost": ({"async_copies": 8}, {}, "async_copies_lost"),
    "code tripled": ({}, {"code_bytes": 12_288}, "code_size_multiplied"),
    "no longer fits": (
        {"shared_bytes": 90_000},
        {
            "shared_bytes": 106_496,
            "occupancy_limit": "does_not_fit",
            "occupancy_blocks": 0,
            "occupancy_share": 0.0,
        },
        "kernel_does_not_fit",
    ),
}
SILENT = {
    "a hundredth more of kilobytes that spill": (
        {"stack_bytes": 7592, "local_sectors": 63_976.0},
        {"stack_bytes": 7624, "local_sectors": 64_256.0},
    ),
    "other code, the same figures": ({}, {}),
    "a few registers": ({"registers": 64}, {"registers": 66}),
    "occupancy 8 to 7": (
        {"occupancy_blocks": 8},
        {"occupancy_blocks": 7, "occupancy_share": 0.875, "occupancy_limit": "registers"},
    ),
    "bigger blocks, as many warps": ({"occupancy_blocks": 8}, {"occupancy_blocks": 4}),
    "F6, 3.6.0 to 3.9.0": (
        {"barriers": 10, "shuffles": 16, "shared_stores": 26},
        {"barriers": 14, "shuffles": 24, "shared_stores": 26},
    ),
    "triton#9703, 3.6.0 to 3.7.1": (
        {"barriers": 10, "shuffles": 17, "shared_stores": 15},
        {"barriers": 8, "shuffles": 25, "shared_stores": 7},
    ),
    "counts multiplied, and cost did not": (
        launch(shared=8.2, dram=31.5, shared_wavefronts=65.0, barriers=5, shared_stores=4),
        launch(shared=24.8, dram=31.5, shared_wavefronts=197.0, barriers=14, shuffles=24, shared_stores=26),
    ),
    "what bounds nothing": (
        launch(shared=1.0, dram=31.5, shared_wavefronts=8.0),
        launch(shared=8.0, dram=31.5, shared_wavefronts=64.0),
    ),
    "twice next to nothing": (launch(dram=0.1), launch(dram=0.4)),
    "one side cut off": (launch(dram=9.0), launch(dram=90.0, memory_note="cut off: figures are partial")),
    "barriers alone": ({"barriers": 6}, {"barriers": 14}),
    "stmatrix for stores": ({"shared_stores": 16}, {"stmatrix": 16}),
    "ldmatrix moved": ({"ldmatrix": 30}, {"ldmatrix": 20}),
    "a little shared memory": ({"shared_bytes": 114_688}, {"shared_bytes": 115_200}),
    "a conversion of layouts in half the rounds, 3.4.0 to 3.5.1": ({"shared_bytes": 4096}, {"shared_bytes": 8192}),
    "twice very little shared memory": ({"shared_bytes": 128}, {"shared_bytes": 512}),
    "loads through TMA now": (
        {"global_load_bits": {"128": 32}, "async_copies": 9},
        {"global_load_bits": {"32": 1}, "bulk_copies": 2},
    ),
    "cp.async to bulk": ({"async_copies": 8}, {"bulk_copies": 2}),
    "wgmma of another shape": (
        {"matrix_ops": {"wgmma.m64n128k16.f32.f16.f16": 4}},
        {"matrix_ops": {"wgmma.m64n256k16.f32.f16.f16": 2}},
    ),
    "twice very little code": ({"code_bytes": 1024}, {"code_bytes": 3072}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_mirror(name: str) -> None:
    before, after, reason = LOSSES[name]
    baseline, candidate = facts(**before), other(**after)
    (there,) = risk_changes(baseline, candidate, DEFAULT)
    (back,) = risk_changes(candidate, baseline, DEFAULT)
    assert (there.reason_code, there.direction) == (reason, Direction.WORSE)
    assert (back.reason_code, back.direction) == (MIRROR[reason], Direction.BETTER)
    assert (back.baseline_value, back.candidate_value) == (there.candidate_value, there.baseline_value)


@pytest.mark.parametrize("name", SILENT)
def test_a_move_without_meaning_is_silent(name: str) -> None:
    before, after = SILENT[name]
    assert reasons(facts(**before), other(**after)) == []
    assert reasons(other(**after), facts(**before)) == []


def test_the_exchange_is_one_reason_that_tells_all_three_counts() -> None:
    before, after, _ = LOSSES["F6, 3.5.1 to 3.6.0"]
    (change,) = risk_changes(facts(**before), other(**after), DEFAULT)
    assert change.text == "barriers 5 to 10, shuffles 0 to 16, shared stores 14 to 26"


def test_traffic_is_told_with_its_reason_and_its_line() -> None:
    lines = [
        {"file": "k.py", "line": 9, "wavefronts": 60.0, "wavefronts_ideal": 60.0},
        {"file": "k.py", "line": 31, "wavefronts": 1065.0, "wavefronts_ideal": 105.0},
    ]
    before, after, _ = LOSSES["triton#9703, what it costs"]
    (change,) = risk_changes(facts(**before), other(**after, memory_lines=lines), DEFAULT)
    assert change.text == (
        "shared memory wavefronts 65 to 1125 a block (165 would do): bank conflicts at k.py:31, "
        "estimate 32.5 to 145.0 us; barriers 5 to 10"
    )
    assert (change.baseline_value, change.candidate_value) == (65, 1125)


def test_worst_first() -> None:
    candidate = other(stack_bytes=64, shared_bytes=8192, occupancy_blocks=4, occupancy_share=0.25, **TF32)
    assert reasons(facts(**TF32), candidate) == ["spills_appeared", "occupancy_lost", "shared_memory"]


def test_a_mixed_change_keeps_both_sides() -> None:
    """Shared memory down a third, spills doubled."""
    before, after = (
        facts(shared_bytes=98_304, stack_bytes=64, **TF32),
        other(shared_bytes=65_536, stack_bytes=128, **TF32),
    )
    assert reasons(before, after) == ["spills_grew", "shared_memory_saved"]


def test_a_trap_body_is_no_improvement() -> None:
    trap = other(occupancy_limit="does_not_fit", code_bytes=64, barriers=0, shuffles=0, global_load_bits={})
    assert reasons(facts(code_bytes=90_000, barriers=20, shuffles=40, stack_bytes=8), trap) == ["kernel_does_not_fit"]
    assert reasons(trap, trap) == []


@pytest.mark.parametrize("field", ["registers", "shared_bytes", "stack_bytes", "sass_hash"])
def test_identical_code_has_the_same_bytes_and_resources(field: str) -> None:
    changed = dataclasses.replace(facts(), **{field: "b" if field == "sass_hash" else 4000})  # type: ignore[arg-type]
    assert identical(facts(), facts())
    assert not identical(facts(), changed)


def test_code_without_a_hash_is_never_identical() -> None:
    assert not identical(facts(sass_hash=""), facts(sass_hash=""))


@pytest.mark.parametrize(
    ("baseline_s", "candidate_s", "expected"),
    [
        (1.0, 20.0, ["compile_time_multiplied"]),
        (20.0, 1.0, ["compile_time_cut"]),
        (0.1, 2.0, []),  # twenty times nothing
        (20.0, 40.0, []),  # a busy machine
        (0.0, 0.0, []),
    ],
)
def test_compile_time_is_deaf_to_noise(baseline_s: float, candidate_s: float, expected: list[str]) -> None:
    found = compile_time_changes(baseline_s, candidate_s, DEFAULT)
    assert [change.reason_code for change in found] == expected


def random_facts(dice: random.Random) -> KernelFacts:
    counts = {
        f.name: dice.choice([0, 1, 8, 60, 3000, 120_000]) for f in dataclasses.fields(KernelFacts) if f.type == "int"
    }
    widths = [{str(w): dice.randint(1, 9) for w in dice.sample([8, 16, 32, 64, 128], 2)} for _ in range(2)]
    operations = ["mma.m16n8k16.f32.f16.f16", "wgmma.m64n8k32.f32.e4m3.e4m3", "tcgen05.mma.kind::tf32"]
    return facts(
        **counts,
        occupancy_share=dice.choice([0.125, 0.25, 0.5, 1.0]),
        occupancy_limit=dice.choice(["registers", "shared", "does_not_fit"]),
        global_load_bits=widths[0],
        global_store_bits=widths[1],
        matrix_ops=dict.fromkeys(dice.sample(operations, dice.randint(0, 2)), 4),
        sass_hash=str(dice.randint(0, 9)),
        busy_us=dice.choice([None, {"dram": dice.choice([1.0, 9.0]), dice.choice(["shared", "issue"]): 30.0}]),
        memory_unknown=dice.choice([0.0, 0.05, 0.5]),
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_swapping_any_two_kernels_mirrors_every_change(preset: str) -> None:
    dice = random.Random(2)
    sample = [random_facts(dice) for _ in range(40)]
    seen = set()
    for one, two in itertools.combinations(sample, 2):
        there, back = reasons(one, two, PRESETS[preset]), reasons(two, one, PRESETS[preset])
        assert sorted(MIRROR[reason] for reason in there) == sorted(back)
        seen |= {*there, *back}
    assert len(seen) > 15


def test_a_kernel_against_itself_is_silent_in_every_preset() -> None:
    dice = random.Random(3)
    for thresholds in PRESETS.values():
        sample = [random_facts(dice) for _ in range(50)]
        assert not any(rule(one, one, thresholds) for one in sample for rule in RULES)


def test_every_reason_code_is_in_a_pair_and_has_a_title() -> None:
    paired = {*MIRROR, "kernels_changed"}
    assert paired == {str(reason) for reason in CodeReason} == set(code_titles())


def test_changes_survive_their_column() -> None:
    found = risk_changes(facts(), other(stack_bytes=8, shared_bytes=9000), DEFAULT)
    assert decode(encode(found)) == found
    assert decode("") == []


def test_a_stack_that_is_touched_no_more_than_before_costs_nothing():
    before, after = facts(stack_bytes=24, local_sectors=2288.0), other(stack_bytes=184, local_sectors=2288.0)
    assert reasons(before, after) == []
    touched = other(stack_bytes=184, local_sectors=43888.0)
    (change,) = risk_changes(before, touched, Thresholds())
    assert change.reason_code == "spills_grew"
    assert change.text == "stack 24 to 184 bytes a thread, spilled registers move 2,288 to 43,888 sectors a block"
    assert reasons(touched, before) == ["spills_shrank"]
    unknown = other(stack_bytes=184, local_sectors=None)
    assert reasons(before, unknown) == ["spills_grew"]
