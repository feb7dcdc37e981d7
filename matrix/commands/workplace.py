"""Where a command works: the project's folder and this host's GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.storage.runs import Home

if TYPE_CHECKING:
    from matrix.gpus.stages import GpuHost


def project_root() -> Path:
    """The folder of the user's matrix.toml and of ``.matrix``."""
    return Path(os.environ.get("MATRIX_PROJECT") or Path.cwd())


def project_home() -> Home:
    """The project's ``.matrix``."""
    return Home(root=project_root())


def gpu_host() -> GpuHost:
    """The GPUs of this host that this process may use, whatever their target."""
    from matrix.gpus.devices import open_nvml, visible_gpus
    from matrix.gpus.stages import GpuHost

    nvml = open_nvml()
    return GpuHost(gpus=tuple(visible_gpus(nvml.gpus())) if nvml else (), nvml=nvml)
