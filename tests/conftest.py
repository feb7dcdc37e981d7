"""What the tests share: real environments, built once a session, and projects that use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_client import server

from matrix.provisioning.builds import Builder
from matrix.provisioning.manifests import BuiltEnvironment
from matrix.settings import config

# A shell that starts this in the background has SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent

# Files that take minutes, roughly longest first. They begin first, and the many short ones fill up what is left at the
# end; where tests are shared out file by file, one process would otherwise end with a long one while the others idle.
LONG = (
    "test_gpu_stages.py",
    "test_survival.py",
    "test_upstream_report.py",
    "test_reproducer.py",
    "test_run.py",
    "test_regressions.py",
    "test_fleet.py",
    "test_passes.py",
    "test_suites.py",
    "test_check.py",
    "test_catalogue_on_gpus.py",
    "test_bisection.py",
    "test_scaffold.py",
    "test_environments.py",
    "test_adopt.py",
    "test_worker.py",
    "test_shards.py",
    "test_memory_table.py",
    "test_report.py",
    "test_report_gpu.py",
    "test_examples.py",
    "test_catalogue.py",
    "test_front_ends.py",
    "test_crossed.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the order within a file, and of all others, stays (see also noxfile.py)."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@dataclass(frozen=True)
class Workshop:
    """A folder whose ``.matrix/environments`` all tests share."""

    root: Path

    def environment(self, name: str) -> BuiltEnvironment:
        configuration = config.load(self.root)
        return Builder(root=self.root, cpu=configuration.cpu).build(configuration.environment(name))


@dataclass(frozen=True)
class Project:
    """A user's folder: its own cache and runs, the shared environments."""

    root: Path

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def latest(self) -> Path:
        return self.root / ".matrix" / "runs" / "latest"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "matrix", *arguments]

    def environ(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MATRIX_")}
        return kept | {"MATRIX_PROJECT": str(self.root), **more}

    def matrix(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, in a process of its own, and keep what it says."""
        return server().run(*arguments, folder=self.root, environ=self.environ(**more), timeout_s=600)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    # MATRIX_TEST_WORKSHOP keeps the environments from one test session to the next.
    kept = os.environ.get("MATRIX_TEST_WORKSHOP")
    return Workshop(Path(kept) if kept else tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def project(workshop: Workshop, tmp_path: Path) -> Project:
    shared = workshop.root / ".matrix" / "environments"
    shared.mkdir(parents=True, exist_ok=True)
    root = tmp_path / "project"
    (root / ".matrix").mkdir(parents=True)
    (root / ".matrix" / "environments").symlink_to(shared, target_is_directory=True)
    return Project(root)
