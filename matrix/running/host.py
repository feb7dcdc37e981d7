"""The machine that a run happens on, as its report names it."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine: its name, what it runs and how much of it this process may use."""

    name: str
    system: str
    processor: str
    cores: int
    memory_bytes: int
    python: str


def this_host() -> Host:
    return Host(
        name=socket.gethostname(),
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a device, not a file of ours
            names = (line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
            return next(names, platform.machine())
    except OSError:
        return platform.machine()
