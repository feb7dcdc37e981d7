"""Predicted memory traffic against a GPU's counters, from what ``memory_counters.py`` kept.

    python -P tests/benchmarks/memory_agreement.py OUT [OUT ...] [--markdown FILE]
    python -P tests/benchmarks/memory_agreement.py --sample        (or --run FOLDER)

Evaluates each launch's PTX with no GPU and prints, for each figure: the median relative error and the share of
launches within 15 %, where nothing is unknown; each launch with both figures; and for each pair of environments
whether the estimate moved in the direction that the GPU's own time moved, and how often it cried wolf.

The second form asks that of a run of the matrix, by the times that it measured and the estimates in its evidence.
"""

from __future__ import annotations

import argparse
import base64
import csv
import itertools
import json
import os
import statistics
import zlib
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.code import cubin, disassembler
from matrix.judging import traffic
from matrix.judging.thresholds import Thresholds
from matrix.memory.cost import bound, busy_by_ptx, estimate_us
from matrix.memory.evidence import Compiled, MemoryEvidence, memory_evidence
from matrix.records import Role
from matrix.resources import sample_folder
from matrix.storage.runfolder import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from matrix.records import KernelRecord
    from matrix.storage.runfolder import RunFolder

# Predicted and measured. SMs ask L2 for sectors through a coalescer, which merges what several ask for at one time:
# "received" is counted on their side of it, "read" on L2's.
FIGURES = {
    "shared wavefronts": ("wavefronts", "wavefronts"),
    "L2 sectors received": ("l2_read", "received"),
    "L2 sectors read": ("l2_read", "l2_read_l1"),
    "L2 sectors written": ("l2_write", "l2_write_l1"),
    "DRAM bytes read": ("dram_read", "dram_read"),
    "DRAM bytes written": ("dram_write", "dram_write"),
    "warp instructions": ("instructions", "instructions"),
}
WITHIN = 0.15
SHARED_READS = 1.05  # times every byte once
SECTOR_BYTES = 32
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
    code: str = ""  # the machine code, where that was kept

    @property
    def shares_reads(self) -> bool:
        """Whether blocks read over again what others read: L1 and the coalescer before L2 spare L2 some, by chance."""
        return _predicted_of(self, "L2 sectors read") * SECTOR_BYTES > SHARED_READS * _predicted_of(
            self, "DRAM bytes read"
        )

    @property
    def key(self) -> tuple[str, str, int]:
        return self.case, self.kernel, self.index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="*")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--run", type=Path, help="a run with evidence and timings: estimates against times")
    parser.add_argument("--sample", action="store_true", help="the run that this package carries, as --run")
    given = parser.parse_args()
    parts = [_counted(given.out)] if given.out else []
    if folder := sample_folder() if given.sample else given.run:
        parts.append(timed(load(folder)))
    if not parts:
        parser.error("nothing to compare: name what memory_counters.py kept, or give --run or --sample")
    text = "\n".join(line for part in parts for line in part)
    print(text)
    if given.markdown:
        given.markdown.write_text(text + "\n", encoding="utf-8")


def _counted(folders: Iterable[Path]) -> Iterator[str]:
    launches = with_code([launch for folder in folders for launch in kept(folder)])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(row, launches, chunksize=4))
    yield from summary(rows)
    yield from ("", *directions(rows), "", *errors(rows), "", *kernels(rows), "")


