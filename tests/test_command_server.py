"""The tests' command lines are forks: what they print and how they end is a started process's own."""

from __future__ import annotations

import subprocess

import pytest
from command_client import server
from conftest import Project


@pytest.mark.parametrize(
    "arguments", [("--version",), ("plan", "--targets", "sm_90"), ("show", "x"), ("run", "--bogus")]
)
def test_a_fork_says_what_a_started_process_says(project: Project, arguments: tuple[str, ...]) -> None:
    given = {"cwd": project.root, "env": project.environ(NO_COLOR="1"), "stdin": subprocess.DEVNULL}
    started = subprocess.run(project.command(*arguments), capture_output=True, text=True, check=False, **given)
    forked = project.matrix(*arguments, NO_COLOR="1")
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_what_takes_too_long_is_ended_and_the_next_is_not_hurt(project: Project) -> None:
    with pytest.raises(TimeoutError):
        server().run("--version", folder=project.root, environ=project.environ(), timeout_s=1e-3)
    assert "triton-matrix" in project.matrix("--version").stdout
