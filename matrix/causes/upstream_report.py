"""A red cell as Markdown for Triton's tracker: releases, figures with their spread, environment, reproducer, chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.causes.bisection import can_measure, measured, row_of
from matrix.causes.draft import templates
from matrix.causes.walk import Side, side_of
from matrix.explaining.chains import chains_of
from matrix.settings.environments import releases
from matrix.wording import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.causes.probe import Laboratory
    from matrix.causes.redcell import RedCell
    from matrix.causes.reproducer import Reproducer
    from matrix.records import ArmRecord
    from matrix.settings.environments import Environment
    from matrix.storage.runfolder import RunFolder

_NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One line of the versions table. ``time`` is the median call with its 20th and 80th percentile."""

    version: str
    torch: str
    side: str
    said: str
    time: str = ""
    source: str = ""


def issue_markdown(red: RedCell, made: Reproducer, lab: Laboratory) -> str:
    """The report. Every release that the configuration knows has a line: recorded, measured now, or not measured."""
    rows = list(_releases(red, _missing_measured(red, lab), lab))
    template = templates().get_template("issue.md.jinja")
    return template.render(
        title=_title(red, rows),
        red=red,
        good=red.version(red.verdict.baseline),
        bad=red.version(red.verdict.candidate),
        releases=rows,
        timed=any(row.time for row in rows),
        figures=made.differing,
        made=made,
        chain=chains_of(red.run).of(red.verdict, red.verdict.kernel),
        environment=list(_environment(red)),
    )


def _title(red: RedCell, rows: Sequence[Release]) -> str:
    what = f"{red.verdict.case}: {red.verdict.reason_code.replace('_', ' ')}"
    return f"{what} since {since(red, rows)} on {red.verdict.target or 'cpu'}"


def since(red: RedCell, rows: Sequence[Release]) -> str:
    """The first release of those that are bad up to the bad end without one between them that is not."""
    versions = [row.version for row in rows]
    good, bad = red.version(red.verdict.baseline), red.version(red.verdict.candidate)
    if good not in versions or bad not in versions or versions.index(good) > versions.index(bad):
        return bad
    first = bad
    for row in reversed(rows[versions.index(good) + 1 : versions.index(bad)]):
        if row.side != Side.BAD:
            break
        first = row.version
    return first


def _missing_measured(red: RedCell, lab: Laboratory) -> RunFolder | None:
    """A run of the releases that the cell's own run does not compare; None where there are none or no way to."""
    known = [each.triton_version for each in releases(lab.configuration.environments)]
    good = red.version(red.verdict.baseline)
    missing = [version for version in known if version != good and row_of(red.run, red, version) is None]
    return measured(red, lab, good, missing) if missing and can_measure(red, lab) else None


def _releases(red: RedCell, more: RunFolder | None, lab: Laboratory) -> Iterator[Release]:
    good = red.version(red.verdict.baseline)
    for declared in releases(lab.configuration.environments):
        version = declared.triton_version
        if version == good:
            arm = _arm(red.run, red.verdict.baseline, red)
            yield Release(
                version=version,
                torch=_torch(red.run, red.verdict.baseline, declared),
                side=str(Side.GOOD),
                said="compared with",
                time=_time(arm),
                source=red.run.run_id,
            )
            continue
        found = ((run, row_of(run, red, version)) for run in (red.run, more) if run is not None)
        run, row = next(((run, row) for run, row in found if row is not None), (None, None))
        if run is None or row is None:
            yield Release(version=version, torch=declared.torch_version, side=_NOT_MEASURED, said="")
            continue
        side, said = side_of(row, red.verdict)
        yield Release(
            version=version,
            torch=_torch(run, row.candidate, declared),
            side=str(side),
            said=said,
            time=_time(_arm(run, row.candidate, red)),
            source=run.run_id,
        )


def _torch(run: RunFolder, name: str, declared: Environment) -> str:
    return str(run.environments.get(name, {}).get("torch_build") or declared.torch_version)


def _arm(run: RunFolder, name: str, red: RedCell) -> ArmRecord | None:
    verdict = red.verdict
    return next(
        (
            arm
            for arm in run.timings
            if (arm.environment, arm.target, arm.case, arm.params)
            == (name, verdict.target, verdict.case, verdict.params)
            and str(arm.role) != "control"
        ),
        None,
    )


def _time(arm: ArmRecord | None) -> str:
    if arm is None or arm.median_us is None:
        return ""
    spread = f" ({microseconds(arm.p20_us)} to {microseconds(arm.p80_us)})" if arm.p20_us and arm.p80_us else ""
    return f"{microseconds(arm.median_us)}{spread}"


def _environment(red: RedCell) -> Iterator[tuple[str, str]]:
    """What the figures were taken on, as the run recorded it."""
    host = dict(red.run.meta.get("host") or {})
    yield "system", str(host.get("system", ""))
    yield "processor", str(host.get("processor", ""))
    if host.get("python"):
        yield "Python", str(host["python"])
    for gpu in red.run.meta.get("gpus") or ():
        if gpu.get("target") == red.verdict.target:
            yield "GPU", f"{gpu.get('name')}, driver {gpu.get('driver')}, {gpu.get('power_limit_w')} W"
    for role, name in (("good", red.verdict.baseline), ("bad", red.verdict.candidate)):
        entry = red.run.environments.get(name, {})
        yield role, f"Triton {entry.get('triton')}, torch {entry.get('torch_build')}, NumPy {entry.get('numpy')}"
    ptxas = _ptxas(red.run.kernels, red)
    if ptxas:
        yield "ptxas", ", ".join(ptxas)


def _ptxas(kernels: Sequence[Any], red: RedCell) -> list[str]:
    sides = (red.verdict.baseline, red.verdict.candidate)
    found = {
        name: one.ptxas_version
        for name in sides
        for one in kernels
        if one.environment == name and one.target == red.verdict.target
    }
    return [f"{found[name]} ({role})" for role, name in zip(("good", "bad"), sides, strict=True) if found.get(name)]
