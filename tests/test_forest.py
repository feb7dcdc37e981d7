"""Where a forest plot draws a ratio."""

from __future__ import annotations

import itertools
import math

import pytest

from matrix.reporting.forest import axis


def test_equal_is_the_middle_and_both_sides_are_alike():
    drawn = axis([3.1, 0.9])
    assert drawn.at(1.0) == 50
    for ratio in (1.001, 1.03, 1.5, 3.0):
        assert drawn.at(ratio) - 50 == pytest.approx(50 - drawn.at(1 / ratio), abs=0.02)


def test_noise_and_threefold_fit_one_axis():
    drawn = axis([3.14])
    assert drawn.at(1.005) - 50 > 2
    assert drawn.at(3.14) < 100
    places = [drawn.at(ratio) for ratio in (0.3, 0.5, 0.97, 1.0, 1.01, 1.03, 1.5, 3.0)]
    assert places == sorted(places)


def test_noise_alone_does_not_fill_the_axis():
    assert axis([1.002, 0.999]).at(1.002) < 55
    assert axis([]).at(1.0) == 50


def test_an_interval_without_an_end_goes_to_the_edge_and_sets_no_scale():
    drawn = axis([1.02, 0.0, math.inf, math.exp(50), None])
    assert drawn.reach == axis([1.02]).reach
    whisker = drawn.whisker(1.02, 0.0, math.exp(50))
    assert (whisker.low, whisker.high, whisker.width) == (0, 100, 100)
    assert 0 < whisker.at < 100


@pytest.mark.parametrize("reach", [1.01, 1.5, 3.1, 30.0])
def test_labels_do_not_meet(reach):
    marks = axis([reach]).marks
    assert "equal" in [mark.label for mark in marks]
    assert len(marks) >= 3
    assert all(b.at - a.at >= 8 for a, b in itertools.pairwise(marks))
