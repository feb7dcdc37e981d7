"""Undefined lanes made visible: a masked load without ``other`` gives poison where its mask is false.

What such a load returns there is undefined (triton#737). Releases happen to give zero in most code, so a
kernel that lets those lanes into a sum is right by luck, in fp32 more often than in fp16. While
:func:`poisoned` is active, ``tl.load`` fills in NaN (a small odd number for integers), both under the
interpreter and in what is compiled; a kernel that never uses those lanes gives the same result, bit for bit.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile

import triton.language as tl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

# Not so large that using it as an index ends the process instead of the comparison.
_INTEGER_POISON = 3


@contextlib.contextmanager
def poisoned(functions: Iterable[Any]) -> Iterator[None]:
    """Compile ``functions`` (JIT functions that were launched) anew with poisoned lanes while active."""
    original = tl.load

    @functools.wraps(original)
    def load(pointer: Any, mask: Any = None, other: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _plain(mask) is not None and _plain(other) is None:
            other = _poison(pointer)
        elif _plain(mask) is None and _reads_past_blocks(pointer, args, kwargs):
            kwargs["padding_option"] = "nan"
        return original(pointer, mask, other, *args, **kwargs)

    functions = list(functions)
    tl.load = load
    try:
        with _own_cache(functions):
            yield
    finally:
        tl.load = original


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _poison(pointer: Any) -> Any:
    element = pointer.dtype.element_ty
    if element.is_floating():
        return float("nan")
    return 1 if element.primitive_bitwidth == 1 else _INTEGER_POISON


def _reads_past_blocks(pointer: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether this is a block pointer's load with bounds checked and no padding stated (gone since 3.9)."""
    if args or not _plain(kwargs.get("boundary_check")) or _plain(kwargs.get("padding_option")):
        return False
    element = pointer.dtype.element_ty
    return bool(getattr(element, "is_block", bool)() and element.element_ty.is_floating())


@contextlib.contextmanager
def _own_cache(functions: list[Any]) -> Iterator[None]:
    """Let code compiled meanwhile meet neither the memory nor the disk cache of what is really measured."""
    before = os.environ.get("TRITON_CACHE_DIR")
    _forget(functions)
    with tempfile.TemporaryDirectory(prefix="matrix-lanes-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before
            _forget(functions)


def _forget(functions: list[Any]) -> None:
    for function in functions:
        for name in ("cache", "device_caches"):  # before and since 3.3
            if hasattr(function, name):
                getattr(function, name).clear()
