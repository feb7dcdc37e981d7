"""The rounds that a verdict on time rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.records import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.records import RoundRecord


def judged_rounds(rounds: Iterable[RoundRecord], baseline: str, candidate: str) -> list[RoundRecord]:
    """Of one comparison's arms, the cold rounds where there are any; the control's environment is the baseline's."""
    wanted = {(Role.BASELINE, baseline), (Role.CANDIDATE, candidate), (Role.CONTROL, baseline)}
    mine = [each for each in rounds if (each.role, each.environment) in wanted]
    judged = "cold" if any(each.cache == "cold" for each in mine) else "warm"
    return [each for each in mine if each.cache == judged and each.samples_us]
