"""Facts for every compiled kernel of a run, from the cache or worked out anew."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from matrix.cache import key_of
from matrix.disassembler import version
from matrix.evidence import EVIDENCE_VERSION, kernel_facts_batch
from matrix.recording import fact_key
from matrix.records import KernelFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matrix.execute import Bench, Measured

# Disassembling has a fixed cost a call and results should be kept now and then.
_BATCH = 48


def facts_of(
    bench: Bench, measured: Iterable[Measured], tick: Callable[[int], None]
) -> dict[str, tuple[KernelFacts, str]]:
    """Facts and SASS digest by :func:`matrix.recording.fact_key`."""
    kernels: dict[str, tuple[str, dict[str, Any]]] = {}
    for item in measured:
        for part in item.parts:
            for kernel in part["kernels"]:
                target = item.planned.cell.target
                kernels.setdefault(fact_key(target, kernel), (target, kernel))
    found: dict[str, tuple[KernelFacts, str]] = {}
    for key in kernels:
        entry = bench.cache.get(_cache_key(key))
        if entry is not None and bench.artifacts.holds([entry["sass"]] if entry["sass"] else []):
            found[key] = (KernelFacts(**entry["facts"]), entry["sass"])
    tick(len(found))
    by_target: dict[str, list[str]] = {}
    for key, (target, _) in kernels.items():
        if key not in found:
            by_target.setdefault(target, []).append(key)
    batches = [
        (target, keys[start : start + _BATCH])
        for target, keys in by_target.items()
        for start in range(0, len(keys), _BATCH)
    ]
    with ThreadPoolExecutor(bench.slots) as pool:  # most of the time goes into the disassembler's processes
        futures = [
            pool.submit(_work_out, bench, target, keys, [kernels[key][1] for key in keys]) for target, keys in batches
        ]
        for future in futures:
            found |= future.result()
            tick(len(future.result()))
    return found


def _work_out(
    bench: Bench, target: str, keys: list[str], kernels: list[dict[str, Any]]
) -> dict[str, tuple[KernelFacts, str]]:
    """Facts of one batch. A kernel whose code cannot be read has none, and its cell no verdict."""
    found = {}
    for key, evidence in zip(keys, kernel_facts_batch(kernels, bench.artifacts.get, target), strict=True):
        if evidence.facts is None:
            bench.say(f"no evidence for a kernel on {target}: {evidence.error}")
            continue
        digest = bench.artifacts.put(evidence.sass.encode()) if evidence.sass else ""
        bench.cache.put(_cache_key(key), {"facts": dataclasses.asdict(evidence.facts), "sass": digest})
        found[key] = (evidence.facts, digest)
    return found


def _cache_key(key: str) -> str:
    return key_of({"facts": key, "evidence": EVIDENCE_VERSION, "disassembler": version()})
