"""Standing in for a GPU that is not there, so that Triton's own launch path compiles for it.

A driver object answers "which target?", and ``torch.cuda``'s queries are answered from the target's
profile. The JIT's in-memory cache is keyed by device index, not by target: so a worker serves one target
for its whole life, and every compiled kernel's ``.target`` is checked against it.
"""

from __future__ import annotations

import contextlib
import types
from dataclasses import dataclass

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@dataclass(frozen=True)
class Profile:
    """What code may ask of a GPU before it launches; the figures come from the target table."""

    name: str
    backend: str  # "cuda", "hip"
    arch: int | str
    warp_size: int
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    registers_per_multiprocessor: int
    warps_per_multiprocessor: int
    memory_bytes: int
    l2_bytes: int

    @property
    def capability(self) -> tuple[int, int]:
        """gfx942 is 9.4 to ``torch.cuda``."""
        return divmod(self.arch if isinstance(self.arch, int) else int(self.arch[3:5]), 10)

    @property
    def target(self) -> str:
        return f"sm_{self.arch}" if self.backend == "cuda" else str(self.arch)


class AbsentDriver:
    """The part of Triton's driver interface that compiling asks for; nothing here can launch."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.utils = types.SimpleNamespace(get_device_properties=self._device_properties)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(self._profile.backend, self._profile.arch, self._profile.warp_size)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._profile.capability

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        # The autotuners of 3.2 and 3.3 ask for it as they are made, so only its call may fail.
        return _cannot_time

    def get_empty_cache_for_benchmark(self) -> Any:
        raise RuntimeError("no GPU here: nothing can be timed")

    @staticmethod
    def is_active() -> bool:
        return True

    def _device_properties(self, device: int = 0) -> dict[str, int]:
        profile = self._profile
        return {
            "max_shared_mem": profile.shared_per_block,
            "max_num_regs": profile.registers_per_multiprocessor,
            "multiprocessor_count": profile.multiprocessors,
            "warpSize": profile.warp_size,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


def stand_in(profile: Profile) -> None:
    """Make Triton and ``torch.cuda`` of this process believe in a GPU of this profile, for good."""
    driver.set_active(AbsentDriver(profile))
    properties = types.SimpleNamespace(
        name=profile.name,
        major=profile.capability[0],
        minor=profile.capability[1],
        multi_processor_count=profile.multiprocessors,
        total_memory=profile.memory_bytes,
        L2_cache_size=profile.l2_bytes,
        warp_size=profile.warp_size,
        max_threads_per_multi_processor=profile.warps_per_multiprocessor * profile.warp_size,
        regs_per_multiprocessor=profile.registers_per_multiprocessor,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=profile.shared_per_block,
        shared_memory_per_multiprocessor=profile.shared_per_multiprocessor,
        gcnArchName="" if profile.backend == "cuda" else profile.target,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "get_device_name": lambda device=None: profile.name,
        "get_device_capability": lambda device=None: profile.capability,
        "get_device_properties": lambda device=None: properties,
        "device": _no_device,
        "device_of": _no_device,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


def stand_by(*, torch_too: bool = False) -> None:
    """Let case files load where there is no GPU: the autotuners of 3.2 and 3.3 ask for a driver as they are made.

    ``torch_too``: libraries ask ``torch.cuda`` for its capability as they are imported. Nothing compiles behind this
    driver. Where there is a GPU, its own driver stays.
    """
    try:
        driver.active.get_current_target()
    except RuntimeError:  # "0 active drivers"
        nobody = Profile(
            name="no GPU",
            backend="cuda",
            arch=80,
            warp_size=32,
            multiprocessors=1,
            shared_per_block=0,
            shared_per_multiprocessor=0,
            registers_per_multiprocessor=0,
            warps_per_multiprocessor=0,
            memory_bytes=0,
            l2_bytes=0,
        )
        if torch_too:
            stand_in(nobody)
        else:
            driver.set_active(AbsentDriver(nobody))


def _cannot_time(*_args: Any, **_options: Any) -> Any:
    raise RuntimeError("no GPU here: nothing can be timed")


@contextlib.contextmanager
def _no_device(_device: Any = None) -> Iterator[None]:
    yield


class WrongTarget(AssertionError):
    """A kernel came back compiled for another target than this worker's."""


def check_arch(assembly: str, profile: Profile) -> None:
    """Raise :class:`WrongTarget` unless the assembly (PTX, AMD's) names the profile's architecture."""
    lines = (text.strip() for text in assembly.splitlines())
    line = next((text for text in lines if text.startswith((".target", ".amdgcn_target"))), "")
    if profile.backend == "cuda":
        named = line.removeprefix(".target").split(",")[0].strip().rstrip("af")
    else:
        named = line.strip('"').partition(":")[0].rpartition("-")[2]  # amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
    if named != profile.target:
        raise WrongTarget(f"asked for {profile.target}, the assembly says {line!r}")
