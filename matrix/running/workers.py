"""Which worker serves which cells: the specification of a lane's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomllib

from matrix.code.occupancy import WARP_SIZE, target_limits
from matrix.model import Target
from matrix.resources import data_file
from matrix.running.child import WorkerSpec
from matrix.running.warm import WarmParent
from matrix.settings.environments import child_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.provisioning.provision import Provision
    from matrix.running.host import Host

# Of the host's memory, the share that all workers together may take before an allocation fails in them.
_MEMORY_SHARE = 0.8
# torch and triton map this much address space before they do anything.
_MEMORY_FLOOR_BYTES = 12 << 30

# What warm parents have imported (and, after a colon, called). Whether Triton interprets is settled when it is
# imported, so a worker that interprets imports it itself.
_TORCH = ("numpy", "torch")
_TRITON = ("triton", "matrix.worker.collect", "matrix.worker.compile:prepare")
# A fork of a process that has touched a GPU cannot use it, so workers for one are started afresh.
_IMPORTED = {"interpret": _TORCH, "collect": _TRITON, "compile": _TRITON}
# One thread a worker: the pool already has a worker a core.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHome:
    """What all workers of one environment have in common."""

    environment: str
    interpreter: Path
    variables: Mapping[str, str]
    pythonpath: Sequence[str]
    scratch: Path
    memory_bytes: int
    _parents: dict[tuple[str, ...], WarmParent] = field(default_factory=dict, init=False, repr=False, compare=False)

    def spec(self, kind: str, target: str = "", *, gpu: str = "") -> WorkerSpec:
        """The specification of a worker of ``kind``; compile workers are for one ``target``, others may be for
        the GPU with the UUID ``gpu``.
        """
        start: dict[str, Any] = {
            "kind": kind,
            "scratch": str(self.scratch),
            "pythonpath": list(self.pythonpath),
            "memory_bytes": self.memory_bytes,
        }
        if kind == "compile":
            start["profile"] = profile(target)
        variables = worker_variables(self.variables, kind, gpu=gpu)
        if gpu:
            # The driver maps far more address space than there is memory.
            start["memory_bytes"] = None
            # What one worker has compiled to check a kernel, the one that times it need not compile again.
            start["cache"] = str(self.scratch / "triton" / self.environment)
        return WorkerSpec(
            environment=self.environment,
            target=target,
            interpreter=self.interpreter,
            variables=tuple(sorted(variables.items())),
            start=start,
            parent=self._parent(_IMPORTED.get(kind, ())),
        )

    def close(self) -> None:
        """End the warm parents. They end with this object in any case."""
        for parent in self._parents.values():
            parent.close()

    def _parent(self, imports: tuple[str, ...]) -> WarmParent | None:
        """The process that has these modules imported; with triton, it is itself a fork of the one with torch."""
        if imports and imports not in self._parents:
            self._parents[imports] = WarmParent(
                WorkerSpec(
                    environment=self.environment,
                    target="",
                    interpreter=self.interpreter,
                    variables=tuple(sorted({**self.variables, **_ONE_THREAD}.items())),
                    start={"kind": "parent", "imports": imports},
                    parent=self._parent(_TORCH) if imports == _TRITON else None,
                )
            )
        return self._parents.get(imports)


def homes_of(
    provisions: Mapping[str, Provision], pythonpath: Sequence[Path], scratch: Path, memory_bytes: int
) -> dict[str, WorkerHome]:
    """A home for every environment that could be built, by the name that it was asked for."""
    return {
        name: WorkerHome(
            environment=name,
            interpreter=provision.built.interpreter,
            variables=child_environment(provision.environment),
            pythonpath=[str(path) for path in pythonpath],
            scratch=scratch,
            memory_bytes=memory_bytes,
        )
        for name, provision in provisions.items()
        if provision.built is not None
    }


def worker_variables(environment: Mapping[str, str], kind: str, *, gpu: str = "") -> dict[str, str]:
    """All variables of a worker of ``kind``, given those of its environment."""
    # All but those for a GPU see none: what they do is the same on every host, and torch.compile does not touch one.
    return {**environment, **_settings(kind), "CUDA_VISIBLE_DEVICES": gpu}


def memory_share(host: Host, slots: int) -> int:
    """How much address space one of ``slots`` workers may take, in bytes."""
    return max(int(host.memory_bytes * _MEMORY_SHARE / slots), _MEMORY_FLOOR_BYTES)


def _settings(kind: str) -> dict[str, str]:
    return {**_ONE_THREAD, **({"TRITON_INTERPRET": "1"} if kind == "interpret" else {})}


@cache
def profile(target: str) -> dict[str, Any]:
    """What a compile worker answers for a GPU of ``target`` that is not there."""
    gpu = _gpus()[target]
    if Target(target).is_amd:
        return {"backend": "hip", "arch": target, **gpu}
    limits = target_limits(target)
    return {
        "backend": "cuda",
        "name": gpu["name"],
        "arch": int(target.removeprefix("sm_")),
        "warp_size": WARP_SIZE,
        "multiprocessors": gpu["multiprocessors"],
        "memory_bytes": gpu["memory_bytes"],
        "l2_bytes": gpu["l2_bytes"],
        "shared_per_block": limits.shared_per_block,
        "shared_per_multiprocessor": limits.shared,
        "registers_per_multiprocessor": limits.registers,
        "warps_per_multiprocessor": limits.warps,
    }


@cache
def _gpus() -> dict[str, dict[str, Any]]:
    with data_file("gpus.toml").open("rb") as file:
        return tomllib.load(file)
