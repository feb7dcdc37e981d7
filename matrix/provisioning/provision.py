"""Getting a run's environments ready: what is built already is used, nox builds the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.errors import EnvironmentBuildError
from matrix.provisioning.builds import Builder
from matrix.provisioning.manifests import folder_of
from matrix.resources import noxfile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.provisioning.manifests import BuiltEnvironment
    from matrix.running.progress import Board
    from matrix.settings.config import Configuration
    from matrix.settings.environments import Environment

_PROBLEM = "problem.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """One environment of a run: as built, or the problem that kept it from being built."""

    environment: Environment
    built: BuiltEnvironment | None
    problem: str = ""

    @property
    def triton_version(self) -> str:
        return self.built.triton if self.built else self.environment.triton_version

    @property
    def torch_version(self) -> str:
        """The torch that is installed, its build included: what supplies tensors and references."""
        return self.built.torch_build if self.built else self.environment.torch_version

    def meta(self) -> dict[str, Any]:
        """The environment as run.json tells of it."""
        declared, built = self.environment, self.built
        return {
            "id": declared.id,
            "triton": self.triton_version,
            "torch": declared.torch_version,
            "torch_build": self.torch_version,
            "python": built.python if built else declared.python,
            "numpy": built.version("numpy") if built else "",
            "stock": built.stock if built else "stock" in declared.tags,
            "tags": list(declared.tags),
            "as_of": declared.as_of,
            "variables": dict(declared.variables),
            "digest": built.digest if built else "",
            "lock": [{"name": p.name, "version": p.version, "sha256": p.sha256} for p in built.packages]
            if built
            else [],
            "label": built.label if built else "",
            "notes": list(built.notes) if built else [],
            "drift": list(built.drift) if built else [],
            "error": self.problem,
        }


def provide(names: Iterable[str], configuration: Configuration, root: Path, board: Board) -> dict[str, Provision]:
    """Every named environment, built or with its problem; one that fails does not keep the others."""
    wanted = {name: configuration.environment(name) for name in names}
    missing = [each for each in wanted.values() if not _ready(each, configuration, root)]
    for environment in missing:
        board.say(f"building {environment.id}")
    declared = {each.id for each in configuration.environments}
    _by_nox([each.id for each in missing if each.id in declared], configuration, root)
    for environment in missing:
        if environment.id not in declared:
            # Made up on the command line, so that no nox session bears its name.
            build_one(environment, configuration, root)
    return {name: _provision(each, configuration, root) for name, each in wanted.items()}


def build_one(
    environment: Environment, configuration: Configuration, root: Path, *, upgrade: bool = False
) -> Provision:
    """Build one environment here and now; its problem, if any, is left for the run that asked for it."""
    folder = folder_of(root, environment)
    try:
        built = Builder(root=root, cpu=configuration.cpu).build(environment, upgrade=upgrade)
    except EnvironmentBuildError as error:
        problem = f"{error}\nhint: {error.hint}" if error.hint else str(error)
        if folder.is_dir():
            (folder / _PROBLEM).write_text(problem, encoding="utf-8")
        return Provision(environment=environment, built=None, problem=problem)
    (folder / _PROBLEM).unlink(missing_ok=True)
    return Provision(environment=environment, built=built)


def _ready(environment: Environment, configuration: Configuration, root: Path) -> BuiltEnvironment | None:
    return Builder(root=root, cpu=configuration.cpu).ready(environment)


def _by_nox(ids: list[str], configuration: Configuration, root: Path) -> None:
    """Run the noxfile's ``env`` sessions. What fails is seen by what is not ready afterwards."""
    if not ids:
        return
    command = [sys.executable, "-P", "-m", "nox", "-f", str(noxfile()), "--parallel", "auto"]
    told = {
        "MATRIX_CONTROL": sys.executable,
        "MATRIX_PROJECT": str(root),
        "MATRIX_CONFIG": str(configuration.sources[-1]) if len(configuration.sources) > 1 else "",
        "MATRIX_REQUIRES": json.dumps(configuration.requires),
    }
    for identity in ids:
        (folder_of(root, configuration.environment(identity)) / _PROBLEM).unlink(missing_ok=True)
    sessions = [f"env({identity})" for identity in ids]
    subprocess.run(
        [*command, "-s", *sessions],
        env={**os.environ, **told},
        stdout=sys.stderr,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _provision(environment: Environment, configuration: Configuration, root: Path) -> Provision:
    built = _ready(environment, configuration, root)
    if built:
        return Provision(environment=environment, built=built)
    problem = folder_of(root, environment) / _PROBLEM
    told = problem.read_text(encoding="utf-8") if problem.is_file() else ""
    fallback = f"environment {environment.id}: nox could not build it; its output is above"
    return Provision(environment=environment, built=None, problem=told or fallback)
