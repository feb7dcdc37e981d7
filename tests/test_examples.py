"""The documented examples: read by the tools that know their formats, and run as far as one machine allows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ROOT, Project

from matrix.errors import ExitCode
from matrix.running.profiles import profiles

EXAMPLES = ROOT / "docs" / "examples"
WORKFLOW = EXAMPLES / "github-actions.yml"
WORKFLOWS = sorted(EXAMPLES.glob("github-*.yml"))
# What one night is cut down to here; the profile's own options stand before them.
FEW = ("--baseline", "3.5.1", "--candidate", "3.6.0", "--targets", "sm_90", "--stages", "import,compile",
       "--no-builtin", "--kernels", str(ROOT / "kernels" / "column_max.py"))  # fmt: skip


def tool(name):
    """A program that the tests' environment brings."""
    return str(Path(sys.executable).parent / name)


def steps():
    return {step["name"]: step for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["matrix"]["steps"]
            if "name" in step}  # fmt: skip


def scripts():
    """Every script of every workflow, by workflow and step."""
    jobs = [(path.stem, job) for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    return {f"{name} {step['name']}": step["run"] for name, job in jobs for step in job["steps"] if "run" in step}


def run(*command, cwd=None, env=None, stdin=None):
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False
    )


def script(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def night(project: Project, workshop, tmp_path):
    """A project, and an environment in which `triton-matrix` is this clone's with a cut-down run."""
    for version in ("3.5.1", "3.6.0"):
        workshop.environment(version)
    few = " ".join(FEW)
    script(
        tmp_path / "bin" / "triton-matrix",
        f'#!/bin/bash\nif [ "$1" = run ]; then set -- "$@" {few}; fi\n'
        f'exec {sys.executable} -P -m matrix "$@"\n',
    )  # fmt: skip
    env = project.environ(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    del env["MATRIX_PROJECT"]
    return project, env


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_workflow_is_one_that_github_takes(workflow):
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow)
    assert done.returncode == 0, done.stdout + done.stderr
    linter = shutil.which("actionlint")
    if linter:
        done = run(linter, workflow)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_workflow_gives_nothing_away(workflow, tmp_path):
    # Which hashes to pin is for who copies it: they move faster than an example does.
    (tmp_path / "zizmor.yml").write_text("rules:\n  unpinned-uses:\n    disable: true\n")
    done = run(tool("zizmor"), "--offline", "--config", tmp_path / "zizmor.yml", workflow)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", scripts())
def test_every_step_of_the_workflow_is_good_bash(name):
    # Github replaces what stands in braces before bash sees it: none of it may be in a script.
    text = f"#!/usr/bin/env bash\n{scripts()[name]}"
    assert "${{" not in text
    done = run(tool("shellcheck"), "--shell=bash", "-", stdin=text)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sh")), ids=lambda path: path.name)
def test_every_script_is_good_bash(path):
    assert run("bash", "-n", path).returncode == 0
    done = run(tool("shellcheck"), path)
    assert done.returncode == 0, done.stdout
    assert os.access(path, os.X_OK)


def test_the_workflow_s_profiles_are_ours():
    asked = re.findall(r"'(\w+)'", steps()["Run"]["env"]["PROFILE"])
    assert set(asked) - {"pull_request"} == {"quick", "nightly"} <= set(profiles())


def test_the_workflow_s_steps_run_tell_and_decide(night, tmp_path):
    project, env = night
    output, summary, calls = (tmp_path / name for name in ("output", "summary", "calls"))
    script(
        tmp_path / "bin" / "gh",
        f'#!/bin/bash\necho "$*" >> {calls}\nif [[ $* == *--jq* ]]; then cat {tmp_path}/comments; fi\n',
    )
    env |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_REPOSITORY": "o/r",
            "PULL_REQUEST": "7", "PROFILE": "quick"}  # fmt: skip

    def step(name, **more):
        return run("bash", "-e", "-c", steps()[name]["run"], cwd=project.root, env={**env, **more})

    done = step("Run")
    assert done.returncode == 0, done.stderr
    assert output.read_text() == "code=1\n"
    assert step("Summary").returncode == 0
    assert summary.read_text().startswith("<!-- triton-matrix -->\n# Triton 3.5.1 → 3.6.0\n")
    (tmp_path / "comments").write_text("")
    assert step("Comment").returncode == 0
    (tmp_path / "comments").write_text("42\n43\n")
    assert step("Comment").returncode == 0
    asked, posted, again, patched = calls.read_text().splitlines()
    assert asked == again
    assert "--paginate repos/o/r/issues/7/comments" in asked
    assert posted == "api --method POST repos/o/r/issues/7/comments --field body=@.matrix/runs/latest/summary.md"
    assert patched.startswith("api --method PATCH repos/o/r/issues/comments/42 --field body=@")
    assert step("Decide", CODE="1").returncode == 1
    kept = yaml.safe_load(WORKFLOW.read_text())["jobs"]["matrix"]["steps"][-2]["with"]["path"].split()
    assert all(list(project.root.glob(pattern)) for pattern in kept)


