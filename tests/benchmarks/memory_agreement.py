"""Predicted memory traffic against a GPU's counters, from what ``memory_counters.py`` kept.

    python -P tests/benchmarks/memory_agreement.py OUT [OUT ...] [--markdown FILE]

Evaluates each launch's PTX with no GPU and prints, for each figure: the median relative error and the share of
launches within 15 %, where nothing is unknown; each launch with both figures; and for each pair of environments
whether the estimate moved in the direction that the GPU's own time moved, and how often it cried wolf.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import statistics
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.memory.cost import bound, estimate_us
from matrix.memory.evidence import MemoryEvidence, memory_evidence
from matrix.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

FIGURES = {
    "shared wavefronts": ("wavefronts", "wavefronts"),
    "L2 sectors read": ("l2_read", "l2_read_l1"),
    "L2 sectors written": ("l2_write", "l2_write_l1"),
    "DRAM bytes": ("dram", "dram"),
    "warp instructions": ("instructions", "instructions"),
}
WITHIN = 0.15
MOVED, STILL = 0.05, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One launch in one environment: predicted and measured, each of the launch as a whole."""

    environment: str
    case: str
    kernel: str
    index: int
    unknown: float
    note: str
    predicted: dict[str, float]
    measured: dict[str, float]
    bound: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.case, self.kernel, self.index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    launches = [launch for folder in given.out for launch in kept(folder)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(row, launches, chunksize=4))
    text = "\n".join([*summary(rows), "", *directions(rows), "", *kernels(rows)])
    print(text)
    if given.markdown:
        given.markdown.write_text(text + "\n", encoding="utf-8")


def kept(folder: Path) -> Iterator[dict[str, Any]]:
    """The launches of every case that ran to its end, each with the median counters of its repeats."""
    for path in sorted(folder.glob("*.launches.jsonl")):
        counted = path.with_name(path.name.replace(".launches.jsonl", ".csv"))
        if not counted.exists():
            continue
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        launches = [line for line in lines if "kernel" in line]
        names = next(line["counters"] for line in lines if "counters" in line)
        matched = match(launches, counters(counted.read_text(), names))
        whole = {line["end"] for line in lines if "end" in line and not line["failure"]}
        environment = path.name.rsplit(".", 3)[0]
        lost = Counter(launch["case"] for launch, found in zip(launches, matched) if not found)
        for case, count in lost.items():
            print(f"{environment} {case}: {count} launches without counters")
        yield from _medians(environment, [pair for pair in zip(launches, matched) if pair[0]["case"] in whole])


