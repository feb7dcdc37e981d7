"""Which kernels a call really launches: seen at Triton's own launch path, never reported by the case.

Under the interpreter that is the grid executor. On a GPU it is ``JITFunction.run``, a compiled kernel itself where a
library keeps it and launches it by hand, and inductor's own launcher for what ``torch.compile`` generated; here the
launches go ahead (:mod:`matrix.worker.launches` is the compile stage's, where they do not).
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass

from triton.compiler.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import GridExecutor
from triton.runtime.jit import JITFunction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

INDUCTOR = "torch._inductor.runtime.triton_heuristics"


@dataclass(frozen=True)
class Launched:
    """One launch; ``compiled`` is None under the interpreter. ``by_hand``: of a compiled kernel, past its function."""

    name: str
    function: Any
    compiled: Any = None
    by_hand: bool = False


@contextlib.contextmanager
def launches() -> Iterator[list[Launched]]:
    """Note every launch of a Triton kernel while active, warm-ups and tuning apart."""
    found: list[Launched] = []
    original_run, original_call, original_bench = JITFunction.run, GridExecutor.__call__, Autotuner._bench
    original_item = CompiledKernel.__getitem__

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = original_run(self, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            found.append(Launched(self.fn.__name__, self, compiled))
        return compiled

    def item(self: Any, grid: Any) -> Any:
        runner = original_item(self, grid)

        def launch(*args: Any, **kwargs: Any) -> Any:
            function = self.src.fn
            found.append(Launched(function.fn.__name__, function, self, by_hand=True))
            return runner(*args, **kwargs)

        return launch

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(Launched(self.fn.__name__, self.fn))
        return original_call(self, *args, **kwargs)

    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(found)
        try:
            return original_bench(self, *args, **kwargs)
        finally:
            del found[before:]

    JITFunction.run, GridExecutor.__call__, Autotuner._bench = run, call, bench
    CompiledKernel.__getitem__ = item
    try:
        with _generated(found):
            yield found
    finally:
        JITFunction.run, GridExecutor.__call__, Autotuner._bench = original_run, original_call, original_bench
        CompiledKernel.__getitem__ = original_item


@contextlib.contextmanager
def _generated(found: list[Launched]) -> Iterator[None]:
    """Note launches of generated kernels, where this process has inductor (:func:`matrix.worker.cases.find`)."""
    heuristics = sys.modules.get(INDUCTOR)
    if heuristics is None:
        yield
        return
    tuner: Any = heuristics.CachingAutotuner
    original = tuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(Launched(self.fn.__name__, self.fn))
        return original(self, *args, **kwargs)

    tuner.run = run
    try:
        yield
    finally:
        tuner.run = original


@contextlib.contextmanager
def tuned(pinned: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Note each autotuned kernel's winning configuration; kernels in ``pinned`` are given theirs instead."""
    chosen: dict[str, dict[str, Any]] = {}
    original = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = self.base_fn.__name__
        if name in pinned:
            chosen[name] = dict(pinned[name])
            return _run_pinned(self, pinned[name], args, kwargs)
        result = original(self, *args, **kwargs)
        chosen[name] = configuration(self.best_config)
        return result

    Autotuner.run = run
    try:
        yield chosen
    finally:
        Autotuner.run = original


@contextlib.contextmanager
def at_most(configs: int) -> Iterator[None]:
    """Let autotuned kernels choose among their first ``configs`` configurations; 0: among all.

    What they chose so is forgotten: asked again without a limit, they try all.
    """
    if not configs:
        yield
        return
    original, bench, limited = Autotuner.prune_configs, Autotuner._bench, []

    def prune(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        limited.append(self)
        return list(original(self, *args, **kwargs))[:configs]

    Autotuner.prune_configs = prune
    if configs == 1:  # before 3.9 a choice of one is timed like any other
        Autotuner._bench = lambda *_, **__: 0.0
    try:
        yield
    finally:
        Autotuner.prune_configs, Autotuner._bench = original, bench
        for tuner in limited:
            tuner.cache.clear()


def configuration(config: Any) -> dict[str, Any]:
    """An autotune configuration as JSON-able data: exactly what the launch is given."""
    return {key: value for key, value in config.all_kwargs().items() if value is not None}


def _run_pinned(tuner: Any, values: Mapping[str, Any], args: Any, kwargs: dict[str, Any]) -> Any:
    wanted = next((c for c in tuner.configs if configuration(c) == dict(values)), None)
    tuner.nargs = dict(zip(tuner.arg_names, args))
    if wanted is not None and wanted.pre_hook is not None:
        wanted.pre_hook({**tuner.nargs, **kwargs, **wanted.all_kwargs()})
    try:
        return tuner.fn.run(*args, **kwargs, **values)
    finally:
        tuner.nargs = None


def describe(found: list[Launched]) -> list[dict[str, Any]]:
    """The launches as JSON-able data, in order."""
    return [_describe(launch) for launch in found]


def _describe(launch: Launched) -> dict[str, Any]:
    compiled = launch.compiled
    if compiled is None:
        return {"name": launch.name}
    metadata = compiled.metadata
    wanted = ("num_warps", "num_stages", "num_ctas", "shared")
    result = {name: getattr(metadata, name, None) for name in wanted}
    # Filled in by the release itself once the kernel is loaded on a device.
    figures = {name: getattr(compiled, name, None) for name in ("n_regs", "n_spills")}
    return {"name": launch.name, **result, **figures}
