"""``triton-matrix doctor --gpu``: the instrument proved on the GPUs of this host, one after the other."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.commands.doctor import Check, examined_text
from matrix.errors import EnvironmentBuildError, UsageError
from matrix.gpus import proving
from matrix.gpus.crew import Crew
from matrix.gpus.devices import held, open_nvml, visible_gpus
from matrix.provisioning.provision import provide
from matrix.running.workers import WorkerHome
from matrix.settings.environments import HOST, Environment, child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.gpus.instrument import Proof
    from matrix.gpus.nvml import Gpu, Nvml
    from matrix.running.progress import Board
    from matrix.settings.config import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Where the workers run: an environment of the matrix, or this very interpreter."""

    environment: Environment
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One proof on one GPU."""

    gpu: Gpu
    proof: Proof

    def data(self) -> dict[str, Any]:
        """In the form of the other checks of the doctor, with the GPU and the figures."""
        return {**self.proof.data(), "gpu": self.gpu.uuid, "gpu_name": self.gpu.name}


def interpreter(name: str | None, configuration: Configuration, root: Path, board: Board) -> Interpreter:
    """The environment called ``name``, built if it is not; without a name, this interpreter.

    Raises :class:`UsageError` where this interpreter has no torch and Triton, :class:`EnvironmentBuildError`
    where the environment cannot be built.
    """
    if name is None:
        if not all(importlib.util.find_spec(package) for package in ("torch", "triton")):
            hint = "name an environment: `triton-matrix doctor --gpu --environment 3.9.0`"
            raise UsageError("the doctor's own interpreter has no torch and Triton to run kernels with", hint=hint)
        own = Environment(id=HOST, triton="triton", inherit=HOST)
        return Interpreter(environment=own, path=Path(sys.executable))
    wanted = configuration.environment(name)
    provision = provide([wanted.id], configuration, root, board)[wanted.id]
    if provision.built is None:
        raise EnvironmentBuildError(wanted.id, provision.problem)
    return Interpreter(environment=wanted, path=provision.built.interpreter)


def chosen(gpus: Sequence[Gpu], wanted: str | None) -> list[Gpu]:
    """The visible GPUs, or the one whose index or (beginning of the) UUID was asked for."""
    found = visible_gpus(gpus)
    if wanted is not None:
        found = [gpu for gpu in found if wanted == str(gpu.index) or (len(wanted) > 3 and gpu.uuid.startswith(wanted))]
        if not found:
            known = "; ".join(f"{gpu.index}: {gpu.uuid} ({gpu.name})" for gpu in gpus) or "none"
            raise UsageError(f"no GPU {wanted!r} that this process may use", hint=f"this host has {known}")
    return found


def examine(where: Interpreter, wanted: str | None, say: Callable[[str], None]) -> Iterator[Seen]:
    """The proofs of every chosen GPU, each as soon as it is there. Nothing on a host without a GPU."""
    nvml = open_nvml()
    if nvml is None:
        return
    with nvml:
        for gpu in chosen(nvml.gpus(), wanted):
            say(f"{gpu.name} {gpu.uuid}")
            with held(gpu, say):
                for proof in _proofs(where, gpu, nvml, say):
                    yield Seen(gpu=gpu, proof=proof)


def _proofs(where: Interpreter, gpu: Gpu, nvml: Nvml, say: Callable[[str], None]) -> Iterator[Proof]:
    with tempfile.TemporaryDirectory(prefix="matrix-doctor-") as name:
        home = WorkerHome(
            environment=where.environment.id,
            interpreter=where.path,
            variables=child_environment(where.environment),
            pythonpath=(),
            scratch=Path(name),
            memory_bytes=0,
        )
        specs = {arm: home.spec("gpu", gpu=gpu.uuid) for arm in proving.ARMS}
        with Crew(specs, Path(name)) as crew:
            subject = proving.Subject(
                asks={arm: partial(crew.ask, arm) for arm in proving.ARMS},
                read=partial(nvml.reading, gpu.uuid),
            )
            yield from proving.prove(subject, say)


def line(seen: Seen, *, colour: bool) -> str:
    """One proof for a terminal, in the form of the other checks."""
    proof = seen.proof
    name = f"GPU {seen.gpu.index}, {proof.name}"
    return examined_text([Check(name=name, found=proof.found, fit=proof.fit, hint=proof.hint)], colour=colour)
