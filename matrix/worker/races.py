"""Races between programs, found under the interpreter, which runs them one after the other.

Every address that a program loads or stores is noted. Programs of one launch run in no order, so an
address that one stores and another loads, or that two store with different values, is a race whatever the
result was this time. Launches that use atomics are left out: they may order themselves by them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np
from triton.runtime import interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@dataclass
class _Accesses:
    """Accesses of one kind: addresses, the programs that made them, and what was stored."""

    addresses: list[Any] = field(default_factory=list)
    programs: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, pointers: Any, mask: Any, program: int, values: Any = None) -> None:
        chosen = np.broadcast_to(mask, pointers.shape).astype(bool)
        found = pointers[chosen].astype(np.uint64).ravel()
        self.addresses.append(found)
        self.programs.append(np.full(found.shape, program, dtype=np.int64))
        if values is not None:
            full = np.ascontiguousarray(np.broadcast_to(values, pointers.shape)[chosen]).ravel()
            self.values.append(full.view(f"u{full.dtype.itemsize}").astype(np.uint64))

    def columns(self) -> tuple[Any, Any, Any]:
        empty: Any = np.zeros(0, dtype=np.uint64)
        values = self.values or [empty]
        return (
            np.concatenate(self.addresses or [empty]),
            np.concatenate(self.programs or [empty.astype(np.int64)]),
            np.concatenate(values),
        )


@dataclass
class Launch:
    """The accesses of one launch."""

    kernel: str
    loads: _Accesses = field(default_factory=_Accesses)
    stores: _Accesses = field(default_factory=_Accesses)
    atomics: int = 0

    def race(self) -> str:
        """What two programs do to each other, or "" where nothing was seen."""
        if self.atomics:
            return ""
        addresses, programs, values = self.stores.columns()
        order = np.lexsort((programs, addresses))
        addresses, programs, values = addresses[order], programs[order], values[order]
        same = addresses[1:] == addresses[:-1]
        clash = np.flatnonzero(same & (programs[1:] != programs[:-1]) & (values[1:] != values[:-1]))
        if len(clash):
            first, second = programs[clash[0]], programs[clash[0] + 1]
            return f"{self.kernel}: programs {first} and {second} store different values at one address"
        return self._read_of_anothers(addresses, programs)

    def _read_of_anothers(self, stored: Any, programs: Any) -> str:
        loaded, readers, _ = self.loads.columns()
        if not len(stored) or not len(loaded):
            return ""
        at = np.searchsorted(stored, loaded)
        found = (at < len(stored)) & (stored[np.minimum(at, len(stored) - 1)] == loaded)
        writers = programs[np.minimum(at, len(stored) - 1)]
        clash = np.flatnonzero(found & (writers != readers))
        if not len(clash):
            return ""
        reader, writer = readers[clash[0]], writers[clash[0]]
        return f"{self.kernel}: program {reader} loads what program {writer} stores, in no given order"


@contextlib.contextmanager
def noted() -> Iterator[list[Launch]]:
    """Note the accesses of every launch under the interpreter while active."""
    native, builder, executor = interpreter._interpreter, interpreter.interpreter_builder, interpreter.GridExecutor
    names = ("load", "store", "atomic_rmw", "atomic_cas")
    originals = {name: getattr(native, name) for name in names}
    original_call = executor.__call__
    launches: list[Launch] = []

    def program() -> int:
        x, y, z = builder.grid_idx
        _, height, depth = builder.grid_dim
        return int((x * height + y) * depth + z)

    def load(pointers: Any, mask: Any, *rest: Any) -> Any:
        launches[-1].loads.add(pointers, mask, program())
        return originals["load"](pointers, mask, *rest)

    def store(pointers: Any, values: Any, mask: Any) -> Any:
        launches[-1].stores.add(pointers, mask, program(), values)
        return originals["store"](pointers, values, mask)

    def atomic(name: str) -> Any:
        def act(*args: Any) -> Any:
            launches[-1].atomics += 1
            return originals[name](*args)

        return act

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        launches.append(Launch(self.fn.__name__))
        return original_call(self, *args, **kwargs)

    replaced = {"load": load, "store": store, **{name: atomic(name) for name in names[2:]}}
    for name, function in replaced.items():
        setattr(native, name, function)
    executor.__call__ = call
    try:
        yield launches
    finally:
        executor.__call__ = original_call
        for name, function in originals.items():
            setattr(native, name, function)
