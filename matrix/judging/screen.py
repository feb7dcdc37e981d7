"""Which cells of a comparison tell nothing, found by columns: of a night's hundred thousand, nearly all.

What tells nothing is what both sides pass and what then is identical, changed without a risk, or as fast as before;
no expectation speaks about it. Everything else is left to the row judge (:mod:`matrix.judging.judge`). No rule stands
here a second time: of cells that are alike the row judge's own rules are asked once. Whatever a rule may take for
remarkable is left: cells of several kernels, dimensions of correctness, kernels that tune themselves, launches that
cost another time.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrix.judging.columns import ABSENT, coded, mapped, numbers, together
from matrix.judging.expectations import concerns
from matrix.judging.judgement import Judgement, Side, judge_comparison, judge_spot
from matrix.judging.kernel_pairs import compare_one, launch_options
from matrix.judging.speed import Medians, SpeedReason, compare_time
from matrix.judging.thresholds import Thresholds
from matrix.model import CPU, Outcome, Stage, Target
from matrix.storage.store import COMPILER_STAGES, FACTS, facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from matrix.case import Expect
    from matrix.judging.columns import Bools, Ints
    from matrix.judging.grid import Grid
    from matrix.judging.judge import Spot
    from matrix.judging.speed import SpeedComparison
    from matrix.judging.timed_columns import Timed, TimedColumns
    from matrix.records import CellRecord, KernelRecord
    from matrix.storage.rows import Rows

_RESOURCES = ("registers", "shared_bytes", "stack_bytes")  # without which machine code is not the same
_COMPARED = (Stage.COMPILE, Stage.TIMING)
_GEOMETRY = ("grid", "num_warps", "num_ctas")
_AS_BEFORE = frozenset(
    (
        SpeedReason.EQUIVALENT,
        SpeedReason.SLOWER_WITHIN_THRESHOLD,
        SpeedReason.FASTER_WITHIN_THRESHOLD,
        SpeedReason.NOT_SLOWER,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """One comparison's spots that tell nothing, with what the row judge says of them, the timed ones with their speed;
    ``left`` are the others. ``unchanged``, by spot: both sides launch the same machine code alike.
    """

    judged: Mapping[int, Judgement]
    speeds: Mapping[int, SpeedComparison]
    unchanged: Bools
    left: Ints


class Screen:
    """The tables of a run or several, by environment and spot."""

    def __init__(
        self,
        grid: Grid,
        cells: Rows[CellRecord],
        kernels: Rows[KernelRecord],
        arms: TimedColumns,
        *,
        checked: Ints,
        expectations: Mapping[str, Sequence[Expect]],
    ) -> None:
        """``checked``: spots for which dimensions of correctness are recorded."""
        self._grid, self._arms = grid, arms
        self._passed = mapped(cells.table["outcome"], lambda outcome: outcome == Outcome.PASSED, null=False)
        self._version, self._versions = coded(cells.table["triton_version"])
        self._code = _Code(kernels.table)
        self._stage = np.array([spot.stage for spot in grid.spots])
        self._target = np.array([spot.target for spot in grid.spots])
        self._unread = np.array([spot.target != CPU and Target(spot.target).is_amd for spot in grid.spots], dtype=bool)
        self._unread[checked] = True
        self._expected = _expected(grid.spots, expectations)

    def of(self, number: int, spots: Ints, timed: Timed | None, thresholds: Thresholds) -> Plain:
        """The environment of that number against the first, at these spots."""
        grid = self._grid
        before, after = grid.cells[0, spots], grid.cells[number, spots]
        both = (before != ABSENT) & (after != ABSENT)
        both &= self._passed[before] & self._passed[after] & ~self._unread[spots]
        quiet = spots[both & ~self._foreseen(number)[spots]]
        stages = self._stage[quiet]
        in_code, in_time = quiet[stages == Stage.COMPILE], quiet[stages == Stage.TIMING]
        speeds = self._timed(number, in_time, timed, thresholds) if timed is not None else {}
        judged = {
            **{spot: _both_pass(self._stage[spot]) for spot in quiet.tolist() if self._stage[spot] not in _COMPARED},
            **self._compiled(number, in_code, thresholds),
            **{spot: Judgement(verdict=speed.verdict, changes=speed.changes) for spot, speed in speeds.items()},
        }
        left = np.setdiff1d(spots, np.array([*judged], dtype=np.int64), assume_unique=True)
        return Plain(judged=judged, speeds=speeds, unchanged=self._unchanged(number), left=left)

    def _foreseen(self, number: int) -> Bools:
        """By spot: whether an expectation may speak about this candidate's cell there, at whatever params."""
        found: Bools = np.zeros(len(self._grid.spots), dtype=bool)
        versions = self._version[self._grid.cells[number]]
        for triton, spots in self._expected.items():
            holding = np.array([concerns(triton, version) for version in self._versions])
            found[spots] |= holding[versions[spots]]
        return found

    def _compiled(self, number: int, spots: Ints, thresholds: Thresholds) -> dict[int, Judgement]:
        """Of cells that launch one kernel, the same on both sides, and compile as fast as before."""
        counts, rows = self._grid.counts, self._grid.kernels
        single = spots[(counts[0, spots] == 1) & (counts[number, spots] == 1)]
        before, after = rows[0, single], rows[number, single]
        plain = self._code.same_name(before, after) & self._code.as_fast(before, after, thresholds)
        single, before, after = single[plain], before[plain], after[plain]
        judged = self._code.judged(before, after, thresholds)
        return {spot: judgement for spot, judgement in zip(single.tolist(), judged, strict=True) if judgement}

    def _unchanged(self, number: int) -> Bools:
        """By spot of a timed cell: whether both sides launch the same machine code alike."""
        found: Bools = np.zeros(len(self._grid.spots), dtype=bool)
        timed = np.flatnonzero(self._grid.code != ABSENT)
        code = self._grid.code[timed]
        single = (self._grid.counts[0, code] == 1) & (self._grid.counts[number, code] == 1)
        timed, code = timed[single], code[single]
        found[timed] = self._code.same_launch(self._grid.kernels[0, code], self._grid.kernels[number, code])
        return found

    def _timed(self, number: int, spots: Ints, timed: Timed, thresholds: Thresholds) -> dict[int, SpeedComparison]:
        """As fast as before, launched as fast as before, of cells with one kernel or none that is recorded."""
        code, arms = self._grid.code[spots], self._arms
        several = (code != ABSENT) & ((self._grid.counts[0, code] > 1) | (self._grid.counts[number, code] > 1))
        spots = spots[~several & (timed.candidate[spots] != ABSENT)]
        quiet = ~(arms.launch_moved(timed, spots) >= thresholds.launch_growth_us)
        spots = spots[quiet & arms.untuned[timed.candidate[spots]]]
        before, after = (arms.median_us[rows[spots]].tolist() for rows in (timed.baseline, timed.candidate))
        found = {}
        for spot, one, other in zip(spots.tolist(), before, after, strict=True):
            if test := timed.tests.get(spot):
                comparison = compare_time(test, Medians(one, other, None))
                if comparison.changes[0].reason_code in _AS_BEFORE:
                    found[spot] = comparison
        return found


