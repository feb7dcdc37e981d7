"""Bisection over releases: from a red cell to the first release that has it, and to whose change it is.

Rows that the run has recorded are taken as they are; other releases are measured, in environments built as needed.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from matrix.causes.walk import Attempt, Path, Side, Step, is_open, is_steady, side_of, walk
from matrix.errors import UsageError
from matrix.explaining.chains import as_dict, chains_of
from matrix.model import Stage, safe
from matrix.settings.environments import releases
from matrix.storage.atomic import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.causes.probe import Laboratory
    from matrix.causes.redcell import RedCell
    from matrix.explaining.chain import Chain
    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder

FOLDER = "bisections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a walk found. ``run`` and ``verdict`` are those that compare the first bad release with a good one."""

    red: RedCell
    path: Path
    run: RunFolder
    verdict: VerdictRecord
    file: FilePath

    @property
    def chain(self) -> Chain:
        return chains_of(self.run).of(self.verdict, self.verdict.kernel)

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        steps = [{"side": str(step.side), "flaky": step.flaky, **dataclasses.asdict(step)} for step in self.path.steps]
        return {
            "schema": 1,
            "run_id": self.red.run.run_id,
            "cell": self.red.place,
            "stage": str(self.red.stage),
            "reason_code": self.red.verdict.reason_code,
            "releases": list(self.path.releases),
            "steps": steps,
            "last_good": self.path.last_good,
            "first_bad": self.path.first_bad,
            "skipped": list(self.path.skipped),
            "compared_in": self.run.run_id,
            "change": self.verdict.change,
            "chain": as_dict(self.chain),
        }


def bisect(red: RedCell, lab: Laboratory) -> Bisection:
    """Walk from the cell's good release to its bad one, and keep the path with the run.

    Raises :class:`UsageError` where the two are no releases that the configuration knows.
    """
    good, bad = red.version(red.verdict.baseline), red.version(red.verdict.candidate)
    path = walk(between(_known(lab), good, bad), lambda version: _step(red, lab, version))
    run, verdict = _compared(red, lab, path)
    file = kept_at(lab, red)
    found = Bisection(red=red, path=path, run=run, verdict=verdict, file=file)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(found.data(), indent=1, default=str).encode())
    return found


def kept_at(lab: Laboratory, red: RedCell) -> FilePath:
    """Beside the runs, by run and cell: a run's own folder is sealed."""
    return lab.home.path / FOLDER / red.run.run_id / f"{safe(red.place)}-{red.stage}.json"


def between(known: Sequence[str], good: str, bad: str) -> list[str]:
    """The releases from the good end to the bad one, in whichever direction. Raises :class:`UsageError`."""
    if missing := [version for version in (good, bad) if version not in known]:
        hint = f"releases are: {', '.join(known)}"
        raise UsageError(f"not a release that can be walked: {', '.join(missing)}", hint=hint)
    first, last = known.index(good), known.index(bad)
    return list(known[first : last + 1]) if first <= last else list(reversed(known[last : first + 1]))


def bisection_text(found: Bisection, reproducer: str = "") -> str:
    """The walk for a terminal, and how to go on from release to commit."""
    path, red = found.path, found.red
    lines = [f"{red.place}, {red.stage}: {red.verdict.change}", ""]
    lines += [f"{path.releases[0]:<10} good     the good end", f"{path.releases[-1]:<10} bad      the bad end"]
    for step in path.steps:
        where = "recorded" if step.attempts[0].recorded else f"{len(step.attempts)} x measured"
        flaky = ", flaky" if step.flaky else ""
        lines.append(f"{step.version:<10} {step.side:<8} {where}{flaky}: {step.attempts[-1].said}")
    lines += ["", f"first bad release: {path.first_bad}; last good one: {path.last_good}"]
    if path.skipped:
        lines.append(f"not known of {', '.join(path.skipped)}: the change may have come with any of them")
    chain = found.chain
    if chain.said:
        lines += [chain.said, f"  {chain.why}".rstrip()]
    lines += ["", *handed_on(path, reproducer or "repro.py"), "", f"the path is kept in {found.file}"]
    return "\n".join(lines) + "\n"


