"""Timed cells that come out alike: the row judge is asked about one of them, and the figures are put into its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.judging.changes import encode_alike
from matrix.judging.speed import TEST_COLUMNS, Figures, Medians, compare_time, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.judging.columns import Floats, Ints
    from matrix.judging.family import FamilyTest
    from matrix.judging.speed import SpeedComparison


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedAlike:
    """Cells of one comparison of which :func:`compare_time` says the ``model``, but for their figures. ``places`` are
    those of their tests, the medians theirs.
    """

    model: SpeedComparison
    tests: FamilyTest
    places: Ints
    baseline_us: Floats
    candidate_us: Floats

    def columns(self) -> dict[str, list[Any]]:
        """What each cell's verdict row has of its own."""
        test, change = self.model.test, self.model.changes[0]
        assert test is not None
        told = self.tests.columns(self.places)
        before, after = self.baseline_us.tolist(), self.candidate_us.tolist()
        figures = map(Figures, told["ratio"], told["low"], told["high"], before, after)
        own = Figures(test.ratio, test.low, test.high, change.baseline_value, change.candidate_value)
        aside = change.text.removeprefix(sentence(own))
        texts = [sentence(each) + aside for each in figures]
        return {
            "change": texts,
            "detail": encode_alike(change, texts, before, after),
            "baseline_value": before,
            "candidate_value": after,
            **{column: told[name] for column, name in TEST_COLUMNS.items()},
        }


def timed_alike(
    tests: FamilyTest, places: Ints, baseline_us: Floats, candidate_us: Floats
) -> Iterator[tuple[Ints, TimedAlike]]:
    """The cells of these tests, with their medians: which of them are alike. That is what equals in all that the row
    judge goes by.
    """
    with np.errstate(invalid="ignore"):
        low, high, allowed = (values[places] for values in (tests.low, tests.high, tests.allowed))
        apart = np.where(low > 1, 1, np.where(high < 1, 2, 0))  # an interval without an end is not apart from 1
        apart[np.isnan(low) | np.isnan(high)] = 0
        told = (tests.called[places], tests.beyond[places], tests.agreed[places], apart, high < allowed, allowed)
    _, which = np.unique(np.stack(told), axis=1, return_inverse=True)
    which = which.reshape(-1)
    for number in range(which.max(initial=-1) + 1):
        own = np.flatnonzero(which == number)
        one, before, after = places[own[:1]], baseline_us[own], candidate_us[own]
        medians = Medians(float(before[0]), float(after[0]), None)
        model = compare_time(tests.rows(one)[0], medians)
        yield own, TimedAlike(model=model, tests=tests, places=places[own], baseline_us=before, candidate_us=after)
