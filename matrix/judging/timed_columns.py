"""The timed arms of a run as columns: who was timed with whom, and each comparison's cells tested together.

The same pairs as :mod:`matrix.judging.arm_pairs` finds; records are made only of arms that somebody asks for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.columns import ABSENT, coded, mapped, numbers, together
from matrix.judging.family import Measured, examine_columns
from matrix.judging.grid import last_rows
from matrix.model import Stage
from matrix.records import Role, Tuning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.judging.columns import Floats, Ints
    from matrix.judging.family import FamilyTest, Tested
    from matrix.judging.grid import Grid
    from matrix.judging.judge import Spot
    from matrix.judging.thresholds import Thresholds
    from matrix.records import ArmRecord
    from matrix.storage.rows import Rows

_INSTRUMENT = ("run_id", "gpu_uuid")
_TESTED = ("ratio", "standard_error", "cycles_ratio", "cycles_error", "blocks", "looks", "alpha")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One comparison. ``baseline`` and ``candidate`` are rows of the timings by spot, :data:`ABSENT` where the two did
    not run beside each other; ``tests`` are of those spots whose figures can be used, and ``tested``, by spot, where
    its test stands among them.
    """

    baseline: Ints
    candidate: Ints
    tests: FamilyTest
    tested: Ints

    def test(self, spot: int) -> Tested | None:
        place = self.tested[spot : spot + 1]
        return None if place[0] == ABSENT else self.tests.rows(place)[0]


class TimedColumns:
    """All arms of one run or several."""

    def __init__(self, timings: Rows[ArmRecord], grid: Grid, names: Sequence[str]) -> None:
        table = timings.table
        self._timings, self._grid, self._names = timings, grid, names
        known = {name: number for number, name in enumerate(names)}
        self._environment = mapped(table["environment"], lambda name: known.get(name, ABSENT), null=ABSENT)
        self._against = mapped(table["baseline"], lambda name: known.get(name, ABSENT), null=ABSENT)
        self._is_candidate = mapped(table["role"], lambda role: role == Role.CANDIDATE, null=False)
        self._is_baseline = mapped(table["role"], lambda role: role == Role.BASELINE, null=False)
        run, gpu = (coded(table[name])[0] for name in _INSTRUMENT)
        self._measurement = together([run, gpu, self._against, grid.arms])
        self._sound = mapped(table["problems"], lambda problems: not json.loads(problems), null=True)
        self.untuned = mapped(table["tuning"], lambda tuning: tuning == Tuning.NONE, null=True)
        self.median_us, self.launch_us = (numbers(table[name]) for name in ("median_us", "launch_us"))
        self._figures = {name: numbers(table[name]) for name in _TESTED}
        # What the instrument is off by is the controls', whatever arms are asked for.
        self._always = timings.taken(np.flatnonzero(~self._is_candidate).tolist())
        floors = ArmPairs(self._always).floors
        self._instrument = together([run, gpu])
        _, first = np.unique(self._instrument, return_index=True)
        names_of = zip(*(table[name].take(pa.array(first)).to_pylist() for name in _INSTRUMENT), strict=True)
        self._noise = [floors.get(each) for each in names_of]

    def against(self, number: int, spots: Ints, thresholds: Thresholds) -> Timed | None:
        """The environment of that number against the first, at these spots; None where they ran the other way round:
        then records have to be turned.
        """
        shape = len(self._names), len(self._grid.spots)
        candidates = np.where(self._is_candidate & (self._against == 0), self._environment, ABSENT)
        candidate = last_rows(shape, candidates, self._grid.arms)[number]
        turned = self._is_candidate & (self._environment == 0) & (self._against == number)
        if np.any(candidate[self._grid.arms[turned]] == ABSENT):
            return None
        measured = int(self._measurement.max(initial=ABSENT)) + 1
        own = np.where(self._is_baseline & (self._environment == 0) & (self._against == 0), 0, ABSENT)
        first = last_rows((1, measured), own, self._measurement)[0]
        baseline: Ints = np.full(shape[1], ABSENT, dtype=np.int64)
        known = spots[candidate[spots] != ABSENT]
        baseline[known] = first[self._measurement[candidate[known]]]
        candidate = np.where(baseline == ABSENT, ABSENT, candidate)
        timed = np.flatnonzero(candidate != ABSENT)
        sound = timed[self._sound[baseline[timed]] & self._sound[candidate[timed]]]
        tested: Ints = np.full(shape[1], ABSENT, dtype=np.int64)
        tested[sound] = np.arange(len(sound))
        tests = examine_columns(self._measured(candidate[sound]), thresholds)
        return Timed(baseline=baseline, candidate=candidate, tests=tests, tested=tested)

    def _measured(self, rows: Ints) -> Measured:
        timed_in = self._instrument[rows]
        floor = np.array([known.p95 if known else 0.0 for known in self._noise], dtype=np.float64)[timed_in]
        figures = {name: values[rows] for name, values in self._figures.items()}
        return Measured(**figures, floor=floor, noise=self._noise, timed_in=timed_in)

    def launch_moved(self, timed: Timed, spots: Ints) -> Floats:
        """By how many microseconds of host time a launch of the two differ; NaN where it is not known."""
        moved: Floats = np.abs(self.launch_us[timed.candidate[spots]] - self.launch_us[timed.baseline[spots]])
        return moved

    def wanted(self, timed: Timed, spots: Iterable[int]) -> dict[Spot, int]:
        """Those of these spots that were timed, with the same points in the baseline's configuration."""
        found = {}
        for number in spots:
            spot = self._grid.spots[number]
            pinned = spot.params.replace(f"tuning={Tuning.RETUNED}", f"tuning={Tuning.PINNED}")
            for name in (spot, spot._replace(params=pinned)):
                place = self._grid.places.get(name, ABSENT)
                if name.stage == Stage.TIMING and place != ABSENT and timed.candidate[place] != ABSENT:
                    found[name] = place
        return found

    def pairs(self, rows: Iterable[int]) -> ArmPairs:
        """The candidates' arms in these rows, with whom they were timed."""
        return ArmPairs([*self._always, *self._timings.taken(sorted({*rows}))])
