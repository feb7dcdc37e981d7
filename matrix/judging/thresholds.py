"""How much a fact must move before the judge speaks: one frozen object, with presets.

Facts that move without meaning (a few registers, ldmatrix against stmatrix, the order of instructions) have
no threshold here because no rule reads them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from matrix.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Every threshold of the judge. A ``*_ratio`` is candidate over baseline, and above 1.

    Where a ratio and a growth are given, both must be reached: the ratio keeps large figures quiet, the
    growth small ones. Each threshold serves both directions: a loss one way is a gain the other way.
    """

    # Stack bytes a thread. No growth of the stack was a false alarm in 160 steps of ordinary kernels.
    spill_growth_bytes: int = 1
    # The same for a kernel that spills on both sides: it sits at its register limit, where less than eight
    # registers more or less come and go with the order of instructions.
    spill_more_bytes: int = 32
    # And a tenth more, of what spilled registers move where that is known: some kernels spill kilobytes.
    spill_more_ratio: float = 1.1
    # Resident warps an SM: only steps, since registers rounded to their allocation move without effect.
    occupancy_ratio: float = 2.0
    # Bytes a block. A buffer doubled (2 KiB more) is triton#11526; half as much again, triton#7268.
    shared_ratio: float = 1.5
    shared_growth_bytes: int = 2048
    # What one block may have on sm_120, sm_80, and sm_90 with sm_100: growing past one loses that GPU.
    shared_limits_bytes: tuple[int, ...] = (101_376, 166_912, 232_448)
    # Mean width of global accesses (bits moved over instructions), where the bits moved stayed comparable.
    vector_width_ratio: float = 1.5
    vector_traffic_ratio: float = 2.0
    # The estimate of matrix.memory.cost, microseconds a launch. By the PTX alone, over 1,037 steps of ordinary kernels,
    # it passed 1.25 for worse in one kernel alone, triton#9703. With the machine code in it, it asks for a seventh more
    # than the H200 takes for the same kernel on 3.9.0 (docs/memory.md): so only what is half as much again.
    cost_ratio: float = 1.5
    cost_growth_us: float = 0.5
    # Share of memory requests at unknown addresses up to which the estimate is believed.
    unknown_share: float = 0.1
    # Counts, for kernels without an estimate. Barriers, shuffles and shared stores are one signal each. Alone
    # they mislead (they doubled where a kernel got faster), so `exchange_signals` of the three must be
    # multiplied at once.
    exchange_ratio: float = 1.75
    exchange_signals: int = 2
    barrier_growth: int = 4
    shuffle_growth: int = 8
    shared_store_growth: int = 8
    # cp.async and bulk copies: what the baseline must have for "none left" to be a loss.
    async_copies_min: int = 2
    # Fused multiply-adds likewise.
    fma_min: int = 2
    code_ratio: float = 2.0
    code_growth_bytes: int = 8192
    # Processor time: what else the machine does is not in it, but shared caches and clocks are. Large steps only.
    compile_time_ratio: float = 3.0
    compile_time_growth_s: float = 5.0
    # Measured time of a call: what is slower by less is a change and no regression. Where this run's own
    # A/A arms differ by more than half of it, twice their difference takes its place (matrix.judging.speed).
    slower_ratio: float = 1.03
    # Of the cells called slower or faster in one comparison, the share that may be so by chance (see judging.family).
    false_discovery_rate: float = 0.05
    # What two workers of one environment differ by in a call's time (log-ratio, root mean square), before a run's
    # own controls say. On an H200 0.0025 where each arm had memory of its own, which a run may have to fall back to,
    # and 0.0008 where all shared theirs. Counts as much as ten controls.
    process_noise: float = 0.0025
    # Host time of a launch: a figure of the machine as much as of the release, so both must be reached.
    launch_ratio: float = 1.5
    launch_growth_us: float = 5.0
    # Largest error against float64, within budget on both sides: worth a word where it grew by the ratio and
    # takes at least this share of what is allowed. Below, rounding comes and goes with the order of sums.
    accuracy_ratio: float = 2.0
    accuracy_share: float = 0.25


