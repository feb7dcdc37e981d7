"""Which worker serves which cells: the specification of a lane's process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomllib

from matrix.occupancy import target_limits
from matrix.process import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.host import Host

# Of the host's memory, the share that all workers together may take before an allocation fails in them.
_MEMORY_SHARE = 0.8
# torch and triton map this much address space before they do anything.
_MEMORY_FLOOR_BYTES = 12 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHome:
    """What all workers of one environment have in common."""

    environment: str
    interpreter: Path
    variables: Mapping[str, str]
    pythonpath: Sequence[str]
    scratch: Path
    memory_bytes: int

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
        variables = {**self.variables, **_settings(kind)}
        if gpu:
            variables |= {"CUDA_VISIBLE_DEVICES": gpu}
            # The driver maps far more address space than there is memory.
            start["memory_bytes"] = None
        return WorkerSpec(
            environment=self.environment,
            target=target,
            interpreter=self.interpreter,
            variables=tuple(sorted(variables.items())),
            start=start,
        )


def memory_share(host: Host, slots: int) -> int:
    """How much address space one of ``slots`` workers may take, in bytes."""
    return max(int(host.memory_bytes * _MEMORY_SHARE / slots), _MEMORY_FLOOR_BYTES)


def _settings(kind: str) -> dict[str, str]:
    # One thread a worker: the pool already has a worker a core.
    settings = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if kind == "interpret":
        settings["TRITON_INTERPRET"] = "1"  # read when triton is imported
    return settings


@cache
def profile(target: str) -> dict[str, Any]:
    """What a compile worker answers for a GPU of ``target`` that is not there."""
    limits, gpu = target_limits(target), _gpus()[target]
    return {
        "name": gpu["name"],
        "arch": int(target.removeprefix("sm_")),
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
    with (Path(__file__).parent / "data" / "gpus.toml").open("rb") as file:
        return tomllib.load(file)
