"""What a run would do, without doing it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from matrix.model import Stage
from matrix.provisioning.builds import Builder
from matrix.running.execute import known_collections
from matrix.running.importable import importable
from matrix.running.plan import cells_of, not_run
from matrix.storage.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.running.plan import PlannedCell, Request
    from matrix.settings.config import Configuration
    from matrix.storage.runs import Home


def preview(request: Request, configuration: Configuration, home: Home) -> dict[str, Any]:
    """Environments, stages with their cells, and what will not run and why, as JSON-able data.

    The cells of an environment are known once its case files were collected; until then they are
    counted after the first environment that is, and where none is, the case files are.
    """
    cache, builder = Cache(home.cache), Builder(root=home.root, cpu=configuration.cpu)
    environments: list[dict[str, str]] = []
    cells: list[PlannedCell] = []
    notes: deque[str] = deque()
    beside = importable(configuration.pythonpath)
    for name in request.environments:
        environment = configuration.environment(name)
        built = builder.ready(environment)
        state = "ready" if built else "to be built"
        environments.append({"id": name, "state": state, "triton": environment.triton, "torch": environment.torch})
        if built is None:
            notes.append(f"{name}: to be built; its cells are known afterwards")
            continue
        collected = known_collections(cache, name, built.digest, beside, request.case_files)
        unknown = len(request.case_files) - len(collected)
        if unknown:
            notes.append(f"{name}: {unknown} of {len(request.case_files)} case files not collected yet")
        cells += cells_of(name, built.triton, collected, request)
    return {
        "environments": environments,
        "case_files": len(request.case_files),
        "targets": list(request.targets),
        "stages": _stages(request, cells),
        "cells": [cell.cell.id for cell in cells if not cell.outcome],
        "not_run": [*_not_run(request, cells)],
        "notes": list(notes),
    }


def _stages(request: Request, cells: list[PlannedCell]) -> list[dict[str, Any]]:
    counts = Counter((str(cell.stage), cell.cell.environment) for cell in cells if not cell.outcome)
    rows = []
    for stage in request.stages:
        for name in request.environments:
            count = len(request.case_files) if stage is Stage.IMPORT else counts[str(stage), name]
            rows.append({"stage": str(stage), "environment": name, "cells": count})
    return rows


def _not_run(request: Request, cells: list[PlannedCell]) -> Iterator[dict[str, Any]]:
    reasons = Counter((cell.cell.case, cell.cell.target, cell.reason) for cell in cells if cell.outcome)
    for (case, target, reason), count in reasons.items():
        yield {"what": f"{case} on {target}", "why": reason, "cells": count}
    for row in not_run(request):
        yield {**row, "cells": 0}


def preview_text(found: dict[str, Any]) -> str:
    """The preview for a terminal."""
    lines = ["environments"]
    lines += [f"  {e['id']:<32} {e['state']}" for e in found["environments"]]
    lines += [f"targets: {', '.join(found['targets'])}; case files: {found['case_files']}", "would run"]
    lines += [f"  {row['stage']:<12} {row['environment']:<32} {row['cells']:>6} cells" for row in found["stages"]]
    lines += ["would not run"]
    lines += [f"  {row['what']}: {row['why']}" for row in found["not_run"]]
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(lines) + "\n"
