"""Bisection over releases: the walk as a decision, a walk over recorded rows, one that compiles."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from conftest import Project

from matrix.causes.bisection import between, handed_on
from matrix.causes.walk import Attempt, Path, Side, Step, is_open, is_steady, settled, side_of, walk
from matrix.commands import main as cli
from matrix.errors import ExitCode, UsageError
from matrix.judging.changes import Change, Direction, encode
from matrix.model import Stage
from matrix.records import Verdict, VerdictRecord

RELEASES = ["3.0.0", "3.1.0", "3.2.0", "3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.1"]
SPILLS = "sm_80/regression_triton_5572:warps=4,k=256"
RECORDED = "sm_90/column_max_tma:rows=8192,cols=8192,dtype=fp16,block_m=16,block_n=128"


def attempt(side: Side, **given: object) -> Attempt:
    return Attempt(**{"side": side, "said": "", "run_id": "", **given})


def tried(first_bad: str, unknown: tuple[str, ...] = ()) -> Path:
    def look(version: str) -> Step:
        late = RELEASES.index(version) >= RELEASES.index(first_bad)
        side = Side.UNKNOWN if version in unknown else Side.BAD if late else Side.GOOD
        return Step(version=version, attempts=(attempt(side),))

    return walk(RELEASES, look)


@pytest.mark.parametrize("first_bad", RELEASES[1:])
def test_the_walk_ends_at_the_first_bad_release(first_bad: str) -> None:
    path = tried(first_bad)
    assert path.first_bad == first_bad and path.skipped == ()
    assert RELEASES.index(path.last_good) == RELEASES.index(first_bad) - 1
    assert len(path.steps) <= 3


@pytest.mark.parametrize("first_bad", RELEASES[1:])
@pytest.mark.parametrize("unknown", [("3.3.1",), ("3.2.0", "3.3.1", "3.4.0"), tuple(RELEASES[1:-1])])
def test_what_is_not_known_is_stepped_over_and_said(first_bad: str, unknown: tuple[str, ...]) -> None:
    path = tried(first_bad, unknown)
    wrong = [*path.skipped, path.first_bad]
    assert first_bad in wrong and set(path.skipped) <= set(unknown)
    assert RELEASES.index(path.last_good) < RELEASES.index(first_bad) <= RELEASES.index(path.first_bad)


def test_flaky_steps_are_repeated_and_settled_by_what_was_seen_twice() -> None:
    good, bad, unknown = Side.GOOD, Side.BAD, Side.UNKNOWN
    assert settled([bad, bad]) is bad
    assert settled([good, bad, good, good, good]) is unknown  # once may be noise
    assert settled([good, bad, good, bad, good]) is bad
    assert settled([good, unknown]) is good
    assert is_open([], steady=True)
    assert not is_open([attempt(good)], steady=True)
    assert is_open([attempt(good)], steady=False)
    assert is_open([attempt(good), attempt(bad)], steady=True)
    assert not is_open([attempt(good)] * 4 + [attempt(bad)], steady=False)
    assert not is_open([attempt(good, recorded=True)], steady=False)
    assert is_steady(Stage.COMPILE, ["passed"]) and not is_steady(Stage.COMPILE, ["timeout"])
    assert not is_steady(Stage.INTERPRET, ["passed"])


def verdict(kind: Verdict, *codes: str, **given: object) -> VerdictRecord:
    worse = [Change(reason_code=code, direction=Direction.WORSE, severity=50, text=code) for code in codes]
    plain = {"run_id": "r", "baseline": "a", "candidate": "b", "target": "sm_90", "case": "c", "params": "",
             "stage": "compile", "verdict": kind, "reason_code": codes[0] if codes else "passed", "change": "",
             "detail": encode(worse)}  # fmt: skip
    return VerdictRecord(**{**plain, **given})


def test_a_release_is_bad_only_for_what_the_bad_end_shows() -> None:
    end = verdict(Verdict.CODE_RISK, "spills_appeared")
    assert side_of(end, end)[0] is Side.BAD
    assert side_of(verdict(Verdict.KNOWN, "spills_appeared"), end)[0] is Side.BAD  # foreseen, and there
    assert side_of(verdict(Verdict.EQUAL), end)[0] is Side.GOOD
    assert side_of(verdict(Verdict.REGRESSED, "compile_error"), end)[0] is Side.UNKNOWN
    assert side_of(verdict(Verdict.INCOMPLETE), end)[0] is Side.UNKNOWN
    assert side_of(None, end)[0] is Side.UNKNOWN
    slow = verdict(Verdict.REGRESSED, "slower", ratio=3.0, stage="timing")
    assert side_of(replace(slow, ratio=2.9), slow)[0] is Side.BAD
    assert side_of(replace(slow, ratio=1.1), slow)[0] is Side.UNKNOWN  # slower by another cause, perhaps


def test_releases_between_two_in_either_direction() -> None:
    assert between(RELEASES, "3.1.0", "3.3.1") == ["3.1.0", "3.2.0", "3.3.1"]
    assert between(RELEASES, "3.3.1", "3.1.0") == ["3.3.1", "3.2.0", "3.1.0"]
    with pytest.raises(UsageError, match=r"9\.9"):
        between(RELEASES, "3.1.0", "9.9")


def test_the_hand_off_names_triton_s_tags_and_says_when_a_repair_is_looked_for() -> None:
    path = Path(releases=("3.5.1", "3.6.0"), steps=())
    told = "\n".join(handed_on(path, "repro.py"))
    assert "--test-script repro.py --good v3.5.1 --bad v3.6.0" in told and "repair" not in told
    assert "repair" in "\n".join(handed_on(Path(releases=("3.9.0", "3.8.0"), steps=()), "repro.py"))


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [("3.6.0", "3.6.0", "both Triton 3.6.0"), ("triton3.6.0-host", "3.6.0", "both Triton 3.6.0"),
     ("3.5.1", "9.9", "9.9"), ("newest", "3.9.0", "both Triton 3.9.0")],
)  # fmt: skip
def test_ends_that_are_one_release_or_none_are_told_at_once(good: str, bad: str, said: str) -> None:
    for command in ("bisect", "repro", "issue"):
        done = CliRunner().invoke(
            cli.main, [command, RECORDED, "--sample", "--good", good, "--bad", bad], standalone_mode=False
        )
        assert isinstance(done.exception, UsageError) and said in str(done.exception) and done.exception.hint


def test_a_recorded_slow_down_is_walked_without_a_gpu(project: Project) -> None:
    done = project.matrix("bisect", RECORDED, "--sample", "--good", "3.5.1", "--bad", "3.7.1", "--json")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    found = json.loads(done.stdout)
    assert (found["last_good"], found["first_bad"], found["skipped"]) == ("3.5.1", "3.6.0", [])
    (step,) = found["steps"]
    assert step["version"] == "3.6.0" and step["attempts"][0]["recorded"]
    assert found["chain"]["first_change"] == "TTGIR" and found["stage"] == "timing"
    (kept,) = (project.root / ".matrix" / "bisections").rglob("*.json")
    assert json.loads(kept.read_text(encoding="utf-8")) == found
    assert kept.parent.name == found["run_id"]


def test_spills_are_walked_by_compiling(project: Project) -> None:
    done = project.matrix("bisect", SPILLS, "--good", "3.2.0", "--bad", "3.4.0", "-q")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert "first bad release: 3.4.0; last good one: 3.3.1" in done.stdout
    assert "3.3.1      good     1 x measured" in done.stdout
    # 3.3.1 and 3.4.0 carry other assemblers: that it is not theirs is tried.
    assert "the baseline's PTX with the candidate's ptxas 12.8.93 does not show it" in done.stdout
    assert "first change: " in done.stdout and "--good v3.3.1 --bad v3.4.0" in done.stdout
