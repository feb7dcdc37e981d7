"""The chain of evidence: which link changed first, whose change it is, and what no link explains."""

from __future__ import annotations

import dataclasses
import json

import judged
import pyarrow.parquet as pq
import pytest
import run_folders
import timed

from matrix.explaining import chains, confounders
from matrix.explaining.chain import Chain
from matrix.explaining.links import State, Step
from matrix.explaining.owner import Beside, Owner
from matrix.explaining.sides import Sides
from matrix.explaining.verdict_columns import with_owners
from matrix.judging.arm_pairs import ArmPair
from matrix.judging.compare import judge_again
from matrix.judging.groups import group
from matrix.judging.speed import Speed
from matrix.judging.thresholds import Thresholds
from matrix.records import CounterRecord, Verdict, VerdictRecord
from matrix.reporting.show import as_data, as_text, matching
from matrix.reporting.summary import summary_markdown, summary_text
from matrix.resources import sample_folder
from matrix.storage.runfolder import load
from matrix.storage.store import read_verdicts

HASHES = ("ttir_hash", "ttgir_hash", "llir_hash", "ptx_hash", "sass_hash")
BASE = dict.fromkeys(HASHES, "a")


def row(stage: str = "compile", reason: str = "spills_appeared", **given) -> VerdictRecord:
    values = {
        "run_id": "r", "baseline": judged.BASELINE, "candidate": judged.CANDIDATE, "target": "sm_90",
        "case": "softmax", "params": "rows=8,dtype=fp16", "stage": stage, "verdict": Verdict.CODE_RISK,
        "reason_code": reason, "change": "",
    }  # fmt: skip
    return VerdictRecord(**{**values, **given})


def slower(speed: Speed = Speed.SLOWER, ratio: float = 1.2, **given) -> VerdictRecord:
    reason = given.pop("reason", "slower")
    return row("timing", reason, speed=str(speed), ratio=ratio, allowed=1.03, verdict=Verdict.REGRESSED, **given)


def pair(changed: str = "", name: str = "softmax_kernel", ptxas: str = "12.8.93", **facts):
    """A kernel of both sides; from the hash ``changed`` on nothing is equal any more."""
    later = HASHES[HASHES.index(changed) :] if changed else ()
    before = judged.kernel(judged.BASELINE, judged.facts(**BASE), kernel=name)
    code = judged.facts(**{**BASE, **dict.fromkeys(later, "b"), **facts})
    return before, judged.kernel(judged.CANDIDATE, code, kernel=name, ptxas_version=ptxas)


def sides(verdict: VerdictRecord, *pairs, **given) -> Sides:
    known = {"sources": ("s", "s"), "own_files": frozenset({"s.py"})}
    timing = verdict if verdict.stage == "timing" else None
    return Sides(**{"row": verdict, "pairs": pairs, "timed": timing, **known, **given})


def states(chain: Chain) -> dict[Step, State]:
    return {link.step: link.state for link in chain.links}


def counted(environment: str, **given) -> CounterRecord:
    place = {"run_id": "r", "host": "h", "gpu_uuid": "g", "target": "sm_90", "case": "softmax", "params": ""}
    return CounterRecord(**place, environment=environment, cell_id="", outcome="passed", reason="", **given)


@pytest.mark.parametrize(
    ("changed", "step", "owner"),
    [
        ("ttir_hash", Step.TTIR, Owner.FRONT_END),
        ("ttgir_hash", Step.TTGIR, Owner.OPTIMISER),
        ("llir_hash", Step.LLIR, Owner.LLVM),
        ("ptx_hash", Step.PTX, Owner.LLVM),
        ("sass_hash", Step.SASS, Owner.ASSEMBLER),
    ],
)
def test_the_first_link_that_changed_names_the_owner(changed, step, owner):
    chain = Chain(sides(row(), pair(changed)))
    assert (chain.first.step, chain.owner) == (step, owner)
    assert states(chain)[Step.SOURCE] is State.SAME
    assert states(chain)[Step.KERNEL_TIME] is State.UNKNOWN


def test_equal_ptx_and_another_assembler_is_the_assemblers():
    chain = Chain(sides(row(), pair("sass_hash", ptxas="12.9.86")))
    assert (chain.first.step, chain.owner) == (Step.PTXAS, Owner.ASSEMBLER)
    assert "12.8.93 → 12.9.86" in chain.first.note


