"""A Ray cluster of several hosts on this machine, on loopback alone: each node with a folder of its own, as a host has.

Ray's own test fixture (``ray.cluster_utils``). Nothing of it has a GPU; what a node says it has is made up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest

if TYPE_CHECKING:
    from conftest import Project

TESTS = Path(__file__).resolve().parent
SOURCES = f"{TESTS}:{TESTS.parent}"
OWN = ("run_id", "host", "started_at", "seconds", "cached")

# Ray on Linux takes an address of the network for its own unless it is told that there is no cluster; and it lets
# tasks come behind everything else on the machine (a nice of 15).
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            # As docs/fleet.md says of the head (grpc/grpc#43055).
            "GRPC_ENABLE_FORK_SUPPORT": "false",
            # Ray's server for a client starts a process of its own: beside other tests that takes longer than its 30 s.
            # (Not more: gRPC asks ever less often, and that process ends where nobody came for 30 s.)
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "60"}  # fmt: skip
_STORE_BYTES = 100 << 20
_ATTEMPTS = 8


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
        self._client_port = _free_port()
        told = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": self._client_port}
        # The client's server has this process's environment, whatever the node's is.
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in self._variables.items():
                patch.setenv(variable, value)
            self.add("head", **told, **head)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def client_address(self) -> str:
        """For Ray's client, which needs not be part of the cluster."""
        return f"ray://127.0.0.1:{self._client_port}"

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
        for attempt in range(_ATTEMPTS):
            before = set(psutil.Process().children(recursive=True))
            # On a machine that is busy a node may take longer to start than Ray waits: it raises a plain Exception, and
            # leaves what it had started, which would become another host of that name.
            try:
                self.nodes[name] = self._cluster.add_node(env_vars=environ, **told)
            except Exception:
                for process in set(psutil.Process().children(recursive=True)) - before:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def kill(self, name: str) -> None:
        """Lose a host: its raylet dies, and Ray ends what it had started."""
        node = self.nodes.pop(name)
        self._cluster.remove_node(node, allow_graceful=False)

    def workers(self, name: str) -> list[int]:
        """The processes of Ray's on a node that tasks run in."""
        raylet = psutil.Process(self.nodes[name].all_processes["raylet"][0].process.pid)
        return [child.pid for child in raylet.children() if child.name().startswith("ray::_")]

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Driver:
    """`triton-matrix fleet` in a process of its own, as the product or with another work for the hosts."""

    def __init__(
        self, project: Project, cluster: LocalCluster, *arguments: str, work: str = "", address: str = ""
    ) -> None:
        start = [str(TESTS / "fleet_driver.py"), work] if work else ["-m", "matrix"]
        command = [sys.executable, "-P", *start, "fleet", "--address", address or cluster.address, "--quiet"]
        self.project = project
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=project.root,
            env=project.environ(**LOOPBACK, PYTHONPATH=SOURCES),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, timeout: float = 300) -> tuple[int, str]:
        """Its exit code and all that it said."""
        said, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, said

    @property
    def run_id(self) -> str:
        return max(path.name for path in (self.project.root / ".matrix" / "runs").iterdir() if not path.is_symlink())


def rows(project: Project, table: str = "cells") -> list[dict[str, str]]:
    """The rows of the latest run, less what is each run's own."""
    frame = pd.read_parquet(project.latest / f"{table}.parquet").drop(columns=list(OWN), errors="ignore")
    return sorted(frame.astype(str).to_dict("records"), key=str)
