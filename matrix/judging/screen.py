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
import pyarrow as pa
import pyarrow.compute as pc

from matrix.judging.columns import ABSENT, coded, mapped, numbers, together
from matrix.judging.expectations import concerns
from matrix.judging.judgement import Judgement, Side, judge_comparison, judge_spot
from matrix.judging.kernel_pairs import compare_one, launch_options
from matrix.judging.speed import SpeedReason
from matrix.judging.thresholds import Thresholds
from matrix.judging.timed_alike import timed_alike
from matrix.model import CPU, Outcome, Stage, Target
from matrix.storage.store import COMPILER_STAGES, FACTS, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from matrix.case import Expect
    from matrix.judging.columns import Bools, Ints
    from matrix.judging.grid import Grid
    from matrix.judging.judge import Spot
    from matrix.judging.timed_alike import TimedAlike
    from matrix.judging.timed_columns import Timed, TimedColumns
    from matrix.records import CellRecord, KernelFacts, KernelRecord
    from matrix.storage.rows import Rows

_RESOURCES = ("registers", "shared_bytes", "stack_bytes")  # without which machine code is not the same
_COMPARED = (Stage.COMPILE, Stage.TIMING)
_GEOMETRY = ("grid", "num_warps", "num_ctas")
_FIGURES = tuple(name for name in FACTS if not name.endswith("_hash"))
_AS_BEFORE = frozenset(
    (
        SpeedReason.EQUIVALENT,
        SpeedReason.SLOWER_WITHIN_THRESHOLD,
        SpeedReason.FASTER_WITHIN_THRESHOLD,
        SpeedReason.NOT_SLOWER,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Spots of which the row judge says the same; timed ones with figures of their own."""

    judgement: Judgement
    spots: Ints
    timed: TimedAlike | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plain:
    """One comparison's spots that tell nothing, by what the row judge says of them; ``left`` are the others.
    ``unchanged``, by spot: both sides launch the same machine code alike.
    """

    groups: Sequence[Group]
    unchanged: Bools
    left: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """The environment of that ``number`` against the first, at these spots. ``timed`` is None where the two ran the
    other way round.
    """

    number: int
    spots: Ints
    timed: Timed | None


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

    def plain(self, comparisons: Sequence[Compared], thresholds: Thresholds) -> list[Plain]:
        """Of each comparison what tells nothing; the code of all is looked at together."""
        quiet = [self._quiet(each) for each in comparisons]
        coded_groups = self._compiled(comparisons, quiet, thresholds)
        found = []
        for each, spots, in_code in zip(comparisons, quiet, coded_groups, strict=True):
            stages = self._stage[spots]
            groups = [*_passing(spots, stages), *in_code]
            if each.timed is not None:
                groups += self._timed(each.number, spots[stages == Stage.TIMING], each.timed, thresholds)
            told = np.concatenate([np.empty(0, dtype=np.int64), *(group.spots for group in groups)])
            left = np.setdiff1d(each.spots, told, assume_unique=True)
            found.append(Plain(groups=groups, unchanged=self._unchanged(each.number), left=left))
        return found

    def _quiet(self, compared: Compared) -> Ints:
        """Spots that both sides pass and no expectation speaks about."""
        spots, cells = compared.spots, self._grid.cells
        before, after = cells[0, spots], cells[compared.number, spots]
        both = (before != ABSENT) & (after != ABSENT)
        both &= self._passed[before] & self._passed[after] & ~self._unread[spots]
        quiet: Ints = spots[both & ~self._foreseen(compared.number)[spots]]
        return quiet

    def _foreseen(self, number: int) -> Bools:
        """By spot: whether an expectation may speak about this candidate's cell there, at whatever params."""
        found: Bools = np.zeros(len(self._grid.spots), dtype=bool)
        versions = self._version[self._grid.cells[number]]
        for triton, spots in self._expected.items():
            holding = np.array([concerns(triton, version) for version in self._versions])
            found[spots] |= holding[versions[spots]]
        return found

    def _compiled(
        self, comparisons: Sequence[Compared], quiet: Sequence[Ints], thresholds: Thresholds
    ) -> list[list[Group]]:
        """By comparison: cells that launch one kernel, the same on both sides, and compile as fast as before."""
        rows = self._grid.kernels
        spots = [self._single(each.number, own) for each, own in zip(comparisons, quiet, strict=True)]
        before = np.concatenate([rows[0, own] for own in spots])
        after = np.concatenate([rows[each.number, own] for each, own in zip(comparisons, spots, strict=True)])
        which, judged = self._code.judged(before, after, thresholds)
        edges = np.cumsum([len(own) for own in spots])[:-1]
        return [
            [Group(judgement=judged[number], spots=own[said == number]) for number in np.unique(said[said != ABSENT])]
            for own, said in zip(spots, np.split(which, edges), strict=True)
        ]

    def _single(self, number: int, spots: Ints) -> Ints:
        counts, rows = self._grid.counts, self._grid.kernels
        spots = spots[self._stage[spots] == Stage.COMPILE]
        found: Ints = spots[(counts[0, spots] == 1) & (counts[number, spots] == 1)]
        return found[self._code.same_name(rows[0, found], rows[number, found])]

    def _unchanged(self, number: int) -> Bools:
        """By spot of a timed cell: whether both sides launch the same machine code alike."""
        found: Bools = np.zeros(len(self._grid.spots), dtype=bool)
        timed = np.flatnonzero(self._grid.code != ABSENT)
        code = self._grid.code[timed]
        single = (self._grid.counts[0, code] == 1) & (self._grid.counts[number, code] == 1)
        timed, code = timed[single], code[single]
        found[timed] = self._code.same_launch(self._grid.kernels[0, code], self._grid.kernels[number, code])
        return found

    def _timed(self, number: int, spots: Ints, timed: Timed, thresholds: Thresholds) -> Iterator[Group]:
        """As fast as before, launched as fast as before, of cells with one kernel or none that is recorded."""
        code, arms = self._grid.code[spots], self._arms
        several = (code != ABSENT) & ((self._grid.counts[0, code] > 1) | (self._grid.counts[number, code] > 1))
        spots = spots[~several & (timed.tested[spots] != ABSENT)]
        quiet = ~(arms.launch_moved(timed, spots) >= thresholds.launch_growth_us)
        spots = spots[quiet & arms.untuned[timed.candidate[spots]]]
        before, after = (arms.median_us[rows[spots]] for rows in (timed.baseline, timed.candidate))
        for own, alike in timed_alike(timed.tests, timed.tested[spots], before, after):
            speed = alike.model
            if speed.changes[0].reason_code in _AS_BEFORE:
                judgement = Judgement(verdict=speed.verdict, changes=speed.changes)
                yield Group(judgement=judgement, spots=spots[own], timed=alike)


def _passing(spots: Ints, stages: NDArray[np.str_]) -> Iterator[Group]:
    """What both sides pass at stages that compare nothing further."""
    for stage in np.unique(stages).tolist():
        if stage not in _COMPARED:
            yield Group(judgement=_both_pass(stage), spots=spots[stages == stage])


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
        codes = {name: coded(table[name])[0] for name in (*_FIGURES, "sass_hash", "kernel", "config", *_GEOMETRY)}
        options = mapped(table["options"], lambda text: json.dumps(launch_options(json.loads(text))), null="")
        launch = [np.unique(options, return_inverse=True)[1].reshape(-1), *map(codes.get, _GEOMETRY)]
        self._table = table
        self._names, self._launches = together([codes["kernel"], codes["config"]]), together(launch)
        self._sass = mapped(table["sass_hash"], bool, null=False), codes["sass_hash"]
        self._resources = together([codes[name] for name in _RESOURCES])
        self._figures = together([codes[name] for name in _FIGURES])
        spent = [np.nan_to_num(numbers(table[f"seconds_{stage}"])).tolist() for stage in COMPILER_STAGES]
        self._seconds = np.array(list(map(sum, zip(*spent, strict=True))))  # as records add them up, to the last digit

    def same_name(self, before: Ints, after: Ints) -> Bools:
        same: Bools = self._names[before] == self._names[after]
        return same

    def _as_fast(self, before: Ints, after: Ints, thresholds: Thresholds) -> Bools:
        """Whether compile time is neither multiplied nor cut."""
        one, other = self._seconds[before], self._seconds[after]
        ratio, growth = thresholds.compile_time_ratio, thresholds.compile_time_growth_s
        grown = (other >= one * ratio) & (other - one >= growth)
        cut = (one >= other * ratio) & (one - other >= growth)
        return ~(grown | cut)

    def same_launch(self, before: Ints, after: Ints) -> Bools:
        same: Bools = self.same_name(before, after) & self._identical(before, after)
        return same & (self._launches[before] == self._launches[after])

    def judged(self, before: Ints, after: Ints, thresholds: Thresholds) -> tuple[Ints, list[Judgement]]:
        """What the rules say of each two, by its place among all that they say; :data:`ABSENT` where they find
        something. Asked once of all that show the same.
        """
        identical = self._identical(before, after)
        alike = together([self._figures[before], self._figures[after], self._names[after]])
        _, first, which = np.unique(np.where(identical, ABSENT, alike), return_index=True, return_inverse=True)
        one, other = (self._facts(side[first], identical[first]) for side in (before, after))
        names = self._table["kernel"].take(pa.array(after[first])).to_pylist()
        compared = (compare_one(*each, thresholds) for each in zip(names, one, other, strict=True))
        said = [None if each.changes else judge_comparison(each) for each in compared]
        distinct = {id(one): one for one in said if one}  # of thousands a few objects
        number = {key: place for place, key in enumerate(distinct)}
        found = np.array([number[id(one)] if one else ABSENT for one in said], dtype=np.int64)[which.reshape(-1)]
        return np.where(self._as_fast(before, after, thresholds), found, ABSENT), [*distinct.values()]

    def _facts(self, rows: Ints, named: Bools) -> list[KernelFacts]:
        """Of these rows of the evidence, without hashes but for the one that is ``named``: code with the same figures
        is one object, and no code the same as another.
        """
        codes = np.where(named, ABSENT, self._figures[rows])
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        table, kept = self._table.select(FACTS).take(pa.array(rows[first])), pa.array(named[first])
        for place, name in enumerate(FACTS):
            if name not in _FIGURES:
                table = table.set_column(place, table.schema.field(place), pc.if_else(kept, table[name], ""))
        read = facts_of(table)
        return [read[place] for place in which.reshape(-1).tolist()]

    def _identical(self, before: Ints, after: Ints) -> Bools:
        known, digest = self._sass
        same: Bools = known[before] & (digest[before] == digest[after])
        return same & (self._resources[before] == self._resources[after])
