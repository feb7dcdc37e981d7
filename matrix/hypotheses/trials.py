"""What a run says about the open hypotheses: a row for each cell that they are about."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matrix.explaining.confounders import differences
from matrix.explaining.owner import Owner
from matrix.hypotheses.hypothesis import LAUNCH_TIME, TIME, Standing, read_hypothesis
from matrix.hypotheses.ledger import HYPOTHESIS, RESULT, LedgerRow
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.cellnames import matches
from matrix.model import NO_FAILURE, Outcome, Stage
from matrix.reporting.timed_cells import arms_of
from matrix.storage.store import read_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.explaining.confounders import Cause
    from matrix.hypotheses.hypothesis import Claim, Hypothesis
    from matrix.judging.arm_pairs import ArmPair
    from matrix.records import KernelFacts, VerdictRecord
    from matrix.storage.runfolder import RunFolder

# Figures of a cell over its kernels; the others are sums.
_OVER_KERNELS: Mapping[str, Callable[[Iterable[float]], float]] = {
    **dict.fromkeys(("registers", "stack_bytes", "shared_bytes", "tensor_memory_columns", "lanes_an_address"), max),
    **dict.fromkeys(("occupancy_blocks", "occupancy_share", "memory_unknown", "matrix_pipe_share"), min),
}
# Kept in every row, whatever the hypothesis names.
_KEY = ("registers", "stack_bytes", "shared_bytes", "occupancy_share", "shared_wavefronts", "global_load_sectors")
_NO_FAULT = {str(outcome) for outcome in (*NO_FAILURE, Outcome.UNSUPPORTED, Outcome.DOES_NOT_FIT)}
_CHECKED = (Stage.INTERPRET, Stage.CORRECTNESS)


def open_hypotheses(rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """Those that no run has filled yet."""
    filled = {row.hypothesis for row in rows if row.kind == RESULT}
    return [row for row in rows if row.kind == HYPOTHESIS and row.number not in filled]


def results(run: RunFolder, rows: Sequence[LedgerRow], revision: str) -> list[LedgerRow]:
    """The rows that this run adds to a ledger of ``rows``: none where nothing is open or nothing fits."""
    waiting = open_hypotheses(rows)
    if not waiting:
        return []
    trial = _Trial.of(run, revision)
    return [row for hypothesis in waiting for row in trial.results(hypothesis)]


def opened(hypothesis: Hypothesis, cases: Sequence[str], revision: str) -> LedgerRow:
    """A row before the run."""
    return LedgerRow(
        number=0,
        kind=HYPOTHESIS,
        written_at=_now(),
        hypothesis=0,
        text=hypothesis.text,
        evidence=hypothesis.evidence,
        change=hypothesis.change,
        effect=hypothesis.effect,
        constraint=hypothesis.constraint,
        cases=" ".join(cases),
        revision=revision,
    )


def revision_of(folder: Path) -> str:
    """The git revision of a working tree, with ``-dirty`` where it has changes; empty where there is none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def overall(verdicts: Iterable[str]) -> Standing:
    """Of a hypothesis over its rows: refuted by one, confirmed by all."""
    said = set(verdicts)
    if Standing.REFUTED in said:
        return Standing.REFUTED
    return Standing.CONFIRMED if said == {Standing.CONFIRMED} else Standing.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """One run with its figures by cell."""

    run: RunFolder
    revision: str
    pairs: ArmPairs
    figures: Mapping[str, Mapping[str, float]]
    checked: Mapping[tuple[str, str], Sequence[str]]  # outcomes by environment and case

    @classmethod
    def of(cls, run: RunFolder, revision: str) -> _Trial:
        checked: dict[tuple[str, str], list[str]] = defaultdict(list)
        for cell in run.cells:
            if cell.stage in _CHECKED:
                checked[cell.environment, cell.case].append(cell.outcome)
        pairs = ArmPairs(run.timings)
        return cls(run=run, revision=revision, pairs=pairs, figures=_figures(run), checked=checked)

    def results(self, opened: LedgerRow) -> Iterator[LedgerRow]:
        """A row for each timed cell that the hypothesis is about; for each compiled one where none was timed."""
        globs = opened.cases.split()
        about = [row for row in self.run.verdicts if row.case and matches(row, globs)]
        timed = [row for row in about if row.stage == Stage.TIMING and arms_of(self.pairs, row) is not None]
        compiled = [row for row in about if row.stage == Stage.COMPILE and row.candidate_cell_id in self.figures]
        hypothesis = read_hypothesis(opened.text)
        for row in timed or compiled:
            yield self._result(opened, hypothesis, row)

    def _result(self, opened: LedgerRow, hypothesis: Hypothesis, row: VerdictRecord) -> LedgerRow:
        pair = arms_of(self.pairs, row) if row.stage == Stage.TIMING else None
        counted = self._counters(row, hypothesis)
        correct = self._correct(row)
        moved = moved_between(self.run, row.baseline, row.candidate)
        standings = [(claim, self._standing(claim, row, pair)) for claim in hypothesis.claims]
        verdict, reason = _verdict(standings, hypothesis, correct)
        filled = replace(
            opened,
            kind=RESULT,
            written_at=_now(),
            text="",
            evidence="",
            effect="",
            constraint="",
            cases="",
            hypothesis=opened.number,
            change=", ".join(moved.values()) or "nothing that is recorded",
            several_changes=len(moved) > 1,
            revision=self.revision,
            run_id=self.run.run_id,
            host=self.run.host,
            workload=row.candidate_cell_id,
            baseline=row.baseline,
            candidate=row.candidate,
            counters=json.dumps(counted),
            correct=correct,
            verdict=str(verdict),
            reason=reason,
        )
        return _with_times(filled, row, pair) if pair else filled

    def _counters(self, row: VerdictRecord, hypothesis: Hypothesis) -> dict[str, tuple[float, float]]:
        """Pairs of baseline and candidate: the key figures, and what the hypothesis names."""
        before, after = self._of(row.baseline_cell_id), self._of(row.candidate_cell_id)
        names = dict.fromkeys((*_KEY, *(claim.metric for claim in hypothesis.claims)))
        return {name: (before[name], after[name]) for name in names if name in before and name in after}

    def _of(self, cell_id: str) -> Mapping[str, float]:
        """Whatever its tuning: kernels are compiled once for all of them."""
        plain = cell_id.partition(",tuning=")[0]
        return {**self.figures.get(plain, {}), **self.figures.get(cell_id, {})}

    def _correct(self, row: VerdictRecord) -> str:
        outcomes = self.checked.get((row.candidate, row.case), ())
        bad = sorted({str(each) for each in outcomes} - _NO_FAULT)
        return ", ".join(bad) if bad else "passed" if Outcome.PASSED in outcomes else "not checked"

    def _standing(self, claim: Claim, row: VerdictRecord, pair: ArmPair | None) -> Standing | None:
        """None where the figure was not measured on both sides."""
        bounds = _time_bounds(row, pair) if claim.metric == TIME else self._bounds(claim.metric, row, pair)
        return claim.standing(*bounds) if bounds else None

    def _bounds(self, metric: str, row: VerdictRecord, pair: ArmPair | None) -> tuple[float, float] | None:
        if metric == LAUNCH_TIME:
            one, other = (pair.baseline.launch_us, pair.candidate.launch_us) if pair else (None, None)
        else:
            one, other = (self._of(name).get(metric) for name in (row.baseline_cell_id, row.candidate_cell_id))
        if one is None or other is None:
            return None
        ratio = other / one if one else 1.0 if other == 0 else math.inf
        return ratio, ratio


