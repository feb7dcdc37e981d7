"""When a result arrives: what each instruction of some machine code is waited for, by where its bytes lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.memory.pipes import Pipe, pipe_of
from matrix.memory.schedule import Arrival

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.schedule import Levels

_SHARED = ("LDS", "LDSM", "ATOMS", "LDC")
_LOADS = ("LDG", "LD")
_ATOMICS = ("ATOMG", "ATOM")  # with a result; L2 executes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """``clocks`` until a result is there, by what is waited for (``data/rates.toml``).

    ``waiting``: the share of global loads that L1 lacks; ``by_load`` of each load of the PTX, in order. ``in_l2``: the
    share of what L1 lacks that L2 has. ``special_interval``: clocks from a warp's special function to its next.
    """

    clocks: Mapping[str, float]
    waiting: float
    by_load: Sequence[float]
    in_l2: float
    special_interval: float

    def arrivals(self, opcodes: Sequence[str]) -> list[Arrival]:
        """Of each instruction. Loads are the PTX's in order, where they are as many; or else each is like the mean."""
        count = sum(opcode in _LOADS for opcode in opcodes)
        shares = iter(self.by_load if len(self.by_load) == count else [self.waiting] * count)
        others = {opcode: self._other(opcode) for opcode in set(opcodes)}
        return [self._load(next(shares)) if opcode in _LOADS else others[opcode] for opcode in opcodes]

    def _load(self, waiting: float) -> Arrival:
        beyond = {"l2": waiting * self.in_l2, "dram": waiting * (1 - self.in_l2)}
        return Arrival(self._levels({"l1": 1 - waiting, **beyond}))

    def _other(self, opcode: str) -> Arrival:
        if opcode in _ATOMICS:
            return Arrival(self._levels({"l2": self.in_l2, "dram": 1 - self.in_l2}))
        if pipe_of(opcode) is Pipe.SPECIAL:
            return Arrival(self._levels({"other": 1.0}), self.special_interval)
        name = "shared" if opcode in _SHARED else {"LDL": "l1", "SHFL": "shuffle"}.get(opcode, "other")
        return Arrival(self._levels({name: 1.0}))

    def _levels(self, shares: Mapping[str, float]) -> Levels:
        return tuple((share, self.clocks[name]) for name, share in shares.items() if share > 0)
