"""A Ray cluster of several hosts on this machine, on loopback alone: each node with a folder of its own, as a host has.

Ray's own test fixture (``ray.cluster_utils``). Nothing of it has a GPU; what a node says it has is made up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

# Ray on Linux takes an address of the network for its own unless it is told that there is no cluster.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_STORE_BYTES = 100 << 20


class LocalCluster:
    """Nodes that can be added, and killed as a host is lost: at once and with all that runs there."""

    def __init__(
        self, root: Path, environments: Path | None = None, variables: dict[str, str] | None = None, **head: Any
    ) -> None:
        os.environ.update(LOOPBACK)
        from ray.cluster_utils import Cluster

        self._root, self._environments, self._variables = root, environments, variables or {}
        self.nodes: dict[str, Any] = {}
        self._cluster = Cluster()
        self.add("head", **{"num_cpus": 0, "include_dashboard": False, **head})

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def folder(self, name: str) -> Path:
        """Where the host of that name keeps what it built and found."""
        return self._root / "hosts" / name

    def add(self, name: str, **more: Any) -> None:
        if self._environments:
            kept = self.folder(name) / ".matrix" / "environments"
            kept.parent.mkdir(parents=True, exist_ok=True)
            if not kept.is_symlink():
                kept.symlink_to(self._environments, target_is_directory=True)
        environ = {**LOOPBACK, **self._variables, "MATRIX_FLEET_FOLDER": str(self.folder(name))}
        told = {"object_store_memory": _STORE_BYTES, "node_ip_address": "127.0.0.1", "node_name": name, **more}
        self.nodes[name] = self._cluster.add_node(env_vars=environ, **told)

    def kill(self, name: str) -> None:
        """Lose a host: its raylet dies, and Ray ends what it had started."""
        node = self.nodes.pop(name)
        self._cluster.remove_node(node, allow_graceful=False)

    def workers(self, name: str) -> list[int]:
        """The processes of tasks that run on a node."""
        import psutil

        raylet = psutil.Process(self.nodes[name].all_processes["raylet"][0].process.pid)
        return [child.pid for child in raylet.children() if child.name().startswith("ray::_work")]

    def shutdown(self) -> None:
        self._cluster.shutdown()


def kill_worker(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