def with_code(launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each launch with the text of its machine code, where that was kept."""
    by_target: dict[str, list[int]] = defaultdict(list)
    for place, launch in enumerate(launches):
        if launch.get("cubin"):
            by_target[launch["target"]].append(place)
    found = list(launches)
    for target, places in by_target.items():
        codes = [_code(launches[place]) for place in places]
        for place, text, code in zip(places, disassembler.disassemble(codes, target), codes):
            found[place] = {**launches[place], "cubin": "", "sass": text, "code": code}
    return found


def _code(launch: Mapping[str, Any]) -> bytes:
    return cubin.function(zlib.decompress(base64.b64decode(launch["cubin"])), launch["kernel"]).text


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
            **_held(row),
        }
        for row in rows
        if row.get("ID", "").strip()  # the row of units has none
    ]


def _held(row: Mapping[str, str]) -> dict[str, float]:
    """How many blocks an SM holds, and each one's shared memory without the driver's; ncu names them unasked."""
    limits = [float(value) for name, value in row.items() if name.startswith("launch__occupancy_limit_") and value]
    taken = [float(row.get(name, "0").replace(",", "")) for name in _SHARED]
    return {"resident": min(limits), "shared_bytes": sum(taken)} if limits else {}


_SHARED = ("launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static")


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
    try:
        found = memory_evidence(
            launch["ptx"],
            launch["arguments"],
            launch["grid"],
            launch["target"],
            signature=launch["signature"],
            threads=32 * launch["num_warps"],
            compiled=Compiled(
                resident=int(measured.get("resident", 0)),
                shared_bytes=int(measured.get("shared_bytes", 0)),
                sass=launch.get("sass", ""),
                code=launch.get("code", b""),
            ),
        )
    except ValueError as error:
        return Row(**about, unknown=1.0, note=str(error), predicted={}, measured=measured, bound="")
    predicted = _predicted(found, launch["grid"])
    return Row(
        **about,
        unknown=found.unknown,
        note=found.note,
        predicted=predicted,
        measured=measured,
        bound=bound(found.busy_us),
        code=launch.get("sass", ""),
    )


def _predicted(found: MemoryEvidence, grid: Sequence[int]) -> dict[str, float]:
    blocks = grid[0] * grid[1] * grid[2]
    # L2 counts what atomics do apart from writes.
    atomic = sum(float(line["sectors"]) for line in found.lines if line["kind"] == "global_atomic")
    return {
        "wavefronts": found.shared_wavefronts * blocks,
        "l2_read": found.fetched_sectors * blocks,
        "l2_write": (found.global_store_sectors - atomic) * blocks,
        "dram_read": found.dram_read_bytes,
        "dram_write": found.dram_bytes - found.dram_read_bytes,
        "instructions": (found.machine_instructions or found.executed_instructions) * blocks,
        "us": estimate_us(found.busy_us),
        "us_by_ptx": estimate_us(busy_by_ptx(found.busy_us, found.executed_instructions, found.machine_instructions)),
        "weighed": float(found.machine_instructions is not None),
    }


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """For each figure the errors of the launches where nothing is unknown, and of all; then by environment."""
    yield "| figure | launches | median error | within 15 % | measured 0 | unknown in part | their median error |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    yield from (_summed(figure, figure, rows) for figure in FIGURES)
    known = [one for one in rows if one.predicted]
    apart = [one for one in known if not one.shares_reads]
    yield _summed("L2 sectors read", "L2 sectors read, where no two blocks read the same", apart)
    together = [one for one in known if one.shares_reads]
    yield _summed("L2 sectors read", "L2 sectors read, where blocks read the same", together)
    environments = sorted({one.environment for one in rows})
    if len(environments) > 1:
        yield from (
            "",
            f"| median error; within 15 % | {' | '.join(environments)} |",
            f"|{' --- |' * (1 + len(environments))}",
        )
        for figure in FIGURES:
            cells = (_in_short(figure, [one for one in rows if one.environment == name]) for name in environments)
            yield f"| {figure} | {' | '.join(cells)} |"


def _summed(figure: str, title: str, rows: Sequence[Row]) -> str:
    sure, others = _errors(figure, rows)
    none = [one for one in rows if one.predicted and _measured(one, figure) == 0]
    right = sum(not _predicted_of(one, figure) for one in none)
    return (
        f"| {title} | {len(sure)} | {_median(sure)} | {_within(sure)} | {right} of {len(none)} predicted"
        f" | {len(others)} | {_median(others)} |"
    )


def _in_short(figure: str, rows: Sequence[Row]) -> str:
    sure, _ = _errors(figure, rows)
    return f"{_median(sure)}; {_within(sure)} of {len(sure)}"


def _errors(figure: str, rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Of the launches where nothing is unknown, and of the others."""
    found = [(one.unknown, error) for one in rows if (error := _error(one, figure)) is not None]
    return [error for unknown, error in found if not unknown], [error for unknown, error in found if unknown]


def _within(errors: Sequence[float]) -> str:
    return f"{sum(error <= WITHIN for error in errors) / len(errors):.0%}" if errors else "-"


def _median(errors: Sequence[float]) -> str:
    return f"{statistics.median(errors):.1%}" if errors else "-"


def _error(one: Row, figure: str) -> float | None:
    measured = _measured(one, figure)
    return abs(_predicted_of(one, figure) - measured) / measured if measured and one.predicted else None


def _predicted_of(one: Row, figure: str) -> float:
    return one.predicted.get(FIGURES[figure][0], 0.0)


def _measured(one: Row, figure: str) -> float | None:
    """None where this was not counted."""
    return one.measured.get(FIGURES[figure][1])


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


def errors(rows: Sequence[Row]) -> Iterator[str]:
    """Every kernel in one line: signed errors in each environment in turn, once where they are all alike."""
    environments = sorted({one.environment for one in rows})
    yield f"Predicted less measured, of measured: {', '.join(environments)}, once where all are alike."
    yield ""
    heads = ["case", "kernel", *_TOLD, "unknown"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    by_launch: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for one in sorted(rows, key=lambda one: (*one.key, one.environment)):
        by_launch[one.key].append(one)
    for (case, kernel, index), found in by_launch.items():
        cells = (_in_turn([_signed(one, figure) for one in found]) for figure in _TOLD)
        unknown = _in_turn([f"{one.unknown:.0%}" if one.unknown else "-" for one in found])
        yield f"| {case} | `{kernel}`{f' #{index + 1}' if index else ''} | {' | '.join(cells)} | {unknown} |"


_TOLD = ("shared wavefronts", "L2 sectors received", "L2 sectors read", "L2 sectors written", "DRAM bytes read")


def _signed(one: Row, figure: str) -> str:
    measured = _measured(one, figure)
    if measured is None or not one.predicted:
        return "?"
    if not measured:
        return "0 %" if not _predicted_of(one, figure) else "of 0"
    error = _predicted_of(one, figure) / measured - 1
    return f"{error:+.0%}".replace("+0%", "0 %").replace("-0%", "0 %").replace("%", " %").replace("  ", " ")


def _in_turn(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _mark(one: Row, figure: str) -> str:
    error = _error(one, figure)
    return " (!)" if error is not None and error > WITHIN else ""


def directions(rows: Sequence[Row]) -> Iterator[str]:
    """Ratios between environments, by the counters' own times. Equal machine code tells how these times scatter."""
    pairs = list(_pairs(rows))
    apart = sorted(abs(_ratio(one, other) - 1) for one, other in pairs if _same_code(one, other))
    if apart:
        tail = apart[int(0.95 * (len(apart) - 1))]
        yield (
            f"Equal machine code: {len(apart)} pairs, times apart by {statistics.median(apart):.1%} in the median, "
            f"95 % of them by no more than {tail:.1%}"
        )
    yield from moves(
        Step(
            what=f"{one.case} {one.kernel}#{one.index} {one.environment} to {other.environment}",
            measured=_ratio(one, other),
            estimates=(_estimated(one, other),),
        )
        for one, other in pairs
        if not _same_code(one, other)
    )


def _same_code(one: Row, other: Row) -> bool:
    return bool(one.code) and one.code == other.code


def _ratio(one: Row, other: Row) -> float:
    return other.measured["time_ns"] / one.measured["time_ns"]


def _estimated(one: Row, other: Row) -> tuple[float, float]:
    """As the judge compares: by the PTX's instructions where one side's machine code could not be weighed."""
    weighed = one.predicted.get("weighed") and other.predicted.get("weighed")
    name = "us" if weighed or "us_by_ptx" not in one.predicted else "us_by_ptx"
    return one.predicted[name], other.predicted[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From one environment to another: the time's ratio, and each kernel's two estimates in microseconds."""

    what: str
    measured: float
    estimates: tuple[tuple[float, float], ...]

    @property
    def predicted(self) -> float:
        return sum(after for _, after in self.estimates) / sum(before for before, _ in self.estimates)

    def alarming(self, thresholds: Thresholds) -> bool:
        """The judge's own rule on estimates of a kernel, worse or better."""
        for before, after in self.estimates:
            low, high = sorted((before, after))
            if high >= low * thresholds.cost_ratio and high - low >= thresholds.cost_growth_us:
                return True
        return False


def moves(steps: Iterable[Step], thresholds: Thresholds = Thresholds()) -> Iterator[str]:  # noqa: B008 - frozen
    """How often estimates moved as times did, and how often they cried wolf."""
    moved: list[Step] = []
    still: list[Step] = []
    for step in steps:
        if abs(step.measured - 1) > MOVED:
            moved.append(step)
        elif abs(step.measured - 1) < STILL:
            still.append(step)
    right = [(step.predicted > 1) == (step.measured > 1) and step.predicted != 1 for step in moved]
    flagged = [step.alarming(thresholds) for step in still]
    yield f"Time moved by more than {MOVED:.0%}: {len(moved)}, predicted in that direction: {_share(right)}"
    yield (
        f"Time moved by less than {STILL:.0%}: {len(still)}, of them flagged by the judge's rule: {_share(flagged)}; "
        f"whose estimate moved by more than {MOVED:.0%}: {_share([abs(step.predicted - 1) > MOVED for step in still])}"
    )
    yield from (_said("other direction", step) for step, agrees in zip(moved, right) if not agrees)
    yield from (_said("false alarm", step) for step, alarm in zip(still, flagged) if alarm)
    yield ""
    yield "| moved | measured | predicted | |"
    yield "| --- | --- | --- | --- |"
    for step, agrees in sorted(zip(moved, right), key=lambda item: item[0].what):
        yield f"| {step.what} | x{step.measured:.3f} | x{step.predicted:.3f} | {'agrees' if agrees else 'misses'} |"


def _said(word: str, step: Step) -> str:
    return f"- {word}: {step.what}: measured x{step.measured:.3f}, predicted x{step.predicted:.3f}"


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


def timed(run: RunFolder) -> Iterator[str]:
    """A run's own timings against its own evidence: every candidate against the baseline, cell by cell."""
    thresholds = run.thresholds
    kernels: dict[tuple[str, str, str, str], list[KernelRecord]] = defaultdict(list)
    for kernel in run.kernels:
        kernels[kernel.environment, kernel.target, kernel.case, kernel.params].append(kernel)
    steps: list[Step] = []
    without: list[str] = []
    for arm in run.timings:
        if arm.role != Role.CANDIDATE or arm.ratio is None:
            continue
        what = f"{arm.case}:{arm.params} {arm.baseline} to {arm.environment}"
        before = kernels.get((arm.baseline, arm.target, arm.case, arm.params), [])
        after = kernels.get((arm.environment, arm.target, arm.case, arm.params), [])
        if estimates := _estimates(before, after, thresholds):
            steps.append(Step(what=what, measured=arm.ratio, estimates=estimates))
        else:
            without.append(what)
    yield f"{len(steps)} of {len(steps) + len(without)} timed comparisons have an estimate on both sides."
    yield from (f"- none: {what}" for what in without)
    yield from moves(steps, thresholds)


def _estimates(
    before: Sequence[KernelRecord], after: Sequence[KernelRecord], thresholds: Thresholds
) -> tuple[tuple[float, float], ...]:
    """Each kernel's, in the order of their launches; none where the judge would not believe one of them."""
    if not before or [one.kernel for one in before] != [one.kernel for one in after]:
        return ()
    pairs = [traffic.compared(one.facts, other.facts, thresholds) for one, other in zip(before, after)]
    return tuple(pair.estimates for pair in pairs if pair is not None) if all(pairs) else ()


if __name__ == "__main__":
    main()
