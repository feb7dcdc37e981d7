"""What every stage of a run starts from: environments built, case files read in each, cells planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.model import Outcome
from matrix.provisioning.provision import provide
from matrix.running.execute import collect
from matrix.running.plan import Collected, PlannedCell, cells_of, check_names
from matrix.running.recording import Arm
from matrix.running.workers import homes_of, memory_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.provisioning.provision import Provision
    from matrix.running.execute import Bench
    from matrix.running.host import Host
    from matrix.running.plan import Request
    from matrix.running.progress import Board
    from matrix.running.workers import WorkerHome
    from matrix.settings.config import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A host that is ready to run the cells of a request."""

    provisions: Mapping[str, Provision]
    homes: Mapping[str, WorkerHome]
    locks: Mapping[str, str]
    collected: Sequence[Collected]
    planned: Sequence[PlannedCell]


def get_ready(
    request: Request, configuration: Configuration, root: Path, bench: Bench, board: Board, *, host: Host, jobs: int
) -> Ready:
    """Build what is not built yet under ``root``, read the case files everywhere, plan. Raises :class:`UsageError`."""
    provisions = provide(request.environments, configuration, root, board)
    homes = homes_of(provisions, configuration.pythonpath, bench.scratch, memory_share(host, jobs))
    locks = {name: each.built.digest for name, each in provisions.items() if each.built}
    tick = board.task("import", len(homes) * len(request.case_files))
    collected = [*collect(bench, homes, locks, request.case_files, tick), *_unbuilt(provisions, request)]
    check_names(collected)
    planned = planned_of(provisions, collected, request)
    return Ready(provisions=provisions, homes=homes, locks=locks, collected=collected, planned=planned)


def planned_of(
    provisions: Mapping[str, Provision], collected: Sequence[Collected], request: Request
) -> list[PlannedCell]:
    """The cells of all environments at the stages after import, environment by environment."""
    return [
        cell
        for name, provision in provisions.items()
        for cell in cells_of(name, provision.triton_version, [c for c in collected if c.environment == name], request)
    ]


def arms_of(provisions: Mapping[str, Provision]) -> dict[str, Arm]:
    """The environments as rows name them."""
    return {
        name: Arm(environment=name, triton_version=provision.triton_version, torch_version=provision.torch_version)
        for name, provision in provisions.items()
    }


def _unbuilt(provisions: Mapping[str, Provision], request: Request) -> list[Collected]:
    """Environments that could not be built: every case file fails there, for that reason."""
    return [
        Collected(
            environment=name,
            path=path,
            outcome=Outcome.ENVIRONMENT_ERROR,
            reason=provision.problem.splitlines()[0],
            detail=provision.problem,
            seconds=0.0,
            cases=(),
        )
        for name, provision in provisions.items()
        if provision.built is None
        for path in request.case_files
    ]
