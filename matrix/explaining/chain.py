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
from functools import cached_property
from typing import TYPE_CHECKING

from matrix.explaining.breaks import breaks
from matrix.explaining.code_links import code_links
from matrix.explaining.effects import effects_of
from matrix.explaining.links import Link, State, Step
from matrix.explaining.owner import Owner, owner_of, perhaps_the_assembler
from matrix.explaining.sides import same_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.explaining.sides import Sides


class Chain:
    """All links between two cells, the owner of the change with the reason, and what the links leave unexplained. It
    is without links where neither code nor time is recorded of both.

    Each is worked out when it is asked for: of most verdict rows no more than the first change and the owner is.
    """

    def __init__(self, sides: Sides | None = None) -> None:
        self._sides = sides

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return (*self._code, *self._effects) if self.is_known else ()

    @cached_property
    def is_known(self) -> bool:
        """Whether anything but the source is recorded of both cells."""
        return _any_known(self._code) or _any_known(self._effects)

    @property
    def first(self) -> Link | None:
        if not self.is_known:
            return None
        return next((link for link in (self._effects if self._is_same_code else self._code) if link.first), None)

    @property
    def owner(self) -> Owner:
        return self._owned[0]

    @property
    def why(self) -> str:
        return self._owned[1]

    @cached_property
    def broken(self) -> tuple[str, ...]:
        return tuple(breaks(self._sides, self.links)) if self._sides and self.is_known else ()

    @property
    def said(self) -> str:
        """In one line; empty where nothing is known."""
        if self.first is None and self.owner is Owner.UNKNOWN:
            return self.why
        first = f"first change: {self.first.step}" if self.first else "no link of the code changed"
        in_code = self.owner in (Owner.FRONT_END, Owner.OPTIMISER, Owner.LLVM)
        unsure = in_code and self._sides is not None and perhaps_the_assembler(self._sides, self._code)
        return f"{first}; whose: {self.owner}{', or the assembler' if unsure else ''}"

    @cached_property
    def _owned(self) -> tuple[Owner, str]:
        return owner_of(self._sides, self._code) if self._sides and self.is_known else (Owner.UNKNOWN, "")

    @cached_property
    def _is_same_code(self) -> bool:
        return self._sides is not None and same_code(self._sides)

    @cached_property
    def _code(self) -> Sequence[Link]:
        """Where the machine code is the same, none of these links had an effect."""
        links = list(code_links(self._sides)) if self._sides else []
        return links if self._is_same_code else _marked(links)

    @cached_property
    def _effects(self) -> Sequence[Link]:
        """What came first is not known where that of the code is not."""
        links = effects_of(self._sides) if self._sides else []
        return _marked(links) if self._is_same_code else links


def _any_known(links: Iterable[Link]) -> bool:
    return any(link.state is not State.UNKNOWN for link in links if link.step is not Step.SOURCE)


def _marked(links: Sequence[Link]) -> list[Link]:
    """With the first change marked."""
    first = next((link for link in links if link.state is State.CHANGED), None)
    return [dataclasses.replace(link, first=True) if link is first else link for link in links]
