"""Runs uv, and turns what it says when it fails into one sentence and what to do about it."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uv import find_uv_bin

from matrix.errors import EnvironmentBuildError
from matrix.indexes import uv_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Settings of the caller's that would change which versions are chosen or where they go: those are said
# by the environment, and by nothing else.
_OURS = frozenset(
    {
        "UV_BUILD_CONSTRAINT",
        "UV_CONSTRAINT",
        "UV_EXCLUDE",
        "UV_EXCLUDE_NEWER",
        "UV_OVERRIDE",
        "UV_PRERELEASE",
        "UV_PROJECT",
        "UV_PROJECT_ENVIRONMENT",
        "UV_PYTHON",
        "UV_REQUIRE_HASHES",
        "UV_RESOLUTION",
        "UV_SYSTEM_PYTHON",
        "UV_TORCH_BACKEND",
        "UV_VENV_CLEAR",
        "UV_VENV_SEED",
        "UV_WORKING_DIR",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PYTHONPATH",
        "PYTHONHOME",
    }
)
_DISK_FULL = re.compile(r"No space left on device|os error 28\)|Disk quota exceeded|os error 122\)")
_PR_SET_PDEATHSIG = 1


class UvError(Exception):
    """uv ended with an error; the text is what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explanation:
    pattern: str
    message: str
    hint: str


# The first pattern that is found explains the failure.
_EXPLANATIONS = (
    _Explanation(
        pattern=r"No interpreter found|No download found|Failed to download `?https?://\S*python|"
        r"Failed to inspect Python interpreter|invalid Python version|Python interpreter not found",
        message="its Python is neither installed nor to be downloaded",
        hint="install it (uv python install, or your system's packages) or set python in matrix.toml",
    ),
    _Explanation(
        pattern=r"Hash mismatch",
        message="a package is not the one that the lock holds",
        hint="run with --upgrade to resolve again; the new lock is compared with the old one",
    ),
    _Explanation(
        pattern=r"network was disabled|Network connectivity is disabled",
        message="offline, and a package is neither in uv's cache nor in find_links",
        hint="add its wheel to find_links, or run once with a network",
    ),
    _Explanation(
        pattern=r"Failed to fetch|Request failed|error sending request|[Dd]ns error|HTTP status|timed out",
        message="a package index cannot be reached or refuses",
        hint="check network, proxy and index settings (PIP_INDEX_URL or UV_DEFAULT_INDEX; `triton-matrix "
        "doctor` shows them), or set offline = true with find_links",
    ),
    _Explanation(
        pattern=r"--find-links.*directory|Failed to read `--find-links`",
        message="a folder of find_links cannot be read",
        hint="correct find_links in matrix.toml",
    ),
    _Explanation(
        pattern=r"no version of|has no wheels|not found in the (package )?registry|No solution found",
        message="its requirements cannot be met",
        hint="check its triton, torch, requires and as_of; a wheel for this Python and platform must exist",
    ),
    _Explanation(
        pattern=r"Failed to build|[Bb]uild backend|Git operation failed|Failed to clone",
        message="a package could not be built from its source",
        hint="the output below is the build's own; try a wheel instead",
    ),
)


def run(
    arguments: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run uv and return its standard output. Raises :class:`UvError` with uv's own words, or ``OSError``.

    uv ends with this process, even if that is killed. It runs in an empty folder, since it would take
    constraints and overrides from a project around the current one: paths must be absolute.
    """
    with (
        tempfile.TemporaryDirectory(prefix="triton-matrix-") as folder,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as log,
    ):
        process = subprocess.Popen(
            [find_uv(), *arguments, "--no-progress", "--color", "never"],
            cwd=folder,
            env={**environment(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - one system call; nothing is allocated
        )
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise UvError(f"uv timed out after {timeout_s:g} s") from None
        finally:
            if process.poll() is None:  # timed out, or interrupted
                process.kill()
                process.wait()
        out.seek(0)
        log.seek(0)
        if code:
            raise UvError(_relevant(log.read().decode(errors="replace")) or f"uv ended with exit code {code}")
        return out.read().decode(errors="replace")


def find_uv() -> str:
    """The uv that this program depends on, else the one on the PATH. Raises :class:`UvError`."""
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        if found := shutil.which("uv"):
            return found
    raise UvError("uv is not installed")


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's variables, without those that are ours to say and with pip's settings carried over."""
    base = os.environ if base is None else base
    kept = {name: value for name, value in base.items() if name not in _OURS}
    return kept | uv_settings(base)


def explain(name: str, error: UvError | OSError) -> EnvironmentBuildError:
    """The error to show for environment ``name``: one sentence, uv's reason, and what to do."""
    text = str(error)
    if (isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}) or _DISK_FULL.search(text):
        hint = (
            "free a few GB where the run's .matrix folder and uv's cache (UV_CACHE_DIR) are, then run again: "
            "environments that are built are kept"
        )
        return EnvironmentBuildError(name, "the disk is full", hint=hint)
    if "uv is not installed" in text:
        return EnvironmentBuildError(name, text, hint="pip install uv")
    if isinstance(error, OSError):
        hint = "check the permissions of the run's .matrix folder"
        return EnvironmentBuildError(name, f"its folder cannot be written: {text}", hint=hint)
    for each in _EXPLANATIONS:
        if re.search(each.pattern, text):
            return EnvironmentBuildError(name, f"{each.message}\n{_indented(text)}", hint=each.hint)
    return EnvironmentBuildError(name, f"uv failed\n{_indented(text)}", hint="the output is uv's own")


def _relevant(log: str) -> str:
    """What uv said, from the error on: before it are progress and warnings."""
    lines = [line for line in log.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith("error")), 0)
    return "\n".join(lines[start:])


def _indented(text: str, most: int = 14) -> str:
    lines = text.splitlines()
    shown = lines if len(lines) <= most else [*lines[: most // 2], "...", *lines[-most // 2 :]]
    return "\n".join(f"  {line}" for line in shown)


def _die_with_parent() -> Callable[[], None] | None:
    """What makes the kernel end the child when this process dies, however it dies (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return lambda: library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
