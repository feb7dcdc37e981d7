"""Globs on the command line: which commas part them, and what they select."""

from __future__ import annotations

import pytest

from matrix.commands.options import Globs
from matrix.model import selects


@pytest.mark.parametrize(
    ("text", "globs"),
    [
        ("softmax,layer_norm", ["softmax", "layer_norm"]),
        ("softmax:rows=3,cols=4", ["softmax:rows=3,cols=4"]),
        ("softmax:rows=3,rope:dim=4", ["softmax:rows=3", "rope:dim=4"]),
        ("*dtype=fp16,block=64*", ["*dtype=fp16,block=64*"]),
        ("*rows=3*,*cols=4*", ["*rows=3*", "*cols=4*"]),
        ("*sm_90/softmax:rows=3,cols=4,rope", ["*sm_90/softmax:rows=3,cols=4", "rope"]),
    ],
)
def test_a_comma_between_params_parts_no_globs(text: str, globs: list[str]) -> None:
    assert Globs().convert(text, None, None) == globs


@pytest.mark.parametrize(
    "glob",
    ["rope", "sm_*/*", "rope:dim=4", "sm_90/rope:dim=4", "*/sm_90/rope*", "r*:dim=?", "e1/sm_90/rope:dim=4", "*dim=4"],
)
def test_a_cell_goes_by_its_case_its_point_its_target_with_it_and_its_id(glob: str) -> None:
    assert selects((glob,), "e1/sm_90/rope:dim=4", "rope")
    assert not selects((glob,), "e2/cpu/ro.pe:dim=", "ro.pe")
