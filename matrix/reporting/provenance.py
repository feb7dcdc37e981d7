"""What was compared and where: environments, what else moved between them, their locks, the run's facts."""

from __future__ import annotations

import collections
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from matrix.errors import ExitCode
from matrix.explaining.confounders import confounders_of
from matrix.reporting.picture import unique_pairs
from matrix.storage.rows import column, distinct
from matrix.wording import NOTHING, by_target, duration, listing, plural, unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.explaining.confounders import Confounders
    from matrix.storage.runfolder import RunFolder

_EXITS = {
    ExitCode.CLEAN: "complete, nothing regressed",
    ExitCode.REGRESSED: "regressed",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.INCOMPLETE: "incomplete: a cell is missing, invalid or unexpected",
    ExitCode.INTERRUPTED: "interrupted",
}
_LOCKED_ELSEWHERE = {"triton", "torch", "numpy"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One line of the comparison of environments; ``moved`` where the values are not all the same."""

    name: str
    values: Sequence[str]
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment as one run resolved it."""

    id: str
    role: str
    host: str
    pair: str
    label: str
    error: str
    lock: Sequence[Mapping[str, Any]]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    environments: Sequence[Environment]
    properties: Sequence[Property]
    packages: Sequence[Property]
    confounders: Sequence[Confounders]
    also: str  # what else moved in the locks
    labels: Mapping[str, Sequence[str]]  # what is to be said of environments, and of which


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    run_id: str
    host: str
    facts: Mapping[str, str]
    thresholds: Mapping[str, str]


def comparison(runs: Sequence[RunFolder]) -> Comparison:
    environments = _environments(runs)
    properties = _properties([environment.properties for environment in environments])
    packages = _properties([_packages(environment.lock) for environment in environments])
    others = [row for row in packages if row.moved and row.name not in _LOCKED_ELSEWHERE]
    return Comparison(
        environments=environments,
        properties=properties,
        packages=packages,
        confounders=confounders_of(runs),
        also=f"In the locks, {listing(row.name for row in others)} moved too." if others else "",
        labels=_labels(environments),
    )


def _environments(runs: Sequence[RunFolder]) -> list[Environment]:
    """Baselines first; an environment that two runs resolved differently appears once for each."""
    seen: dict[tuple[str, str], Environment] = {}
    pairs = unique_pairs(runs)
    for run in runs:
        for name, entry in run.environments.items():
            key = (name, str(entry.get("digest") or json.dumps(entry.get("lock"))))
            if key not in seen:
                seen[key] = _environment(run, name, entry, _role(name, pairs))
    return sorted(seen.values(), key=lambda environment: environment.role)


def _labels(environments: Sequence[Environment]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for environment in environments:
        if environment.label:
            labels.setdefault(environment.label, []).append(environment.id)
    return labels


def _role(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    if any(name == baseline for baseline, _ in pairs):
        return "baseline"
    return "candidate" if any(name == candidate for _, candidate in pairs) else "not compared"


def _environment(run: RunFolder, name: str, entry: Mapping[str, Any], role: str) -> Environment:
    variables = entry.get("variables") or {}
    properties = {
        "Triton": str(entry.get("triton", "")),
        **_ptxas(run, name),
        "torch of the pair": str(entry.get("torch", "")),
        "torch installed": str(entry.get("torch_build") or entry.get("torch", "")),
        "Python": str(entry.get("python", "")),
        "NumPy": str(entry.get("numpy", "")),
        "resolved as of": str(entry.get("as_of") or "now"),
        "variables": ", ".join(f"{key}={value}" for key, value in sorted(dict(variables).items())) or "none",
    }
    return Environment(
        id=name,
        role=role,
        host=run.host,
        pair="stock pair" if entry.get("stock") else "forced pair",
        label=str(entry.get("label") or ""),
        error=str(entry.get("error") or ""),
        lock=entry.get("lock") or (),
        properties=properties,
    )


def _ptxas(run: RunFolder, name: str) -> dict[str, str]:
    """The assembler by target, as the compiled kernels name it: it ships with Triton and moves with it."""
    versions: dict[str, set[str]] = collections.defaultdict(set)
    for environment, target, version in distinct(run.kernels, "environment", "target", "ptxas_version"):
        if environment == name and version:
            versions[target].add(version)
    return {f"ptxas for {target}": ", ".join(sorted(versions[target])) for target in by_target(versions)}


def _packages(lock: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {str(package["name"]): str(package["version"]) for package in lock}


def _properties(sides: Sequence[Mapping[str, str]]) -> list[Property]:
    names = unique(name for side in sides for name in side)
    rows = [(name, [side.get(name, NOTHING) for side in sides]) for name in names]
    return [Property(name=name, values=values, moved=len(set(values)) > 1) for name, values in rows]


def run_facts(run: RunFolder) -> RunFacts:
    meta = run.meta
    host = dict(meta.get("host") or {})
    facts = {
        "Run": run.run_id,
        "Folder": run.path.name,
        "Host": run.host,
        **{f"Host: {_named(key)}": _measured(key, value) for key, value in host.items() if key != "name"},
        "Started": str(meta.get("started_at", "")),
        "Took": _took(meta),
        "Work": _work(run),
        **{f"Asked for {key}": _plain(value) for key, value in _request(meta).items()},
        "Set in the shell, kept out": _plain(meta.get("variables_kept_out")),
        **{f"Tool: {key}": _plain(value) for key, value in dict(meta.get("tools") or {}).items()},
        "Exit code": _exit(meta.get("exit_code")),
    }
    thresholds = {key: _plain(value) for key, value in dict(meta.get("thresholds") or {}).items()}
    return RunFacts(
        run_id=run.run_id, host=run.host, facts={k: v for k, v in facts.items() if v}, thresholds=thresholds
    )


def _request(meta: Mapping[str, Any]) -> dict[str, Any]:
    request = dict(meta.get("request") or {})
    files = request.pop("kernels", None) or ()
    if "configs" in request:
        request["configs"] = request["configs"] or "all"
    return request | ({"case files": f"{len(files):,}"} if files else {})


def _named(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _measured(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value / 2**30:.1f} GiB"
    return _plain(value)


def _work(run: RunFolder) -> str:
    seconds = sum(each or 0.0 for each in column(run.cells, "seconds"))
    cached = sum(map(bool, column(run.cells, "cached")))
    reused = f", {plural(cached, 'cell')} from the cache" if cached else ""
    return f"{plural(len(run.cells), 'cell')}, {duration(seconds)} of worker time{reused}"


def _took(meta: Mapping[str, Any]) -> str:
    try:
        start, end = (datetime.fromisoformat(str(meta[key])) for key in ("started_at", "finished_at"))
    except (KeyError, ValueError):
        return ""
    return duration((end - start).total_seconds())


def _exit(code: object) -> str:
    if not isinstance(code, int):
        return ""
    known = code in set(ExitCode)
    return f"{code} ({_EXITS[ExitCode(code)]})" if known else str(code)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "" if value is None else str(value)
