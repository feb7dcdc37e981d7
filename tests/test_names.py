"""Cells that their ids could not tell apart are refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.errors import UsageError
from matrix.running.plan import CaseInfo, Collected, check_names


def info(name: str, file: str = "a.py", points: list[dict[str, Any]] | None = None) -> CaseInfo:
    empty = dict.fromkeys(CaseInfo.__dataclass_fields__, ())
    return CaseInfo(**{**empty, "name": name, "path": Path(file), "points": {"compile": points or [{}]}})


def collected(*cases: CaseInfo, outcome: str = "passed", file: str = "a.py", environment: str = "one") -> Collected:
    return Collected(
        environment=environment, path=Path(file), outcome=outcome, reason="", detail="", seconds=0.0, cases=cases
    )


def problem(*found: Collected) -> str:
    with pytest.raises(UsageError) as failure:
        check_names(found)
    return str(failure.value)


def test_one_case_in_several_environments_is_one_case() -> None:
    check_names([collected(info("a")), collected(info("a"), environment="other")])


@pytest.mark.parametrize("names", [("q/1", "q:1"), ("a b", "a-b"), ("same", "same")])
def test_names_that_an_id_writes_alike_are_refused(names: tuple[str, str]) -> None:
    said = problem(collected(*map(info, names)))
    assert all(repr(name) in said for name in names)


def test_two_files_with_one_name_and_everything_else_are_told_at_once() -> None:
    one = collected(info("a"), info("", points=[{"s": "a:b"}, {"s": "a-b"}]))
    said = problem(one, collected(info("a", "b.py"), file="b.py"))
    assert "a.py" in said and "b.py" in said and "no name" in said and "have one cell id" in said


def test_files_without_any_case_are_no_green_run() -> None:
    assert problem(collected()).startswith("no case in a.py")
    check_names([collected(), collected(info("a", "b.py"), file="b.py")])  # a helper beside a case file
    check_names([collected(outcome="import_error")])  # why there is none is told elsewhere
