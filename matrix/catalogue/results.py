"""How a row of the catalogue fared: its figures as seen, and what the ordinary rules said of them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.catalogue.rows import Row

RATIO = "ratio"  # of times, the bad side's over the good side's
_OR = " or "


class Standing(enum.StrEnum):
    """How a row fared. Recall is the flagged ones over all that were reproduced on both sides."""

    FLAGGED = "flagged"
    MISSED = "reproduced, not flagged"
    NOT_REPRODUCED = "not reproduced"
    ONE_SIDE = "one side only"  # no release of ours has the other
    NEEDS_GPU = "needs a GPU"
    NOT_HERE = "release not here"  # not among the environments that were chosen
    NOT_RUN = "not run"  # its environment could not be built


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What one row showed. ``seen`` holds the figures of the good and the bad side that were measured."""

    row: Row
    standing: Standing
    seen: Mapping[str, tuple[Any, Any]]
    flag: str = ""
    change: str = ""

    @property
    def as_stated(self) -> bool:
        """Whether figures and flag are what the row's data say; of what was run alone.

        What a row of a GPU states is what was reported; what was last seen of it, if anything, is what it is held to.
        """
        match self.standing:
            case Standing.NEEDS_GPU | Standing.ONE_SIDE | Standing.NOT_HERE:
                return True
            case Standing.NOT_RUN:
                return False
            case Standing.FLAGGED | Standing.MISSED | Standing.NOT_REPRODUCED if self.row.on_a_gpu:
                known = self.row.last_seen
                return known is None or (known.standing, known.flag) == (self.standing, self.flag)
            case Standing.NOT_REPRODUCED:
                return False
            case Standing.FLAGGED | Standing.MISSED:
                return self.flag == self.row.flag


def is_seen(name: str, row: Row, seen: Sequence[Any]) -> bool:
    """Whether a figure is as the row states it, on each side that can be had."""
    pairs = zip(row.arms, row.figure[name], seen, strict=True)
    return all(not arm.shown or _alike(name, stated, found) for arm, stated, found in pairs)


def _alike(name: str, stated: Any, found: Any) -> bool:
    """A reason is given by a part of it, an outcome by all it may be, a ratio by whether half of it shows.

    How much slower something is depends on the GPU and on sizes that a report may leave out: half, in logarithms.
    """
    match name:
        case "reason":
            return stated in found
        case "outcome":
            return found in str(stated).split(_OR)
        case _ if name == RATIO:
            return found is not None and math.log(found) * _sign(stated) >= abs(math.log(stated)) / 2
        case _:
            return bool(found == stated)


def _sign(ratio: float) -> int:
    return 1 if ratio >= 1 else -1
