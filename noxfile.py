"""Nox sessions: the environments, the main job, the report, and this project's own checks.

This file runs under nox's own interpreter, where the package is not installed: it reads the same TOML
data and leaves everything else to ``python -m matrix`` in the control environment.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox
import nox.project

HERE = Path(__file__).resolve().parent
# In a wheel this file lies in matrix/builtin, in a clone beside matrix.
PACKAGE = HERE.parent if HERE.name == "builtin" else HERE / "matrix"
# An installed triton-matrix is its own control environment and says so.
CONTROL = os.environ.get("MATRIX_CONTROL", "")
# Where the user works: their matrix.toml and the .matrix folder.
PROJECT = Path(os.environ.get("MATRIX_PROJECT") or HERE)

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["matrix"]

# Containers like to set it. Each of our processes would then compile pandas and all the rest anew as it starts, which
# more than doubles its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _carry_pip_settings() -> None:
    """Let uv see the indexes and certificates that pip was set up with; uv does not read pip's settings."""
    spec = importlib.util.spec_from_file_location("_matrix_indexes", PACKAGE / "indexes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    os.environ.update(module.uv_settings())


def _environment_ids() -> list[str]:
    """The ids of all environments: the built-in ones and those of the user's matrix.toml."""
    tables = [nox.project.load_toml(PACKAGE / "data" / "environments.toml").get("environments", [])]
    for name, keys in (("matrix.toml", ()), ("pyproject.toml", ("tool", "triton-matrix"))):
        path = PROJECT / name
        if path.is_file():
            table = nox.project.load_toml(path)
            for key in keys:
                table = table.get(key, {})
            tables.append(table.get("environments", []))
    ids = [entry["id"] for table in tables for entry in table if isinstance(entry, dict) and "id" in entry]
    # An empty parametrize list would break every nox command.
    return list(dict.fromkeys(ids)) or ["none"]


def _control(session: nox.Session) -> str:
    """The control environment's interpreter, made or refreshed where the project's metadata changed."""
    if CONTROL:
        return CONTROL
    _carry_pip_settings()
    folder = HERE / ".nox" / "control"
    python = folder / "bin" / "python"
    stamp = folder / "stamp"
    wanted = hashlib.sha256((HERE / "pyproject.toml").read_bytes() + str(HERE).encode()).hexdigest()
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        uv = shutil.which("uv") or _uv()
        session.run_install(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder), external=True)
        session.run_install(
            uv, "pip", "install", "--quiet", "--python", str(python), "--editable", str(HERE), external=True
        )
        stamp.write_text(wanted)
    return str(python)


def _uv() -> str:
    import uv

    return str(uv.find_uv_bin())


def _matrix(session: nox.Session, *arguments: str) -> None:
    """Run ``python -m matrix`` in the control environment; nox ends with its exit code.

    Not ``session.run``: that knows success and failure only, and a CI job acts on 1, 2 and 3.
    """
    python = _control(session)
    told = {"MATRIX_PROJECT": str(PROJECT), "MATRIX_CONTROL": python, "MATRIX_PARENT": str(os.getpid())}
    child = subprocess.Popen([python, "-P", "-m", "matrix", *arguments], env={**os.environ, **told})
    while True:
        try:
            code = child.wait()
            break
        except KeyboardInterrupt:
            continue  # the child was interrupted too: it keeps what was measured and ends by itself
    if code:
        sys.exit(code if code > 0 else 128 - code)


@nox.session(venv_backend="none", allow_parallel=True)
@nox.parametrize("environment", [nox.param(name, id=name) for name in _environment_ids()])
def env(session: nox.Session, environment: str) -> None:
    """Build one isolated environment: resolve, lock, install."""
    _matrix(session, "environment", environment, *session.posargs)


@nox.session(venv_backend="none")
def matrix(session: nox.Session) -> None:
    """The main job: compare the candidate with the baseline on every target. Arguments follow ``--``."""
    _matrix(session, "run", *session.posargs)


@nox.session(venv_backend="none")
def report(session: nox.Session) -> None:
    """Render the report of one run folder or several."""
    _matrix(session, "report", *session.posargs)


def _development(session: nox.Session, *groups: str) -> None:
    _carry_pip_settings()
    project = nox.project.load_toml(HERE / "pyproject.toml")
    session.install("--quiet", *nox.project.dependency_groups(project, *groups))
    if "lint" not in groups:
        session.install("--quiet", "--editable", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff, with nearly all rules."""
    _development(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types: mypy, strict."""
    _development(session, "types")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite; installs Chromium first where it is missing and this user may."""
    _development(session, "tests")
    if not shutil.which("chromium") and shutil.which("apt-get") and os.geteuid() == 0:
        session.run("apt-get", "update", "-qq", external=True)
        session.run("apt-get", "install", "-y", "-qq", "chromium", external=True, silent=True)
    # Environments are built once for all of the suite's processes. Not under the session's own temporary folder: that
    # lies in its virtual environment, where Ray's workers refuse to start.
    workshop = os.environ.get("MATRIX_TEST_WORKSHOP") or str(HERE / ".nox" / "workshop")
    # In the order of tests/conftest.py: xdist would begin with the files of most tests, which are quick ones.
    # Three, where two cores are reckoned with: tests wait for servers, time limits and disks as well.
    processes = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    session.run("python", "-P", "-m", "pytest", *processes, *session.posargs, env={"MATRIX_TEST_WORKSHOP": workshop})
