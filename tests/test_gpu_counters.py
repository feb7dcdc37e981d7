"""Which cells are profiled, where and how: of each finding the worst, as it was timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judged import BASELINE, CANDIDATE
from timed import UUID, arms

from matrix.gpus.counting import MOST_FINDINGS, count_red, plain, red
from matrix.gpus.nvml import Gpu
from matrix.gpus.profiler import Call, Counted
from matrix.model import Cell, Outcome, Stage
from matrix.records import CounterRecord, Tuning, Verdict, VerdictRecord
from matrix.running.plan import CaseInfo, PlannedCell
from matrix.running.workers import WorkerHome

GPU = Gpu(
    index=0, uuid=UUID, name="H200", capability=(9, 0), memory_bytes=1, driver="580", largest_sm_mhz=None,
    power_limit_w=None,
)  # fmt: skip


def verdict(case: str = "softmax", factor: float = 2.0, finding: str = "", **given: Any) -> VerdictRecord:
    ids = {
        f"{who}_cell_id": f"{env}/sm_90/{case}:rows=8"
        for who, env in (("baseline", BASELINE), ("candidate", CANDIDATE))
    }
    values: dict[str, Any] = {
        "run_id": "r", "baseline": BASELINE, "candidate": CANDIDATE, "target": "sm_90", "case": case,
        "params": "rows=8", "stage": "timing", "verdict": Verdict.REGRESSED, "reason_code": "slower", "change": "",
        "baseline_value": 100.0, "candidate_value": 100.0 * factor, "finding_id": finding, **ids,
    }  # fmt: skip
    return VerdictRecord(**{**values, **given})


def timed(case: str, label: str = "", **given: Any) -> list[Any]:
    tuning = f",tuning={label}" if label else ""
    shared = {"case": case, "params": f"rows=8{tuning}", "tuning": Tuning(label), **given}
    return arms(
        candidate={"cell_id": f"{CANDIDATE}/sm_90/{case}:rows=8{tuning}"},
        baseline={"cell_id": f"{BASELINE}/sm_90/{case}:rows=8{tuning}"},
        **shared,
    )[:2]


def planned(case: str) -> list[PlannedCell]:
    info = CaseInfo(
        name=case, path=Path("/cases/x.py"), points={}, targets=(), triton="", tags=(), expectations=(), files={}
    )
    params = {"rows": 8}
    return [
        PlannedCell(cell=Cell.of(name, "sm_90", case, params), stage=Stage.TIMING, case=info, params=params)
        for name in (BASELINE, CANDIDATE)
    ]


def counted(verdicts: list[VerdictRecord], **arm: Any) -> tuple[list[Call], list[CounterRecord], list[str]]:
    calls: list[Call] = []
    said: list[str] = []

    def profile(call: Call) -> Counted:
        calls.append(call)
        return Counted(outcome=Outcome.NOT_RUN, reason="no counters: as told")

    homes = {
        name: WorkerHome(
            environment=name, interpreter=Path(f"/{name}/python"), variables={"A": "1"}, pythonpath=["/src"],
            scratch=Path(), memory_bytes=0,
        )
        for name in (BASELINE, CANDIDATE)
    }  # fmt: skip
    cases = {row.case for row in verdicts}
    rows = count_red(
        verdicts,
        [one for case in cases for one in timed(case, **arm)],
        [one for case in cases for one in planned(case)],
        homes,
        [GPU],
        said.append,
        profile,
    )
    return calls, rows, said


def test_of_a_finding_the_slowest_cell_is_taken_and_nothing_that_is_not_red() -> None:
    rows = [
        verdict("a", 1.2, "f1"),
        verdict("b", 3.0, "f1"),
        verdict("c", 1.1, "f2"),
        verdict("d", verdict=Verdict.CODE_RISK, stage="compile", reason_code="spills"),
        verdict("e", verdict=Verdict.KNOWN),
        verdict("f", reason_code="launch_slower"),
        verdict("g", 0.5, verdict=Verdict.IMPROVED, reason_code="faster"),
    ]
    assert [row.case for row in red(rows)] == ["b", "c"]


def test_both_environments_are_profiled_on_the_gpu_that_timed_them() -> None:
    calls, rows, _ = counted([verdict()])
    assert [str(call.interpreter) for call in calls] == [f"/{BASELINE}/python", f"/{CANDIDATE}/python"]
    assert calls[0].variables == {"A": "1", "CUDA_VISIBLE_DEVICES": UUID}
    assert (calls[0].params, list(calls[0].pythonpath)) == ({"rows": 8}, ["/src"])
    assert [row.environment for row in rows] == [BASELINE, CANDIDATE]
    assert {row.reason for row in rows} == {"no counters: as told"}


@pytest.mark.parametrize("label", ["pinned", "retuned"])
def test_a_tuned_cell_is_found_again_and_keeps_its_configuration(label: str) -> None:
    ids = {
        f"{who}_cell_id": f"{env}/sm_90/softmax:rows=8,tuning={label}"
        for who, env in (("baseline", BASELINE), ("candidate", CANDIDATE))
    }
    chosen = {"softmax_kernel": {"BLOCK": 64, "num_warps": 4}}
    calls, rows, _ = counted([verdict(**ids)], label=label, configurations=chosen)
    assert [dict(call.pinned) for call in calls] == [chosen, chosen]
    assert rows[0].cell_id.endswith(f"tuning={label}")


def test_a_case_without_params_and_a_label_is_found_again() -> None:
    (one, *_) = arms(baseline={"cell_id": "e/sm_90/softmax:tuning=pinned", "tuning": Tuning.PINNED})
    assert plain(one) == "e/sm_90/softmax"


def test_only_the_worst_findings_are_profiled_and_the_rest_is_said() -> None:
    calls, _, said = counted([verdict(f"case{i}", 2 + i) for i in range(MOST_FINDINGS + 2)])
    assert len(calls) == 2 * MOST_FINDINGS
    assert said == [f"counters are read for the {MOST_FINDINGS} worst of {MOST_FINDINGS + 2} findings"]
