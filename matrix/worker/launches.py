"""What a case really launches, observed at Triton's own launch path and never reported by the case.

Under the compile stage every launch proceeds as a warm-up: Triton specialises the real arguments exactly
as at a launch, compiles, and hands back the kernel without running it. That way regressions in argument
specialisation show too, which a hand-made ``ASTSource`` would hide.
"""

from __future__ import annotations

import contextlib
import resource
import time
from dataclasses import dataclass, field

import torch
import triton
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from matrix.worker.inputs import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


@dataclass
class Launch:
    """One launch of one kernel: the compiled kernel and what it was launched with."""

    function: Any
    compiled: Any
    grid: list[int] | None
    arguments: list[dict[str, Any]]
    stage_seconds: dict[str, float]  # of processor time


@dataclass
class Part:
    """The launches of one autotune configuration; ``config`` is empty for what is not autotuned."""

    config: str
    launches: list[Launch] = field(default_factory=list)
    failure: BaseException | None = None
    seconds: float = 0.0


class Recorder:
    """Turns launches into compilations and keeps them, part by part, while active."""

    def __init__(
        self,
        *,
        began: Callable[[str], None],
        at: Callable[[str], None],
        finished: Callable[[Part], None],
        skip: frozenset[str],
        configs: int = 0,
    ) -> None:
        self._began = began
        self._at = at
        self._finished = finished
        self._skip = skip
        self._most = configs or None  # of each tuned kernel; None: all
        self._labels: set[str] = set()
        self._stage_seconds: dict[str, float] = {}
        self.part = Part(config="")
        self.tuned = False
        # Integers of the case's inputs, by where they lie, until something may have written there.
        self.drawn: dict[int, dict[str, Any]] = {}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        originals = (JITFunction.run, Autotuner.run)
        recorder = self

        def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:  # noqa: ARG001 - always one
            return recorder._compile(originals[0], self, args, grid, kwargs)

        def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
            return recorder._tune(self, args, kwargs)

        JITFunction.run, Autotuner.run = run, tune
        try:
            with _timed_stages(self._stage_seconds):
                yield
        finally:
            JITFunction.run, Autotuner.run = originals

    def _compile(self, original: Any, function: Any, args: Any, grid: Any, kwargs: dict[str, Any]) -> Any:
        self._stage_seconds.clear()
        # Where the process is, should it die now.
        self._at("compile")
        started = time.perf_counter()
        try:
            compiled = original(function, *args, grid=grid, warmup=True, **kwargs)
        except BaseException as error:
            self.part.failure = error
            raise
        finally:
            self.part.seconds += time.perf_counter() - started
            self._at("run")
        bound = {**dict(zip(function.arg_names, args)), **kwargs}
        named = [(name, bound[name]) for name in function.arg_names if name in bound]
        self.part.launches.append(
            Launch(
                function=function,
                compiled=compiled,
                grid=_grid(grid, bound),
                arguments=_arguments(named, self.drawn),
                stage_seconds=dict(self._stage_seconds),
            )
        )
        tensors = (getattr(value, "base", value) for _, value in named)  # a descriptor's own, too
        touched = {_place(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)}
        self.drawn = {place: drawn for place, drawn in self.drawn.items() if place not in touched}
        return compiled

    def generated(self, function: Any, label: str, compile_it: Callable[[], Any]) -> None:
        """A kernel that torch generated, in one of the configurations that it would try."""
        outer = self.part
        if label:
            self.tuned = True
            (label,) = self._unique([f"{function.__name__}.{label}"])
            if label in self._skip:
                return
            self._began(label)
            self.part = Part(config=label)
        self._stage_seconds.clear()
        self._at("compile")
        started = time.perf_counter()
        try:
            compiled = compile_it()
        except Exception as error:
            self.part.failure = error
            if not label:
                raise
        else:
            # Whatever wraps the launch knows its grid; here it is not known.
            seconds = dict(self._stage_seconds)
            self.part.launches.append(
                Launch(function=function, compiled=compiled, grid=None, arguments=[], stage_seconds=seconds)
            )
        finally:
            self.part.seconds += time.perf_counter() - started
            self._at("run")
        if label:
            self._finished(self.part)
            self.part = outer
            self._began("")

    def _tune(self, tuner: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compile every configuration instead of timing them; each is a part of its own."""
        self.tuned = True
        tuner.nargs = dict(zip(tuner.arg_names, args))
        outer, drawn, result = self.part, self.drawn, None
        configs = _pruned(tuner, kwargs)[: self._most]
        for config, label in zip(configs, self._unique(_labels(configs))):
            if label in self._skip:
                continue
            self._began(label)
            self.part, self.drawn = Part(config=label), drawn  # each configuration is the first to run
            try:
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
                result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            except Exception as error:  # every failure of a configuration is that configuration's outcome
                self.part.failure = error
            self._finished(self.part)
        if configs:
            tuner.best_config = configs[0]  # what a library may ask for afterwards; nothing was timed
        self.part = outer
        self._began("")
        return result

    def _unique(self, labels: list[str]) -> list[str]:
        """The labels, numbered where a case tunes two kernels with equal configurations."""
        unique = []
        for label in labels:
            number, name = 1, label
            while name in self._labels:
                number += 1
                name = f"{label}.{number}"
            self._labels.add(name)
            unique.append(name)
        return unique


def _labels(configs: list[Any]) -> list[str]:
    """A name for each configuration: what its author wrote.

    ``num_stages`` is named only where configurations differ in nothing else: its default went from 2 to 3 in
    Triton 3.3, and a configuration must be found again in every release.
    """
    plain = [
        ".".join([*(f"{key}{value}" for key, value in config.kwargs.items()), f"warps{config.num_warps}"])
        for config in configs
    ]
    return [
        f"{label}.stages{config.num_stages}" if plain.count(label) > 1 else label
        for config, label in zip(configs, plain)
    ]


def _pruned(tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that the tuner itself would try; all of them where its pruning needs a GPU."""
    if len(tuner.configs) == 1:
        return list(tuner.configs)
    try:
        return list(tuner.prune_configs(kwargs))
    except (RuntimeError, AssertionError, AttributeError):
        return list(tuner.configs)


def _grid(grid: Any, bound: dict[str, Any]) -> list[int] | None:
    if grid is None:
        return None
    values = grid(bound) if callable(grid) else grid
    values = (values,) if isinstance(values, int) else tuple(values)
    return [int(v) for v in (*values, 1, 1)[:3]]


def _arguments(named: list[tuple[str, Any]], drawn: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The arguments of one launch. Tensors of one storage have its number, so that aliases are seen as such.

    Those that hold integers of the case's inputs, as they were made, say how to draw them.
    """
    described = [_argument(name, value) for name, value in named]
    storages: dict[int, int] = {}
    for (_, value), description in zip(named, described):
        tensor = getattr(value, "base", value) if description["kind"] == "descriptor" else value
        if isinstance(tensor, torch.Tensor):
            place = _place(tensor)
            if place in drawn and not tensor._version:  # torch counts what changed it
                description["drawn"] = drawn[place]
            # Storages that hold nothing, on the meta device too, all lie at 0.
            description["storage"] = storages.setdefault(place or -id(tensor), len(storages))
            description["offset_bytes"] = tensor.storage_offset() * tensor.element_size()
    return described


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _argument(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        shape, strides = list(value.shape), list(value.stride())
        dtype = NAMES.get(value.dtype, str(value.dtype))
        return {"name": name, "kind": "tensor", "dtype": dtype, "shape": shape, "strides": strides}
    if isinstance(value, (bool, int)):
        return {"name": name, "kind": "int", "value": int(value)}
    if isinstance(value, float):
        return {"name": name, "kind": "float", "value": value}
    if value is None:
        return {"name": name, "kind": "none"}
    if hasattr(value, "block_shape"):
        base = _argument(name, value.base)
        return {**base, "kind": "descriptor", "block_shape": [int(b) for b in value.block_shape]}
    return {"name": name, "kind": "other", "value": str(getattr(value, "value", value))[:200]}


@contextlib.contextmanager
def _timed_stages(seconds: dict[str, float]) -> Iterator[None]:
    """Let the backend time each of its stages into ``seconds``, of processor time."""
    backend = _backend_class()
    original = backend.add_stages

    def add_stages(self: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        original(self, stages, options, *rest)
        for name, stage in list(stages.items()):
            stages[name] = _timed(name, stage, seconds)

    backend.add_stages = add_stages
    try:
        yield
    finally:
        backend.add_stages = original


def _timed(name: str, stage: Any, seconds: dict[str, float]) -> Any:
    def timed(*args: Any) -> Any:
        started = _processor_seconds()
        try:
            return stage(*args)
        finally:
            seconds[name] = seconds.get(name, 0.0) + _processor_seconds() - started

    return timed


def _processor_seconds() -> float:
    """Of this process and of the assemblers that it waited for: what else the machine does at the time is not in it."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def _backend_class() -> Any:
    # Triton loads its backends as modules of its own making, so importing the module gives another class.
    name = "amd" if driver.active.get_current_target().backend == "hip" else "nvidia"
    return triton.backends.backends[name].compiler
