"""Each side's PTX with the other side's ptxas: whose a finding in the code is."""

from __future__ import annotations

import itertools
import json

import judged
import pandas as pd
import pytest
from conftest import ROOT, Project, Workshop

from matrix.errors import ExitCode
from matrix.explaining.chain import Chain
from matrix.explaining.crossed import Whose, whose
from matrix.explaining.owner import Owner
from matrix.explaining.sides import Sides
from matrix.records import AssemblyRecord, Verdict, VerdictRecord
from matrix.running.reassembly import in_question

SHOWN, HIDDEN, REFUSED = ("passed", True), ("passed", False), ("compile_error", False)
SAID = "ptxas line 5; fatal : Unsupported .version 9.4; current version is '8.7'"


def assembly(*, of_candidate: bool, by_candidate: bool, result: tuple[str, bool], **given) -> AssemblyRecord:
    outcome, shown = result
    values = {
        "run_id": "r", "finding_id": "f", "baseline": judged.BASELINE, "candidate": judged.CANDIDATE,
        "target": "sm_90", "case": "softmax", "params": "", "kernel": "k", "config": "", "index": 0,
        "ptxas_version": "12.8.93", "reason": SAID if outcome != "passed" else "",
        "reproduced": of_candidate == by_candidate, "facts": {}, "artifacts": {},
    }  # fmt: skip
    place = {"of_candidate": of_candidate, "by_candidate": by_candidate, "outcome": outcome}
    return AssemblyRecord(**{**values, **place, "shows": ["spills_appeared"] if shown else [], **given})


def four(triton: tuple[str, bool], assembler: tuple[str, bool], **given) -> list[AssemblyRecord]:
    results = {(False, False): HIDDEN, (True, True): SHOWN, (True, False): triton, (False, True): assembler}
    return [assembly(of_candidate=of, by_candidate=by, result=result, **given) for (of, by), result in results.items()]


@pytest.mark.parametrize(
    ("triton", "assembler", "expected"),
    [
        (SHOWN, HIDDEN, Whose.TRITON),
        (HIDDEN, SHOWN, Whose.ASSEMBLER),
        (SHOWN, SHOWN, Whose.EITHER),
        (HIDDEN, HIDDEN, Whose.BOTH),
        (SHOWN, REFUSED, Whose.TRITON),
        (REFUSED, SHOWN, Whose.ASSEMBLER),
        (REFUSED, HIDDEN, Whose.UNKNOWN),
        (HIDDEN, REFUSED, Whose.UNKNOWN),
        (REFUSED, REFUSED, Whose.UNKNOWN),
    ],
)
def test_the_crossings_decide(triton, assembler, expected):
    found, why = whose(four(triton, assembler), "spills_appeared")
    assert found is expected
    assert (SAID in why) == (REFUSED in (triton, assembler))


def test_what_cannot_be_reproduced_decides_nothing():
    rows = [row for row in four(SHOWN, HIDDEN) if not (row.of_candidate and row.by_candidate)]
    rows.append(assembly(of_candidate=True, by_candidate=True, result=SHOWN, reproduced=False))
    assert whose(rows, "spills_appeared")[0] is Whose.UNKNOWN
    assert whose(four(SHOWN, HIDDEN), "occupancy_lost")[0] is Whose.UNKNOWN
    assert whose([], "spills_appeared")[0] is Whose.UNKNOWN


def test_kernels_that_disagree_have_no_one_owner():
    rows = [*four(SHOWN, HIDDEN), *four(HIDDEN, SHOWN, kernel="other")]
    assert whose(rows, "spills_appeared")[0] is Whose.UNKNOWN


def finding(**given) -> VerdictRecord:
    values = {
        "run_id": "r", "baseline": judged.BASELINE, "candidate": judged.CANDIDATE, "target": "sm_90",
        "case": "softmax", "params": "rows=8,dtype=fp16", "stage": "compile", "verdict": Verdict.CODE_RISK,
        "reason_code": "spills_appeared", "change": "", "finding_id": "f", "severity": 45,
        "baseline_cell_id": judged.cell(judged.BASELINE).cell_id,
        "candidate_cell_id": judged.cell(judged.CANDIDATE).cell_id,
    }  # fmt: skip
    return VerdictRecord(**{**values, **given})


@pytest.mark.parametrize(
    ("triton", "assembler", "owner"),
    [(SHOWN, HIDDEN, Owner.OPTIMISER), (HIDDEN, SHOWN, Owner.ASSEMBLER), (HIDDEN, HIDDEN, Owner.TRITON_AND_ASSEMBLER)],
)
def test_the_chain_follows_the_crossings(triton, assembler, owner):
    hashes = ("ttir_hash", "ttgir_hash", "llir_hash", "ptx_hash", "sass_hash")
    before = judged.kernel(judged.BASELINE, judged.facts(**dict.fromkeys(hashes, "a")))
    code = judged.facts(**{**dict.fromkeys(hashes, "b"), "ttir_hash": "a"})
    after = judged.kernel(judged.CANDIDATE, code, ptxas_version="12.9.86")
    chain = Chain(Sides(row=finding(), pairs=((before, after),), assembled=four(triton, assembler)))
    assert chain.owner is owner
    assert "Re-assembled" in chain.why


def test_only_findings_in_the_code_are_in_question_and_of_each_the_worst_cell():
    kernels = [judged.kernel(judged.BASELINE), judged.kernel(judged.CANDIDATE, judged.other(stack_bytes=64))]
    graver = finding(severity=50, change="graver")
    rows = [finding(), graver, finding(stage="timing", reason_code="slower", finding_id="t"),
            finding(reason_code="compile_time_multiplied", finding_id="c"),
            finding(verdict=Verdict.KNOWN, finding_id="k"), finding(target="gfx942", finding_id="a")]  # fmt: skip
    ((row, pairs),) = in_question(rows, kernels)
    assert row.change == "graver"
    assert pairs == [(kernels[0], kernels[1])]
    same = [judged.kernel(name) for name in (judged.BASELINE, judged.CANDIDATE)]
    assert in_question(rows, same) == []


def test_a_run_assembles_again_and_keeps_ptxas_own_words(workshop: Workshop, project: Project):
    for version in ("3.5.1", "3.9.0"):
        workshop.environment(version)
    done = project.matrix(
        "run", "--baseline", "3.5.1", "--candidate", "3.9.0", "--targets", "sm_90", "--stages", "import,compile",
        "--no-builtin", "--kernels", str(ROOT / "kernels" / "column_max.py"), "--cases", "*pointer*block_m=16*",
        "--same-ptx-other-ptxas", "--json",
    )  # fmt: skip
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    rows = pd.read_parquet(project.latest / "assemblies.parquet").set_index(["of_candidate", "by_candidate"])
    assert list(map(tuple, rows.index)) == list(itertools.product((False, True), repeat=2))
    # Each side's own assembler writes the recorded code again, and the other's other code.
    assert rows.reproduced.tolist() == [True, False, False, True]
    refused = rows.loc[True, False]
    assert (refused.outcome, json.loads(refused.artifacts).keys()) == ("compile_error", {"ptx"})
    assert refused.reason.startswith("ptxas line 5; fatal : Unsupported .version 9.")
    crossed = json.loads(rows.loc[False, True].facts)
    assert crossed["registers"] > 0
    assert crossed["sass_hash"] != json.loads(rows.loc[False, False].facts)["sass_hash"]
    (chain,) = json.loads(done.stdout)["chains"]
    assert "was refused (ptxas line 5" in chain["why"]
