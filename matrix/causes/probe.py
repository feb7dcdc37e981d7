"""A run of one cell between two releases, for who asks about that cell: measured anew and kept beside the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.causes.redcell import stock
from matrix.gpus.stages import GpuHost
from matrix.model import CPU, DEFAULT_TARGETS, Stage, Target
from matrix.running.declared import narrowed
from matrix.running.plan import GPU_STAGES, HOST_STAGES, Request
from matrix.running.run import Run
from matrix.settings.environments import HOST, RULES
from matrix.storage.runfolder import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.running.progress import Board
    from matrix.settings.config import Configuration
    from matrix.settings.environments import Environment
    from matrix.storage.runfolder import RunFolder
    from matrix.storage.runs import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Laboratory:
    """Where probes are made: the configuration, the project's folder, this host."""

    configuration: Configuration
    home: Home
    board: Board
    jobs: int
    gpu_host: GpuHost = field(default_factory=GpuHost)
    # Whether releases are asked about in front of this host's own torch (``3.5.1@host``), and not as their stock pairs.
    on_host: bool = False

    def named(self, told: str) -> str:
        """A release stays what it is, since any environment of it will do; ``3.5.1@host``, ``newest`` are one each."""
        return self.configuration.environment(told).id if is_on_host(told) or told in RULES else told

    def standing_for(self, version: str, run: RunFolder) -> Environment:
        """The environment that stands for a release."""
        if not self.on_host:
            return stock(self.configuration, version)
        known = [name for name, told in run.environments.items() if told.get("triton") == version]
        here = next((name for name in known if name == HOST or name.endswith(f"-{HOST}")), f"{version}@{HOST}")
        return self.configuration.environment(here)

    def probe(
        self,
        cell: str,
        files: Sequence[Path],
        good: str,
        bad: Sequence[str],
        *,
        stages: Sequence[Stage] = (),
        cross_ptxas: bool = False,
    ) -> RunFolder:
        """The cells that ``cell`` (``[target/]case[:params]``, a glob) means, in all; without ``stages`` at all."""
        targets, point = target_and_point(cell)
        here = [target for target in targets if target in self.gpu_host.targets]
        wanted = stages or (*HOST_STAGES, *(GPU_STAGES[:2] if here else ()))
        baseline, *candidates = (self.configuration.environment(name).id for name in (good, *bad))
        able, others = narrowed(files, (point,), (baseline, *candidates))
        request = Request(
            baseline=baseline,
            candidates=tuple(candidates),
            targets=targets,
            case_files=tuple(likely(able, point)),
            cases=(point,),
            other_cases=others,
            stages=tuple(wanted),
            gpu_targets=tuple(here),
        )
        run = Run(
            request=request,
            configuration=self.configuration,
            home=self.home,
            board=self.board,
            jobs=self.jobs,
            gpu_host=self.gpu_host if here else GpuHost(),
            apart=True,
            cross_ptxas=cross_ptxas,
        )
        return load(run.execute().folder)


def is_on_host(told: str) -> bool:
    """Whether a name as somebody writes it means an environment over this host's own torch."""
    return told == HOST or told.endswith(f"@{HOST}")


def target_and_point(cell: str) -> tuple[tuple[str, ...], str]:
    """``sm_90/softmax:rows=8`` as its targets and its point; what stands before the target is left out."""
    *before, point = cell.split("/")
    named = next((part for part in reversed(before) if part in set(map(str, Target)) | {CPU}), "")
    return ((named,) if named and named != CPU else tuple(map(str, DEFAULT_TARGETS))), point


def likely(files: Sequence[Path], point: str) -> list[Path]:
    """The case files whose text has the case's name; all where none has, for a name may be put together."""
    name = point.partition(":")[0]
    found = [path for path in files if name in path.read_text(encoding="utf-8", errors="replace")]
    return found or list(files)
