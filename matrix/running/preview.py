"""What a run would do, without doing it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from matrix.model import Stage
from matrix.provisioning.builds import Builder
from matrix.running.execute import known_collections
from matrix.running.importable import importable
from matrix.running.plan import cells_of, not_run
from matrix.settings.environments import child_environment
from matrix.storage.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.running.plan import PlannedCell, Request
    from matrix.settings.config import Configuration
    from matrix.storage.runs import Home


def preview(request: Request, configuration: Configuration, home: Home) -> dict[str, Any]:
    """Environments, stages with their cells, and what will not run and why, as JSON-able data.

    The cells of an environment are known once its case files were collected there; until then their number is None.
    """
    cache, builder = Cache(home.cache), Builder(root=home.root, cpu=configuration.cpu)
    environments: list[dict[str, str]] = []
    cells: list[PlannedCell] = []
    notes: deque[str] = deque()
    beside = importable(configuration.pythonpath)
    known: set[str] = set()
    for name in request.environments:
        environment = configuration.environment(name)
        built = builder.ready(environment)
        state = "ready" if built else "to be built"
        environments.append({"id": name, "state": state, "triton": environment.triton, "torch": environment.torch})
        if built is None:
            notes.append(f"{name}: its cells are known when it is built and has read the case files")
            continue
        key, variables = (built.digest, beside), child_environment(environment)
        collected = known_collections(cache, name, key, variables, request.case_files)
        unknown = len(request.case_files) - len(collected)
        if not unknown:
            known.add(name)
        else:
            notes.append(f"{name}: {unknown} of {len(request.case_files)} case files not collected yet")
        cells += cells_of(name, built.triton, collected, request)
    return {
        "environments": environments,
        "case_files": len(request.case_files),
        "targets": list(request.targets),
        "stages": _stages(request, cells, known),
        "cells": [cell.cell.id for cell in cells if not cell.outcome],
        "not_run": [*_not_run(request, cells)],
        "notes": list(notes),
    }


def _stages(request: Request, cells: list[PlannedCell], known: set[str]) -> list[dict[str, Any]]:
    counts = Counter((str(cell.stage), cell.cell.environment) for cell in cells if not cell.outcome)
    rows = []
    for stage in request.stages:
        for name in request.environments:
            found = counts[str(stage), name] if name in known else None
            count = len(request.case_files) if stage is Stage.IMPORT else found
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
    lines += [
        f"  {row['stage']:<12} {row['environment']:<32} {_number(row['cells']):>7} cells" for row in found["stages"]
    ]
    lines += ["would not run"]
    lines += [f"  {row['what']}: {row['why']}" for row in found["not_run"]]
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(lines) + "\n"


def _number(cells: int | None) -> str:
    return "unknown" if cells is None else str(cells)