def counters(text: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of ncu's raw page under our names for its columns; what it says beside them is left out."""
    rows = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    return [
        {
            "kernel": row["Kernel Name"].split("(")[0],
            "grid": [int(size) for size in row["Grid Size"].strip("()").split(",")],
            **{name: float(row[column].replace(",", "")) for name, column in names.items() if row.get(column)},
        }
        for row in rows
        if row.get("ID", "").strip()  # the row of units has none
    ]


def match(launches: Sequence[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """The row of each launch. Both are in order; a row of anything else is passed over, a launch may lack its own."""
    found: list[dict[str, Any] | None] = [None] * len(launches)
    start = 0
    for one in rows:
        for place in range(start, len(launches)):
            if (launches[place]["kernel"], launches[place]["grid"]) == (one["kernel"], one["grid"]):
                found[place], start = one, place + 1
                break
    return found


def _medians(environment: str, pairs: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> Iterator[dict[str, Any]]:
    places: dict[tuple[str, int, str], int] = defaultdict(int)
    groups: dict[tuple[str, str, int], list[tuple[dict[str, Any], dict[str, Any] | None]]] = defaultdict(list)
    for launch, found in pairs:
        count = places[launch["case"], launch["repeat"], launch["kernel"]]
        places[launch["case"], launch["repeat"], launch["kernel"]] += 1
        groups[launch["case"], launch["kernel"], count].append((launch, found))
    for (_, _, index), group in groups.items():
        values = [found for _, found in group if found]
        first = next((launch for launch, _ in group if launch["ptx"]), None)
        if values and first:
            names = set.intersection(*(set(value) for value in values)) - {"kernel", "grid"}
            measured = {name: statistics.median(value[name] for value in values) for name in sorted(names)}
            yield {**first, "environment": environment, "index": index, "measured": measured}


def row(launch: dict[str, Any]) -> Row:
    """Evaluate one launch. What cannot be evaluated has no figures and says why."""
    about = {name: launch[name] for name in ("environment", "case", "kernel", "index")}
    measured = dict(launch["measured"])
    measured["dram"] = measured.get("dram_read", 0.0) + measured.get("dram_write", 0.0)
    try:
        found = memory_evidence(
            launch["ptx"],
            launch["arguments"],
            launch["grid"],
            launch["target"],
            signature=launch["signature"],
            threads=32 * launch["num_warps"],
        )
    except ValueError as error:
        return Row(**about, unknown=1.0, note=str(error), predicted={}, measured=measured, bound="")
    predicted = _predicted(found, launch["grid"])
    where = bound(found.busy_us)
    return Row(**about, unknown=found.unknown, note=found.note, predicted=predicted, measured=measured, bound=where)


def _predicted(found: MemoryEvidence, grid: Sequence[int]) -> dict[str, float]:
    blocks = grid[0] * grid[1] * grid[2]
    # L2 counts what atomics do apart from writes.
    atomic = sum(float(line["sectors"]) for line in found.lines if line["kind"] == "global_atomic")
    return {
        "wavefronts": found.shared_wavefronts * blocks,
        "l2_read": found.fetched_sectors * blocks,
        "l2_write": (found.global_store_sectors - atomic) * blocks,
        "dram": found.dram_bytes,
        "instructions": found.executed_instructions * blocks,
        "us": estimate_us(found.busy_us),
    }


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """For each figure the errors of the launches where nothing is unknown, and of all."""
    yield "| figure | launches | median error | within 15 % | measured 0 | unknown in part | their median error |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for figure in FIGURES:
        sure = [error for one in rows if not one.unknown and (error := _error(one, figure)) is not None]
        others = [error for one in rows if one.unknown and (error := _error(one, figure)) is not None]
        none = [one for one in rows if one.predicted and not _measured(one, figure)]
        right = sum(not _predicted_of(one, figure) for one in none)
        within = f"{sum(error <= WITHIN for error in sure) / len(sure):.0%}" if sure else "-"
        yield (
            f"| {figure} | {len(sure)} | {_median(sure)} | {within} | {right} of {len(none)} predicted"
            f" | {len(others)} | {_median(others)} |"
        )


def _median(errors: Sequence[float]) -> str:
    return f"{statistics.median(errors):.1%}" if errors else "-"


def _error(one: Row, figure: str) -> float | None:
    measured = _measured(one, figure)
    return abs(_predicted_of(one, figure) - measured) / measured if measured and one.predicted else None


def _predicted_of(one: Row, figure: str) -> float:
    return one.predicted.get(FIGURES[figure][0], 0.0)


def _measured(one: Row, figure: str) -> float:
    return one.measured.get(FIGURES[figure][1], 0.0)


def kernels(rows: Sequence[Row]) -> Iterator[str]:
    """Every launch: predicted / measured, and what the evaluation says of itself."""
    heads = ["environment", "case", "kernel", "unknown", *FIGURES, "us estimated / measured", "bound by", "note"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for one in sorted(rows, key=lambda one: (*one.key, one.environment)):
        figures = " | ".join(
            f"{_short(_predicted_of(one, f))} / {_short(_measured(one, f))}{_mark(one, f)}" for f in FIGURES
        )
        times = f"{one.predicted.get('us', 0.0):.1f} / {one.measured.get('time_ns', 0.0) / 1e3:.1f}"
        name = f"{one.kernel}#{one.index}" if one.index else one.kernel
        yield (
            f"| {one.environment} | {one.case} | {name} | {one.unknown:.0%} | {figures} | {times}"
            f" | {one.bound} | {one.note} |"
        )


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _mark(one: Row, figure: str) -> str:
    error = _error(one, figure)
    return " (!)" if error is not None and error > WITHIN else ""


def directions(rows: Sequence[Row]) -> Iterator[str]:
    """Ratios between environments: agreement where the GPU's time moved, alarms where it did not."""
    moved: list[bool] = []
    still: list[tuple[bool, bool]] = []
    misses: list[str] = []
    for one, other in _pairs(rows):
        measured = other.measured["time_ns"] / one.measured["time_ns"]
        before, after = one.predicted["us"], other.predicted["us"]
        predicted = after / before
        step = f"{one.case} {one.kernel}#{one.index} {one.environment} to {other.environment}: "
        step += f"measured x{measured:.3f}, predicted x{predicted:.3f}"
        if abs(measured - 1) > MOVED:
            moved.append((predicted > 1) == (measured > 1) and predicted != 1)
            misses += [] if moved[-1] else [f"- other direction: {step}"]
        elif abs(measured - 1) < STILL:
            still.append((_alarming(before, after), abs(predicted - 1) > MOVED))
            misses += [f"- false alarm: {step}"] if still[-1][0] else []
    yield f"Time moved by more than {MOVED:.0%}: {len(moved)}, predicted in that direction: {_share(moved)}"
    yield (
        f"Time moved by less than {STILL:.0%}: {len(still)}, of them flagged by the judge's rule: "
        f"{_share([alarm for alarm, _ in still])}; whose estimate moved by more than {MOVED:.0%}: "
        f"{_share([moves for _, moves in still])}"
    )
    yield from misses


def _alarming(before: float, after: float) -> bool:
    """The judge's own rule on estimates, worse or better."""
    low, high = sorted((before, after))
    return high >= low * Thresholds().cost_ratio and high - low >= Thresholds().cost_growth_us


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)} ({sum(found) / len(found):.1%})" if found else "0"


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Each launch in every two environments; only where the judge would believe both estimates."""
    by_launch: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for one in rows:
        known = one.unknown <= Thresholds().unknown_share and not one.note.startswith("cut")
        if known and one.predicted.get("us") and one.measured.get("time_ns"):
            by_launch[one.key].append(one)
    for found in by_launch.values():
        yield from itertools.combinations(sorted(found, key=lambda one: one.environment), 2)


if __name__ == "__main__":
    main()
