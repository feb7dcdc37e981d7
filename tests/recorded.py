"""Artefacts of real releases, recorded in ``tests/data/evidence`` (see its README)."""

from __future__ import annotations

import functools
import json
import tarfile
from pathlib import Path
from typing import Any

_ARCHIVE = Path(__file__).parent / "data" / "evidence" / "artifacts.tar.xz"


@functools.cache
def everything() -> dict[str, bytes]:
    with tarfile.open(_ARCHIVE) as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive.getmembers())
        return {name: file.read() for name, file in files if file is not None}


def read(name: str) -> bytes:
    """``"3.6.0/sm_90/add.cubin"``."""
    return everything()[name]


def text(name: str) -> str:
    return read(name).decode()


def names(ending: str) -> list[str]:
    return sorted(name for name in everything() if name.endswith(ending))


def kernel(prefix: str) -> dict[str, Any]:
    """A kernel as a worker reports it, the entries' names in place of hashes."""
    metadata = json.loads(read(f"{prefix}.json"))
    kinds = [kind for kind in ("ttir", "ttgir", "llir", "ptx", "cubin") if f"{prefix}.{kind}" in everything()]
    return {
        "name": metadata["name"],
        "num_warps": metadata["num_warps"],
        "shared_bytes": metadata["shared"],
        "tensor_memory_columns": metadata.get("tmem_size") or 0,
        "artifacts": {kind: f"{prefix}.{kind}" for kind in kinds},
    }
