"""The Ray cluster: connecting to one that runs, its nodes, and tasks in it. The only module that imports ray.

We never start a cluster, a dashboard or anything else that listens: a driver connects to what its operator started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.fleet import hosts
from matrix.fleet.pools import TOKEN, Node, gpu_pool
from matrix.model import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.fleet.orders import Answer, Order, Survey
    from matrix.fleet.pools import Pool
    from matrix.fleet.project import Project

_CONNECT_S = 5.0
_RETRIES = 3  # Ray's, of a task whose worker or host was lost
_START = "start one with `ray start --head`, or name one: --address HOST:PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A task that Ray gave up: its worker or host was lost too often, or what it ran raised."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A connection. Tasks are known by what :meth:`ask` returned."""

    ray: Any
    _groups: dict[str, Any] = field(default_factory=dict, init=False)

    def nodes(self) -> list[Node]:
        """The hosts that are alive."""
        return [Node.of(told) for told in self.ray.nodes() if told["Alive"]]

    def targets(self) -> list[str]:
        """The targets that some host has GPUs of."""
        nodes = self.nodes()
        return [str(target) for target in Target if gpu_pool(nodes, str(target))]

    def share(self, project: Project) -> Any:
        """The project where every host finds it: it travels to each once."""
        return self.ray.put(project)

    def survey(self, pool: Pool, order: Order, project: Any) -> Any:
        """Start a task that has a host of the pool get ready and answers with its survey."""
        options = {**self._placed(pool), "max_retries": _RETRIES, "num_returns": "streaming"}
        return self.ray.remote(_survey).options(**options).remote(order, project)

    def hold(self, pool: Pool, patience_s: float) -> bool:
        """Ask for one whole host of a target; whether it was free within so many seconds."""
        self._placed(pool)
        return bool(self._groups[pool.target].wait(patience_s))

    def free_cpus(self) -> float:
        """CPUs of the cluster that nobody uses now."""
        return float(self.ray.available_resources().get("CPU", 0.0))

    def ask(self, pool: Pool, order: Order, units: Sequence[str], project: Any, work: Callable[..., Any]) -> Any:
        """Start a task that answers for these units, one after the other."""
        options = {**self._placed(pool), "max_retries": _RETRIES, "num_returns": "streaming"}
        return self.ray.remote(_work).options(**options).remote(work, order, tuple(units), project)

    def take(self, tasks: Sequence[Any], patience_s: float) -> Iterator[tuple[Any, Answer | Survey | Lost | None]]:
        """What tasks have answered by now, each with its task; None where a task is done. Waits for the first."""
        ready, _ = self.ray.wait(list(tasks), num_returns=1, timeout=patience_s)
        if ready:
            ready, _ = self.ray.wait(list(tasks), num_returns=len(tasks), timeout=0)
        for task in ready:
            try:
                yield task, self.ray.get(next(task))
            except StopIteration:
                yield task, None
            except self.ray.exceptions.RayError as error:
                yield task, Lost(reason=_why(error))

    def cancel(self, task: Any) -> None:
        """End a task that nobody waits for any more."""
        with contextlib.suppress(Exception):  # it may be over by now, whichever way
            self.ray.cancel(task, force=True)

    def _placed(self, pool: Pool) -> dict[str, Any]:
        """Where Ray puts a task of this pool. Of a target one host's GPUs are held together, by a placement group."""
        if not pool.target:
            return {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        if pool.target not in self._groups:
            group = import_module("ray.util.placement_group").placement_group
            self._groups[pool.target] = group([pool.bundle] * pool.gpus, strategy="STRICT_PACK")
        strategy = import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        return {
            "num_gpus": 1,
            "num_cpus": pool.cpus,
            "resources": {pool.resource: TOKEN},
            "scheduling_strategy": strategy(placement_group=self._groups[pool.target]),
        }


@contextlib.contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """A connection to the cluster at ``auto``, ``ray://HOST:PORT`` or ``HOST:PORT``.

    Raises :class:`UsageError` where Ray is not installed or there is no such cluster.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        hint = 'pip install "triton-matrix[fleet]"'
        raise UsageError(f"a fleet needs Ray, which is not installed here ({error})", hint=hint) from error
    _reachable(address)
    obeyed = signal.getsignal(signal.SIGTERM)  # Ray puts a handler of its own there
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, without its warning
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="triton-matrix")
    except (ConnectionError, ValueError, RuntimeError, OSError, ImportError) as error:
        raise UsageError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}", hint=_START) from error
    finally:
        signal.signal(signal.SIGTERM, obeyed)
    try:
        yield Cluster(ray=ray)
    finally:
        ray.shutdown()


def _reachable(address: str) -> None:
    """Raise :class:`UsageError` for what is no address, and where nobody listens: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--address {address!r} is none of auto, ray://HOST:PORT and HOST:PORT", hint=_START)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address}: {error}", hint=_START) from error


def _why(error: BaseException) -> str:
    """What Ray says of a task, in a line: the error that it raised, or how it was lost."""
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"


def _survey(order: Order, project: Project) -> Iterator[Survey]:
    node, jobs = _seat()
    yield hosts.survey(order, project, node=node, jobs=jobs)


def _work(
    work: Callable[..., Iterator[Answer]], order: Order, units: Sequence[str], project: Project
) -> Iterator[Answer]:
    node, jobs = _seat()
    yield from work(order, units, project, node=node, jobs=jobs)


def _seat() -> tuple[str, int]:
    """The node that this task runs on, and how many CPUs of it are its own."""
    context = import_module("ray").get_runtime_context()
    return context.get_node_id(), max(1, int(context.get_assigned_resources().get("CPU", 1)))
