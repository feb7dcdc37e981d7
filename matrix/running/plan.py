"""What is to run: case files, the cells they hold in each environment, and what will not run and why.

Pure but for looking for files: nothing here starts a process.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from matrix.errors import UsageError
from matrix.gpus.fuzz import FUZZ, replayed
from matrix.model import CPU, Cell, Outcome, Stage, format_params, safe, selects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

# The stages that a host without a GPU can run, and where: compile for every target, the others on the CPU.
HOST_STAGES = (Stage.IMPORT, Stage.COMPILE, Stage.INTERPRET)
GPU_STAGES = (Stage.CORRECTNESS, Stage.TIMING, Stage.COUNTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for, resolved: environment ids, targets, case files, globs."""

    baseline: str
    candidates: tuple[str, ...]
    targets: tuple[str, ...]
    case_files: tuple[Path, ...]
    cases: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = HOST_STAGES
    # Of the targets, those that this host has a GPU of: where correctness and timing run.
    gpu_targets: tuple[str, ...] = ()
    # Of a kernel that tunes itself, how many configurations are compiled; 0: all.
    configs: int = 0
    # Cases that files which were left out declare: what a glob that matches nothing may have meant.
    other_cases: tuple[str, ...] = ()

    @property
    def environments(self) -> tuple[str, ...]:
        return (self.baseline, *self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInfo:
    """One case as an environment's worker described it."""

    name: str
    path: Path
    points: Mapping[str, Sequence[Mapping[str, Any]]]
    targets: tuple[str, ...]
    triton: str
    tags: tuple[str, ...]
    expectations: tuple[Mapping[str, Any], ...]
    # What its import read: digests of its sources and data, and variables (None: there was none).
    files: Mapping[str, str]
    variables: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A case file in one environment: its cases, or why there are none."""

    environment: str
    path: Path
    outcome: str
    reason: str
    detail: str
    seconds: float
    cases: tuple[CaseInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """One cell at one stage. A given ``outcome`` means that nothing has to run to know it.

    ``limit_s`` is a time limit of its own, where the stage's is not its.
    """

    cell: Cell
    stage: Stage
    case: CaseInfo
    params: Mapping[str, Any]
    configs: int = 0
    limit_s: float | None = None
    outcome: str = ""
    reason: str = ""


def not_run(request: Request, where: str = "this host") -> list[dict[str, str]]:
    """The stages that a run of this request leaves out, wholly or for some targets, and why."""
    found = ((stage, _absence_of(stage, request, where)) for stage in Stage)
    rows = [{"what": str(stage), "why": why} for stage, why in found if why]
    if request.configs and Stage.COMPILE in request.stages:
        why = f"the first {request.configs} of each kernel that tunes itself were asked for"
        rows.append({"what": "further autotune configurations", "why": why})
    return rows


def _absence_of(stage: Stage, request: Request, where: str) -> str:
    if stage in GPU_STAGES and not request.gpu_targets:
        return f"{where} has no GPU of a target that was asked for"
    if stage not in request.stages:
        return "not among the stages asked for"
    without = [target for target in request.targets if target not in request.gpu_targets]
    return f"{where} has no GPU of {', '.join(without)}" if stage in GPU_STAGES and without else ""


def find_case_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Every case file under ``paths`` (files or folders), sorted; names with a leading ``_`` are helpers.

    Raises :class:`UsageError` naming every path that is not there.
    """
    found: dict[Path, None] = {}
    missing = []
    for path in paths:
        if path.is_dir():
            files = (f for f in sorted(path.rglob("*.py")) if not _is_helper(f.relative_to(path)))
            found.update(dict.fromkeys(file.resolve() for file in files))
        elif path.is_file():
            found[path.resolve()] = None
        else:
            missing.append(str(path))
    if missing:
        raise UsageError(f"no such case file or folder: {', '.join(missing)}", hint="see --kernels")
    return tuple(found)


def _is_helper(path: Path) -> bool:
    return path.name == "conftest.py" or any(part.startswith(("_", ".")) for part in path.parts)


def check_names(collected: Sequence[Collected]) -> None:
    """Raise :class:`UsageError` where cells could not be told apart by their ids, or where no file holds a case.

    Two cases of one name, in two files or in one; names and points that an id writes alike, since it holds no ``/``,
    ``:`` or space.
    """
    lines = list(dict.fromkeys([*_clashes(collected), *_alike_points(collected)]))
    if lines:
        raise UsageError("\n".join(lines), hint="rename one; of a built-in case, leave ours out with --no-builtin")
    if collected and not any(item.cases for item in collected) and all(i.outcome == Outcome.PASSED for i in collected):
        files = ", ".join(dict.fromkeys(str(item.path) for item in collected))
        raise UsageError(f"no case in {files}", hint="a case file assigns a Case, or a list of them, to a name")


def _clashes(collected: Iterable[Collected]) -> Iterator[str]:
    """A line for each set of cases of one environment that an id calls the same, and for each without a name."""
    owners: dict[tuple[str, str], list[tuple[str, Path]]] = {}
    for item in collected:
        for case in item.cases:
            owners.setdefault((item.environment, safe(case.name)), []).append((case.name, case.path))
    for (_, called), found in owners.items():
        if not called.strip("- "):
            yield f"a case in {found[0][1]} has no name that a cell id could hold: {found[0][0]!r}"
        elif len(found) > 1:
            told = " and ".join(f"case {name!r} in {path}" for name, path in found)
            yield f"{told}: cell ids would call both {called!r}"


def _alike_points(collected: Iterable[Collected]) -> Iterator[str]:
    for item in collected:
        for case in item.cases:
            seen: dict[str, Mapping[str, Any]] = {}
            for point in (point for points in case.points.values() for point in points):
                other = seen.setdefault(format_params(point), point)
                if other != point:
                    yield f"case {case.name!r} in {case.path}: points {dict(other)} and {dict(point)} have one cell id"


def selected_names(collected: Sequence[Collected], request: Request) -> set[str]:
    """The selected cases. Raises :class:`UsageError` for globs that match nothing.

    A case whose file imports nowhere cannot be matched by its name: why is said then, file by file.
    """
    names, idle = selected_cases(collected, request)
    if not idle:
        return names
    known = {case.name for item in collected for case in item.cases} | {*request.other_cases}
    silent = _imported_nowhere(collected)
    error = unmatched_error(idle, known)
    if near_names(idle, known) or not silent:
        raise error
    lines = [f"{error}, and no case is known of what could not be imported:", *silent]
    raise UsageError("\n".join(lines), hint="a file that is imported nowhere goes by its own name")


def unmatched_error(globs: Sequence[str], known: Collection[str]) -> UsageError:
    """The error of globs that match no cell, with the cases that may have been meant."""
    near = near_names(globs, known)
    told = f"cases are: {', '.join(sorted(known)[:12])}{' ...' if len(known) > 12 else ''}" if known else ""
    hint = f"did you mean {', '.join(near)}?" if near else told or "the case files hold no case"
    return UsageError(f"no case matches {', '.join(map(repr, globs))}", hint=hint)


def near_names(globs: Iterable[str], known: Collection[str]) -> list[str]:
    """Cases whose names are like the globs' parts that name cases, at most three a glob."""
    parts = (glob.rsplit("/", 1)[-1].partition(":")[0].strip("*") for glob in globs)
    return list(dict.fromkeys(name for part in parts for name in difflib.get_close_matches(part, sorted(known), n=3)))


def _imported_nowhere(collected: Iterable[Collected]) -> list[str]:
    """A line for each reason why files were imported in no environment, with the files."""
    items = list(collected)
    told = {item.path for item in items if item.outcome == Outcome.PASSED}
    files: dict[str, dict[str, None]] = {}
    for item in items:
        if item.path not in told:
            files.setdefault(item.reason, {})[item.path.name] = None
    return [f"  {', '.join(names)}: {reason}" for reason, names in files.items()]


def cells_of(
    environment: str, triton_version: str, collected: Iterable[Collected], request: Request
) -> Iterator[PlannedCell]:
    """The cells of one environment at the stages after import, in case file order."""
    for item in collected:
        for case in item.cases:
            for stage in _stages(request):
                for target in _targets(stage, request):
                    yield from _points(environment, triton_version, case, stage, target, request)


def _stages(request: Request) -> list[Stage]:
    """The stages asked for, and correctness before timing in any case."""
    wanted = {*request.stages, *((Stage.CORRECTNESS,) if Stage.TIMING in request.stages else ())}
    return [stage for stage in Stage if stage in wanted]


def _targets(stage: Stage, request: Request) -> Sequence[str]:
    """Where a stage runs. Counters follow from verdicts and are not planned."""
    match stage:
        case Stage.COMPILE:
            return request.targets
        case Stage.INTERPRET:
            return (CPU,)
        case Stage.CORRECTNESS | Stage.TIMING:
            return request.gpu_targets
        case Stage.IMPORT | Stage.COUNTERS:
            return ()
        case _:
            assert_never(stage)


def _points(
    environment: str, version: str, case: CaseInfo, stage: Stage, target: str, request: Request
) -> Iterator[PlannedCell]:
    why = _absence(case, version, target)
    for params in _points_of(case, stage, request):
        cell = Cell.of(environment, target, case.name, params)
        if selected(cell, request.cases):
            outcome = str(Outcome.UNSUPPORTED) if why else ""
            yield PlannedCell(
                cell=cell,
                stage=stage,
                case=case,
                params=params,
                # What is timed is what a tuner chooses among all.
                configs=request.configs if stage in (Stage.COMPILE, Stage.CORRECTNESS) else 0,
                outcome=outcome,
                reason=why,
            )


def _points_of(case: CaseInfo, stage: Stage, request: Request) -> list[Mapping[str, Any]]:
    """The case's points at a stage. What is timed must be right: correctness has the timing's points too."""
    own = list(case.points.get(stage, ())) if stage in request.stages else []
    if stage is Stage.CORRECTNESS and Stage.TIMING in request.stages:
        own += [point for point in case.points.get(Stage.TIMING, ()) if point not in own]
    return own + (_fuzzed(case, request.cases) if stage is Stage.CORRECTNESS else [])


def _fuzzed(case: CaseInfo, globs: Sequence[str]) -> list[Mapping[str, Any]]:
    """Fuzzed points that were asked for by their cell ids, to be replayed."""
    ids = [glob.rsplit("/", 1)[-1].partition(":") for glob in globs if f"{FUZZ}=" in glob]
    found = (replayed(params, case.points.get(Stage.CORRECTNESS, ())) for name, _, params in ids if name == case.name)
    return [point for point in found if point]


def _absence(case: CaseInfo, version: str, target: str) -> str:
    """Why the case does not exist here; empty where it does."""
    if case.targets and target != CPU and target not in case.targets:
        return f"the case is for {', '.join(case.targets)}"
    if case.triton and not _satisfies(version, case.triton):
        return f"the case is for Triton {case.triton}"
    return ""


def _satisfies(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def selected(cell: Cell, globs: Sequence[str]) -> bool:
    """Whether any glob selects the cell; no globs select all."""
    return not globs or selects(globs, cell.id, cell.case)


def selected_cases(collected: Iterable[Collected], request: Request) -> tuple[set[str], list[str]]:
    """Names of the cases of which at least one cell is selected, whatever its stage; and the globs that select none.

    A file that imported nowhere has told no names: it goes by its own.
    """
    items = list(collected)
    told = {item.path for item in items if item.cases}
    names: set[str] = set()
    idle = dict.fromkeys(request.cases)
    for cell in (cell for item in items for cell in _cells_known_by(item, told, request)):
        if cell.case not in names and selected(cell, request.cases):
            names.add(cell.case)
        for glob in [glob for glob in idle if selected(cell, (glob,))]:
            del idle[glob]
    return names, list(idle)


def _cells_known_by(item: Collected, told: Collection[Path], request: Request) -> Iterator[Cell]:
    if item.path not in told:
        yield Cell.of(item.environment, CPU, item.path.stem, {})
    for case in item.cases:
        yield from _all_cells(item.environment, case, request)


def _all_cells(environment: str, case: CaseInfo, request: Request) -> Iterator[Cell]:
    yield Cell.of(environment, CPU, case.name, {})
    for points in (*case.points.values(), _fuzzed(case, request.cases)):
        for params in points:
            for target in (CPU, *request.targets):
                yield Cell.of(environment, target, case.name, params)
