"""What differs between the two sides of a comparison beside what it is about, told before any number.

Things that come together count as one cause: Triton carries its ptxas, torch its CUDA, a host its GPU, driver and
clocks. Where more than one cause moved, a difference may be of any of them, and the runs in which one alone moves are
offered as command lines.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import shlex
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from matrix.explaining.owner import Owner
from matrix.judging.columns import coded, newest, numbers, together
from matrix.records import Role
from matrix.storage.rows import Rows, distinct
from matrix.storage.store import as_arm_rows
from matrix.wording import NOTHING, by_target, listing, unique

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.judging.columns import Floats
    from matrix.storage.runfolder import RunFolder

# Two arms' clocks in the same rounds that differ by less are the same clock, read twice.
_CLOCK_SHARE = 0.01
_MEASUREMENT = ("run_id", "gpu_uuid", "case", "target", "params", "baseline")
_NO_CLOCKS: Floats = np.empty((2, 0))


class Cause(enum.StrEnum):
    """What can be changed alone."""

    TRITON = "Triton"
    PTXAS = "ptxas"
    TORCH = "torch"
    PYTHON = "Python"
    NUMPY = "NumPy"
    PACKAGES = "packages"
    VARIABLES = "variables"
    HOST = "host"
    SOURCE = "case files"


# Packages that come with Triton or torch, or take no part in a kernel and move with every release.
_CARRIED = (
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "setuptools", "sympy"),
    *("torch", "triton", "typing-extensions"),
)
_OWNERS = {Cause.TORCH: Owner.TORCH, Cause.SOURCE: Owner.CASE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One property with its two values; ``owner`` where a difference with the same code may be its doing."""

    cause: Cause
    name: str
    baseline: str
    candidate: str
    owner: Owner | None = None

    @property
    def said(self) -> str:
        return f"{self.name} {self.baseline} → {self.candidate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneChange:
    """A run in which one cause alone moves. ``needs``: what matrix.toml must hold for it, as TOML."""

    cause: Cause
    command: str
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confounders:
    """What differs in one comparison, in words, and the runs that would tell causes apart."""

    baseline: str
    candidate: str
    differences: tuple[Difference, ...]
    runs: tuple[OneChange, ...]
    stand_in: str = ""  # of a torch that was asked for and did not run

    @property
    def causes(self) -> list[Cause]:
        return list(dict.fromkeys(each.cause for each in self.differences))

    @property
    def single(self) -> bool:
        return len(self.causes) < 2

    @property
    def text(self) -> str:
        """A few sentences, without a name of the environments."""
        return f"{self._different} {self.stand_in}".rstrip()

    @property
    def _different(self) -> str:
        if not self.differences:
            return "Nothing that is recorded differs between the environments: what moved is noise, or not recorded."
        said = "; ".join(self._of(cause) for cause in self.causes)
        if self.single:
            return f"One thing differs: {said}. {self._within}"
        return f"{len(self.causes)} things differ: {said}. Causes cannot be told apart by this comparison."

    @property
    def _within(self) -> str:
        """What one cause leaves open: a Triton that carries another ptxas is two changes to whoever mends it."""
        if self.causes == [Cause.TRITON] and any(each.name.startswith(Cause.PTXAS) for each in self.differences):
            return "Causes can be told apart; Triton's compiler from the ptxas in it, by --same-ptx-other-ptxas."
        return "Causes can be told apart."

    def _of(self, cause: Cause) -> str:
        own = [each for each in self.differences if each.cause is cause]
        first, *rest = own
        carried = f" (with {listing([each.said for each in rest], limit=3)})" if rest else ""
        return f"{first.said}{carried}"


def confounders(runs: Sequence[RunFolder], baseline: str, candidate: str) -> Confounders:
    """Of one comparison in these runs."""
    found = tuple(differences(runs, baseline, candidate))
    offered = tuple(_one_change_runs(runs, baseline, candidate, found))
    stand_in = _stand_in([_entry(runs, name) for name in (baseline, candidate)])
    return Confounders(baseline=baseline, candidate=candidate, differences=found, runs=offered, stand_in=stand_in)


def confounders_of(runs: Sequence[RunFolder]) -> list[Confounders]:
    """Of every comparison that these runs judged."""
    pairs = dict.fromkeys((row.baseline, row.candidate) for run in runs for row in run.verdicts)
    return [confounders(runs, *pair) for pair in pairs]