def handed_on(path: Path, reproducer: str) -> list[str]:
    """The commands of a bisection by commits. Triton tags its releases ``v3.6.0``."""
    command = ["tritonparseoss", "bisect", "--triton-dir", "triton", "--test-script", reproducer]
    command += ["--good", f"v{path.last_good}", "--bad", f"v{path.first_bad}"]
    turned = _order(path.last_good) > _order(path.first_bad)
    lines = [
        "To the commit, with tritonparse (https://github.com/meta-pytorch/tritonparse), in an environment of its own,",
        "and the file that `triton-matrix repro` writes of this cell:",
        "  git clone https://github.com/triton-lang/triton && pip install tritonparse",
        f"  {shlex.join(command)}",
    ]
    if turned:
        lines.append("  The good release is the newer one: what is looked for is the repair, so swap --good and --bad,")
        lines.append("  and let the script end the other way round (`! python ...`).")
    return lines


def _known(lab: Laboratory) -> list[str]:
    return [each.triton_version for each in releases(lab.configuration.environments)]


def _step(red: RedCell, lab: Laboratory, version: str) -> Step:
    recorded = row_of(red.run, red, version)
    if recorded is not None:
        side, said = side_of(recorded, red.verdict)
        if side is not Side.UNKNOWN or not can_measure(red, lab):
            return Step(
                version=version, attempts=(Attempt(side=side, said=said, run_id=red.run.run_id, recorded=True),)
            )
    if not can_measure(red, lab):
        said = f"not recorded, and no GPU of {red.verdict.target} here"
        return Step(version=version, attempts=(Attempt(side=Side.UNKNOWN, said=said, run_id=""),))
    attempts: list[Attempt] = []
    steady = False
    while is_open(attempts, steady=steady):
        run = measured(red, lab, red.version(red.verdict.baseline), [version])
        side, said = side_of(row_of(run, red, version), red.verdict)
        steady = is_steady(red.stage, (cell.outcome for cell in run.cells))
        attempts.append(Attempt(side=side, said=said, run_id=run.run_id))
    return Step(version=version, attempts=tuple(attempts))


def can_measure(red: RedCell, lab: Laboratory) -> bool:
    """Times and values of a target need a GPU of it."""
    on_gpu = red.stage in (Stage.CORRECTNESS, Stage.TIMING, Stage.COUNTERS)
    return not on_gpu or red.verdict.target in lab.gpu_host.targets


def row_of(run: RunFolder, red: RedCell, version: str, *, good: str = "") -> VerdictRecord | None:
    """The verdict on a release against the good end (or ``good``), of the same cell at the same stage."""
    names = run.environments
    wanted = (red.verdict.target, red.verdict.case, red.verdict.params, red.verdict.stage)
    pair = [good or red.version(red.verdict.baseline), version]
    for row in run.verdicts:
        versions = [str(names.get(name, {}).get("triton", "")) for name in (row.baseline, row.candidate)]
        if (row.target, row.case, row.params, row.stage) == wanted and versions == pair:
            return row
    return None


def measured(red: RedCell, lab: Laboratory, good: str, bad: Sequence[str], *, cross_ptxas: bool = False) -> RunFolder:
    """A run of the cell in these releases alone, up to its stage."""
    names = [lab.standing_for(version, red.run).id for version in (good, *bad)]
    stages = (Stage.CORRECTNESS, Stage.TIMING) if red.stage is Stage.TIMING else (red.stage,)
    wanted = tuple(dict.fromkeys((Stage.IMPORT, Stage.COMPILE, *stages)))
    return lab.probe(red.place, [red.file()], names[0], names[1:], stages=wanted, cross_ptxas=cross_ptxas)


def _compared(red: RedCell, lab: Laboratory, path: Path) -> tuple[RunFolder, VerdictRecord]:
    """The last good release against the first bad one: nothing else is between them, so that the chain is theirs.

    Code is compiled once more in any case, so that each side's PTX can be assembled with the other's ptxas.
    """
    recorded = row_of(red.run, red, path.first_bad)
    if red.stage is not Stage.COMPILE and recorded and path.last_good == red.version(red.verdict.baseline):
        return red.run, recorded
    if can_measure(red, lab):
        run = measured(red, lab, path.last_good, [path.first_bad], cross_ptxas=red.stage is Stage.COMPILE)
        if row := row_of(run, red, path.first_bad, good=path.last_good):
            return run, row
    return red.run, recorded or red.verdict


def _order(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")
