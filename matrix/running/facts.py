"""Facts for every compiled kernel of a run, from the cache or worked out anew."""

from __future__ import annotations

import ctypes
import dataclasses
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.code.disassembler import version
from matrix.code.evidence import kernel_facts_batch
from matrix.model import CPU, Target
from matrix.records import KernelFacts
from matrix.running.recording import fact_key
from matrix.storage.artifacts import Artifacts
from matrix.storage.cache import evidence_digest, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.code.evidence import KernelEvidence
    from matrix.running.execute import Bench, Measured

# Disassembling has a fixed cost a call and results should be kept now and then.
_BATCH = 64
_LEAST = 8
_PR_SET_PDEATHSIG = 1


def facts_of(
    bench: Bench, measured: Iterable[Measured], tick: Callable[[int], None]
) -> dict[str, tuple[KernelFacts, str]]:
    """Facts and SASS digest by :func:`matrix.running.recording.fact_key`."""
    kernels: dict[str, tuple[str, dict[str, Any]]] = {}
    for item in measured:
        target = item.planned.cell.target
        if target != CPU and Target(target).is_amd:
            continue
        for part in item.parts:
            for kernel in part["kernels"]:
                kernels.setdefault(fact_key(target, kernel), (target, kernel))
    found: dict[str, tuple[KernelFacts, str]] = {}
    for key in kernels:
        entry = bench.cache.get(_cache_key(key))
        if entry is not None and bench.artifacts.holds([entry["sass"]] if entry["sass"] else []):
            found[key] = (KernelFacts(**entry["facts"]), entry["sass"])
    tick(len(found))
    for batch, done in _worked_out(bench, _batches(kernels, found, bench.slots)):
        found |= _keep(bench, batch, done)
        tick(len(batch.keys))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Kernels of one target, read together; picklable."""

    target: str
    keys: tuple[str, ...]
    kernels: tuple[dict[str, Any], ...]

    def evidence(self, artifacts: Path) -> list[KernelEvidence]:
        return kernel_facts_batch(self.kernels, Artifacts(artifacts).get, self.target)


def _batches(kernels: Mapping[str, tuple[str, dict[str, Any]]], known: Collection[str], slots: int) -> list[_Batch]:
    """What is not known yet, by target, in as few batches as keep all slots busy."""
    by_target: dict[str, list[str]] = {}
    for key, (target, _) in kernels.items():
        if key not in known:
            by_target.setdefault(target, []).append(key)
    share = sum(map(len, by_target.values())) // slots + 1
    size = min(_BATCH, max(_LEAST, share))
    return [
        _Batch(target=target, keys=tuple(keys), kernels=tuple(kernels[key][1] for key in keys))
        for target, wanted in by_target.items()
        for start in range(0, len(wanted), size)
        for keys in [wanted[start : start + size]]
    ]


def _worked_out(bench: Bench, batches: Sequence[_Batch]) -> Iterator[tuple[_Batch, list[KernelEvidence]]]:
    """Each batch with its evidence, as they are done: in processes, for most of the work is Python's."""
    folder = bench.artifacts.folder
    if len(batches) < 2 or bench.slots < 2:
        yield from ((batch, batch.evidence(folder)) for batch in batches)
        return
    # Not forked: this process has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(bench.slots, len(batches)), context, _helping, (os.getpid(),)) as pool:
        futures = {pool.submit(batch.evidence, folder): batch for batch in batches}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _helping(parent: int) -> None:
    """In a process of the pool: leave interrupts to the one that has the pool, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)


def _keep(bench: Bench, batch: _Batch, done: Sequence[KernelEvidence]) -> dict[str, tuple[KernelFacts, str]]:
    """Put a batch into the cache. A kernel whose code cannot be read has no facts, and its cell no verdict."""
    found = {}
    for key, evidence in zip(batch.keys, done, strict=True):
        if evidence.facts is None:
            bench.say(f"no evidence for a kernel on {batch.target}: {evidence.error}")
            continue
        digest = bench.artifacts.put(evidence.sass.encode()) if evidence.sass else ""
        bench.cache.put(_cache_key(key), {"facts": dataclasses.asdict(evidence.facts), "sass": digest})
        found[key] = (evidence.facts, digest)
    return found


def _cache_key(key: str) -> str:
    return key_of({"facts": key, "evidence": evidence_digest(), "disassembler": version()})
