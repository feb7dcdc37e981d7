"""How much of the compile stage's wall time is the compiler's own: wall / (compiler seconds / cores).

    python -P tests/benchmarks/compile_stage.py [TRITON ...]

Builds the environments named (default: the newest), compiles every built-in case for all targets with an
empty cache, and prints the ratio with workers' start-up apart. The bound is 1.15 over at least 200 cells.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from matrix.model import DEFAULT_TARGETS, Stage
from matrix.provisioning.builds import Builder
from matrix.resources import kernels_folder
from matrix.running.execute import Bench, collect, measure
from matrix.running.host import this_host
from matrix.running.plan import Request, cells_of, find_case_files
from matrix.running.run import default_jobs
from matrix.running.workers import WorkerHome, memory_share
from matrix.settings import config
from matrix.settings.environments import child_environment


def main(names: list[str]) -> None:
    root = Path.cwd()
    configuration = config.load(root)
    builder = Builder(root=root, cpu=configuration.cpu)
    built = [builder.build(configuration.environment(name)) for name in names or [configuration.candidates[0]]]
    cores = default_jobs()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench.make(folder, store=folder, slots=cores)
        homes = {
            each.id: WorkerHome(
                environment=each.id,
                interpreter=each.interpreter,
                variables=child_environment(each.environment),
                pythonpath=(),
                scratch=folder,
                memory_bytes=memory_share(this_host(), cores),
            )
            for each in built
        }
        locks = {each.id: each.digest for each in built}
        files = find_case_files([kernels_folder()])
        collected = collect(bench, homes, locks, files, lambda: None)
        request = Request(
            baseline=built[0].id,
            candidates=(),
            targets=tuple(str(target) for target in DEFAULT_TARGETS),
            case_files=files,
            stages=(Stage.COMPILE,),
        )
        planned = [
            cell
            for each in built
            for cell in cells_of(each.id, each.triton, [c for c in collected if c.environment == each.id], request)
            if not cell.outcome
        ]
        started = time.perf_counter()
        measured = measure(bench, homes, locks, planned, lambda: None)
        wall = time.perf_counter() - started
    cells = sum(len(item.parts) for item in measured)
    compiler = sum(part["seconds"] for item in measured for part in item.parts)
    starting = sum(bench.start_seconds)
    ratio = (wall - starting / cores) / (compiler / cores)
    print(f"{cells} cells on {cores} cores: wall {wall:.1f} s, of which workers start {starting / cores:.1f} s;")
    print(f"compiler {compiler:.1f} s summed, {compiler / cores:.1f} s a core: ratio {ratio:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
