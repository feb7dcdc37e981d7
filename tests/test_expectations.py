"""Expectations: for whom they hold, what they foresee, and how mistakes in them are told."""

from __future__ import annotations

import dataclasses

import pytest
from judged import cell, expect

from matrix.errors import ConfigurationError
from matrix.judging.expectations import covering, holds, met, read_expectations, unmet


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({}, "yes"),
        ({"triton": ">=3.5,<3.6"}, "yes"),
        ({"triton": ">=3.6"}, "no"),
        ({"triton": "==3.5.*"}, "yes"),
        ({"targets": ["sm_90", "sm_100"]}, "yes"),
        ({"targets": ["sm_120"]}, "no"),
        ({"params": {"dtype": "fp16"}}, "yes"),
        ({"params": {"dtype": "fp16", "rows": 8}}, "yes"),
        ({"params": {"rows": 80}}, "no"),
        ({"params": {"cols": 8}}, "no"),
        ({"stage": "interpret"}, "no"),
    ],
)
def test_for_whom_it_holds(given: dict[str, object], answer: str) -> None:
    assert holds(expect(outcome="wrong", **given), cell("triton3.5.1")) is (answer == "yes")


@pytest.mark.parametrize(
    ("version", "specifier", "answer"),
    [
        ("3.6.0rc1", ">=3.5,<3.6", "no"),  # a pre-release of 3.6 is no 3.5
        ("3.6.0rc1", ">=3.6.0rc1", "yes"),
        ("3.7.0.dev20260101+git1234", ">=3.6", "yes"),
        ("3.6.0+gitabc", "==3.6.0", "yes"),
        ("", ">=3.0", "no"),
        ("", "", "yes"),
        ("unknown", ">=3.0", "no"),
    ],
)
def test_versions_as_packaging_reads_them(version: str, specifier: str, answer: str) -> None:
    row = dataclasses.replace(cell("x"), triton_version=version)
    assert holds(expect(outcome="wrong", triton=specifier), row) is (answer == "yes")


@pytest.mark.parametrize("value", [True, 1.5, "a,b", "16x128"])
def test_params_are_compared_as_a_cell_id_writes_them(value: object) -> None:
    written = {True: "true", 1.5: "1.5", "a,b": "a-b", "16x128": "16x128"}[value]
    assert holds(expect(outcome="wrong", params={"p": value}), cell("triton3.5.1", params=f"o=1,p={written}"))


def test_met_and_unmet() -> None:
    expectations = [expect(outcome="compile_error"), expect(outcome="compiler_abort", reason="aborts")]
    failing, passing = cell("triton3.5.1", "compiler_abort"), cell("triton3.5.1")
    seen = met(expectations, failing)
    assert seen is not None
    assert seen.reason == "aborts"
    assert met(expectations, cell("triton3.5.1", "timeout")) is None
    assert unmet(expectations, passing) is expectations[0]
    assert unmet(expectations, failing) is None
    assert unmet([expect(change="shared_memory")], passing) is None


def test_covering_is_by_reason_code() -> None:
    expectations = [expect(change="shared_memory", triton=">=3.6")]
    assert covering(expectations, cell("triton3.6.0"), "shared_memory") is expectations[0]
    assert covering(expectations, cell("triton3.6.0"), "spills_appeared") is None
    assert covering(expectations, cell("triton3.5.1"), "shared_memory") is None


def test_what_a_worker_serialised_comes_back() -> None:
    given = expect(outcome="wrong", stage="interpret", params={"rows": 8}, targets=["cpu"])
    assert read_expectations([dataclasses.asdict(given)], case="softmax") == (given,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"outcome": "wrogn"}, "outcome = 'wrogn' is not one of"),
        ({"outcome": "passed"}, "outcome = 'passed' is not one of"),
        ({"change": "spils"}, "change = 'spils' is not one of"),
        ({}, "give an outcome or a change"),
        ({"outcome": "wrong", "change": "shared_memory"}, "give an outcome or a change"),
        ({"outcome": "wrong", "stage": "build"}, "stage = 'build' is not one of"),
        ({"outcome": "wrong", "targets": ["sm_91"]}, "target 'sm_91' is not one of"),
        ({"outcome": "wrong", "targets": "sm_90"}, "targets = 'sm_90' is not a list"),
        ({"outcome": "wrong", "triton": "3.5"}, "triton = '3.5' is not a version specifier"),
        ({"outcome": "wrong", "reason": ""}, "reason is missing or empty"),
        ({"outcome": "wrong", "link": None}, "link is missing or empty"),
        ({"outcome": "wrong", "params": []}, "params = [] is not a mapping"),
        ({"outcome": "wrong", "colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_mistake_is_named(given: dict[str, object], message: str) -> None:
    row = {"reason": "r", "link": "l", **given}
    with pytest.raises(ConfigurationError) as error:
        read_expectations([row], case="softmax")
    assert error.value.problems[0].startswith("case softmax: expectation 1: ")
    assert message in str(error.value)


def test_all_mistakes_at_once() -> None:
    rows = [{"outcome": "x"}, {"reason": "r", "link": "l", "outcome": "wrong"}, {"change": "y"}]
    with pytest.raises(ConfigurationError) as error:
        read_expectations(rows, case="c")
    assert len(error.value.problems) == 6
