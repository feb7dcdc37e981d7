"""Which hosts of a cluster can do what, read off what Ray says of its nodes. Pure but for the data file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tomllib

from matrix.resources import data_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPE = "accelerator_type:"
# Of a resource that says what a host is, a task takes next to nothing: how many run there, GPUs and CPUs decide.
TOKEN = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host as Ray knows it; ``name`` is empty where its operator gave it none."""

    id: str
    name: str
    resources: Mapping[str, float]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Node:
        named = told.get("NodeName", "")
        name = "" if named == told.get("NodeManagerAddress") else named
        return cls(id=told["NodeID"], name=name, resources=told.get("Resources") or {})

    @property
    def cpus(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))

    def resource(self, target: str) -> str:
        """The resource by which this host is known to have GPUs of ``target``: declared, or Ray's own."""
        wanted = (target, *(f"{_TYPE}{name}" for name in accelerators().get(target, ())))
        return next((name for name in wanted if self.resources.get(name) and self.gpus), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What one host of a target must have, all of it taken at once; no ``target``: any host, one CPU a worker."""

    target: str
    workers: int
    gpus: int = 0  # of one host: each gets an exclusive task
    cpus: int = 1  # beside each GPU
    resource: str = ""

    @property
    def bundle(self) -> dict[str, float]:
        """What one exclusive task takes."""
        return {"GPU": 1, "CPU": self.cpus, self.resource: TOKEN}

    def fits(self, node: Node) -> bool:
        """Whether the host could do it, were nobody else there."""
        if not self.target:
            return node.cpus >= 1
        enough = node.gpus >= self.gpus and node.cpus >= self.cpus * self.gpus
        return enough and self.resource in node.resources


def gpu_pool(nodes: Sequence[Node], target: str) -> Pool | None:
    """One host's worth of ``target``, such that every host known by the same resource will do; None: there is none."""
    by_resource: dict[str, list[Node]] = {}
    for node in nodes:
        if (name := node.resource(target)) and node.cpus:
            by_resource.setdefault(name, []).append(node)
    if not by_resource:
        return None
    resource, hosts = max(by_resource.items(), key=lambda each: len(each[1]))
    gpus = min(node.gpus for node in hosts)
    gpus = min(gpus, *(node.cpus for node in hosts))
    cpus = min(node.cpus // gpus for node in hosts)
    return Pool(target=target, workers=gpus, gpus=gpus, cpus=cpus, resource=resource)


def host_pool(nodes: Sequence[Node]) -> Pool:
    """All CPUs of the cluster, for the stages that need no GPU."""
    return Pool(target="", workers=sum(node.cpus for node in nodes))


def apart(nodes: Sequence[Node], pools: Sequence[Pool]) -> bool:
    """Whether some host is left for the other stages while each target has one to itself."""
    wanted = [pool for pool in pools if pool.target]
    without = [node for node in nodes if node.cpus and not any(pool.fits(node) for pool in wanted)]
    return bool(without)


def offered(nodes: Sequence[Node]) -> str:
    """What the cluster has, for whoever finds that it lacks something."""
    gpus: dict[str, int] = {}
    for node in nodes:
        kinds = sorted(name for name in node.resources if name.startswith((_TYPE, "sm_")))
        if node.gpus:
            kind = " ".join(name.removeprefix(_TYPE) for name in kinds) or "of a kind that nobody declared"
            gpus[kind] = gpus.get(kind, 0) + node.gpus
    told = [f"{count} GPUs ({kind})" for kind, count in sorted(gpus.items())]
    return ", ".join([f"{len(nodes)} hosts", f"{sum(node.cpus for node in nodes)} CPUs", *told])


@cache
def accelerators() -> Mapping[str, Sequence[str]]:
    """Ray's names of GPUs, by target."""
    with data_file("accelerators.toml").open("rb") as file:
        return tomllib.load(file)
