"""The GPUs of this host through NVML, in this process: microseconds a reading, where ``nvidia-smi`` takes 70 ms.

Cumulative throttle counters are read beside the instantaneous reasons, so that what happened between two
readings is not missed. Every figure may be None: not every board, driver or virtual machine has it.
"""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from matrix.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Cumulative time in ns by what the clocks were held back by (NVML field values, driver 550 and later).
_FIELDS = {
    "sw_power_cap": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",
    "sync_boost": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST",
    "sw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "hw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "hw_power_brake": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}
# The older counters, where the fields above are not known: violation time in ns.
_POLICIES = {
    "sw_power_cap": "NVML_PERF_POLICY_POWER",
    "sw_thermal_slowdown": "NVML_PERF_POLICY_THERMAL",
    "board_limit": "NVML_PERF_POLICY_BOARD_LIMIT",
}
_REASONS = {
    "gpu_idle": "nvmlClocksEventReasonGpuIdle",
    "applications_clocks": "nvmlClocksEventReasonApplicationsClocksSetting",
    "sw_power_cap": "nvmlClocksEventReasonSwPowerCap",
    "hw_slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksEventReasonSyncBoost",
    "sw_thermal_slowdown": "nvmlClocksEventReasonSwThermalSlowdown",
    "hw_thermal_slowdown": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "hw_power_brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}
_LOCK_TOLERANCE_MHZ = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at a GPU."""

    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    reasons: tuple[str, ...]
    throttled_ns: dict[str, int]  # cumulative; take differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of this host."""

    index: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str
    largest_sm_mhz: int | None
    power_limit_w: float | None

    @property
    def target(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


class Nvml:
    """NVML, opened once. ``library`` is the ``pynvml`` module, or a stand-in for it in tests."""

    def __init__(self, library: Any = None) -> None:
        if library is None:
            import pynvml  # noqa: PLC0415 - the one place that needs the driver's library

            library = pynvml
        self._nvml = library
        self._nvml.nvmlInit()
        self._handles: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._nvml.nvmlShutdown()

    def gpus(self) -> list[Gpu]:
        return [self._gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def reading(self, uuid: str) -> Reading:
        """What the GPU does at this moment, and its counters."""
        nvml, handle = self._nvml, self._handle(uuid)
        milliwatts = self._or_none(nvml.nvmlDeviceGetPowerUsage, handle)
        return Reading(
            sm_mhz=self._or_none(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_mhz=self._or_none(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temperature_c=self._or_none(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            reasons=self._active(handle),
            throttled_ns=self._counters(handle),
        )

    @contextlib.contextmanager
    def locked_clocks(self, uuid: str, mhz: int, busy: Callable[[], None]) -> Iterator[int]:
        """Hold the SM clock at ``mhz``; yields what was read back while ``busy()`` kept the GPU working.

        Released on leaving, on an error, and at the interpreter's exit. Raises ``UsageError`` where this
        user may not lock clocks, or the GPU does not keep to the lock.
        """
        nvml, handle = self._nvml, self._handle(uuid)
        try:
            nvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
        except nvml.NVMLError as error:
            hint = "locking clocks needs administrator rights on the host; run without --lock-clocks"
            raise UsageError(f"the clocks of GPU {uuid} cannot be locked: {error}", hint=hint) from error

        def release() -> None:
            nvml.nvmlDeviceResetGpuLockedClocks(handle)

        atexit.register(release)
        try:
            busy()
            actual = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            if abs(actual - mhz) > _LOCK_TOLERANCE_MHZ:
                hint = "choose a lower clock, which the power limit and the temperature allow"
                raise UsageError(f"GPU {uuid} was locked to {mhz} MHz and runs at {actual} MHz", hint=hint)
            yield actual
        finally:
            release()
            atexit.unregister(release)

    def _gpu(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        limit = self._or_none(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        return Gpu(
            index=index,
            uuid=uuid,
            name=_text(nvml.nvmlDeviceGetName(handle)),
            capability=(int(major), int(minor)),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            largest_sm_mhz=self._or_none(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            power_limit_w=None if limit is None else limit / 1e3,
        )

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]

    def _active(self, handle: Any) -> tuple[str, ...]:
        bits = self._or_none(self._nvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
        masks = {name: int(getattr(self._nvml, constant, 0)) for name, constant in _REASONS.items()}
        return tuple(name for name, mask in masks.items() if bits & mask)

    def _counters(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        known = {name: getattr(nvml, constant) for name, constant in _FIELDS.items() if hasattr(nvml, constant)}
        values = self._or_none(nvml.nvmlDeviceGetFieldValues, handle, list(known.values())) or []
        found = {
            name: int(value.value.ullVal)
            for name, value in zip(known, values, strict=False)
            if value.nvmlReturn == nvml.NVML_SUCCESS
        }
        for name, constant in _POLICIES.items():
            if name not in found:
                status = self._or_none(nvml.nvmlDeviceGetViolationStatus, handle, getattr(nvml, constant))
                if status is not None:
                    found[name] = int(status.violationTime)
        return found

    def _or_none(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
