"""From source to time, link by link: what changed first between two cells, whose change that is, and what does not fit.

A chain is read from the left: source, options, TTIR, TTGIR, LLIR, PTX, ptxas, SASS, static evidence, counters, kernel
time and, where a call launches several kernels, pass time. The first link that differs names the owner of a change in
code. Differences that end in the same machine code explain nothing that was measured; then the owner is looked for
among what else differs: torch, driver, GPU, clocks. What is not recorded is unknown, and no owner is made up for it.

A *broken* chain has a link that the one before it does not explain: code unchanged and time moved, counters better
and time not, kernels faster and the pass not, code worse and time not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.explaining.breaks import breaks
from matrix.explaining.code_links import code_links
from matrix.explaining.effects import effects_of
from matrix.explaining.links import Link, State, Step
from matrix.explaining.owner import Owner, owner_of
from matrix.explaining.sides import same_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.explaining.sides import Sides


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All links between two cells, the owner of the change with the reason, and what the links leave unexplained."""

    links: tuple[Link, ...] = ()
    owner: Owner = Owner.UNKNOWN
    why: str = ""
    broken: tuple[str, ...] = ()

    @property
    def first(self) -> Link | None:
        return next((link for link in self.links if link.first), None)

    @property
    def said(self) -> str:
        """In one line; empty where nothing is known."""
        if self.first is None and self.owner is Owner.UNKNOWN:
            return self.why
        first = f"first change: {self.first.step}" if self.first else "no link of the code changed"
        return f"{first}; whose: {self.owner}"


def chain_of(sides: Sides) -> Chain:
    """The chain between two cells; without links where neither code nor time is recorded of both."""
    links = _marked(list(code_links(sides)), effects_of(sides), is_same_code=same_code(sides))
    if all(link.state is State.UNKNOWN for link in links if link.step is not Step.SOURCE):
        return Chain()
    owner, why = owner_of(sides, links)
    return Chain(links=tuple(links), owner=owner, why=why, broken=tuple(breaks(sides, links)))


def _marked(code: Sequence[Link], effects: Sequence[Link], *, is_same_code: bool) -> list[Link]:
    """The first change marked. Where the machine code is the same, no link before it had an effect; where it is not
    known, neither is what came first.
    """
    links = [*code, *effects]
    searched = effects if is_same_code else code
    first = next((link for link in searched if link.state is State.CHANGED), None)
    return [dataclasses.replace(link, first=True) if link is first else link for link in links]
