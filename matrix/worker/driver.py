"""The CUDA driver's library, called without a compiler: what torch does not pass on."""

from __future__ import annotations

import ctypes
import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DriverError(RuntimeError):
    """A call of the driver failed; says which one and how."""


@functools.cache
def library() -> ctypes.CDLL:
    """The driver's library. Raises :class:`DriverError` where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError(f"the driver's library cannot be opened: {error}") from None


def checked(name: str, *arguments: Any) -> None:
    """Call ``name``. Raises :class:`DriverError` unless it returns CUDA_SUCCESS."""
    code = getattr(library(), name)(*arguments)
    if code:
        raise DriverError(f"{name} failed with error {code}")


def long(value: int) -> ctypes.c_ulonglong:
    """An argument of 64 bits: a handle, an address, flags."""
    return ctypes.c_ulonglong(value)