def test_another_assembler_behind_an_earlier_change_is_not_accused_but_offered():
    chain = Chain(sides(row(), pair("ttgir_hash", ptxas="12.9.86")))
    assert chain.owner is Owner.OPTIMISER
    assert "--same-ptx-other-ptxas" in chain.why
    assert chain.said == "first change: TTGIR; whose: Triton's optimiser, or the assembler"


def test_another_source_comes_first():
    chain = Chain(sides(row(), pair("ttir_hash"), sources=("s", "t")))
    assert (chain.first.step, chain.owner) == (Step.SOURCE, Owner.CASE)


def test_a_source_that_is_not_known_is_said():
    chain = Chain(sides(row(), pair("ttir_hash"), own_files=frozenset()))
    assert states(chain)[Step.SOURCE] is State.UNKNOWN
    assert "Unknown before it: source" in chain.why


def test_options_that_resolve_differently_are_before_every_pass():
    before, after = pair("ttgir_hash")
    moved = dataclasses.replace(after, options={"num_stages": 3, "new": 1})
    chain = Chain(sides(row(), (dataclasses.replace(before, options={"num_stages": 2}), moved)))
    assert chain.first.step is Step.OPTIONS
    assert chain.first.note == "num_stages 2 → 3"


def test_differences_that_end_in_the_same_code_accuse_nobody():
    chain = Chain(sides(slower(), pair("ttgir_hash", sass_hash="a", ptx_hash="a")))
    assert chain.owner is Owner.UNKNOWN
    assert chain.first.step is Step.KERNEL_TIME
    assert "TTGIR and LLIR differ, and end in the same machine code." in chain.why
    assert chain.broken == ("code unchanged, but time moved (+20.0 %)",)


@pytest.mark.parametrize(
    ("beside", "owner"),
    [
        ([Beside(Owner.TORCH, "torch 2.9.1 → 2.11.0")], Owner.TORCH),
        ([Beside(Owner.DRIVER, "driver 580 → 590")], Owner.DRIVER),
        ([Beside(Owner.TORCH, "torch"), Beside(Owner.DRIVER, "driver")], Owner.UNKNOWN),
        ([], Owner.UNKNOWN),
    ],
)
def test_with_the_same_code_only_the_one_thing_that_differs_is_accused(beside, owner):
    assert Chain(sides(slower(), pair(), beside=lambda: beside)).owner is owner


def test_time_without_cycles_is_the_clocks():
    arms = ArmPair(
        baseline=timed.arm(timed.Role.BASELINE), candidate=timed.arm(cycles_ratio=1.001), control=None, floor=0
    )
    assert Chain(sides(slower(), pair(), arms=arms)).owner is Owner.CLOCKS
    kept = dataclasses.replace(arms, candidate=timed.arm(cycles_ratio=1.2))
    assert Chain(sides(slower(), pair(), arms=kept)).owner is Owner.UNKNOWN


def test_the_tuner_and_the_launcher_have_reasons_of_their_own():
    assert Chain(sides(slower(reason="tuner_slower"), pair("ttgir_hash"))).owner is Owner.TUNER
    launch = slower(reason="launch_slower", speed=Speed.EQUIVALENT)
    assert Chain(sides(launch, pair())).owner is Owner.LAUNCHER
    torch = [Beside(Owner.TORCH, "torch 2.9.1 → 2.11.0")]
    assert Chain(sides(launch, pair(), beside=lambda: torch)).owner is Owner.UNKNOWN


def test_compile_time_is_its_stages():
    before, after = pair("ttgir_hash")
    spent = {"ttir": 0.1, "ttgir": 0.2, "llir": 0.3, "ptx": 0.1}
    kernels = (dataclasses.replace(before, seconds={**spent, "cubin": 1.0}),
               dataclasses.replace(after, seconds={**spent, "cubin": 40.0}))  # fmt: skip
    chain = Chain(sides(row(reason="compile_time_multiplied"), kernels))
    assert chain.owner is Owner.ASSEMBLER
    assert "1.0 to 40.0 s" in chain.why