def _time_bounds(row: VerdictRecord, pair: ArmPair | None) -> tuple[float, float] | None:
    """The interval that decided the row; the arm's own where the row has none. None where it has a flaw."""
    if pair is None or pair.baseline.problems or pair.candidate.problems:
        return None
    low, high = row.ratio_low, row.ratio_high
    if low is None or high is None:
        low, high = pair.candidate.ratio_low, pair.candidate.ratio_high
    return (low, high) if low is not None and high is not None else None


def _verdict(
    standings: Sequence[tuple[Claim, Standing | None]], hypothesis: Hypothesis, correct: str
) -> tuple[Standing, str]:
    refuted = [claim.text for claim, standing in standings if standing is Standing.REFUTED]
    refuted += [f"values: {correct}"] if correct not in ("passed", "not checked") else []
    if refuted:
        return Standing.REFUTED, f"not so: {'; '.join(refuted)}"
    left = [f"too close to tell: {claim.text}" for claim, standing in standings if standing is Standing.UNDECIDED]
    left += [f"not measured: {claim.text}" for claim, standing in standings if standing is None]
    left += [f"not a figure that this program reads: {text}" for text in hypothesis.unread]
    left += ["values not checked"] if correct != "passed" else []
    left += ["it claims nothing that a figure shows"] if not standings else []
    if left:
        return Standing.UNDECIDED, "; ".join(left)
    return Standing.CONFIRMED, "; ".join(claim.text for claim, _ in standings)


def _with_times(filled: LedgerRow, row: VerdictRecord, pair: ArmPair) -> LedgerRow:
    arm = pair.candidate
    low, high = _time_bounds(row, pair) or (None, None)
    return replace(
        filled,
        baseline_median_us=pair.baseline.median_us,
        median_us=arm.median_us,
        p20_us=arm.p20_us,
        p80_us=arm.p80_us,
        ratio=row.ratio if row.ratio is not None else arm.ratio,
        ratio_low=low,
        ratio_high=high,
    )


def moved_between(run: RunFolder, baseline: str, candidate: str) -> dict[Cause, str]:
    """What differs between the two sides, by cause (:mod:`matrix.explaining.confounders`): what comes together is one.

    Clocks of arms that ran in turns are left out: nobody changed them, the code that ran did.
    """
    found: dict[Cause, str] = {}
    for each in differences([run], baseline, candidate):
        if each.owner is not Owner.CLOCKS:
            found.setdefault(each.cause, each.said)
    return found


def _figures(run: RunFolder) -> dict[str, dict[str, float]]:
    """Numbers by cell id and column, over the cell's kernels."""
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for kernel in run.kernels:
        for name, value in _numbers(kernel.facts):
            seen[kernel.cell_id][name].append(value)
    for counted in read_counters(run.path):
        for name, value in _numbers(counted):
            seen[counted.cell_id][name].append(value)
    return {
        cell_id: {name: _OVER_KERNELS.get(name, sum)(values) for name, values in columns.items()}
        for cell_id, columns in seen.items()
    }


def _numbers(record: KernelFacts | object) -> Iterator[tuple[str, float]]:
    for field in dataclasses.fields(record):  # type: ignore[arg-type]  # two of our records
        value = getattr(record, field.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and field.name != "index":
            yield field.name, value


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
