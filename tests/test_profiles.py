"""Profiles as data, and the sign-off that wants every cell judged."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal

import pytest
import run_folders
from click.testing import CliRunner

from matrix import __main__ as entry
from matrix.commands import doctor
from matrix.commands import main as cli
from matrix.errors import ExitCode
from matrix.judging.decision import exit_code
from matrix.model import CPU, DEFAULT_TARGETS, Stage
from matrix.records import Verdict
from matrix.reporting.report import render
from matrix.running.profiles import UNJUDGED, profiles, with_unjudged
from matrix.storage.runfolder import load
from matrix.storage.store import write_verdicts

TARGETS = tuple(str(target) for target in DEFAULT_TARGETS)


def judged_under(name, run, targets=TARGETS):
    return with_unjudged(
        run.verdicts,
        profiles()[name],
        run_id=run.run_id,
        baseline=run_folders.BASELINE,
        candidates=(run_folders.NEXT,),
        targets=targets,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(run_folders.build(tmp_path_factory.mktemp("profiles") / "run", quiet=True, hostile=False))


def test_the_data_names_three_and_says_what_each_is_for():
    assert list(profiles()) == ["quick", "nightly", "signoff"]
    assert all(profile.about and profile.stages for profile in profiles().values())
    assert [profile.every_cell for profile in profiles().values()] == [False, False, True]
    assert Stage.TIMING not in profiles()["nightly"].stages_here(gpu=False)
    assert Stage.TIMING in profiles()["nightly"].stages_here(gpu=True)


@pytest.mark.parametrize("name", ["quick", "nightly"])
def test_what_was_not_run_is_no_gap_of_an_everyday_profile(run, name):
    assert judged_under(name, run) == run.verdicts


def test_a_sign_off_without_a_gpu_is_incomplete_and_says_what_it_lacks(run):
    rows = judged_under("signoff", run)
    lacking = [row for row in rows if row.reason_code == UNJUDGED]
    assert {(row.stage, row.target) for row in lacking} == {
        (stage, target) for stage in ("correctness", "timing") for target in TARGETS
    }
    assert exit_code(run.verdicts) is ExitCode.CLEAN
    assert exit_code(rows) is ExitCode.INCOMPLETE
    assert len({row.finding_id for row in lacking}) == 2  # one a stage, over all targets
    assert all(row.candidate_cell_id == f"{row.candidate}/{row.target}/*" for row in lacking)


def test_a_stage_that_was_left_out_is_a_gap_too(run):
    without = dataclasses.replace(run, verdicts=[row for row in run.verdicts if row.stage != "interpret"])
    lacking = {(row.stage, row.target) for row in judged_under("signoff", without, ()) if row.reason_code == UNJUDGED}
    assert lacking == {("interpret", CPU)}


def test_the_report_tells_the_gap_and_the_matrix_has_no_nameless_case(run, tmp_path):
    folder = run_folders.build(tmp_path / "run", quiet=True, hostile=False)
    rows = judged_under("signoff", run)
    assert all(row.verdict is Verdict.INCOMPLETE for row in rows if row.reason_code == UNJUDGED)
    write_verdicts(folder, rows)
    page = render([folder])
    assert "this profile wants every cell judged" in page
    assert 'data-case=""' not in page


def test_an_unknown_profile_is_named_with_the_known_ones():
    done = CliRunner().invoke(cli.main, ["plan", "--profile", "signof"])
    assert done.exit_code == 2
    for word in ("'signof'", "quick", "nightly", "signoff"):
        assert word in done.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "--fuzz", "5ms"], "no duration"),
        (["run", "--fuzz", "nan"], "no duration"),
        (["run", "--fuzz=-3"], "no duration"),
        (["show", ""], "is empty"),
        (["report", ""], "is empty"),
        (["issue", " "], "is empty"),
    ],
)
def test_what_an_option_cannot_mean_is_refused(arguments, word):
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == 2 and word in done.output


@pytest.mark.parametrize("error", [RuntimeError("ours"), SystemExit(1), OSError(errno.ENOSPC, "full")])
def test_only_a_regression_exits_with_1(error, monkeypatch):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli.main, "main", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the command line's handlers are not this process's
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == ExitCode.INCOMPLETE


def test_a_folder_that_takes_no_files_is_said_before_anything_is_done(tmp_path, monkeypatch):
    folder = run_folders.build(tmp_path / "run", quiet=True, hostile=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = CliRunner().invoke(cli.main, ["report", str(folder)], standalone_mode=False)
    assert str(done.exception) == f"{folder} cannot be written to"
    assert not doctor._disk(tmp_path).fit
