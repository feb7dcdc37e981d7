"""Where a series over nights changed its level for good, and whether it has levels to speak of.

Change points: exact segmentation by PELT (Killick, Fearnhead and Eckley 2012) with a cost of squared deviations of
the logarithm, as ruptures computes it in C (``KernelCPD``, linear kernel). The penalty of a change is ``3 s^2 ln n``,
with ``s`` the night-to-night noise of the series itself (1.4826 times the median absolute difference of neighbours,
over the root of two; at least 0.1 %). Single nights are clipped to 2 ``s`` around the running median of five before:
one bad night is no change. Both sides must hold for three nights, and a change under 1 % is not told.

Most series never move. Whether one may is told before, of many at once: by the least that any segmentation of its
first nights costs, without its places.

A series that jumps to and fro between two levels has no change point to find: it is said to be bimodal.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from matrix.judging.statistics import bimodal_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FEWEST_NIGHTS = 3  # on each side of a change
LEAST_CHANGE = 0.01
_LEAST_NOISE = 0.001
_PENALTY = 3.0
_CLIP = 2.0
_ROUNDING = 1e-3  # of the penalty: far more than ruptures' sums and ours can differ by
_AT_ONCE = 512  # series: what is summed over them stays in the processor's cache
_MOST_CROSSINGS = 2


def change_points(values: Sequence[float]) -> list[int]:
    """The places at which a new level begins. Values are positive, one a night, oldest first."""
    return change_points_of(np.asarray([values], dtype=float))[0]


def change_points_of(rows: NDArray[np.float64]) -> list[list[int]]:
    """Likewise of many series with as many nights."""
    count = rows.shape[1]
    if count < 2 * FEWEST_NIGHTS or not len(rows):
        return [[] for _ in rows]
    logs = np.log(rows)
    noise = _noise(logs)
    signals = _clipped(logs, _CLIP * noise[:, None])
    penalties = _PENALTY * noise**2 * math.log(count)
    found: list[list[int]] = [[] for _ in rows]
    moving = np.flatnonzero(may_move(signals, penalties)).tolist()
    if moving:
        import ruptures  # noqa: PLC0415 - takes a second to import, and most runs have no history

        search = ruptures.KernelCPD(kernel="linear", min_size=FEWEST_NIGHTS)
        for number in moving:
            places = search.fit(signals[number]).predict(pen=float(penalties[number]))[:-1]
            found[number] = _apart(signals[number], [int(place) for place in places])
    return found


def may_move(signals: NDArray[np.float64], penalties: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each series, whether PELT can find a change in it at all.

    Optimal partitioning (Jackson et al. 2005), what PELT prunes: the least cost of the first nights, for each number of
    them. PELT answers with the segmentation without a change where none costs less, unless it had dropped that one
    before: at a night where one with a change cost less by a whole penalty.
    """
    parts = range(0, len(signals), _AT_ONCE)
    found = [_may_move(signals[at : at + _AT_ONCE], penalties[at : at + _AT_ONCE]) for at in parts]
    return np.concatenate([np.empty(0, dtype=np.bool_), *found])


def _may_move(signals: NDArray[np.float64], penalties: NDArray[np.float64]) -> NDArray[np.bool_]:
    count = signals.shape[1]
    centred = (signals - signals.mean(axis=1, keepdims=True)).T
    sums = np.concatenate([np.zeros((1, len(signals))), centred.cumsum(axis=0)])
    # Costs without the sum of squares, which is the same however nights are split.
    least: NDArray[np.float64] = np.full((count + 1, len(signals)), np.inf)
    found: NDArray[np.bool_] = np.zeros(len(signals), dtype=np.bool_)
    for end in range(FEWEST_NIGHTS, count + 1):
        alone = -(sums[end] ** 2) / end
        begins = slice(FEWEST_NIGHTS, end - FEWEST_NIGHTS + 1)
        own = sums[end] - sums[begins]
        own *= own
        own *= 1 / -np.arange(end - FEWEST_NIGHTS, FEWEST_NIGHTS - 1, -1, dtype=np.float64)[:, None]
        own += least[begins]
        changed = own.min(axis=0, initial=np.inf) + penalties
        dropped = 0.0 if end == count else penalties
        found |= changed + dropped <= alone + _ROUNDING * penalties
        least[end] = np.minimum(alone, changed)
    return found


def flips(values: Sequence[float]) -> bool:
    """Whether a series jumps to and fro between two levels, more often than a change and its repair would."""
    return bool(flips_of(np.asarray([values], dtype=float))[0])


def flips_of(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Likewise of many series with as many nights."""
    least, most = rows.min(axis=1), rows.max(axis=1)
    two = ((rows == least[:, None]) | (rows == most[:, None])).all(axis=1) & (least < most)  # exact values: no groups
    above = rows > (least + most)[:, None] / 2
    crossings = np.count_nonzero(above[:, 1:] != above[:, :-1], axis=1)
    flipping: NDArray[np.bool_] = (two | bimodal_rows(rows)) & (crossings > _MOST_CROSSINGS)
    return flipping


def _noise(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of one night against the next, changes of level left out by the median."""
    steps = np.abs(np.diff(logs, axis=1))
    noise: NDArray[np.float64] = np.maximum(_LEAST_NOISE, 1.4826 * np.median(steps, axis=1) / math.sqrt(2))
    return noise


def _clipped(logs: NDArray[np.float64], reach: NDArray[np.float64]) -> NDArray[np.float64]:
    """Single nights drawn towards the running median of five; a level that lasts three nights stays."""
    five = np.lib.stride_tricks.sliding_window_view(np.pad(logs, ((0, 0), (2, 2)), mode="edge"), 5, axis=1)
    middle: NDArray[np.float64] = np.sort(five, axis=-1)[..., 2]
    clipped: NDArray[np.float64] = np.clip(logs, middle - reach, middle + reach)
    return clipped


def _apart(signal: NDArray[np.float64], places: Sequence[int]) -> list[int]:
    """Without the changes that are too small to tell, the smallest first: its neighbours then have more to stand on."""
    kept = list(places)
    while kept:
        edges = [0, *kept, len(signal)]
        levels = [float(np.median(signal[a:b])) for a, b in itertools.pairwise(edges)]
        steps = [abs(b - a) for a, b in itertools.pairwise(levels)]
        least = int(np.argmin(steps))
        if steps[least] >= math.log1p(LEAST_CHANGE):
            break
        del kept[least]
    return kept
