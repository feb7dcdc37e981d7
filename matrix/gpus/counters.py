"""What the hardware counted in one launch: the columns of ``ncu --csv --page raw``, and what follows from them.

Names are those of Nsight Compute's metrics reference
(https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-reference); they are the same from
sm_80 to sm_120 but for the matrix pipe, whose alternatives are asked for in turn.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_TIME = "gpu__time_duration.sum"
_DRAM_READ, _DRAM_WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
_GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_MATRIX_PIPES = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(?P<reason>\w+?)_per_issue_active(?:\.ratio)?$")
_STALLS = "regex:smsp__average_warps_issue_stalled_.*_per_issue_active"
_STALLS_KEPT = 5
# Waiting for one's turn while another warp is issued costs nothing.
_NO_STALL = ("selected",)

METRICS = (
    _TIME,
    _DRAM_READ,
    _DRAM_WRITE,
    *(_GLOBAL.format(what=what, op=op) for op in ("ld", "st") for what in ("sectors", "requests")),
    _CONFLICTS,
    _WAVEFRONTS,
    _OCCUPANCY,
    *_MATRIX_PIPES,
    _STALLS,
)

# What ncu says, and what it means for whoever reads the report.
_PROBLEMS = (
    (
        r"ERR_NVGPUCTRPERM",
        "this user may not read the GPU's performance counters: https://developer.nvidia.com/ERR_NVGPUCTRPERM",
    ),
    (r"LibraryNotLoaded", "the profiler's libraries cannot be loaded on this host (a sandbox, perhaps)"),
    (
        r"[Aa]nother (?:tool|instance|profiler).*|profiling (?:is not|isn't) available.*in use",
        "another profiler is at work",
    ),
    (r"[Dd]evice.*(?:not supported|unsupported)", "this ncu does not know this GPU"),
    (r"[Dd]river.*(?:not supported|incompatible|too old)", "this ncu does not work with this driver"),
)
# That the profiled process failed is told by that process, and better.
_ERROR = re.compile(r"^==ERROR==\s*(?P<text>(?!The application returned)\S.*)$", re.MULTILINE)
_UNKNOWN = re.compile(r"[Ff]ailed to find metric[s]?:?\s*(?P<names>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCounters:
    """The counters of one launch. What this GPU does not count is None; shares are of the peak, 0 to 1."""

    kernel: str
    kernel_us: float | None
    dram_read_bytes: float | None
    dram_write_bytes: float | None
    global_load_sectors_per_request: float | None
    global_store_sectors_per_request: float | None
    shared_bank_conflicts: float | None
    shared_wavefronts: float | None
    occupancy_share: float | None  # warps active, of those that a multiprocessor holds
    matrix_pipe_share: float | None
    stalls: Mapping[str, float]  # warps that wait for this reason, a warp that issues; the largest few


def parse(text: str) -> list[LaunchCounters]:
    """The launches in the output of ``ncu --csv --page raw --print-units base``, in order.

    Raises ``ValueError`` for a table that is not of that kind.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if not rows:
        return []
    header, units, *launches = rows
    if "Kernel Name" not in header or units[header.index("Kernel Name")]:
        raise ValueError(f"no table of ncu's raw page: it begins with {lines[0][:120]}")
    return [_launch(dict(zip(header, row, strict=True)), dict(zip(header, units, strict=True))) for row in launches]


def problem(text: str) -> str:
    """In words, why ncu measured nothing ("" where it reports no error)."""
    for pattern, words in _PROBLEMS:
        if re.search(pattern, text):
            return words
    errors = [match["text"].strip() for match in _ERROR.finditer(text)]
    return f"ncu: {errors[0]}" if errors else ""


def missing(text: str, metrics: Sequence[str] = METRICS) -> tuple[str, ...]:
    """The metrics that are no column of the table: ncu leaves out in silence what it does not have for this GPU."""
    header = next((line for line in text.splitlines() if line.startswith('"')), "")
    return tuple(
        name
        for name in metrics
        if not (re.search(name.removeprefix("regex:"), header) if name.startswith("regex:") else f'"{name}"' in header)
    )


def unknown_metrics(text: str) -> set[str]:
    """The metrics that an ncu refuses to go on with, where it is one that does so."""
    return {
        name.strip(" .,'\"")
        for match in _UNKNOWN.finditer(text)
        for name in re.split(r"[,\s]+", match["names"])
        if "__" in name
    }


def without(metrics: Sequence[str], unknown: Iterable[str]) -> tuple[str, ...]:
    """The metrics but for those that are unknown, whether named with their suffix or without."""
    lost = {name.removeprefix("regex:") for name in unknown}
    return tuple(name for name in metrics if name.removeprefix("regex:") not in lost and name.split(".")[0] not in lost)


def _launch(row: Mapping[str, str], units: Mapping[str, str]) -> LaunchCounters:
    values = {name: value for name, text in row.items() if (value := _number(text)) is not None}
    time = values.get(_TIME)
    shares = (values.get(name) for name in _MATRIX_PIPES)
    return LaunchCounters(
        kernel=row["Kernel Name"],
        kernel_us=None if time is None else time * _MICROSECONDS[units[_TIME]],
        dram_read_bytes=values.get(_DRAM_READ),
        dram_write_bytes=values.get(_DRAM_WRITE),
        global_load_sectors_per_request=_per_request(values, "ld"),
        global_store_sectors_per_request=_per_request(values, "st"),
        shared_bank_conflicts=values.get(_CONFLICTS),
        shared_wavefronts=values.get(_WAVEFRONTS),
        occupancy_share=_share(values.get(_OCCUPANCY)),
        matrix_pipe_share=_share(next((share for share in shares if share is not None), None)),
        stalls=dict(_largest(_stalls(values))),
    )


# Base units are nanoseconds; versions differ in how they write them.
_MICROSECONDS = {
    "nsecond": 1e-3,
    "ns": 1e-3,
    "usecond": 1.0,
    "us": 1.0,
    "msecond": 1e3,
    "ms": 1e3,
    "second": 1e6,
    "s": 1e6,
}


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _per_request(values: Mapping[str, float], op: str) -> float | None:
    sectors, requests = (values.get(_GLOBAL.format(what=what, op=op)) for what in ("sectors", "requests"))
    return sectors / requests if sectors is not None and requests else None


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _stalls(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        match = _STALL.search(name)
        # "..._not_issued_..." counts the same warps again, without those that were issued after all.
        if match and not match["reason"].endswith("not_issued") and match["reason"] not in _NO_STALL:
            yield match["reason"], value


def _largest(stalls: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted((each for each in stalls if each[1] > 0), key=lambda each: -each[1])[:_STALLS_KEPT]