def _expected(spots: Sequence[Spot], expectations: Mapping[str, Sequence[Expect]]) -> dict[str, Ints]:
    """The spots that expectations may speak about, by the releases of Triton that these hold for."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, spot in enumerate(spots):
        told = (each for each in expectations.get(spot.case, ()) if each.stage == spot.stage)
        for triton in {each.triton for each in told if not each.targets or spot.target in each.targets}:
            found[triton].append(number)
    return {triton: np.array(numbers_of) for triton, numbers_of in found.items()}


@functools.cache
def _both_pass(stage: str) -> Judgement:
    side = Side(outcome=Outcome.PASSED, stage=stage, cell=None, kernels=())
    return judge_spot(side, side, stage, (), Thresholds())


class _Code:
    """The rows of the evidence, compared by columns."""

    def __init__(self, table: pa.Table) -> None:
        codes = {name: coded(table[name])[0] for name in (*FACTS, "kernel", "config", "grid", "num_warps", "num_ctas")}
        options = mapped(table["options"], lambda text: json.dumps(launch_options(json.loads(text))), null="")
        launch = [np.unique(options, return_inverse=True)[1].reshape(-1), *map(codes.get, _GEOMETRY)]
        self._table = table
        self._names, self._launches = together([codes["kernel"], codes["config"]]), together(launch)
        self._sass = mapped(table["sass_hash"], bool, null=False), codes["sass_hash"]
        self._resources = together([codes[name] for name in _RESOURCES])
        self._figures = together([codes[name] for name in FACTS if not name.endswith("_hash")])
        spent = [np.nan_to_num(numbers(table[f"seconds_{stage}"])).tolist() for stage in COMPILER_STAGES]
        self._seconds = np.array(list(map(sum, zip(*spent, strict=True))))  # as records add them up, to the last digit

    def same_name(self, before: Ints, after: Ints) -> Bools:
        same: Bools = self._names[before] == self._names[after]
        return same

    def as_fast(self, before: Ints, after: Ints, thresholds: Thresholds) -> Bools:
        """Whether compile time is neither multiplied nor cut."""
        one, other = self._seconds[before], self._seconds[after]
        ratio, growth = thresholds.compile_time_ratio, thresholds.compile_time_growth_s
        grown = (other >= one * ratio) & (other - one >= growth)
        cut = (one >= other * ratio) & (one - other >= growth)
        return ~(grown | cut)

    def same_launch(self, before: Ints, after: Ints) -> Bools:
        same: Bools = self.same_name(before, after) & self._identical(before, after)
        return same & (self._launches[before] == self._launches[after])

    def judged(self, before: Ints, after: Ints, thresholds: Thresholds) -> list[Judgement | None]:
        """What the rules say of each two; None where they find something. Asked once of all that show the same."""
        identical = self._identical(before, after)
        alike = together([self._figures[before], self._figures[after], self._names[after]])
        _, first, which = np.unique(np.where(identical, ABSENT, alike), return_index=True, return_inverse=True)
        sides = [facts_of(self._table.take(rows[first])) for rows in (before, after)]
        names = self._table["kernel"].take(after[first]).to_pylist()
        found = [compare_one(name, one, other, thresholds) for name, one, other in zip(names, *sides, strict=True)]
        judged = [None if each.changes else judge_comparison(each) for each in found]
        return [judged[number] for number in which.reshape(-1).tolist()]

    def _identical(self, before: Ints, after: Ints) -> Bools:
        known, digest = self._sass
        same: Bools = known[before] & (digest[before] == digest[after])
        return same & (self._resources[before] == self._resources[after])
