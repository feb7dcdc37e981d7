"""Globs on the command line: which commas part them."""

from __future__ import annotations

import pytest

from matrix.commands.options import Globs


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
