"""What driver and hosts say to each other; all of it travels as pickles between equal versions of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matrix.gpus.timing_records import Timings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.fleet.project import Roots
    from matrix.provisioning.provision import Provision
    from matrix.records import AssemblyRecord, CellRecord, DimensionRecord, KernelRecord, VerdictRecord
    from matrix.running.host import Host
    from matrix.running.plan import Collected, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a host is asked to do, whichever it is. Paths are the driver's."""

    run_id: str
    request: Request
    config: Path | None  # the user's configuration file
    requires: tuple[str, ...]
    roots: Roots
    code: str  # digest of this package, which must be the hosts' too
    lock_mhz: int = 0
    fuzz_seconds: float = 0.0  # on one GPU of each target


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the first host found: its environments, and the case files as they read there."""

    host: Host
    provisions: Mapping[str, Provision]
    collected: Sequence[Collected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Findings in the code, whose PTX is to be assembled by each side's assembler; ``artifacts`` packed as stored."""

    verdicts: Sequence[VerdictRecord]
    kernels: Sequence[KernelRecord]
    artifacts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """What a host made of a :class:`Question`."""

    assemblies: Sequence[AssemblyRecord]
    artifacts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rows of one unit, all from one host. ``artifacts`` are packed as stored, ``gpus`` as run.json has them.

    ``locks`` are the digests of the environments that it was made with, ``provisions`` the environments themselves
    where there is a GPU; ``problem`` says why there are no rows.
    """

    unit: str
    host: Host
    locks: Mapping[str, str]
    cells: Sequence[CellRecord] = ()
    kernels: Sequence[KernelRecord] = ()
    dimensions: Sequence[DimensionRecord] = ()
    timings: Timings = field(default_factory=Timings)
    gpus: Sequence[Mapping[str, Any]] = ()
    provisions: Mapping[str, Provision] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""

    @property
    def records(self) -> int:
        """How many rows of tables it holds."""
        timed = self.timings
        tables = (self.cells, self.kernels, self.dimensions, timed.cells, timed.arms, timed.rounds)
        return sum(map(len, tables))


# What a task's answers are.
Told = Answer | Survey | Crossed