def test_better_counters_and_no_better_time_are_a_broken_link():
    counters = ([counted("a", shared_bank_conflicts=100.0)], [counted("b", shared_bank_conflicts=10.0)])
    for speed, broken in ((Speed.SLOWER, 1), (Speed.EQUIVALENT, 1), (Speed.FASTER, 0)):
        chain = Chain(sides(slower(speed), pair("ptx_hash"), counters=counters))
        assert len(chain.broken) == broken, speed
        assert states(chain)[Step.COUNTERS] is State.CHANGED
    mixed = ([counted("a", shared_bank_conflicts=100.0, shared_wavefronts=1.0)],
             [counted("b", shared_bank_conflicts=10.0, shared_wavefronts=9.0)])  # fmt: skip
    assert not Chain(sides(slower(), pair("ptx_hash"), counters=mixed)).broken


def test_a_launch_that_was_not_counted_is_unknown():
    lost = dataclasses.replace(counted("b"), outcome="not_run", shared_bank_conflicts=1.0)
    counters = ([counted("a", shared_bank_conflicts=100.0)], [lost])
    chain = Chain(sides(slower(), pair("ptx_hash"), counters=counters))
    assert states(chain)[Step.COUNTERS] is State.UNKNOWN


def test_a_pass_has_two_times_and_kernels_faster_alone_break_it():
    pairs = (pair("ptx_hash", "norm"), pair(name="product"))
    counters = ([counted("a", kernel_us=50.0), counted("a", kernel_us=50.0)],
                [counted("b", kernel_us=20.0), counted("b", kernel_us=50.0)])  # fmt: skip
    chain = Chain(sides(slower(Speed.EQUIVALENT, 1.0), *pairs, counters=counters))
    assert states(chain)[Step.KERNEL_TIME] is State.CHANGED
    assert states(chain)[Step.PASS_TIME] is State.SAME
    assert chain.broken == ("2 kernels faster (-30.0 %, as profiled), but the pass not (0.00 %)",)
    assert chain.first.note == "in 1 of 2 kernels: norm"
    unprofiled = Chain(sides(slower(), *pairs))
    assert states(unprofiled)[Step.KERNEL_TIME] is State.UNKNOWN


def test_code_that_is_worse_and_no_slower_is_a_broken_link():
    measured = slower(Speed.FASTER, 0.9)
    chain = Chain(sides(row(), pair("ttgir_hash"), timed=measured, coded=row()))
    assert chain.broken == ("code worse (spills appeared), but time not (-10.0 %)",)


def test_without_code_and_time_there_is_no_chain():
    assert not Chain(sides(row())).links


def test_other_kernels_have_no_owner():
    chain = Chain(sides(row(reason="kernels_changed"), pair(), unmatched=["fused"]))
    assert chain.owner is Owner.UNKNOWN
    assert "other kernels" in chain.why


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(run_folders.build(tmp_path_factory.mktemp("chain") / "run", gpu=True))


def test_every_page_tells_whose_change_a_finding_is(run):
    told = {one["title"]: one for one in chains.as_data(group([run]))}
    spill = told["matmul_split_k: registers spill"]
    assert (spill["first_change"], spill["owner"]) == ("TTGIR", "Triton's optimiser")
    assert "first change: TTGIR; whose: Triton's optimiser" in summary_markdown(run)
    assert "first change: TTGIR; whose: Triton's optimiser" in summary_text(run)
    cells = matching(run, "*3.6.0*/sm_90/matmul_split_k:*")
    assert "whose change: Triton's optimiser" in as_text(run, cells)
    data = json.loads(json.dumps(as_data(run, cells), default=str))
    assert data["chains"][0]["links"][0]["step"] == "source"


def test_what_differs_is_told_before_any_figure(run):
    said = confounders.confounders_of([run])[0].text
    assert said.startswith("One thing differs: Triton 3.5.1 → 3.6.0 (with ptxas for sm_100 12.8.93 → 12.9.86")
    assert "Triton's compiler from the ptxas in it, by --same-ptx-other-ptxas." in said
    assert said.endswith("torch 2.9.1 and 2.11.0 did not run: without a GPU, torch 2.13.0+cpu stands in.")
    text = summary_markdown(run)
    assert text.index("One thing differs") < text.index("Do not upgrade")
    assert summary_text(run).index("One thing differs") < summary_text(run).index("Do not upgrade")


