"""The Ray cluster: connecting to one that runs, its nodes, and tasks in it. The only module that imports ray.

We never start a cluster, a dashboard or anything else that listens: a driver connects to what its operator started.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import socket
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from matrix.errors import FleetError, UsageError
from matrix.fleet import hosts
from matrix.fleet.pools import TOKEN, Node, gpu_pool
from matrix.model import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.fleet.orders import Answer, Crossed, Order, Question, Survey, Told
    from matrix.fleet.pools import Pool
    from matrix.fleet.project import Project

_CLIENT = "ray://"
_CONNECT_S = 5.0
_RETRIES = 3  # Ray's, of a task whose worker or host was lost
# Of a client's connection: the head starts a process for each, and that may die as it starts (grpc/grpc#43055) or be
# late on a busy head (30 s, RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S there).
_STARTS = 3
_SERVED = "let the head's environment have GRPC_ENABLE_FORK_SUPPORT=false, or connect from a host of the cluster"
_START = "start one with `ray start --head`, or name one: --address HOST:PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A task that Ray gave up: its worker or host was lost too often, or what it ran raised."""

    reason: str


class Cluster:
    """A connection, in a process that is part of the cluster. Whatever goes in and out of it is plain data."""

    def __init__(self) -> None:
        self._ray = import_module("ray")
        self._groups: dict[str, Any] = {}  # what holds a host, by target
        self._tasks: dict[int, Any] = {}
        self._ids = itertools.count()
        self._project: Any = None

    def nodes(self) -> list[Node]:
        """The hosts that are alive."""
        return [Node.of(told) for told in self._ray.nodes() if told["Alive"]]

    def targets(self) -> list[str]:
        """The targets that some host has GPUs of."""
        nodes = self.nodes()
        return [str(target) for target in Target if gpu_pool(nodes, str(target))]

    def free_cpus(self) -> float:
        """CPUs of the cluster that nobody uses now."""
        return float(self._ray.available_resources().get("CPU", 0.0))

    def share(self, project: Project) -> None:
        """Put the project where every host finds it: it travels to each once."""
        self._project = self._ray.put(project)

    def hold(self, pool: Pool, patience_s: float) -> bool:
        """Ask for one whole host of a target; whether it was free within so many seconds."""
        self._placed(pool)
        return bool(self._groups[pool.target].wait(patience_s))

    def release(self, pool: Pool) -> None:
        """Give a target's host back."""
        if group := self._groups.pop(pool.target, None):
            import_module("ray.util.placement_group").remove_placement_group(group)

    def survey(self, pool: Pool, order: Order) -> int:
        """Start a task that has a host of the pool get ready and answers with its survey."""
        return self._start(pool, _survey, order)

    def cross(self, pool: Pool, order: Order, question: Question) -> int:
        """Start a task that has a host of the pool assemble PTX with either side's assembler."""
        return self._start(pool, _cross, order, question)

    def ask(self, pool: Pool, order: Order, units: Sequence[str], work: Callable[..., Any]) -> int:
        """Start a task that answers for these units, one after the other."""
        return self._start(pool, _work, order, work, tuple(units))

    def take(self, tasks: Sequence[int], patience_s: float) -> list[tuple[int, Told | Lost | None]]:
        """What tasks have answered by now, each with its task; None where a task is done. Waits for the first."""
        known = {self._tasks[task]: task for task in tasks}
        ready, _ = self._ray.wait(list(known), num_returns=1, timeout=patience_s)
        if ready:
            ready, _ = self._ray.wait(list(known), num_returns=len(known), timeout=0)
        answers = [(known[each], self._next(each)) for each in ready]
        for task, answer in answers:
            if answer is None or isinstance(answer, Lost):
                del self._tasks[task]
        return answers

    def cancel(self, task: int) -> None:
        """End a task that nobody waits for any more."""
        if task in self._tasks:
            self._ray.cancel(self._tasks.pop(task), force=True)

    def _start(self, pool: Pool, function: Callable[..., Any], *arguments: object) -> int:
        options = {**self._placed(pool), "max_retries": _RETRIES, "num_returns": "streaming"}
        task = next(self._ids)
        self._tasks[task] = self._ray.remote(function).options(**options).remote(self._project, *arguments)
        return task

    def _next(self, stream: Any) -> Told | Lost | None:
        try:
            return self._ray.get(next(stream))  # type: ignore[no-any-return]
        except StopIteration:
            return None
        except self._ray.exceptions.RayError as error:
            return Lost(reason=_why(error))

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
    # gRPC since 1.81 kills processes that are started beside a connection of it, before they run (grpc/grpc#43055).
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    try:
        ray = import_module("ray")
    except ImportError as error:
        hint = 'pip install "triton-matrix[fleet]"'
        raise UsageError(f"a fleet needs Ray, which is not installed here ({error})", hint=hint) from error
    _reachable(address)
    obeyed = signal.getsignal(signal.SIGTERM)  # Ray puts a handler of its own there
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, without its warning
    try:
        _join(ray, address)
    except ConnectionAbortedError as error:
        said = str(error).splitlines()[-1]  # a traceback, of the head's
        message = f"the Ray cluster at {address} served no client in {_STARTS} attempts: {said}"
        raise UsageError(message, hint=_SERVED) from error
    except (ConnectionError, ValueError, RuntimeError, OSError, ImportError) as error:
        raise UsageError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}", hint=_START) from error
    finally:
        signal.signal(signal.SIGTERM, obeyed)
    try:
        yield _relayed(ray) if address.startswith(_CLIENT) else Cluster()
    finally:
        ray.shutdown()


def _join(ray: Any, address: str) -> None:
    for attempt in range(_STARTS):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="triton-matrix")
        except ConnectionAbortedError:  # raised where the head answers and starts no process for this client
            if attempt == _STARTS - 1:
                raise
        else:
            return


def _relayed(ray: Any) -> Cluster:
    """A cluster seen through Ray's client, which knows no streams: an actor there has the connection."""
    actor = ray.remote(Cluster).options(num_cpus=0).remote()

    class Relayed:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            return functools.partial(self._ask, name)

        def _ask(self, name: str, *arguments: object) -> Any:
            try:
                return ray.get(getattr(actor, name).remote(*arguments))
            except ray.exceptions.RayError as error:
                raise FleetError(f"the cluster was lost: {_why(error)}") from error

    return Relayed()  # type: ignore[return-value]  # it has whatever a Cluster has


def _reachable(address: str) -> None:
    """Raise :class:`UsageError` for what is no address, and where nobody listens: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
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


def _survey(project: Project, order: Order) -> Iterator[Survey]:
    name, jobs = _seat()
    yield hosts.survey(order, project, name=name, jobs=jobs)


def _cross(project: Project, order: Order, question: Question) -> Iterator[Crossed]:
    name, jobs = _seat()
    yield hosts.cross(order, question, project, name=name, jobs=jobs)


def _work(
    project: Project, order: Order, work: Callable[..., Iterator[Answer]], units: Sequence[str]
) -> Iterator[Answer]:
    name, jobs = _seat()
    yield from work(order, units, project, name=name, jobs=jobs)


def _seat() -> tuple[str, int]:
    """What this host's operator calls it, if anything, and how many CPUs this task has to itself."""
    ray = import_module("ray")
    context = ray.get_runtime_context()
    nodes = (Node.of(told) for told in ray.nodes())
    name = next((node.name for node in nodes if node.id == context.get_node_id()), "")
    return name, max(1, int(context.get_assigned_resources().get("CPU", 1)))
