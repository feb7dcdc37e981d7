"""A second interval of a finding's ratio, from its raw samples and without Student's t: blocks and rounds drawn anew.

It decides nothing: over a dozen blocks a bootstrap is too narrow (:mod:`matrix.judging.statistics`), and of one worker
an arm it holds nothing of what two workers differ by (:mod:`matrix.judging.family`). Who doubts a figure sees whether
the two agree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matrix.judging.statistics import bootstrap_interval, log_ratio
from matrix.records import Role
from matrix.reporting.judged_rounds import judged_rounds
from matrix.wording import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records import RoundRecord

_FEWEST_BLOCKS = 3


def resampled(rounds: Sequence[RoundRecord], *, baseline: str, candidate: str) -> str:
    """The median over rounds, its mean over blocks, with the interval of 95 %; empty where too little was measured."""
    blocks = _paired(rounds, baseline, candidate)
    if len(blocks) < _FEWEST_BLOCKS:
        return ""
    found = bootstrap_interval(blocks)
    ratio, low, high = (times(math.exp(value)) for value in (found.estimate, found.low, found.high))
    return f"{ratio} ({low} to {high})"


def _paired(rounds: Sequence[RoundRecord], baseline: str, candidate: str) -> list[list[float]]:
    """Log-ratios by round, in blocks."""
    sides: dict[Role, dict[tuple[int, int], Sequence[float]]] = {role: {} for role in Role}
    for each in judged_rounds(rounds, baseline, candidate):
        sides[each.role][each.block, each.round] = each.samples_us
    before, after = sides[Role.BASELINE], sides[Role.CANDIDATE]
    blocks: dict[int, list[float]] = {}
    for key in sorted(before.keys() & after.keys()):
        blocks.setdefault(key[0], []).append(log_ratio(after[key], before[key]))
    return list(blocks.values())
