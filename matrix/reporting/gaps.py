"""What the run did not test and why, what does not fit, and the hazards that every environment shares."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import StorageError
from matrix.model import Outcome, Stage
from matrix.storage.rows import chosen, distinct
from matrix.wording import by_target, listing, phrase, place, unique

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.records import CellRecord, KernelRecord
    from matrix.storage.runfolder import RunFolder

# Outcomes that say "not tested" rather than "tested and bad".
_NOT_TESTED = {
    Outcome.UNSUPPORTED,
    Outcome.REFUSED,
    Outcome.ENVIRONMENT_ERROR,
    Outcome.INTERRUPTED,
    Outcome.NOT_RUN,
    Outcome.TOO_SHORT,
    Outcome.INVALID,
}
_DOES_NOT_FIT = "does_not_fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Cells that were not tested for one reason; ``cells`` are ids, empty for a whole stage or target."""

    what: str
    why: str
    where: str
    cells: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A configuration that exceeds a target's limits: an outcome, not an error."""

    case: str
    config: str
    targets: Sequence[str]
    environments: Sequence[str]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """A danger in the kernel's source, whichever release compiles it."""

    case: str
    kernel: str
    kind: str
    place: str
    code: str
    detail: str
    targets: Sequence[str]
    environments: Sequence[str]


def gaps(runs: Sequence[RunFolder]) -> list[Gap]:
    """Everything that was not tested, whether or not a verdict is missing because of it."""
    return [gap for run in runs for gap in (*_declared(run), *_stages(run), *_pointless(run), *_cells(run))]


def _declared(run: RunFolder) -> Iterator[Gap]:
    grouped: dict[str, list[str]] = collections.defaultdict(list)
    for entry in run.meta.get("not_run", ()):
        grouped[str(entry["why"])].append(str(entry["what"]))
    for why, what in grouped.items():
        yield Gap(what=", ".join(unique(what)), why=why, where=run.host)


def _stages(run: RunFolder) -> Iterator[Gap]:
    """Stages that no cell entered and that the run itself gave no reason for."""
    entered = {stage for stage, _ in distinct(run.cells, "stage", "outcome")}
    told = " ".join(str(entry["what"]) for entry in run.meta.get("not_run", ()))
    missing = [str(stage) for stage in Stage if stage not in entered and stage not in told]
    if missing:
        yield Gap(what=f"stages {', '.join(missing)}", why="no cell of this run entered them", where=run.host)


def _pointless(run: RunFolder) -> Iterator[Gap]:
    """Cases that were imported and have no cell at a stage that others entered."""
    cases: dict[str, set[str]] = collections.defaultdict(set)
    for stage, case in distinct(run.cells, "stage", "case"):
        cases[stage].add(case)
    imported = cases.get(Stage.IMPORT, set())
    for stage in (Stage.COMPILE, Stage.INTERPRET, Stage.CORRECTNESS, Stage.TIMING):
        without = sorted(imported - cases[stage]) if cases.get(stage) else []
        if without:
            why = "no points of theirs are for this stage and the targets that were asked for"
            yield Gap(what=f"{stage} of {listing(without, limit=6)}", why=why, where=run.host)


def _cells(run: RunFolder) -> Iterator[Gap]:
    grouped: dict[tuple[str, str, str], list[CellRecord]] = collections.defaultdict(list)
    for cell in chosen(run.cells, "outcome", _NOT_TESTED.__contains__):
        grouped[cell.stage, cell.outcome, cell.reason].append(cell)
    for (stage, outcome, reason), cells in grouped.items():
        targets = listing(map(place, by_target(cell.target for cell in cells)))
        why = reason or next((cell.detail for cell in cells if cell.detail), phrase(outcome))
        yield Gap(
            what=f"{phrase(outcome)}: {stage} on {targets}",
            why=_short(why),
            where=listing(unique(cell.environment for cell in cells)),
            cells=unique(cell.cell_id for cell in cells),
        )


def _short(text: str, limit: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}…"


def unfit(runs: Sequence[RunFolder]) -> list[Unfit]:
    """Configurations that do not fit: those that the compiler refused, and kernels over a target's limits."""
    grouped: dict[tuple[str, str], list[tuple[str, str, str]]] = collections.defaultdict(list)
    for run in runs:
        cells = chosen(run.cells, "outcome", lambda outcome: outcome == Outcome.DOES_NOT_FIT)
        refused = {cell.cell_id for cell in cells}
        for cell in cells:
            why = _short(cell.reason or cell.detail)
            grouped[cell.case, cell.params].append((cell.target, cell.environment, why))
        for record in chosen(run.kernels, "facts.occupancy_limit", lambda limit: limit == _DOES_NOT_FIT):
            if record.config or record.cell_id not in refused:
                why = f"{record.facts.shared_bytes:,} B of shared memory"
                grouped[record.case, record.config or record.params].append((record.target, record.environment, why))
    return [_unfit(case, config, seen) for (case, config), seen in grouped.items()]


def _unfit(case: str, config: str, seen: Sequence[tuple[str, str, str]]) -> Unfit:
    return Unfit(
        case=case,
        config=config,
        targets=by_target(target for target, _, _ in seen),
        environments=unique(environment for _, environment, _ in seen),
        why="; ".join(unique(why for _, _, why in seen if why)),
    )


def hazards(runs: Sequence[RunFolder]) -> list[Hazard]:
    grouped: dict[tuple[str, ...], list[tuple[RunFolder, KernelRecord, str]]] = collections.defaultdict(list)
    for run in runs:
        for record in chosen(run.kernels, "facts.hazards", lambda hazards: hazards not in ("[]", [])):
            for entry in record.facts.hazards:
                place = f"{entry.get('file') or record.source_file}:{entry.get('line', '?')}"
                key = (record.case, record.kernel, str(entry.get("kind", "hazard")), place)
                grouped[key].append((run, record, str(entry.get("detail", ""))))
    return [_hazard(key, seen) for key, seen in grouped.items()]


def _hazard(key: tuple[str, ...], seen: Sequence[tuple[RunFolder, KernelRecord, str]]) -> Hazard:
    case, kernel, kind, place = key
    run, record, detail = seen[0]
    return Hazard(
        case=case,
        kernel=kernel,
        kind=phrase(kind),
        place=place,
        code=_source_line(run, record, place.rpartition(":")[2]),
        detail=detail,
        targets=by_target(record.target for _, record, _ in seen),
        environments=unique(record.environment for _, record, _ in seen),
    )


def _source_line(run: RunFolder, record: KernelRecord, line: str) -> str:
    """The source text of the line, where the run stored it and the line lies in the kernel."""
    if not line.isdigit() or "source" not in record.artifacts:
        return ""
    try:
        text = run.artifact(record.artifacts["source"]).splitlines()
    except StorageError:
        return ""
    place = int(line) - record.source_line
    return text[place].strip() if 0 <= place < len(text) else ""