def as_data(found: Iterable[Confounders]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [{"text": each.text, "single_cause": each.single, **asdict(each)} for each in found]


def differences(runs: Sequence[RunFolder], baseline: str, candidate: str) -> list[Difference]:
    """Every recorded property that differs, by cause; causes that carry others come first."""
    order = list(Cause)
    found = [
        *_of_environments(runs, baseline, candidate),
        *_of_hosts(runs, baseline, candidate),
        *_of_sources(runs, baseline, candidate),
    ]
    moved = {each.cause for each in found}
    # An assembler that came with another Triton is part of that; alone it is a cause of its own.
    if Cause.TRITON in moved:
        found = [_with(each, Cause.TRITON) if each.cause is Cause.PTXAS else each for each in found]
    # So are the clocks of arms that took turns on one GPU part of what made their code draw another power.
    first = min((each.cause for each in found), key=order.index, default=None)
    clocks = _of_clocks(runs, baseline, candidate)
    found += [_with(each, first) if first else each for each in clocks]
    return sorted(found, key=lambda each: order.index(each.cause))


def _with(each: Difference, cause: Cause) -> Difference:
    return Difference(cause=cause, name=each.name, baseline=each.baseline, candidate=each.candidate)


def _entry(runs: Iterable[RunFolder], name: str) -> Mapping[str, Any]:
    found = [run.environments[name] for run in runs if name in run.environments]
    return found[-1] if found else {}


def _of_environments(runs: Sequence[RunFolder], baseline: str, candidate: str) -> Iterator[Difference]:
    one, other = (_entry(runs, name) for name in (baseline, candidate))
    if not (one and other):
        return
    for cause, name, read in (
        (Cause.TRITON, "Triton", _triton),
        (Cause.TORCH, "torch", _torch),
        (Cause.TORCH, "CUDA of torch", _cuda),
        (Cause.PYTHON, "Python", lambda entry: str(entry.get("python") or "")),
        (Cause.NUMPY, "NumPy", lambda entry: str(entry.get("numpy") or "")),
        (Cause.VARIABLES, "variables", _variables),
    ):
        yield from _differ(cause, name, read(one), read(other))
    packages = [_packages(entry) for entry in (one, other)]
    for name in sorted(packages[0].keys() | packages[1].keys()):
        yield from _differ(Cause.PACKAGES, name, *(own.get(name, "") for own in packages))
    versions = [_ptxas(runs, name) for name in (baseline, candidate)]
    for target in by_target(versions[0].keys() & versions[1].keys()):
        yield from _differ(Cause.PTXAS, f"ptxas for {target}", versions[0][target], versions[1][target])


def _differ(cause: Cause, name: str, one: str, other: str) -> Iterator[Difference]:
    if one != other:
        yield Difference(
            cause=cause, name=name, baseline=one or NOTHING, candidate=other or NOTHING, owner=_OWNERS.get(cause)
        )


def _triton(entry: Mapping[str, Any]) -> str:
    return str(entry.get("triton") or "")


def _torch(entry: Mapping[str, Any]) -> str:
    return str(entry.get("torch_build") or entry.get("torch") or "")


def _stand_in(entries: Sequence[Mapping[str, Any]]) -> str:
    """A host without a GPU takes torch's CPU build of one release in place of whatever was asked for."""
    ran = [(str(entry.get("torch") or ""), _torch(entry)) for entry in entries if entry]
    replaced = [(asked, built) for asked, built in ran if built.endswith("+cpu") and asked != built.partition("+")[0]]
    if not replaced:
        return ""
    asked, built = (" and ".join(unique(names)) for names in zip(*replaced, strict=True))
    return f"torch {asked} did not run: without a GPU, torch {built} stands in."


def _packages(entry: Mapping[str, Any]) -> dict[str, str]:
    """What an environment was resolved to beside Triton, torch with its CUDA, and NumPy, by name."""
    found = {str(package["name"]): str(package["version"]) for package in entry.get("lock") or ()}
    own = {
        name: version for name, version in found.items() if not name.startswith(("nvidia-", "cuda-", "pytorch-triton"))
    }
    return {name: version for name, version in own.items() if name not in _CARRIED}


def _cuda(entry: Mapping[str, Any]) -> str:
    """As the build of torch says, or the runtime in the lock."""
    if found := re.search(r"\+(cu\d+|cpu)", _torch(entry)):
        return found[1]
    packages = {str(package["name"]): str(package["version"]) for package in entry.get("lock") or ()}
    return next((version for name, version in packages.items() if name.startswith("nvidia-cuda-runtime")), "")


def _variables(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(dict(entry.get("variables") or {}).items())) or "none"


def _ptxas(runs: Iterable[RunFolder], name: str) -> dict[str, str]:
    versions: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for environment, target, version in distinct(run.kernels, "environment", "target", "ptxas_version"):
            if environment == name and version:
                versions[target].add(version)
    return {target: ", ".join(sorted(found)) for target, found in versions.items()}


def _of_hosts(runs: Sequence[RunFolder], baseline: str, candidate: str) -> Iterator[Difference]:
    """Where the two sides ran, of a comparison of several runs: of one run, both on its host."""
    sides = [_places(runs, name) for name in (baseline, candidate)]
    names = [listing(unique(place["host"] for place in places)) for places in sides]
    yield from _differ(Cause.HOST, "host", *names)
    for name, key, owner in (("GPU", "name", Owner.GPU), ("driver", "driver", Owner.DRIVER), ("clocks", "", None)):
        values = [listing(unique(_gpu(gpu, key) for place in places for gpu in place["gpus"])) for places in sides]
        if values[0] != values[1]:
            before, after = (value or NOTHING for value in values)
            yield Difference(cause=Cause.HOST, name=name, baseline=before, candidate=after, owner=owner or Owner.CLOCKS)


def _gpu(gpu: Mapping[str, Any], key: str) -> str:
    if key:
        return str(gpu.get(key, ""))
    return f"up to {gpu.get('largest_sm_mhz', '?')} MHz, {gpu.get('power_limit_w', '?')} W"


def _places(runs: Sequence[RunFolder], environment: str) -> list[Mapping[str, Any]]:
    """Hosts with their GPUs; a comparison of several runs says them itself (:mod:`matrix.judging.compare`)."""
    found: list[Mapping[str, Any]] = []
    for run in runs:
        own = {"host": run.host, "gpus": run.meta.get("gpus") or ()}
        found += run.meta.get("places", {}).get(environment) or [own]
    return found


def _of_clocks(runs: Sequence[RunFolder], baseline: str, candidate: str) -> Iterator[Difference]:
    """SM clocks of arms that ran interleaved: they differ where one arm's code draws more power."""
    straight = [_clocks(run).get((baseline, candidate), _NO_CLOCKS) for run in runs]
    turned = [_clocks(run).get((candidate, baseline), _NO_CLOCKS)[::-1] for run in runs]
    one, other = np.concatenate([_NO_CLOCKS, *straight, *turned], axis=1)
    if len(one) and abs(np.median(other / one) - 1) > _CLOCK_SHARE:
        before, after = (f"{np.median(side):,.0f} MHz" for side in (one, other))
        yield Difference(
            cause=Cause.HOST, name="SM clock while timing", baseline=before, candidate=after, owner=Owner.CLOCKS
        )


@functools.lru_cache(maxsize=8)
def _clocks(run: RunFolder) -> Mapping[tuple[str, str], Floats]:
    """The clocks of the baseline's arm and of the candidate's beside it, in MHz, by the two environments."""
    timings = run.timings if isinstance(run.timings, Rows) else as_arm_rows(run.timings)
    table = newest(timings.table, (*_MEASUREMENT, "environment", "role"))
    if not len(table):
        return {}
    clock, environment, against = numbers(table["clock_mhz"]), table["environment"], table["baseline"]
    measurement = together([coded(table[name])[0] for name in _MEASUREMENT])
    own = pc.and_(pc.equal(table["role"], str(Role.BASELINE)), pc.equal(environment, against)).to_numpy()
    before = np.full(int(measurement.max()) + 1, np.nan)
    before[measurement[own]] = clock[own]
    candidates = pc.equal(table["role"], str(Role.CANDIDATE)).to_numpy()
    both = np.flatnonzero(candidates & (before[measurement] > 0) & (clock > 0))
    found = {}
    pairs = together([coded(against)[0], coded(environment)[0]])[both]
    for pair in np.unique(pairs):
        rows = both[pairs == pair]
        where = int(rows[0])
        found[against[where].as_py(), environment[where].as_py()] = np.stack([before[measurement[rows]], clock[rows]])
    return found


def _of_sources(runs: Sequence[RunFolder], baseline: str, candidate: str) -> Iterator[Difference]:
    """Case files that are not the same on both sides, of a comparison of several runs."""
    for run in runs:
        for case, digests in dict(run.meta.get("sources") or {}).items():
            one, other = digests.get(baseline, ""), digests.get(candidate, "")
            if one and other:
                yield from _differ(Cause.SOURCE, f"case {case}", one[:12], other[:12])


def _one_change_runs(
    runs: Sequence[RunFolder], baseline: str, candidate: str, found: Sequence[Difference]
) -> Iterator[OneChange]:
    """A run for each cause that moved; none where one moved alone."""
    moved = list(dict.fromkeys(each.cause for each in found))
    one, other = (_entry(runs, name) for name in (baseline, candidate))
    if len(moved) < 2 or not (one and other):
        return
    more = _selection(runs)
    tritons, torches = (_triton(one), _triton(other)), (_release(one), _release(other))
    for cause in moved:
        match cause:
            case Cause.TRITON | Cause.PTXAS:
                # An overlay shares the host's torch, CUDA, NumPy and Python.
                yield _run(cause, f"{tritons[0]}@host", f"{tritons[1]}@host", more)
                if all(torches):
                    pairs = [f"triton{triton}-torch{torches[1]}" for triton in tritons]
                    yield _run(cause, pairs[0], pairs[1], more)
            case Cause.TORCH if all(torches):
                pairs = [f"triton{tritons[1]}-torch{torch}" for torch in torches]
                yield _run(cause, pairs[0], pairs[1], more)
            case Cause.PYTHON | Cause.NUMPY | Cause.PACKAGES | Cause.VARIABLES:
                name = f"{candidate}-other-{str(cause).lower()}"
                needs = _declared(name, cause, one, other)
                yield _run(cause, name, candidate, more, needs=needs)
            case Cause.HOST | Cause.SOURCE:
                # In one run both sides share the host, its GPU and the case files.
                yield _run(cause, baseline, candidate, more)


def _run(cause: Cause, baseline: str, candidate: str, more: Sequence[str], *, needs: str = "") -> OneChange:
    words = ["triton-matrix", "run", "--baseline", baseline, "--candidate", candidate, *more]
    return OneChange(cause=cause, command=shlex.join(words), needs=needs)


def _release(entry: Mapping[str, Any]) -> str:
    """The torch of the pair, without its build; what is installed in an overlay."""
    return str(entry.get("torch") or _torch(entry)).partition("+")[0]


def _selection(runs: Sequence[RunFolder]) -> list[str]:
    """The targets and cases of the newest run."""
    request = dict(runs[-1].meta.get("request") or {})
    words = ["--targets", ",".join(request["targets"])] if request.get("targets") else []
    return [*words, *(["--cases", ",".join(request["cases"])] if request.get("cases") else [])]


def _declared(name: str, cause: Cause, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The candidate with one thing of the baseline's, as matrix.toml declares it."""
    lines = ["[[environments]]", f'id = "{name}"', f'triton = "{_triton(other)}"', f'torch = "{_release(other)}"']
    python, numpy = (str((one if cause is each else other).get(key) or "") for each, key in _TAKEN)
    lines += [f'python = "{".".join(python.split(".")[:2])}"'] if python else []
    required = [f"numpy=={numpy}"] if numpy else []
    required += [f"{name}=={version}" for name, version in _pinned(cause, one, other).items()]
    lines += [f"requires = {json.dumps(required)}"] if required else []
    variables = dict((one if cause is Cause.VARIABLES else other).get("variables") or {})
    if variables:
        pairs = ", ".join(f'{key} = "{value}"' for key, value in sorted(variables.items()))
        lines.append(f"variables = {{ {pairs} }}")
    return "\n".join(lines)


def _pinned(cause: Cause, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, str]:
    """The baseline's packages where the candidate has others."""
    own, others = _packages(one), _packages(other)
    moved = {name: version for name, version in own.items() if others.get(name) != version}
    return moved if cause is Cause.PACKAGES else {}


_TAKEN = ((Cause.PYTHON, "python"), (Cause.NUMPY, "numpy"))
