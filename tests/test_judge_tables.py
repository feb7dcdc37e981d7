"""Judging by columns gives the rows that the row judge gives, whatever is recorded; and leaves it little to do."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import timed
from judged import cell, expect, facts, kernel

from matrix.judging import judge_tables as by_columns
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.compare import judge_again
from matrix.judging.decision import exit_code
from matrix.judging.findings import number
from matrix.judging.judge import Place, Rules, arms_of, in_order, judge_spots, one_object, timed_pairs
from matrix.judging.thresholds import Thresholds
from matrix.records import Role, Tuning, Verdict
from matrix.resources import sample_folder
from matrix.storage import store
from matrix.storage.runfolder import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.case import Expect
    from matrix.records import ArmRecord, CellRecord, DimensionRecord, KernelFacts, KernelRecord, VerdictRecord

NAMES = ["triton3.5.1", "triton3.6.0", "triton3.7.1"]
POINTS = ["rows=8,dtype=fp16", "rows=64,dtype=fp16", "rows=64,dtype=fp32", ""]
TARGETS = ["sm_80", "sm_90", "gfx942"]
CASES = ["softmax", "matmul"]
FAILURES = ["compile_error", "unsupported", "not_run", "wrong", "timeout"]
SUFFIXES = ["", "", "", ",tuning=pinned", ",tuning=retuned"]


class Recorded:
    """Tables as some run might have left them: mostly dull, with one of everything that can go wrong."""

    def __init__(self, seed: int, trouble: float = 1.0) -> None:
        self.draw = random.Random(seed)
        self.trouble = trouble
        self.cells: list[CellRecord] = []
        self.kernels: list[KernelRecord] = []
        self.arms: list[ArmRecord] = []
        self.dimensions: list[DimensionRecord] = []
        for case in CASES:
            for name in NAMES:
                self._import(case, name)
            for target in TARGETS:
                for params in POINTS:
                    self._point(case, target, params)
        self.draw.shuffle(self.cells)
        self.draw.shuffle(self.arms)

    def seldom(self, share: float = 0.08) -> bool:
        return self.draw.random() < share * self.trouble

    def _import(self, case: str, name: str) -> None:
        outcome = "import_error" if self.seldom() else "passed"
        if not self.seldom():
            self.cells.append(cell(name, outcome, case=case, target="cpu", params="", stage="import"))

    def _point(self, case: str, target: str, params: str) -> None:
        place = {"case": case, "target": target, "params": params}
        suffix = self.draw.choice(SUFFIXES)
        codes = [facts(registers=32 + self.draw.choice([0, 0, 0, 30])), self._other(), self._other()]
        for name in NAMES:
            for stage in ("compile", "interpret", "correctness"):
                self._cell(name, {**place, "stage": stage})
            self._kernels(name, place, codes)
            if self.seldom(0.3):
                digest = self.draw.choice(["out", "out", "else"])
                self.dimensions.append(timed.dimension(name, **place, output_digest=digest))
            self._cell(name, {**place, "params": (params + suffix).lstrip(","), "stage": "timing"})
        for each in dict.fromkeys((suffix, ",tuning=pinned" if suffix else suffix)):
            self._timing({**place, "params": (params + each).lstrip(",")}, each)

    def _cell(self, name: str, given: dict[str, str]) -> None:
        for _ in range(2 if self.seldom(0.05) else 0 if self.seldom(0.04) else 1):
            outcome = self.draw.choice(FAILURES) if self.seldom() else "passed"
            self.cells.append(cell(name, outcome, reason="said so" if outcome != "passed" else "", **given))

    def _other(self) -> KernelFacts:
        """Other code: mostly without a risk."""
        given = {"sass_hash": f"s{self.draw.randrange(4)}", "instructions": self.draw.randrange(400, 420)}
        if self.seldom(0.15):
            given |= {"stack_bytes": 64}
        if self.seldom(0.1):
            given |= {"registers": 128, "sass_hash": ""}
        return facts(**given)

    def _kernels(self, name: str, place: dict[str, str], codes: Sequence[KernelFacts]) -> None:
        for index in range(3 * self.seldom() + (not self.seldom())):
            given = dict(place, kernel="other_kernel") if self.seldom(0.05) else place
            self.kernels.append(
                kernel(
                    name,
                    self.draw.choice([codes[0], codes[0], *codes]),
                    **given,
                    index=index,
                    num_warps=8 if self.seldom(0.05) else 4,
                    options={"launch_pdl": True} if self.seldom(0.05) else {"debug": False},
                    seconds={"ttir": 40.0 if self.seldom(0.05) else 0.1, "ptx": self.draw.random()},
                )
            )

    def _timing(self, place: dict[str, str], suffix: str) -> None:
        tuning = Tuning(suffix.rpartition("=")[2])
        both = {**place, "tuning": tuning, "run_id": "r"}
        for _ in range(2 if self.seldom(0.05) else 1):
            if not self.seldom():
                self.arms.append(timed.arm(Role.BASELINE, **both, **self._flaws()))
            if not self.seldom(0.2):
                own = timed.ratio(1 + self.draw.gauss(0, 0.001), "same", spread=0.003)
                self.arms.append(timed.arm(Role.CONTROL, **both, **own))
            for name in NAMES[1:]:
                if not self.seldom():
                    self.arms.append(timed.arm(Role.CANDIDATE, **both, environment=name, **self._times()))

    def _flaws(self) -> dict[str, object]:
        return {"problems": ["the clock fell"]} if self.seldom(0.05) else {}

    def _times(self) -> dict[str, object]:
        estimate = self.draw.choice([1.0, 1.0, 1.0, 1.012, 0.985, 1.03, 1.2, 0.7]) * (1 + self.draw.gauss(0, 1e-3))
        found = timed.ratio(estimate, "same", spread=self.draw.choice([0.002, 0.002, 0.03]))
        found |= {"launch_us": 80.0} if self.seldom(0.1) else {"launch_us": self.draw.choice([20.0, 22.0])}
        found |= {"standard_error": None, "blocks": 1} if self.seldom(0.03) else {}
        found |= {"cycles_ratio": self.draw.choice([None, 1.0])} if self.seldom(0.1) else {}
        return {**found, **self._flaws()}

    def expectations(self) -> dict[str, list[Expect]]:
        told = [
            expect(stage="compile", outcome="compile_error", triton=">=3.6,<3.7", targets=["sm_80"]),
            expect(stage="compile", change="spills_appeared", params={"rows": 64}),
            expect(stage="timing", change="slower", triton=">=3.7"),
            expect(stage="interpret", outcome="wrong"),
        ]
        return {case: [each for each in told if self.seldom(0.4)] for case in CASES}

    def written(self, folder: Path) -> by_columns.Tables:
        store.write_cells(folder, self.cells)
        store.write_evidence(folder, self.kernels)
        store.write_timings(folder, self.arms)
        store.write_dimensions(folder, self.dimensions)
        return by_columns.Tables(
            cells=store.cell_rows(folder),
            kernels=store.kernel_rows(folder),
            timings=store.arm_rows(folder),
            dimensions=store.dimension_rows(folder),
        )


def row_by_row(
    tables: by_columns.Tables,
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
    expectations: Mapping[str, Sequence[Expect]],
    thresholds: Thresholds,
) -> list[VerdictRecord]:
    """Every row by the row judge, whatever it tells."""
    arms = arms_of((baseline, *candidates), tables.cells, tables.kernels, tables.dimensions)
    pairs = ArmPairs(tables.timings)
    rules = Rules(expectations=expectations, thresholds=one_object(thresholds))
    rows: list[VerdictRecord] = []
    for candidate in candidates:
        place = Place(run_id=run_id, baseline=baseline, candidate=candidate)
        sides = arms[baseline], arms[candidate]
        spots = sorted({spot for side in sides for spot in side.cells}, key=in_order)
        rows += judge_spots(place, sides, spots, replace(rules, timed=timed_pairs(place, spots, pairs, thresholds)))
    return number(rows)


def both_ways(tables: by_columns.Tables, **given: object) -> tuple[list[VerdictRecord], store.Rows[VerdictRecord]]:
    """The rows by the row judge, as they would be read back, and by columns."""
    rows = row_by_row(tables, **given)  # type: ignore[arg-type]
    return [*store.verdict_rows(rows)], by_columns.judge_tables(tables, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(24))
def test_columns_and_rows_agree(seed: int, tmp_path: Path) -> None:
    recorded = Recorded(seed)
    tables = recorded.written(tmp_path)
    # The last of these were timed the other way round, or not beside each other.
    for baseline in NAMES[: 1 + seed % 2]:
        candidates = [name for name in NAMES if name != baseline]
        expected, found = both_ways(
            tables,
            run_id="r",
            baseline=baseline,
            candidates=candidates,
            expectations=recorded.expectations(),
            thresholds=Thresholds(),
        )
        assert [*found] == expected
        assert exit_code(found) == exit_code(expected)


def test_most_rows_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    whole = by_columns.judge_spots

    def counted(place: object, arms: object, spots: Sequence[object], rules: object) -> list[VerdictRecord]:
        made.extend(spots)
        return whole(place, arms, spots, rules)  # type: ignore[arg-type]

    monkeypatch.setattr(by_columns, "judge_spots", counted)
    given = {"run_id": "r", "baseline": NAMES[0], "candidates": NAMES[1:], "expectations": {}}
    tables = Recorded(1, trouble=0.1).written(tmp_path)
    rows = by_columns.judge_tables(tables, thresholds=Thresholds(), **given)  # type: ignore[arg-type]
    read = [row for row in rows if row.target != "gfx942"]  # AMD's code is not read: those are few, and left
    assert sum(spot.target != "gfx942" for spot in made) < len(read) / 2  # type: ignore[attr-defined]
    told = {"passed", "code_identical", "code_changed", "equivalent", "slower_within_threshold", "faster"}
    assert told <= {row.reason_code for row in rows}


def test_the_recorded_run_comes_out_alike() -> None:
    run = load(sample_folder())
    request = run.meta["request"]
    found, code = judge_again([run.path], request["baseline"], request["candidates"], Thresholds())
    tables = by_columns.Tables(
        cells=store.cell_rows(run.path),
        kernels=store.kernel_rows(run.path),
        timings=store.arm_rows(run.path),
        dimensions=store.dimension_rows(run.path),
    )
    expected, _ = both_ways(
        tables,
        run_id=run.run_id,
        baseline=request["baseline"],
        candidates=request["candidates"],
        expectations={},
        thresholds=Thresholds(),
    )
    told = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.IDENTICAL, Verdict.EQUAL}
    judged = [replace(row, first_change=None, whose_change=None) for row in found.verdicts if row.verdict in told]
    assert judged == [row for row in expected if row.verdict in told]
    assert code == exit_code(found.verdicts) == exit_code([*found.verdicts])


def test_a_candidate_that_nobody_ran_is_one_row(tmp_path: Path) -> None:
    store.write_cells(tmp_path, [])
    store.write_evidence(tmp_path, [])
    tables = by_columns.Tables(
        cells=store.cell_rows(tmp_path),
        kernels=store.kernel_rows(tmp_path),
        timings=store.arm_rows(tmp_path),
        dimensions=store.dimension_rows(tmp_path),
    )
    expected, found = both_ways(
        tables, run_id="r", baseline="a", candidates=["b"], expectations={}, thresholds=Thresholds()
    )
    assert [*found] == expected
    assert [row.reason_code for row in found] == ["nothing_run"]