def moved(run, **given):
    first, *others = run.meta["environments"]
    return dataclasses.replace(run, meta={**run.meta, "environments": [first, *({**one, **given} for one in others)]})


def test_several_causes_cannot_be_told_apart_and_the_runs_that_would_are_offered(run):
    other = moved(run, torch_build="2.11.0+cu130", numpy="2.4.0", variables={"TRITON_DEFAULT_FP_FUSION": "0"})
    (found,) = confounders.confounders_of([other])
    assert not found.single
    assert "4 things differ" in found.text
    assert "cannot be told apart" in found.text
    offered = {(one.cause, one.command.split(" --targets")[0]): one for one in found.runs}
    start = "triton-matrix run --baseline"
    assert (confounders.Cause.TRITON, f"{start} 3.5.1@host --candidate 3.6.0@host") in offered
    pairs = f"{start} triton3.5.1-torch2.11.0 --candidate triton3.6.0-torch2.11.0"
    assert (confounders.Cause.TRITON, pairs) in offered
    torch = f"{start} triton3.6.0-torch2.9.1 --candidate triton3.6.0-torch2.11.0"
    assert (confounders.Cause.TORCH, torch) in offered
    numpy = next(one for one in found.runs if one.cause is confounders.Cause.NUMPY)
    assert 'requires = ["numpy==2.3.5"]' in numpy.needs
    assert f"alone: `{torch}" in summary_markdown(other)


def test_what_is_offered_are_environments_that_the_program_knows(run):
    import tomllib

    from matrix.settings.config import load as configuration

    other = moved(run, torch_build="2.11.0+cu130", python="3.13.1", numpy="2.4.0")
    (found,) = confounders.confounders_of([other])
    known = configuration(run.path)
    for one in found.runs:
        words = one.command.split()
        names = [words[words.index(option) + 1] for option in ("--baseline", "--candidate")]
        declared = [each["id"] for each in tomllib.loads(one.needs).get("environments", ())]
        assert all(name in declared or known.environment(name) for name in names), one.command


def test_runs_of_two_hosts_differ_in_host_and_files(tmp_path):
    folders = []
    for number, (host, run_id) in enumerate((("a", "20261130T000000Z-0001"), ("b", "20261201T000000Z-0002"))):
        folder = run_folders.build(tmp_path / host, host=host, run_id=run_id, gpu=True)
        meta = json.loads((folder / "run.json").read_text())
        meta["environments"] = [meta["environments"][number]]
        meta["gpus"][0]["driver"] = ("570.1", "580.2")[number]
        (folder / "run.json").write_text(json.dumps(meta))
        folders.append(folder)
    merged, _ = judge_again(folders, run_folders.BASELINE, [run_folders.NEXT], Thresholds())
    (found,) = confounders.confounders_of([merged])
    assert [each.said for each in found.differences if each.cause is confounders.Cause.HOST] == [
        "host a → b",
        "driver 570.1 → 580.2",
    ]
    assert found.runs[-1].command.startswith(
        f"triton-matrix run --baseline {run_folders.BASELINE} --candidate {run_folders.NEXT}"
    )


def test_verdict_rows_of_findings_say_which_link_changed_first_and_whose_change_it_is():
    run = load(sample_folder())
    rows = with_owners(run)
    told = [each for each in rows if each.whose_change]
    assert len(told) > 20
    assert all(each.finding_id for each in told)
    of_run = chains.chains_of(run)
    for one in told:
        chain = of_run.of(one, one.kernel)
        assert (one.first_change, one.whose_change) == (chain.first and chain.first.step, chain.owner)
    assert {each.whose_change for each in told} >= {"LLVM", "Triton's optimiser"}
    made = {name: [*getattr(run, name)] for name in ("verdicts", "kernels", "timings")}
    assert [*with_owners(dataclasses.replace(run, **made))] == [*rows]


def test_a_table_from_before_the_owners_has_none(tmp_path):
    table = pq.read_table(sample_folder() / "verdicts.parquet")
    late = [name for name in ("first_change", "whose_change") if name in table.column_names]
    pq.write_table(table.drop_columns(late), tmp_path / "verdicts.parquet")
    rows = read_verdicts(tmp_path)
    assert len(rows) == len(table)
    assert all(each.first_change is each.whose_change is None for each in rows)
