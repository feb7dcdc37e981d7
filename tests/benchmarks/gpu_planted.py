"""Planted slow-downs on one GPU: how many of 2 % are found, and how many of 0 % are flagged.

    PYTHONPATH=. python tests/benchmarks/gpu_planted.py [--seconds 540] [--found 100] [--equal 200] [--proofs]

No two cells are the same: a streaming or an arithmetic kernel, its size, its steps and its block drawn by a
seed. Two equal cells come with each slow one, so that a run that ends early says something about both. With
``--proofs`` the proofs of ``triton-matrix doctor --gpu`` come first. Per-cell figures go to FOLDER/planted.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_crew import Timed, Workers, workers

from matrix.gpus import proving
from matrix.gpus.arms import ArmFailed, WorkerArm
from matrix.gpus.timing import TimingPlan, measure
from matrix.judging.statistics import block_values
from matrix.records import Decision

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTRA = 2.0
FLAGS = (str(Decision.SLOWER), str(Decision.FASTER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A cell whose candidate does ``extra`` per cent more."""

    cell: Timed
    extra: float


def drawn(found: int, equal: int, seed: int) -> Iterator[Planted]:
    """Cells in an order in which both kinds come evenly, none twice."""
    draw, seen = random.Random(seed), set()
    order = sorted(
        [(i / max(found, 1), EXTRA) for i in range(found)] + [(i / max(equal, 1), 0.0) for i in range(equal)]
    )
    for _, extra in order:
        cell = _cell(draw)
        while cell.id in seen:
            cell = _cell(draw)
        seen.add(cell.id)
        yield Planted(cell=cell, extra=extra)


def _cell(draw: random.Random) -> Timed:
    """From about 40 to about 500 us on an H200: the fixed cost of a launch does not drown the extra."""
    block = draw.choice((512, 1024, 2048))
    if draw.random() < 0.5:
        params = {"n": draw.randrange(20 << 20, 200 << 20) // block * block, "block": block}
        return Timed(path=str(proving.CASES), case="planted_stream", params=params)
    steps = draw.randrange(600, 4000, 50)  # so that 2 % more is a whole number
    params = {"n": draw.randrange(1 << 20, 3 << 20) // block * block, "steps": steps, "block": block}
    return Timed(path=str(proving.CASES), case="planted_fma", params=params)


def timed(planted: Planted, bench: Workers, plan: TimingPlan) -> dict[str, Any]:
    extras = {"baseline": 0.0, "candidate": planted.extra, "control": 0.0}
    arms = [
        WorkerArm(
            name,
            bench.asks[name],
            path=planted.cell.path,
            case=planted.cell.case,
            params={**planted.cell.params, "extra": extra},
        )
        for name, extra in extras.items()
    ]
    began = time.monotonic()
    try:
        record = measure(arms[0], [arms[1]], arms[2], plan=plan, read=bench.read)
    except ArmFailed as failure:
        return {"error": str(failure)[:300]}
    finally:
        for arm in arms:
            arm.dismiss()
    blocks = record.log_ratios("candidate")
    return {
        "extra": planted.extra,
        "ratio": math.exp(float(block_values(blocks).mean())),
        "control_ratio": math.exp(float(block_values(record.log_ratios("control")).mean())),
        "decision": str(record.decisions["candidate"]),
        "in_time": str(record.decisions_in_time["candidate"]),
        "in_cycles": str(record.decisions_in_cycles["candidate"]),
        "us": statistics.median(record.samples_us("baseline", record.judged_cache)),
        "blocks": len(blocks),
        "margin": record.margin,
        "stopped": record.stopped,
        "problems": list(record.problems["candidate"]),
        "gpu_s": record.arms_us / 1e6,
        "wall_s": time.monotonic() - began,
    }


def prove(bench: Workers) -> list[dict[str, Any]]:
    found = []
    for proof in proving.prove(proving.Subject(asks=bench.asks, read=bench.read), lambda _: None):
        print(f"{'ok ' if proof.fit else 'BAD'} {proof.name}: {proof.found}", flush=True)
        found.append(proof.data())
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--found", type=int, default=100)
    parser.add_argument("--equal", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="cells that another call ran already")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--proofs", action="store_true")
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    rows: dict[str, dict[str, Any]] = {}
    # What is judged is the product's; the figures beside it (warm samples, launch overhead) are left out.
    plan = TimingPlan(warm_rounds=0, overhead_calls=1)
    cells = list(drawn(asked.found, asked.equal, asked.seed))[asked.skip :]
    with workers(*proving.ARMS) as bench:
        print(f"{bench.gpu.name}, driver {bench.gpu.driver}", flush=True)
        proofs = prove(bench) if asked.proofs else []
        for planted in cells:
            if time.monotonic() > deadline:
                break
            rows[planted.cell.id] = row = timed(planted, bench, plan)
            expected = str(Decision.SLOWER) if planted.extra else ""
            if "error" in row or row["problems"] or (row["decision"] in FLAGS) != bool(expected):
                print(f"{planted.cell.id} + {planted.extra:g} %: {row}", flush=True)
    report = {"summary": _summary(rows), "cells": rows, "proofs": proofs}
    (asked.out / "planted.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report["summary"], indent=1))
    print(f"not run for want of time: {len(cells) - len(rows)} of {len(cells)} cells")


def _summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows.values() if "error" not in row]
    slow, equal = ([row for row in good if bool(row["extra"]) is kind] for kind in (True, False))
    return {
        f"planted {EXTRA:g} %": len(slow),
        "found": sum(row["decision"] == Decision.SLOWER and not row["problems"] for row in slow),
        "planted 0 %": len(equal),
        "flagged": sum(row["decision"] in FLAGS and not row["problems"] for row in equal),
        "undecided": {"slow": _undecided(slow), "equal": _undecided(equal)},
        "unusable": sum(bool(row["problems"]) for row in good),
        "failed": len(rows) - len(good),
        "largest |ratio - 1| of the equal": max((abs(row["ratio"] - 1) for row in equal), default=None),
        "wall_s_a_cell": statistics.fmean(row["wall_s"] for row in good) if good else None,
        "gpu_s_a_cell": statistics.fmean(row["gpu_s"] for row in good) if good else None,
    }


def _undecided(rows: list[dict[str, Any]]) -> int:
    return sum(row["decision"] == Decision.UNDECIDED for row in rows)


if __name__ == "__main__":
    main()
