"""A red cell as one Python file that needs torch and triton alone, run on both sides before it is handed over."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.causes.bisection import can_measure
from matrix.causes.draft import LIMIT_S, Draft, Seen, uv_line
from matrix.causes.redcell import reasons
from matrix.errors import EnvironmentBuildError, StorageError, UsageError
from matrix.judging.cellnames import plain_params
from matrix.judging.changes import CodeReason
from matrix.model import Stage, format_params
from matrix.provisioning.provision import provide
from matrix.records import Verdict
from matrix.running.execute import bench_for, collect
from matrix.running.host import this_host
from matrix.running.workers import homes_of, memory_share
from matrix.settings.environments import child_environment
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.causes.probe import Laboratory
    from matrix.causes.redcell import RedCell
    from matrix.provisioning.manifests import BuiltEnvironment
    from matrix.settings.environments import Environment

_MARK = "figures: "
_TWICE = 2  # each side is run so often: what shows once and not again shows nothing
# By which figures a reason shows, the first that differs decides. A reason that is not here shows by its outcome.
_EXCHANGES = ("shared_stores", "shared_loads", "shuffles", "barriers")
_FIGURES: Mapping[str, tuple[str, ...]] = {
    CodeReason.SPILLS_APPEARED: ("stack_bytes",),
    CodeReason.SPILLS_GREW: ("stack_bytes",),
    CodeReason.OCCUPANCY_LOST: ("registers", "shared_bytes", "num_warps"),
    CodeReason.VECTOR_WIDTH_LOST: ("global_load_bits", "global_store_bits"),
    CodeReason.MATRIX_CLASS_LOST: ("matrix_instructions",),
    CodeReason.MATRIX_TYPE_WIDENED: ("matrix_instructions",),
    CodeReason.SHARED_TRAFFIC_MULTIPLIED: _EXCHANGES,
    CodeReason.EXCHANGE_MULTIPLIED: _EXCHANGES,
    CodeReason.GLOBAL_TRAFFIC_MULTIPLIED: ("global_load_bits", "global_store_bits"),
    CodeReason.EXECUTION_MULTIPLIED: ("ptx_instructions",),
    CodeReason.ASYNC_COPIES_LOST: ("async_copies",),
    CodeReason.CONTRACTION_LOST: ("fma",),
    CodeReason.SHARED_MEMORY: ("shared_bytes",),
    CodeReason.CODE_SIZE_MULTIPLIED: ("code_bytes",),
    CodeReason.KERNEL_DOES_NOT_FIT: ("outcome",),
    CodeReason.HAZARD_APPEARED: (),
    CodeReason.COMPILE_TIME_MULTIPLIED: (),
}
_TIME = "median_us"


class NotShown(UsageError):
    """The reproducer was run on both sides and does not tell them apart: it is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One environment with what the file showed in it."""

    environment: Environment
    built: BuiltEnvironment
    figures: Mapping[str, Any]

    @property
    def command(self) -> str:
        return uv_line(self.environment)

    @property
    def ran(self) -> str:
        """What it was run with here, which on a host without a GPU is not the pair's own torch."""
        return f"Triton {self.built.triton} with torch {self.built.torch_build}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducer:
    """The text as it was last run, and what it showed. ``decides`` is the figure by which the sides differ."""

    path: Path
    text: str
    good: Side
    bad: Side
    stage: Stage
    decides: str

    @property
    def differing(self) -> dict[str, tuple[Any, Any]]:
        """Every figure that is another on the bad side."""
        before, after = self.good.figures, self.bad.figures
        names = [name for name in {**before, **after} if name not in ("triton", "torch")]
        return {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}


def reproduce(red: RedCell, lab: Laboratory, path: Path) -> Reproducer:
    """Make the file, run it on both sides, and write it where it shows the difference.

    Raises :class:`NotShown` where it does not, :class:`UsageError` where the case needs more than torch and triton.
    """
    stage = _stage(red, lab)
    compared = (red.verdict.baseline, red.verdict.candidate)
    good, bad = (lab.standing_for(red.version(name), red.run) for name in compared)
    sides, params = _prepared(red, lab, good, bad)
    draft = Draft(red=red, stage=stage, params=params, path=path, good=good, bad=bad)
    seen = [replace(side, figures=_run(side, draft.text(), lab, path)) for side in sides]
    decides = _deciding(red, stage, seen[0].figures, seen[1].figures, lab.configuration.thresholds.slower_ratio)
    shown = Reproducer(path=path, text="", good=seen[0], bad=seen[1], stage=stage, decides=decides)
    values = [side.figures[decides] for side in seen]
    text = draft.text(Seen(decides=decides, good=values[0], bad=values[1], said=_said(red, shown)))
    for _ in range(_TWICE - 1):
        _confirm(shown, text, lab)
    write_atomically(path, text.encode())
    return replace(shown, text=text)


