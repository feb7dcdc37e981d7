"""Shards: one matrix from runs of several hosts, each for its own GPUs, in a folder or an object store that they share.

Nothing is averaged: what two runs measured of one cell stands side by side, and what differs between hosts is said.
"""

from __future__ import annotations

import collections
import json
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs

from matrix.errors import ExitCode, StorageError, UsageError
from matrix.judging.decision import exit_code
from matrix.judging.findings import REGRESSIONS
from matrix.model import CPU, Stage
from matrix.running.coverage import coverage_of
from matrix.running.plan import GPU_STAGES
from matrix.running.profiles import UNJUDGED
from matrix.storage.addresses import HINT, public, reach
from matrix.storage.runfolder import shortfall
from matrix.storage.seal import NAME as SEAL
from matrix.storage.seal import faults, read_seal
from matrix.wording import by_target, listing, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder

_META = "run.json"
_LISTED = 40
_GPU_KEYS = {
    "name": "GPU",
    "driver": "driver",
    "power_limit_w": "power limit, W",
    "largest_sm_mhz": "largest SM clock, MHz",
    "memory_bytes": "GPU memory, B",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One thing about each host; ``of`` the same target, since other architectures differ by design."""

    name: str
    target: str
    values: Mapping[str, str]  # by host

    @property
    def differs(self) -> bool:
        return len(set(self.values.values())) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """One cell at one stage that several runs judged, with what each found."""

    cell: str
    stage: str
    found: Mapping[str, str]  # by run

    @property
    def agree(self) -> bool:
        return len({text.partition(":")[0] for text in self.found.values()}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """What is to be said of several runs laid into one matrix."""

    hosts: Mapping[str, str]  # run by run: its host
    requests: Sequence[str]  # how they are not runs of one request
    properties: Sequence[Property]
    twice: Sequence[Twice]
    cut_short: Mapping[str, str]  # run by run, where it did not come to its end: in words
    missing: Sequence[str]  # targets that were asked for and had no GPU in any run
    lacking: Mapping[tuple[str, str], Sequence[str]]  # by target and stage: cells that no run judged there

    @property
    def disagreeing(self) -> Sequence[Twice]:
        return [each for each in self.twice if not each.agree]

    @property
    def listed(self) -> Sequence[Twice]:
        """Those that a reader must see: what was taken on GPUs, and what is not the same in both."""
        on_gpu = [each for each in self.twice if each.agree and each.stage in map(str, GPU_STAGES)]
        return [*self.disagreeing, *on_gpu][:_LISTED]


def shards_of(runs: Sequence[RunFolder]) -> Shards:
    """Of runs as they were loaded; for one run there is nothing to be said."""
    return Shards(
        hosts={run.run_id: run.host for run in runs},
        requests=list(_requests(runs)),
        properties=list(_properties(runs)),
        twice=list(_twice(runs)),
        cut_short={run.run_id: run.shortfall for run in runs if run.shortfall},
        missing=missing_targets(runs),
        lacking=coverage_of(runs).by_target,
    )


def missing_targets(runs: Sequence[RunFolder]) -> list[str]:
    """Targets of the requests that no GPU stage reached, where GPU stages were asked for at all."""
    gpu_stages = {str(stage) for stage in (Stage.CORRECTNESS, Stage.TIMING)}
    asked = {
        str(target)
        for run in runs
        if gpu_stages & set(run.meta["request"].get("stages", ()))
        for target in run.meta["request"].get("targets", ())
    }
    wanted = {row.target for run in runs for row in run.verdicts if row.reason_code == UNJUDGED}
    reached = {row.target for run in runs for row in run.verdicts if row.stage in gpu_stages and row.case}
    return by_target((asked | wanted) - reached - {CPU, ""})


def merged_exit(runs: Sequence[RunFolder]) -> ExitCode:
    """The worst of all runs; what one run lacks is no gap where others judged every cell of it."""
    coverage = coverage_of(runs)
    codes = {exit_code([row for row in run.verdicts if not coverage.fills(row)]) for run in runs}
    codes |= {ExitCode.INCOMPLETE for run in runs if run.shortfall}
    for code in (ExitCode.REGRESSED, ExitCode.INCOMPLETE):
        if code in codes:
            return code
    return ExitCode.CLEAN


def shards_text(shards: Shards) -> str:
    """For a terminal: what is to be known before figures of several hosts are read side by side."""
    lines = [f"{plural(len(shards.hosts), 'run')} of {listing(dict.fromkeys(shards.hosts.values()))}"]
    lines += [f"{run_id}: {why}" for run_id, why in shards.cut_short.items()]
    lines += [f"not one request: {each}" for each in shards.requests]
    for each in shards.properties:
        if each.differs:
            told = "; ".join(f"{host} {value}" for host, value in each.values.items())
            lines.append(f"differs on {each.target}: {each.name}: {told}")
    if shards.twice:
        apart = len(shards.disagreeing)
        lines.append(f"{plural(len(shards.twice), 'cell')} judged by several runs, {apart or 'none'} otherwise")
    lines += [f"no GPU of {listing(shards.missing)} in any run"] if shards.missing else []
    for (target, stage), cells in shards.lacking.items():
        lines.append(f"judged by no run on {target}: {stage} of {listing(cells, limit=3)}")
    return "\n".join(lines) + "\n"


def _requests(runs: Sequence[RunFolder]) -> Iterator[str]:
    """What should be the same in shards of one matrix, and is not."""
    for name in ("baseline", "candidates", "cases", "profile"):
        yield from _unlike(name, {run.run_id: run.meta["request"].get(name) for run in runs})
    yield from _unlike("thresholds", {run.run_id: run.meta.get("thresholds") for run in runs})
    versions: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    sources: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for run in runs:
        for identity, entry in run.environments.items():
            versions[identity][run.run_id] = (entry.get("triton"), entry.get("torch_build"))
        for case in run.meta.get("cases", ()):
            sources[str(case["name"])][run.run_id] = case.get("digest")
    for identity, found in versions.items():
        yield from _unlike(f"environment {identity}", found)
    other = [name for name, found in sources.items() if len(set(found.values())) > 1]
    if other:
        yield f"other sources of {plural(len(other), 'case')}: {listing(other)}"


def _unlike(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    if len({repr(value) for value in values.values()}) > 1:
        yield f"{name} is " + "; ".join(f"{value} in {run_id}" for run_id, value in values.items())


def _properties(runs: Sequence[RunFolder]) -> Iterator[Property]:
    found: dict[tuple[str, str], dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        for gpu in run.meta.get("gpus") or ():
            target = str(gpu.get("target", ""))
            for key, name in _GPU_KEYS.items():
                if gpu.get(key):
                    found[target, name][run.host].append(_plain(gpu[key]))
            uuid = str(gpu.get("uuid", ""))
            clocks = [arm.clock_mhz for arm in run.timings if arm.gpu_uuid == uuid and arm.clock_mhz]
            if clocks:
                middle = sorted(clocks)[len(clocks) // 2]
                found[target, "median SM clock while timing, MHz"][run.host].append(f"{middle:.0f}")
    for (target, name), values in found.items():
        yield Property(
            name=name,
            target=target,
            values={host: ", ".join(dict.fromkeys(told)) for host, told in values.items()},
        )


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _twice(runs: Sequence[RunFolder]) -> Iterator[Twice]:
    found: dict[tuple[str, str, str], dict[str, str]] = collections.defaultdict(dict)
    for run in runs:
        for row in run.verdicts:
            if row.case and row.candidate_cell_id:
                found[row.baseline, row.candidate_cell_id, row.stage][run.run_id] = _told(row)
    for (_, cell, stage), by_run in found.items():
        if len(by_run) > 1:
            yield Twice(cell=cell, stage=stage, found=by_run)


def _told(row: VerdictRecord) -> str:
    """Verdict and figure: the verdict before the colon is what two runs agree in or not."""
    reason = f" ({row.reason_code})" if row.verdict in REGRESSIONS else ""
    return f"{row.verdict}{reason}: {row.change}" if row.change else f"{row.verdict}{reason}"


def send(folder: Path, address: str) -> str:
    """Copy a finished run to where hosts share them; where it went. A run that is there already stays.

    ``run.json`` comes last: what has none is no run yet. Raises :class:`UsageError` or :class:`StorageError`.
    """
    files, root, _ = reach(address, "the shared place")
    target = posixpath.join(root, folder.name)
    try:
        if files.get_file_info(posixpath.join(target, _META)).type is pyarrow.fs.FileType.NotFound:
            paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
            for path in sorted(paths, key=lambda each: each == folder / _META):
                _copy(path, files, posixpath.join(target, path.relative_to(folder).as_posix()))
    except (pa.ArrowException, OSError) as error:
        hint = "the run itself is whole: copy its folder there by other means"
        raise StorageError(f"{public(address)} cannot be written: {error}", hint=hint) from error
    return f"{public(address).rstrip('/')}/{folder.name}"


def fetch(addresses: Sequence[str], into: Path) -> list[Path]:
    """The run folders at these addresses: runs themselves, or places that hold some. Remote ones are copied ``into``.

    A local path without one is handed on as it is. Raises :class:`UsageError` where there is none,
    :class:`StorageError` for one that is not as it was sealed.
    """
    found: dict[str, Path] = {}
    for address in addresses:
        files, root, info = reach(address, "the run")
        here = isinstance(files, pyarrow.fs.LocalFileSystem)
        try:
            runs = _runs_in(files, root, info)
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{public(address)} cannot be read: {error}", hint=HINT) from error
        if not runs and here:
            runs = [root]  # who loads it says best what is wrong with it
        if not runs:
            raise UsageError(f"no run at {public(address)}", hint=f"a run's folder has a {_META}")
        for path in runs:
            # A link such as `latest` leads to a run that has a name of its own.
            folder = Path(path).resolve() if here else _fetched(files, path, into)
            require_untouched(folder, path)
            found.setdefault(str(folder), folder)
    return list(found.values())


def _runs_in(files: pyarrow.fs.FileSystem, root: str, info: pyarrow.fs.FileInfo) -> list[str]:
    if info.type is not pyarrow.fs.FileType.Directory and not _is_object_store(files):
        return []
    if files.get_file_info(posixpath.join(root, _META)).type is pyarrow.fs.FileType.File:
        return [root]
    inside = files.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True))
    folders = [each.path for each in inside if each.type is pyarrow.fs.FileType.Directory]
    metas = files.get_file_info([posixpath.join(path, _META) for path in folders]) if folders else []
    return [path for path, meta in zip(folders, metas, strict=True) if meta.type is pyarrow.fs.FileType.File]


def _is_object_store(files: pyarrow.fs.FileSystem) -> bool:
    """Where a prefix need not be there for what lies under it to be."""
    return not isinstance(files, pyarrow.fs.LocalFileSystem)


def _fetched(files: pyarrow.fs.FileSystem, path: str, into: Path) -> Path:
    folder = into / posixpath.basename(path)
    try:
        for each in files.get_file_info(pyarrow.fs.FileSelector(path, recursive=True)):
            if each.type is pyarrow.fs.FileType.File:
                target = folder / posixpath.relpath(each.path, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with files.open_input_stream(each.path, compression=None) as stream:
                    target.write_bytes(stream.read())
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} cannot be read: {error}", hint="the run was cut short, or its place is") from error
    return folder


def caution(folder: Path) -> str:
    """What is to be known of a run before it is read, in words: that it was cut short; mostly nothing."""
    try:
        meta = json.loads((folder / _META).read_bytes())
        unfinished = shortfall(meta)
    except (OSError, ValueError, AttributeError):
        return ""  # who loads it says best what is wrong with it
    if unfinished or (folder / SEAL).is_file():
        return unfinished
    return (
        f"the run is not sealed: it was cut short at its very end, or {SEAL} is lost; what it holds cannot be verified"
    )


def require_untouched(folder: Path, named: object = "") -> None:
    """Raise :class:`StorageError` where a run is not as it was sealed; one that never was is as it is."""
    if (folder / SEAL).is_file() and (wrong := faults(folder, read_seal(folder))):
        told = listing(f"{fault.path} {fault.wrong}" for fault in wrong)
        hint = "take the run as it was, or run it again; `triton-matrix verify` names every file"
        raise StorageError(f"{named or folder} is not the run that was sealed: {told}", hint=hint)


def _copy(path: Path, files: pyarrow.fs.FileSystem, target: str) -> None:
    files.create_dir(posixpath.dirname(target), recursive=True)
    with files.open_output_stream(target, compression=None) as stream:
        stream.write(path.read_bytes())
