"""Where a chain breaks: what no link before it explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.explaining.counts import counts_of, profiled
from matrix.explaining.links import Step
from matrix.explaining.sides import is_pass, same_code
from matrix.judging.speed import Speed
from matrix.model import Stage
from matrix.records import Verdict
from matrix.wording import phrase, plural, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.explaining.links import Link
    from matrix.explaining.sides import Sides


def breaks(sides: Sides, links: Sequence[Link]) -> Iterator[str]:
    """What no link explains."""
    speed = Speed(sides.timed.speed) if sides.timed is not None and sides.timed.speed else Speed.NOT_RUN
    ratio = times(sides.timed.ratio) if sides.timed is not None and sides.timed.ratio else ""
    if same_code(sides) and speed in (Speed.SLOWER, Speed.FASTER):
        yield f"code unchanged, but time moved ({ratio})"
    ways = {each.way for each in counts_of(sides)}
    if -1 in ways and 1 not in ways and speed in (Speed.SLOWER, Speed.EQUIVALENT):
        note = next(link.note for link in links if link.step is Step.COUNTERS)
        yield f"counters better ({note}), but time not ({ratio})"
    kernels = profiled(sides) if is_pass(sides) else None
    if kernels is not None and kernels.way < 0 and speed in (Speed.SLOWER, Speed.EQUIVALENT):
        moved = times(kernels.after / kernels.before)
        yield f"{plural(len(sides.pairs), 'kernel')} faster ({moved}, as profiled), but the pass not ({ratio})"
    worse = sides.coded is not None and sides.coded.verdict is Verdict.CODE_RISK
    if worse and sides.row.stage in (Stage.COMPILE, Stage.TIMING) and speed in (Speed.FASTER, Speed.EQUIVALENT):
        assert sides.coded is not None
        yield f"code worse ({phrase(sides.coded.reason_code)}), but time not ({ratio})"
