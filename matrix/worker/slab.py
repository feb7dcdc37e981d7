"""Device memory that the workers of all arms map at once, so that every arm's buffers lie in the same place.

Where buffers lie in a GPU's memory moves a memory-bound kernel by a per cent or two (seen on an H200), far more
than what is to be told apart, and every process is given other memory. Arms take turns, and their inputs are the
same bits: they can use the very same memory. One worker makes it (the driver's virtual memory management), the
others map the file descriptor that it hands them, and all carve it up alike.

Not CUDA's inter-process handles: memory opened by one is not cached in L1 (on an H200 a layer norm took 1.8 times
as long there); memory mapped from a file descriptor is, and is as fast as one's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import socket
import tempfile
import threading
import uuid

import torch

from matrix.worker.driver import DriverError, checked, library, long
from matrix.worker.stretches import GRANULE_BYTES, Stretches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Of cuda.h: CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
# CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
_PINNED, _ON_DEVICE, _FILE_DESCRIPTOR, _READ_WRITE = 1, 1, 1, 3
_SHARE_OF_FREE = 0.25
_LARGEST_BYTES = 16 << 30
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``; the last eight bytes are its flags, all off."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def _ordinal(device: torch.device) -> int:
    return device.index if device.type == "cuda" and device.index is not None else 0


class Slab:
    """A stretch of device memory, made here or by another worker, and the allocator that carves it up.

    The allocator hands out one stretch after the other; :meth:`restart` begins anew, and passes over what is still
    in use. What does not fit is memory of this process alone, and ``overflowed`` then.
    """

    def __init__(self, handle: ctypes.c_ulonglong, size: int, device: torch.device, name: str) -> None:
        self.size, self.name, self.overflowed = size, name, False
        self._handle, self._device, self._stretches = handle, device, Stretches(size)
        self._outside: set[int] = set()
        self._pointer = self._mapped()
        # Pools keep the addresses of these, not the objects.
        self._allocate, self._free = _ALLOCATE(self._take), _FREE(self._give_back)
        addresses = (ctypes.cast(each, ctypes.c_void_p).value for each in (self._allocate, self._free))
        self._allocator = torch._C._cuda_customAllocator(*addresses)

    @classmethod
    def make(cls, device: torch.device) -> Slab:
        """A slab of a quarter of what is free. Raises :class:`DriverError` where that cannot be had or shared."""
        _require_pools()
        free, _ = torch.cuda.mem_get_info()
        size = int(min(_SHARE_OF_FREE * free, _LARGEST_BYTES)) // GRANULE_BYTES * GRANULE_BYTES
        location = _Location(_ON_DEVICE, _ordinal(device))
        properties, handle = _Properties(_PINNED, _FILE_DESCRIPTOR, location, None, 0), ctypes.c_ulonglong()
        checked("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), long(0))
        return cls(handle, size, device, uuid.uuid4().hex)

    @classmethod
    def join(cls, path: str, size: int, name: str, device: torch.device) -> Slab:
        """The slab that is served at ``path``. Raises :class:`DriverError`."""
        _require_pools()
        descriptor, handle = _received(path), ctypes.c_ulonglong()
        try:
            checked(
                "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _FILE_DESCRIPTOR
            )
        finally:
            os.close(descriptor)
        return cls(handle, size, device, name)

    def _mapped(self) -> int:
        pointer, size = ctypes.c_ulonglong(), ctypes.c_size_t(self.size)
        access = _Access(_Location(_ON_DEVICE, _ordinal(self._device)), _READ_WRITE)
        checked("cuMemAddressReserve", ctypes.byref(pointer), size, ctypes.c_size_t(0), long(0), long(0))
        checked("cuMemMap", pointer, size, ctypes.c_size_t(0), self._handle, long(0))
        checked("cuMemSetAccess", pointer, size, ctypes.byref(access), ctypes.c_size_t(1))
        return pointer.value

    def close(self) -> None:
        """Unmap the memory: nothing in it may be used any more. The last worker to do so frees it."""
        torch.cuda.synchronize(self._device)
        checked("cuMemUnmap", long(self._pointer), ctypes.c_size_t(self.size))
        checked("cuMemAddressFree", long(self._pointer), ctypes.c_size_t(self.size))
        checked("cuMemRelease", self._handle)

    def descriptor(self) -> int:
        """A file descriptor that another process can map the slab by."""
        found = ctypes.c_int()
        checked("cuMemExportToShareableHandle", ctypes.byref(found), self._handle, _FILE_DESCRIPTOR, long(0))
        return found.value

    def restart(self, offset: int, *, half: int) -> None:
        """Carve anew, from ``offset`` bytes on in one half (0 or 1)."""
        if self._stretches.in_use:
            # Pools that are gone keep their memory until the cache is emptied.
            torch.cuda.empty_cache()
        middle = self.size // 2 // GRANULE_BYTES * GRANULE_BYTES
        self._stretches.restart(half * middle + offset, self.size if half else middle)
        self.overflowed = False

    def offset(self, tensor: torch.Tensor) -> int:
        """Where ``tensor`` begins, in bytes from the slab's own beginning."""
        return tensor.data_ptr() - self._pointer

    def pool(self) -> Any:
        """A pool whose memory is carved from the slab. To be dropped after all that was allocated in it."""
        return torch.cuda.MemPool(self._allocator)

    def _take(self, size: int, _device: int, _stream: int | None) -> int:
        """Called by torch for each segment of a pool; raising is of no use here."""
        if (start := self._stretches.take(size)) is not None:
            return self._pointer + start
        pointer = ctypes.c_ulonglong()
        if library().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)):
            return 0
        self.overflowed = True
        self._outside.add(pointer.value)
        return pointer.value

    def _give_back(self, pointer: int, _size: int, _device: int, _stream: int | None) -> None:
        if pointer in self._outside:
            self._outside.remove(pointer)
            library().cuMemFree_v2(long(pointer))
        else:
            self._stretches.give_back(pointer - self._pointer)


def _require_pools() -> None:
    if not hasattr(torch.cuda, "MemPool"):
        raise DriverError(f"torch {torch.__version__} has no pools of memory of one's own")


class Lender:
    """Hands the slab's file descriptor to whoever connects, from a thread of its own."""

    def __init__(self, slab: Slab) -> None:
        # A folder of its own: a socket's path may be no longer than 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="slab-")
        self.path = str(pathlib.Path(self._folder.name) / "s")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, args=(slab.descriptor(),), daemon=True).start()

    def _serve(self, descriptor: int) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):  # whoever asked is gone; the next one may not be
                socket.send_fds(connection, [b"."], [descriptor])


def _received(path: str) -> int:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    except OSError as error:
        raise DriverError(f"the slab's owner does not answer: {error}") from None
    if not descriptors:
        raise DriverError("the slab's owner sent no file descriptor")
    return descriptors[0]


@contextlib.contextmanager
def allocating(pool: Any) -> Iterator[None]:
    """What is allocated meanwhile lies in ``pool`` (where there is one)."""
    if pool is None:
        yield
        return
    with torch.cuda.use_mem_pool(pool):
        yield