def _prepared(
    red: RedCell, lab: Laboratory, good: Environment, bad: Environment
) -> tuple[list[Side], Mapping[str, Any]]:
    """Both sides, built, and the point's params with their types, which a cell id does not keep."""
    provisions = provide([good.id, bad.id], lab.configuration, lab.home.root, lab.board)
    sides = []
    for environment in (good, bad):
        found = provisions[environment.id]
        if found.built is None:
            raise EnvironmentBuildError(environment.id, found.problem or "it could not be built")
        sides.append(Side(environment=environment, built=found.built, figures={}))
    file = red.file()
    with lab.home.scratch() as scratch:
        bench = bench_for(lab.configuration, lab.home, scratch, jobs=lab.jobs, board=lab.board)
        homes = homes_of(provisions, lab.configuration.pythonpath, scratch, memory_share(this_host(), lab.jobs))
        locks = {name: each.built.digest for name, each in provisions.items() if each.built}
        wanted = plain_params(red.verdict.params)
        for environment in (good, bad):  # the first in which the file can be imported tells
            collected = collect(bench, {environment.id: homes[environment.id]}, locks, [file], lambda: None)
            points = [point for item in collected for case in item.cases if case.name == red.verdict.case
                      for some in case.points.values() for point in some]  # fmt: skip
            params = next((point for point in points if format_params(point) == wanted), None)
            if params is not None or not wanted:
                return sides, params or {}
    raise UsageError(f"{file} has no point {wanted} any more", hint="run the case again")


def _stage(red: RedCell, lab: Laboratory) -> Stage:
    """Where the difference is to be seen here: without a GPU it may still show in the code, or in that there is none.

    Raises :class:`NotShown` where only a GPU shows it and there is none, with what is needed then.
    """
    if can_measure(red, lab):
        return red.stage
    slower, compiled = red.stage is Stage.TIMING, [row for row in red.others if row.stage == Stage.COMPILE]
    if any(reasons(row) if slower else row.verdict is Verdict.REGRESSED for row in compiled):
        return Stage.COMPILE
    releases = (red.version(name) for name in (red.verdict.baseline, red.verdict.candidate))
    command = "triton-matrix repro {} --good {} --bad {}".format(shlex.quote(red.place), *releases)
    raise NotShown(
        f"a reproducer of {red.place} does not show the difference ({red.verdict.reason_code}) here: nothing got worse "
        f"in its code, and this host has no GPU of {red.verdict.target}",
        hint=f"on a host that has one: {command}",
    )


def _said(red: RedCell, shown: Reproducer) -> str:
    lines = [f"Run with {shown.good.ran} and with {shown.bad.ran}:"]
    lines += [f"    {name:<22}{before!s:<20} {after}" for name, (before, after) in shown.differing.items()]
    if shown.stage is not red.stage:
        where = f"run {red.run.run_id} on {red.run.host}"
        lines.append(
            f"The time itself was taken in {where}, and not by this file: here there is no GPU of {red.verdict.target}."
        )
        lines.append("Where there is one, it launches the kernel, checks its values and times it.")
    return "\n".join(lines)


def _run(side: Side, text: str, lab: Laboratory, path: Path) -> dict[str, Any]:
    """The figures that the file prints in the environment. Raises :class:`StorageError` where it prints none."""
    figures, _ = _executed(side, text, lab, path)
    return figures


def _executed(side: Side, text: str, lab: Laboratory, path: Path) -> tuple[dict[str, Any], int]:
    with lab.home.scratch() as scratch:
        file = scratch / path.name
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [str(side.built.interpreter), "-P", str(file)],
            env=child_environment(side.environment),
            cwd=scratch,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2 * LIMIT_S,
            check=False,
        )
    found = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not found:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise StorageError(f"the reproducer told no figures in {side.environment.id}: {said}", hint="a fault of ours")
    figures: dict[str, Any] = json.loads(found[-1].removeprefix(_MARK))
    return figures, done.returncode


def _deciding(red: RedCell, stage: Stage, good: Mapping[str, Any], bad: Mapping[str, Any], slower_ratio: float) -> str:
    """The figure by which the two sides differ. Raises :class:`NotShown`."""
    verdicts = [row for row in (red.verdict, *red.others) if row.stage == stage]
    codes = {code: None for row in verdicts for code in (row.reason_code, *sorted(reasons(row)))}
    names = [_TIME] if stage is Stage.TIMING else [n for code in codes for n in _FIGURES.get(code, ("outcome", "said"))]
    for name in names:
        before, after = good.get(name), bad.get(name)
        if before is None or after is None or before == after:
            continue
        if name != _TIME or after / before >= slower_ratio:
            return name
    seen = {name: (good.get(name), bad.get(name)) for name in (names or ["outcome"])}
    told = "; ".join(f"{name} {before} and {after}" for name, (before, after) in seen.items())
    hint = "a GPU of the target may show it" if stage is not Stage.INTERPRET else "see `triton-matrix show`"
    raise NotShown(
        f"the reproducer of {red.place} does not show the difference ({', '.join(codes)}): {told}", hint=hint
    )


def _confirm(shown: Reproducer, text: str, lab: Laboratory) -> None:
    """Run the file as it is to be handed over: each side must end with its own exit status."""
    for side, wanted in ((shown.good, 0), (shown.bad, 1)):
        figures, code = _executed(side, text, lab, shown.path)
        if code != wanted:
            told = f"{shown.decides} {side.figures.get(shown.decides)}, then {figures.get(shown.decides)}"
            raise NotShown(f"the reproducer is not steady in {side.environment.id}: {told}", hint="run it again")
