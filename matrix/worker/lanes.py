"""Undefined lanes made visible: a masked load without ``other`` gives poison where its mask is false.

What such a load returns there is undefined (triton#737). Releases happen to give zero in most code, so a
kernel that lets those lanes into a sum is right by luck, in fp32 more often than in fp16. While
:func:`poisoned` is active, ``tl.load`` fills in poison, both under the interpreter and in what is compiled; a
kernel that never uses those lanes gives the same result, bit for bit.

Minus infinity is lost in a maximum, infinity in a minimum, and NaN in both: so there are two poisons.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import tempfile
from dataclasses import dataclass

import triton.language as tl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


@dataclass(frozen=True)
class LanePoison:
    """What undefined lanes hold; whole numbers are clipped to what their type can."""

    real: float
    whole: int


# The harmless index first: a wild one may end the process instead of the comparison.
POISONS = (LanePoison(-math.inf, 3), LanePoison(math.inf, 1 << 30))


@contextlib.contextmanager
def poisoned(functions: Iterable[Any], poison: LanePoison) -> Iterator[None]:
    """Compile ``functions`` (JIT functions that were launched) anew with poisoned lanes while active."""
    original = tl.load

    @functools.wraps(original)
    def load(pointer: Any, mask: Any = None, other: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _plain(mask) is not None and _plain(other) is None:
            other = _value(pointer, poison)
        elif _plain(mask) is None and _reads_past_blocks(pointer, args, kwargs):
            kwargs["padding_option"] = "nan"
        return original(pointer, mask, other, *args, **kwargs)

    functions = list(functions)
    tl.load = load
    try:
        with _own_cache(functions, poison):
            yield
    finally:
        tl.load = original


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _value(pointer: Any, poison: LanePoison) -> float | int:
    element = pointer.dtype.element_ty
    if element.is_floating():
        return poison.real
    signed = int(element.int_signedness == element.SIGNEDNESS.SIGNED)
    largest: int = (1 << (element.primitive_bitwidth - signed)) - 1 if element.primitive_bitwidth > 1 else 1
    return min(poison.whole, largest)


def _reads_past_blocks(pointer: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether this is a block pointer's load with bounds checked and no padding stated (gone since 3.9)."""
    if args or not _plain(kwargs.get("boundary_check")) or _plain(kwargs.get("padding_option")):
        return False
    element = pointer.dtype.element_ty
    return bool(getattr(element, "is_block", bool)() and element.element_ty.is_floating())


# Code compiled with poison, by function and poison: its points share it as they share the code that is measured.
# The function itself is kept so that its id stays its own.
_poisoned_code: dict[tuple[int, LanePoison], tuple[Any, dict[str, dict[Any, Any]]]] = {}


@contextlib.contextmanager
def _own_cache(functions: list[Any], poison: LanePoison) -> Iterator[None]:
    """Let code compiled meanwhile meet neither the memory nor the disk cache of what is really measured."""
    before = os.environ.get("TRITON_CACHE_DIR")
    root = before or tempfile.gettempdir()
    os.environ["TRITON_CACHE_DIR"] = os.path.join(root, f"poison-{POISONS.index(poison)}")  # noqa: PTH118
    real = [_swap(function, _poisoned_code.get((id(function), poison), (None, {}))[1]) for function in functions]
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = before
        for function, code in zip(functions, real):
            _poisoned_code[id(function), poison] = (function, _swap(function, code))


def _swap(function: Any, code: dict[str, dict[Any, Any]]) -> dict[str, dict[Any, Any]]:
    """Put ``code`` into the function's in-memory caches; returns what they held."""
    held = {}
    for name in ("cache", "device_caches"):  # before and since 3.3
        if hasattr(function, name):
            cache = getattr(function, name)
            held[name] = dict(cache)
            cache.clear()
            cache.update(code.get(name, {}))
    return held
