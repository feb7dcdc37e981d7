"""The two sides of a catalogue's row as a run has them: their cells, and the environments that rows of tables name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.running.plan import Request, cells_of
from matrix.running.recording import Arm as Environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.catalogue.rows import Arm, Row
    from matrix.running.plan import Collected, PlannedCell


def cells_at(row: Row, arm: Arm, item: Collected) -> Iterator[PlannedCell]:
    """The cells of a side at its own point, in the environment in which its file was read."""
    request = Request(
        baseline=item.environment,
        candidates=(),
        targets=(arm.target,),
        case_files=(row.path,),
        stages=(row.stage,),
        gpu_targets=(arm.target,) if row.on_a_gpu else (),
    )
    for planned in cells_of(item.environment, arm.version, [item], request):
        if dict(planned.params) == dict(arm.params):
            yield planned


def environments(releases: Mapping[str, str]) -> dict[str, Environment]:
    """Environments by their names, each with its release."""
    return {
        name: Environment(environment=name, triton_version=release, torch_version="")
        for name, release in releases.items()
    }
