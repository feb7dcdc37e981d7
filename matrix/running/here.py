"""The environment that this very interpreter is: its cells, one by one, without a run around them."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.judging.expectations import met, read_expectations, unmet
from matrix.judging.releases import release_expectations
from matrix.model import DEFAULT_TARGETS, Outcome, Target
from matrix.running.execute import Bench, collect, measure, timeouts_of
from matrix.running.host import this_host
from matrix.running.plan import HOST_STAGES, Request, cells_of
from matrix.running.recording import Arm, Clerk
from matrix.running.workers import WorkerHome, memory_share
from matrix.settings import config
from matrix.settings.environments import Environment, child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.running.plan import Collected, PlannedCell

_NAME = "here"
_DECLINED = frozenset((Outcome.UNSUPPORTED, Outcome.REFUSED, Outcome.DOES_NOT_FIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellVerdict:
    """What became of a cell: ``text`` is empty where it passed, ``expected`` says why a failure was foreseen."""

    text: str = ""
    expected: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Workers of the current interpreter. Nothing is cached beyond this object."""

    triton_version: str
    targets: tuple[str, ...]
    bench: Bench
    home: WorkerHome
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def open(cls, targets: str = "", root: Path | None = None) -> Here:
        """With what ``root``'s configuration says of where kernels are imported from, and of timeouts.

        Raises :class:`UsageError` where this interpreter has no Triton, or a target is unknown.
        """
        try:
            version = metadata.version("triton")
        except metadata.PackageNotFoundError:
            raise UsageError(
                f"{sys.executable} has no Triton", hint="install triton and torch beside triton-matrix"
            ) from None
        wanted = tuple(part.strip() for part in targets.split(",") if part.strip())
        if unknown := [target for target in wanted if target not in set(Target)]:
            raise UsageError(f"unknown target: {', '.join(unknown)}", hint=f"known: {', '.join(map(str, Target))}")
        configuration = config.load(root) if root else None
        folder = tempfile.TemporaryDirectory(prefix="matrix-")
        scratch = Path(folder.name)
        home = WorkerHome(
            environment=_NAME,
            interpreter=Path(sys.executable),
            variables=child_environment(Environment(id=_NAME, triton="triton")),
            pythonpath=[
                *(map(str, configuration.pythonpath) if configuration else ()),
                *(path for path in sys.path if path and not path.endswith(".zip")),
            ],
            scratch=scratch,
            memory_bytes=memory_share(this_host(), 1),
        )
        return cls(
            triton_version=version,
            targets=wanted or tuple(map(str, DEFAULT_TARGETS)),
            bench=Bench.make(
                scratch, store=scratch, slots=1, timeouts=timeouts_of(configuration) if configuration else None
            ),
            home=home,
            folder=folder,
        )

    def close(self) -> None:
        self.home.close()
        self.folder.cleanup()

    def collect(self, path: Path) -> Collected:
        (found,) = collect(self.bench, {_NAME: self.home}, {_NAME: ""}, [path], lambda: None)
        return found

    def cells(self, collected: Collected) -> Iterator[PlannedCell]:
        request = Request(
            baseline=_NAME, candidates=(), targets=self.targets, case_files=(collected.path,), stages=HOST_STAGES
        )
        return cells_of(_NAME, self.triton_version, [collected], request)

    def run(self, planned: PlannedCell) -> CellVerdict:
        """One cell, every autotune configuration of it."""
        (measured,) = measure(self.bench, {_NAME: self.home}, {_NAME: ""}, [planned], lambda: None)
        arm = Arm(environment=_NAME, triton_version=self.triton_version, torch_version="")
        expectations = (*read_expectations(planned.case.expectations, case=planned.case.name), *release_expectations())
        clerk = Clerk(run_id="", host="", arms={_NAME: arm}, expectations={planned.case.name: expectations})
        every = clerk.cells([], [measured], ())
        cells = [cell for cell in every if cell.outcome != Outcome.PASSED]
        surprises = [
            f"{cell.cell_id} at {cell.stage}: passes, but {expect.outcome} was expected: {expect.reason}"
            for cell in every
            if (expect := unmet(expectations, cell))
        ]
        if not cells:
            return CellVerdict(text="\n".join(surprises))
        text = "\n".join(
            f"{cell.cell_id} at {cell.stage}: {cell.outcome}\n{cell.reason}\n{cell.detail}" for cell in cells
        )
        if surprises:
            return CellVerdict(text="\n".join([*surprises, text]))
        foreseen = [expect.reason for cell in cells if (expect := met(expectations, cell))]
        if len(foreseen) == len(cells):
            return CellVerdict(text=text, expected=foreseen[0])
        return CellVerdict(text=text, skipped=all(cell.outcome in _DECLINED for cell in cells))
