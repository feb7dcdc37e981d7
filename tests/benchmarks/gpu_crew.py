"""What the benchmarks on a GPU share: workers of this very interpreter on one GPU, and the timed built-in cells."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.gpus.crew import Crew
from matrix.gpus.devices import open_nvml, visible_gpus
from matrix.model import format_params
from matrix.running.workers import WorkerHome
from matrix.settings.environments import HOST, Environment, child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matrix.gpus.nvml import Gpu, Reading

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A cell to be timed."""

    path: str
    case: str
    params: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.case}:{format_params(self.params)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Resident workers on one GPU, by name."""

    asks: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
    gpu: Gpu
    read: Callable[[], Reading]


@contextlib.contextmanager
def workers(*names: str) -> Iterator[Workers]:
    """Workers of kind ``gpu`` on the first GPU that this process may use."""
    nvml = open_nvml()
    if nvml is None:
        raise SystemExit("no GPU here")
    with tempfile.TemporaryDirectory() as folder:
        gpu = visible_gpus(nvml.gpus())[0]
        spec = _home(Path(folder)).spec("gpu", gpu=gpu.uuid)
        with Crew(dict.fromkeys(names, spec), Path(folder)) as crew:
            asks = {name: partial(crew.ask, name) for name in names}
            yield Workers(asks=asks, gpu=gpu, read=partial(nvml.reading, gpu.uuid))


def timed_cells(target: str) -> list[Timed]:
    """Every built-in case at every point that is timed on ``target``; points of one case spread out.

    So that a run that ends early has seen as many different kernels as it could.
    """
    found = [
        (number, Timed(path=str(path), case=case["name"], params=params))
        for path, case in collected(sorted(KERNELS.glob("*.py")))
        if not case["targets"] or target in case["targets"]
        for number, params in enumerate(case["points"]["timing"])
    ]
    return [cell for _, cell in sorted(found, key=lambda each: each[0])]


def collected(paths: Sequence[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """The cases of these files as this interpreter collects them; a file that it cannot import has none."""
    with tempfile.TemporaryDirectory() as folder, _collector(Path(folder)) as crew:
        parts = {path: crew.ask("collect", {"op": "collect", "path": str(path)}) for path in paths}
    return [(path, case) for path, part in parts.items() for case in part.get("cases", ())]


def _collector(scratch: Path) -> Crew:
    return Crew({"collect": _home(scratch).spec("collect")}, scratch)


def percentile(values: Sequence[float], share: float) -> float:
    """By rank: the smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def _home(scratch: Path) -> WorkerHome:
    own = Environment(id=HOST, triton="triton", inherit=HOST)
    return WorkerHome(
        environment=HOST,
        interpreter=Path(sys.executable),
        variables=child_environment(own),
        pythonpath=(),
        scratch=scratch,
        memory_bytes=0,
    )
