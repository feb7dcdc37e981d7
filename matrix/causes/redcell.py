"""The red cell that somebody asks about: found in a run, with the two environments that tell it apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.judging.changes import Direction, decode
from matrix.judging.findings import REGRESSIONS
from matrix.model import Stage, selects
from matrix.records import Verdict
from matrix.resources import kernels_folder
from matrix.settings.environments import releases

if TYPE_CHECKING:
    from matrix.records import VerdictRecord
    from matrix.settings.config import Configuration
    from matrix.settings.environments import Environment
    from matrix.storage.runfolder import RunFolder

_GRAVEST = (Verdict.REGRESSED, Verdict.CODE_RISK, Verdict.MIXED, Verdict.KNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedCell:
    """One verdict that says worse, of the run that has it. ``others`` are the same cell's verdicts at other stages."""

    verdict: VerdictRecord
    others: tuple[VerdictRecord, ...]
    run: RunFolder

    @property
    def point(self) -> str:
        return f"{self.verdict.case}:{self.verdict.params}" if self.verdict.params else self.verdict.case

    @property
    def stage(self) -> Stage:
        return Stage(self.verdict.stage)

    @property
    def place(self) -> str:
        """``sm_90/softmax:rows=8``: the cell without its environment."""
        return f"{self.verdict.target}/{self.point}" if self.verdict.target else self.point

    def version(self, environment: str) -> str:
        """The Triton of an environment of the run; its id where the run does not tell."""
        return str(self.run.environments.get(environment, {}).get("triton") or environment)

    def file(self) -> Path:
        """The case's file: where it lay when the run was made, or ours of that name. Raises :class:`UsageError`."""
        entry = next((each for each in self.run.meta["cases"] if each["name"] == self.verdict.case), None)
        told = Path(str(entry["file"])) if entry else Path(f"{self.verdict.case}.py")
        below = Path(*told.parts[1:]) if told.parts[:1] == ("kernels",) else Path(told.name)
        for path in (told, kernels_folder() / below):
            if path.is_file():
                return path.resolve()
        raise UsageError(f"the file of case {self.verdict.case} is not at {told}", hint="run it here first")


def matches(row: VerdictRecord, cell: str) -> bool:
    """Whether ``cell`` (an id, its end, or a glob) names the row's cell in either environment, or in none."""
    place = f"{row.target}/{row.case}:{row.params}".removesuffix(":").removeprefix("/")
    ids = [name for name in (row.candidate_cell_id, row.baseline_cell_id, f"{row.candidate}/{place}") if name]
    return any(name.endswith(f"/{cell}") or selects((cell,), name, row.case) for name in ids)


def is_worse(row: VerdictRecord) -> bool:
    """Red, or red but for being foreseen."""
    if row.verdict in REGRESSIONS:
        return True
    return row.verdict is Verdict.KNOWN and any(each.direction is Direction.WORSE for each in decode(row.detail))


def reasons(row: VerdictRecord) -> frozenset[str]:
    """Everything that got worse in a cell, by reason code."""
    told = {each.reason_code for each in decode(row.detail) if each.direction is Direction.WORSE}
    return frozenset(told or ({row.reason_code} if is_worse(row) else ()))


def require_two(good: str, bad: str, run: RunFolder | None, configuration: Configuration) -> None:
    """Raise :class:`UsageError` where an end that was named is no environment at all, or both are one release."""
    ends = [_release(name, run, configuration) for name in (good, bad) if name]
    if len(ends) > 1 and (good == bad or ends[0] == ends[1] != ""):
        known = ", ".join(each.triton_version for each in releases(configuration.environments))
        raise UsageError(f"--good and --bad are both Triton {ends[0] or good}", hint=f"name two releases of: {known}")


def _release(name: str, run: RunFolder | None, configuration: Configuration) -> str:
    """The Triton of an environment that the run holds or that the configuration knows; empty where nobody tells."""
    recorded = {key: str(entry.get("triton", "")) for key, entry in (run.environments if run else {}).items()}
    if name in recorded or name in recorded.values():
        return recorded.get(name, name)
    return configuration.environment(name).triton_version


def holds(run: RunFolder, cell: str, *, good: str, bad: str) -> bool:
    """Whether the run compares the cell between these two."""
    return any(row.case and matches(row, cell) and _between(run, row, good, bad) for row in run.verdicts)


def find(run: RunFolder, cell: str, *, good: str = "", bad: str = "") -> RedCell:
    """The worst verdict of the cell, between these two releases where they are named.

    Raises :class:`UsageError` where the run has no such cell, several, or where nothing got worse in it.
    """
    known = [row for row in run.verdicts if row.case and matches(row, cell)]
    if not known:
        raise UsageError(f"no cell of run {run.run_id} matches {cell!r}", hint="see `triton-matrix show`")
    rows = [row for row in known if _between(run, row, good, bad)]
    red = sorted((row for row in rows if is_worse(row)), key=_gravity)
    if not red:
        pairs = sorted({f"{row.baseline} and {row.candidate}" for row in known})
        told = f"between {good or 'its baseline'} and {bad or 'its candidates'}"
        raise UsageError(
            f"nothing got worse in {cell!r} {told}",
            hint=f"run {run.run_id} compares {'; '.join(pairs)}",
        )
    places = sorted({(row.target, row.case, row.params) for row in red if row.stage != Stage.IMPORT})
    if len(places) > 1:
        listed = "; ".join(f"{target}/{case}:{params}".removesuffix(":") for target, case, params in places[:6])
        raise UsageError(f"{cell!r} names {len(places)} cells in which something got worse", hint=f"name one: {listed}")
    first = red[0]
    same = (first.candidate, first.case, first.params)
    others = [row for row in rows if row is not first and (row.candidate, row.case, row.params) == same]
    return RedCell(verdict=first, others=tuple(others), run=run)


def stock(configuration: Configuration, version: str) -> Environment:
    """The environment that stands for a release: its stock pair, else what the configuration calls so."""
    found = next((each for each in releases(configuration.environments) if each.triton_version == version), None)
    return found or configuration.environment(version)


def _between(run: RunFolder, row: VerdictRecord, good: str, bad: str) -> bool:
    names = run.environments
    sides = ((good, row.baseline), (bad, row.candidate))
    return all(not told or told in {name, names.get(name, {}).get("triton")} for told, name in sides)


def _gravity(row: VerdictRecord) -> tuple[int, int]:
    return _GRAVEST.index(row.verdict), -row.severity
