"""The fuzz budget of the correctness stage: fresh points in every candidate, until the time is up."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.gpus.correctness import Checked, check_one
from matrix.gpus.fuzz import FUZZ, draw, shrink, sizes_of
from matrix.gpus.stations import at_once
from matrix.model import Cell, Outcome, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.gpus.correctness import Desk
    from matrix.gpus.stations import Station
    from matrix.running.plan import PlannedCell

# What a kernel does wrong at a point. That a case or a compiler declines a point is no news.
FAILURES = frozenset(
    {
        Outcome.WRONG,
        Outcome.UNWRITTEN,
        Outcome.OUT_OF_BOUNDS,
        Outcome.INPUT_MODIFIED,
        Outcome.NONDETERMINISTIC,
        Outcome.CRASH,
        Outcome.TIMEOUT,
        Outcome.RUN_ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What fuzzing found: failing cells, shrunk, in the candidate and in the baseline; and how much was tried."""

    checked: tuple[Checked, ...] = ()
    tried: int = 0


def fuzz(
    desk: Desk,
    found: Sequence[Station],
    planned: Sequence[PlannedCell],
    baseline: str,
    *,
    seconds: float,
    timeout_s: float,
    seed: int | None = None,
) -> Fuzzed:
    """Fuzz every candidate on a GPU of each target at the same time, for ``seconds``.

    The seed is fresh in every run, where none is given: what is found is replayed by its cell id.
    """
    deadline = time.monotonic() + seconds
    templates: dict[tuple[str, str], list[PlannedCell]] = {}
    for cell in planned:
        if cell.stage is Stage.CORRECTNESS and not cell.outcome and cell.case.points[Stage.CORRECTNESS]:
            templates.setdefault((cell.cell.target, cell.cell.environment), []).append(cell)
    failures: dict[str, tuple[Checked, ...]] = {}
    lock, tried = threading.Lock(), [0]

    def serve(place: tuple[Station, str]) -> None:
        station, environment = place
        generator = random.Random(seed)  # noqa: S311 - shapes, no secrets
        cells = templates[station.gpu.target, environment]
        while time.monotonic() < deadline:
            template = generator.choice(cells)
            point = draw(template.case.points[Stage.CORRECTNESS], generator)
            with lock:
                tried[0] += 1
            if _fails(desk, station, template, point, timeout_s):
                pair = _shrunk(desk, station, template, point, baseline, timeout_s)
                with lock:
                    failures.setdefault(_alike(pair[0].measured.planned), pair)

    targets = {station.gpu.target: station for station in found}
    places = [(targets[t], name) for t, name in templates if t in targets and name != baseline]
    at_once(places, serve)
    return Fuzzed(checked=tuple(each for pair in failures.values() for each in pair), tried=tried[0])


def _alike(planned: PlannedCell) -> str:
    """One failure however often it is met: the point, whatever its seed."""
    return str((planned.case.name, planned.cell.target, {k: v for k, v in planned.params.items() if k != FUZZ}))


def at(template: PlannedCell, environment: str, point: Mapping[str, Any]) -> PlannedCell:
    """The template's cell at another point, in an environment."""
    cell = Cell.of(environment, template.cell.target, template.case.name, point)
    return replace(template, cell=cell, params=dict(point))


def _fails(desk: Desk, station: Station, template: PlannedCell, point: Mapping[str, Any], timeout_s: float) -> bool:
    checked = check_one(desk, station, at(template, template.cell.environment, point), timeout_s)
    return Outcome(checked.measured.parts[0]["outcome"]) in FAILURES


def _shrunk(
    desk: Desk, station: Station, template: PlannedCell, point: dict[str, Any], baseline: str, timeout_s: float
) -> tuple[Checked, ...]:
    sizes = list(sizes_of(template.case.points[Stage.CORRECTNESS]))
    smallest = shrink(point, sizes, lambda smaller: _fails(desk, station, template, smaller, timeout_s))
    assert FUZZ in smallest
    names = (template.cell.environment, baseline)
    return tuple(check_one(desk, station, at(template, name, smallest), timeout_s) for name in names)
