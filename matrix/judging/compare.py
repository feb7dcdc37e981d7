"""Judging recorded runs anew: another baseline, another candidate, other thresholds."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.explaining.verdict_columns import with_owners
from matrix.judging.columns import newest
from matrix.judging.decision import exit_code
from matrix.judging.expectations import read_expectations
from matrix.judging.judge_tables import Tables, judge_tables
from matrix.judging.releases import release_expectations
from matrix.judging.waivers import waive
from matrix.storage.rows import joined_rows
from matrix.storage.runfolder import load_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from matrix.errors import ExitCode
    from matrix.judging.thresholds import Thresholds
    from matrix.judging.waivers import Waiver
    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Millions of records live to the end and hold no cycles: no search for garbage among them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@garbage_uncollected()
def judge_again(
    run_dirs: Sequence[Path],
    baseline: str,
    candidates: Sequence[str],
    thresholds: Thresholds,
    waivers: Sequence[Waiver] = (),
    complete: Callable[..., Sequence[VerdictRecord]] | None = None,
) -> tuple[RunFolder, ExitCode]:
    """The runs as one, with new verdicts; of a cell that several hold, the newest run's counts.

    ``complete`` adds what they lack: it takes the rows, the requests of the runs, and the names of what is compared.

    Raises :class:`UsageError` where an environment is in none of the runs.
    """
    runs = load_all(run_dirs, judged=False)
    known = {name: entry for run in runs for name, entry in run.environments.items()}
    names = {name: _full_id(name, known) for name in (baseline, *candidates)}
    candidate_ids = list(dict.fromkeys(names[name] for name in candidates))
    if names[baseline] in candidate_ids:
        raise UsageError(f"baseline and candidate are both {names[baseline]}", hint="name two environments")
    expectations = {
        case["name"]: (*read_expectations(case["expectations"], case=case["name"]), *release_expectations())
        for run in runs
        for case in run.meta["cases"]
    }
    tables = _tables(runs)
    judged = judge_tables(
        tables,
        run_id=runs[-1].run_id,
        baseline=names[baseline],
        candidates=candidate_ids,
        expectations=expectations,
        thresholds=thresholds,
        all_configurations=not any(run.meta["request"].get("configs") for run in runs),
    )
    verdicts: Sequence[VerdictRecord] = judged
    if complete:
        compared = {"run_id": runs[-1].run_id, "baseline": names[baseline], "candidates": candidate_ids}
        verdicts = complete(judged, [run.meta["request"] for run in runs], **compared)
    verdicts = waive(verdicts, waivers) if waivers else verdicts
    request = {**runs[-1].meta["request"], "baseline": names[baseline], "candidates": candidate_ids}
    meta = {**runs[-1].meta, "environments": list(known.values()), "request": request, **_whereabouts(runs, known)}
    merged = replace(
        runs[-1],
        meta=meta,
        cells=tables.cells,
        kernels=tables.kernels,
        verdicts=verdicts,
        dimensions=tables.dimensions,
        timings=tables.timings,
    )
    return replace(merged, verdicts=with_owners(merged)), exit_code(verdicts)


def _tables(runs: Sequence[RunFolder]) -> Tables:
    """All runs' tables, oldest first; of a kernel or a dimension that several hold, the newest."""
    kernels = joined_rows([run.kernels for run in runs])
    dimensions = joined_rows([run.dimensions for run in runs])
    return Tables(
        cells=joined_rows([run.cells for run in runs]),
        kernels=kernels.of(newest(kernels.table, ["cell_id", "kernel", "index"])),
        timings=joined_rows([run.timings for run in runs]),
        dimensions=dimensions.of(newest(dimensions.table, ["cell_id", "dimension"])),
    )


def _whereabouts(runs: Sequence[RunFolder], environments: Iterable[str]) -> dict[str, Any]:
    """Where each environment ran and which case files it had: of one run the same for all, of several perhaps not."""
    if len(runs) == 1:
        return {}
    held = {name: [run for run in runs if name in run.environments] for name in environments}
    places = {
        name: [{"host": run.host, "gpus": run.meta.get("gpus") or ()} for run in own] for name, own in held.items()
    }
    sources: dict[str, dict[str, str]] = {}
    for name, own in held.items():
        for case in (case for run in own for case in run.meta["cases"]):
            sources.setdefault(case["name"], {})[name] = case.get("digest", "")
    return {"places": places, "sources": sources}


def _full_id(name: str, known: Collection[str]) -> str:
    ids = list(known)
    found = [each for each in ids if each == name] or [each for each in ids if each.startswith(f"triton{name}-")]
    if len(found) != 1:
        raise UsageError(f"environment {name!r} is not in these runs", hint=f"they hold: {', '.join(ids)}")
    return found[0]