def test_a_job_of_the_cluster_is_a_night_with_its_history_and_its_exit_code(night, tmp_path):
    project, env = night
    script(tmp_path / "bin" / "srun", '#!/bin/bash\nshift\nexec "$@"\n')
    job = shutil.copy(EXAMPLES / "slurm.sh", tmp_path / "job")  # as Slurm does
    nights = tmp_path / "nights"
    submitted = {**env, "SLURM_SUBMIT_DIR": str(EXAMPLES)}
    done = run("bash", job, project.root, nights, "--cases", "column_max_tma", env=submitted)
    assert done.returncode == ExitCode.REGRESSED, done.stderr
    assert "Measure before upgrading." in done.stdout
    rows = pd.concat(map(pd.read_parquet, nights.glob("month=*/*.parquet")))
    assert set(rows.case) == {"column_max_tma"}
    assert (project.root / ".matrix" / "trend.html").exists()
    (project.root / ".matrix" / "trend.html").unlink()
    done = run("bash", job, project.root, nights, "--cases", "nothing", env=submitted)
    assert done.returncode == ExitCode.USAGE
    assert not (project.root / ".matrix" / "trend.html").exists()
    done = run("bash", job, env=submitted)
    assert done.returncode != 0
    assert "the folder of matrix.toml" in done.stderr


def test_slurm_finds_its_directives():
    """Slurm reads them up to the first command; what it does not know makes it refuse the job."""
    known = {"job-name", "nodes", "ntasks", "cpus-per-task", "mem", "gres", "exclusive", "time", "output", "signal"}
    lines = (EXAMPLES / "slurm.sh").read_text().splitlines()
    commands = [place for place, line in enumerate(lines) if line and not line.startswith("#")]
    found = [(place, re.fullmatch(r"#SBATCH --([a-z-]+)(=\S+)?", line)) for place, line in enumerate(lines)
             if line.startswith("#SBATCH")]  # fmt: skip
    assert {match[1] for _, match in found} == known
    assert max(place for place, _ in found) < commands[0]


def units(tmp_path):
    """The units as an administrator installs them, their program where this test has it."""
    installed = script(tmp_path / "bin" / "nightly.sh", (EXAMPLES / "nightly.sh").read_text())
    for name in ("triton-matrix.service", "triton-matrix.timer"):
        text = (EXAMPLES / name).read_text().replace("/opt/triton-matrix/nightly.sh", str(installed))
        (tmp_path / name).write_text(text)
        yield tmp_path / name


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    done = run("systemd-analyze", "verify", "--man=no", *units(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    calendar = re.search(r"OnCalendar=(.+)", (EXAMPLES / "triton-matrix.timer").read_text())[1]
    assert "Normalized form" in run("systemd-analyze", "calendar", calendar).stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("harm", ["OnCalender=daily", "OnCalendar=25:00"])
def test_systemd_would_have_said_what_is_wrong(tmp_path, harm):
    service, timer = units(tmp_path)
    timer.write_text(re.sub(r"OnCalendar=.+", harm, timer.read_text()))
    assert run("systemd-analyze", "verify", "--man=no", service, timer).stderr


def test_the_service_starts_the_script_as_the_script_is_called():
    (command,) = re.findall(r"ExecStart=(.+)", (EXAMPLES / "triton-matrix.service").read_text())
    path, project, history = command.split()
    assert Path(path).name == "nightly.sh"
    state = "/var/lib/triton-matrix/"
    assert project.startswith(state) and history.startswith(state)


def test_a_cluster_s_kinds_of_gpu_are_submitted_apart_and_merged_after_them(tmp_path):
    """Slurm itself is not here: what it is asked for, and what each job then runs."""
    calls, fleet = tmp_path / "calls", EXAMPLES / "slurm-fleet.sh"
    script(tmp_path / "bin" / "sbatch", f'#!/bin/bash\necho "$*" >> {calls}\necho "$(wc -l < {calls});cluster"\n')
    for name in ("srun", "triton-matrix"):
        script(tmp_path / "bin" / name, f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/ran\n')
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    env.pop("SLURM_JOB_ID", None)
    done = run(fleet, tmp_path, "/shared", "a100", "h100", env=env)
    assert done.returncode == 0, done.stderr
    first, second, merge = calls.read_text().splitlines()
    assert "--gres=gpu:a100:1" in first and "--gres=gpu:h100:1" in second
    assert "--dependency=afterany:1:2" in merge
    for job in (first, merge):
        step, project, night = job.split()[-3:]
        assert run(fleet, step, project, night, env={**env, "SLURM_JOB_ID": "7"}).returncode == 0
    shard, report = (tmp_path / "ran").read_text().splitlines()
    assert re.fullmatch(r"srun --ntasks=1 triton-matrix run .*--share /shared/\d{4}-\d\d-\d\d", shard)
    assert re.fullmatch(r"triton-matrix report /shared/(.{10}) --output matrix-\1\.html", report)
    assert run(fleet, tmp_path, env=env).returncode != 0
