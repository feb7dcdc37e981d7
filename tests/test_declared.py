"""What a case file declares is read off its text where that tells all, and no file that is asked for is left out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from matrix.errors import UsageError
from matrix.model import CPU, Cell
from matrix.running.declared import could_match, declared_names, narrowed
from matrix.running.plan import selected

HEAD = "import torch\nimport triton.language as tl\nfrom matrix import Case\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('case = Case(name="a", run=f)', {"a"}),
        ('cases = [Case(name="a", **c), Case(run=f, name="b") if x else None]', {"a", "b"}),
        ("x = 1", set()),
        ('case = Case(name=f"a{x}", run=f)', None),
        ("case = Case(**common)", None),
        ('make = Case\ncase = make(name="a")', None),
        ('import dataclasses\ncase = Case(name="a", run=f)', None),
        ('from mine import cases\ncase = Case(name="a", run=f)', None),
        ("from .mine import x", None),
        ("from matrix import beside", None),
        ('case = Case(name="a", run=f)\nother = case.__class__(name="b")', None),
        ('exec("case = 1")', None),
        ("import matrix\ncase = matrix.Case(name='a')", None),
        ("case = Case(name='a'", None),
    ],
)
def test_names_are_known_where_the_text_tells_all(text: str, names: set[str] | None, tmp_path: Path) -> None:
    assert declared_names(written(tmp_path, "x.py", HEAD + text)) == names


NAMES, ENVIRONMENTS = ("ab", "abc", "b"), ("e1", "e2")
CELLS = [
    Cell.of(environment, target, name, params)
    for environment in ENVIRONMENTS
    for target in (CPU, "sm_90")
    for name in NAMES
    for params in ({}, {"a": 1}, {"b": 2, "c": "ab"})
]


def test_no_glob_that_selects_a_cell_passes_its_case_by() -> None:
    draw = random.Random(1)
    globs = ["*", "ab", "*ab*", "e1*", "*/sm_90/abc:*", "cpu/ab"]
    for _ in range(3000):
        cell = draw.choice(CELLS)
        text = list(draw.choice((cell.case, cell.point, f"{cell.target}/{cell.point}", cell.id)))
        for _ in range(draw.randint(0, 3)):
            at = draw.randrange(len(text) + 1)
            text[at : at + draw.randint(0, 3)] = draw.choice(("*", "?", "[ab]", "[!x]", "[", "a", ""))
        globs.append("".join(text))
    for glob in globs:
        for cell in CELLS:
            if selected(cell, (glob,)):
                assert could_match((cell.case,), (glob,), ENVIRONMENTS), glob
    assert not could_match(("ab",), ("e3*", "*/sm_90/b:*", "abc", "b*", "*/abc"), ENVIRONMENTS)


def test_a_file_is_left_out_where_no_cell_of_it_can_be_meant(tmp_path: Path) -> None:
    one = written(tmp_path, "one.py", HEAD + 'case = Case(name="softmax", run=f)')
    two = written(tmp_path, "two.py", HEAD + 'case = Case(name="matmul", run=f)')
    dark = written(tmp_path, "dark.py", "from mine import cases\n")
    assert narrowed((one, two, dark), ("softmax:rows=1",), ENVIRONMENTS) == ((one, dark), ("matmul",))
    assert narrowed((one, two), ("two", "*/sm_90/soft*"), ENVIRONMENTS) == ((one, two), ())
    with pytest.raises(UsageError) as failure:
        narrowed((one, two), ("soft*", "sm_90/matmull:*"), ENVIRONMENTS)
    assert (str(failure.value), failure.value.hint) == ("no case matches 'sm_90/matmull:*'", "did you mean matmul?")
