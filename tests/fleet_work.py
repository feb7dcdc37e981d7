"""What stands in for a host's work in tests of the fleet; importable on the nodes of a test's cluster.

The seam is :class:`matrix.fleet.fleet.Fleet`'s ``work``; everything before and after it is the product.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fake_host
import pytest

from matrix.fleet import hosts
from matrix.fleet.orders import Answer, Order
from matrix.fleet.project import Project
from matrix.fleet.units import on_gpu
from matrix.gpus.timing_records import Timings
from matrix.records import CellRecord
from matrix.resources import sample_folder
from matrix.running.host import this_host
from matrix.storage.runfolder import load

# A case file up to the points of its one case.
DOUBLE = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def double_kernel(x, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i * step, mask=i < n), mask=i < n)

def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), BLOCK=64)
    return out

case = Case(name="double", run=double, reference=lambda x: 2 * x, inputs=lambda make, p: [make.normal((p.n,), "fp32")],
"""
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
# A folder in which each answer given leaves a line, so that a test sees what was done more than once.
DIARY = "MATRIX_TEST_DIARY"


def slow(order: Order, units: Sequence[str], project: Project, *, name: str, jobs: int) -> Iterator[Answer]:
    """A row for each environment of each unit, after a while; the same whoever makes it, but for the host's name."""
    host = dataclasses.replace(this_host(), name=name)
    for unit in units:
        time.sleep(0.1 + zlib.crc32(unit.encode()) % 100 / 500)
        with Path(os.environ[DIARY], f"{host.name}-{os.getpid()}").open("a", encoding="utf-8") as diary:
            diary.write(f"{unit}\n")
        yield Answer(unit=unit, host=host, locks={}, cells=_rows(order, unit, host.name))


def _rows(order: Order, unit: str, host: str) -> list[CellRecord]:
    stage, target, point = unit.split(" ", 2)
    case, _, params = point.partition(":")
    return [
        CellRecord(
            run_id=order.run_id,
            host=host,
            environment=environment,
            triton_version=environment.removeprefix("triton").partition("-")[0],
            torch_version="2.13.0+cpu",
            target=target,
            case=case,
            params=params,
            cell_id=f"{environment}/{target}/{point}",
            stage="correctness" if stage == "gpu" else stage,
            outcome="passed",
            reason="",
            detail="",
            seconds=float(zlib.crc32(unit.encode()) % 7),
            started_at=NOON,
        )
        for environment in order.request.environments
    ]


def real_without_gpus(
    order: Order, units: Sequence[str], project: Project, *, name: str, jobs: int
) -> Iterator[Answer]:
    """The product's own work where it needs no GPU; :func:`slow` elsewhere."""
    work = slow if on_gpu(units[0]) else hosts.work
    yield from work(order, units, project, name=name, jobs=jobs)


def on_fake_gpus(order: Order, units: Sequence[str], project: Project, *, name: str, jobs: int) -> Iterator[Answer]:
    """The product's own work, on two GPUs of sm_90 that are not there."""
    fake_host.stand_in(pytest.MonkeyPatch())
    yield from hosts.work(
        order, units, project, name=name, jobs=jobs, gpus=lambda: fake_host.fake_host(2), plan=fake_host.PLAN
    )


def recorded(order: Order, units: Sequence[str], project: Project, *, name: str, jobs: int) -> Iterator[Answer]:
    """For each unit the rows of a timed one that was recorded on an H200, as fast as they can be sent."""
    host, known = this_host(), _recorded()
    for unit in units:
        yield dataclasses.replace(known[zlib.crc32(unit.encode()) % len(known)], unit=unit, host=host)


@functools.cache
def _recorded() -> list[Answer]:
    run = load(sample_folder())
    found: dict[str, dict[str, list[Any]]] = {}
    tables = {"cells": run.cells, "arms": run.timings, "rounds": run.rounds()}
    for table, rows in tables.items():
        for row in rows:
            point = row.cell_id.split("/", 2)[2]
            found.setdefault(point, {name: [] for name in tables})[table].append(row)
    return [
        Answer(
            unit="",
            host=this_host(),
            locks={},
            cells=rows["cells"],
            timings=Timings(arms=tuple(rows["arms"]), rounds=tuple(rows["rounds"])),
        )
        for rows in found.values()
        if rows["rounds"]
    ]