PRESETS: Mapping[str, Thresholds] = {
    "default": Thresholds(),
    # For a sign-off that somebody reads to the end.
    "strict": Thresholds(
        occupancy_ratio=1.3,
        shared_ratio=1.2,
        shared_growth_bytes=1024,
        vector_width_ratio=1.2,
        cost_ratio=1.2,
        exchange_ratio=1.5,
        exchange_signals=1,
        code_ratio=1.5,
        code_growth_bytes=4096,
        compile_time_ratio=2.0,
        compile_time_growth_s=2.0,
    ),
    # For a first look over releases that lie years apart.
    "lenient": Thresholds(
        spill_growth_bytes=64,
        spill_more_bytes=64,
        occupancy_ratio=3.0,
        shared_ratio=2.0,
        shared_growth_bytes=8192,
        vector_width_ratio=2.0,
        cost_ratio=2.0,
        cost_growth_us=2.0,
        exchange_ratio=2.5,
        exchange_signals=3,
        code_ratio=4.0,
        code_growth_bytes=32_768,
        compile_time_ratio=10.0,
        compile_time_growth_s=30.0,
    ),
}


def read_thresholds(table: Mapping[str, object], *, source: str = "[thresholds]") -> Thresholds:
    """Thresholds from a TOML table: ``preset`` names where to start, every other key overrides one field.

    Raises :class:`ConfigurationError` with all mistakes at once, each beginning with ``source``.
    """
    problems: list[str] = []
    preset = table.get("preset", "default")
    base = PRESETS.get(preset) if isinstance(preset, str) else None
    if base is None:
        problems.append(f"{source}: preset = {preset!r} is not one of {', '.join(PRESETS)}")
        base = Thresholds()
    defaults = {field.name: getattr(base, field.name) for field in fields(Thresholds)}
    values: dict[str, object] = {}
    for key, value in table.items():
        if key == "preset":
            continue
        problem = _problem(key, value, defaults)
        if problem:
            problems.append(f"{source}: {problem}")
        else:
            values[key] = _converted(value, defaults[key])
    if problems:
        raise ConfigurationError(problems, hint=f"thresholds are: {', '.join(defaults)}")
    return replace(base, **values)  # type: ignore[arg-type]  # each value has the type of its default


def _problem(key: str, value: object, defaults: Mapping[str, object]) -> str:
    """What is wrong with ``key = value``; empty when nothing is."""
    if key not in defaults:
        close = difflib.get_close_matches(key, [*defaults, "preset"], n=1)
        return f"unknown threshold {key!r}" + (f"; did you mean {close[0]!r}?" if close else "")
    default = defaults[key]
    if isinstance(default, tuple):
        right = isinstance(value, (list, tuple)) and all(_is_count(item) for item in value)
        return "" if right else f"{key} = {value!r} is not a list of whole numbers of bytes"
    if isinstance(default, int):
        return _count_problem(key, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{key} = {value!r} is not a number"
    if key.endswith("_ratio"):
        return "" if value > 1 else f"{key} = {value!r} must be above 1: it is candidate over baseline"
    return _figure_problem(key, value)


def _figure_problem(key: str, value: float) -> str:
    if key == "false_discovery_rate":
        return "" if 0 < value < 1 else f"{key} = {value!r} must lie between 0 and 1: it is a share of cells"
    return "" if value >= 0 else f"{key} = {value!r} must not be negative"


def _count_problem(key: str, value: object) -> str:
    if not _is_count(value):
        return f"{key} = {value!r} is not a whole number of 0 or more"
    if key == "exchange_signals":
        return "" if value in (1, 2, 3) else f"{key} = {value!r} must be 1, 2 or 3: there are three signals"
    return "" if value else f"{key} = 0 would call code that did not move a change; give 1 or more"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _converted(value: object, default: object) -> object:
    if isinstance(default, tuple) and isinstance(value, (list, tuple)):
        return tuple(sorted(value))
    return float(value) if isinstance(default, float) and isinstance(value, int) else value
