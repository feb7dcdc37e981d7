"""A command line with several mistakes: each is told, at once, with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.errors import ExitCode

if TYPE_CHECKING:
    from conftest import Project


def told(project: Project, *arguments: str) -> list[str]:
    done = project.matrix(*arguments)
    assert done.returncode == ExitCode.USAGE and not done.stdout, done.stderr
    return done.stderr.splitlines()


def test_values_that_are_wrong_are_told_together(project: Project) -> None:
    said = told(project, "plan", "--configs", "none", "--targets", ",", "--profile", "slow", "--cases", "softmax")
    assert len(said) == 4 and said[-1] == "hint: see `triton-matrix plan --help`"
    for option, line in zip(("--targets", "--configs", "--profile"), said, strict=False):
        assert f"Invalid value for '{option}'" in line


def test_names_that_are_not_there_are_told_together_each_with_its_hint(project: Project) -> None:
    said = told(
        project, "run", "--baseline", "9.9.9", "--candidate", "8.8.8,3.9.0,7.7.7", "--targets", "sm_1",
        "--stages", "fly", "--suite", "none", "--kernels", "nowhere", "--waivers", "nowhere.toml",
    )  # fmt: skip
    assert [line.split(":")[0] for line in said] == 8 * ["error", "hint"]
    names = ("9.9.9", "8.8.8", "7.7.7", "sm_1", "fly", "none", "nowhere", "nowhere.toml")
    assert all(name in line for name, line in zip(names, said[::2], strict=True))
