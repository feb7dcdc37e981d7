"""Hazards on the TTIR of real releases: every planted one named, no correct kernel accused."""

from __future__ import annotations

import pytest
import recorded

from matrix.code.hazards import REACHES, REPLACED, hazards

VERSIONS = ["3.0.0", "3.4.0", "3.6.0", "3.9.0"]

# kernel: line of the load in the recorded source, and where its undefined lanes get
REACHING = {
    "softmax_bad": (23, "a reduction at samples.py:24"),
    "pool737_wrong": (59, "a store at samples.py:60"),
    "matmul_tail": (102, "a dot's contraction at samples.py:104"),
    "hist_nomask": (192, "an atomic at samples.py:193"),
    "accum_bad": (285, "a reduction at samples.py:286"),
    "while_bad": (49, "a store at hz.py:51"),
    "partial_select_bad": (100, "a reduction at hz.py:102"),
    "trans_bad": (115, "a store at hz.py:116"),
    "argmax_bad": (130, "a reduction at hz.py:131"),
    "looser_bad": (143, "a store at hz.py:144"),
    "revscan_bad": (149, "a scan at hz.py:150"),
    "mulmask_bad": (156, "a reduction at hz.py:157"),
    "unmasked_store_bad": (162, "a store at hz.py:162"),
}
# kernel: lines of the loads whose undefined lanes a select replaces
SELECTED = {
    "pool737": [44, 45, 46],  # triton#737 itself
    "softmax_where": [32],
    "rmsnorm_where": [152],
    "while_ok": [38],
    "notmask_ok": [56],
    "invmask_ok": [64],
    "ln_bwd_ok": [186],
}


def _recorded(version: str) -> list[str]:
    return [name for name in recorded.names(".ttir") if name.startswith(f"{version}/sm_90/")]


def _kernel(name: str) -> str:
    return name.rsplit("/", 1)[1].removesuffix(".ttir")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kernel", REACHING)
def test_undefined_lanes_that_reach_something(version, kernel):
    (hazard,) = hazards(recorded.text(f"{version}/sm_90/{kernel}.ttir"))
    line, where = REACHING[kernel]
    assert hazard.kind == REACHES
    assert (hazard.file, hazard.line) == (where.split()[-1].split(":")[0], line)
    assert hazard.detail == f"lanes outside the mask reach {where}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kernel", SELECTED)
def test_lanes_replaced_by_a_select_are_a_lint(version, kernel):
    found = hazards(recorded.text(f"{version}/sm_90/{kernel}.ttir"))
    assert [(hazard.kind, hazard.line) for hazard in found] == [(REPLACED, line) for line in SELECTED[kernel]]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_correct_kernel_is_accused(version):
    correct = [name for name in _recorded(version) if _kernel(name) not in REACHING | SELECTED]
    assert len(correct) >= 30
    accused = {name: found for name in correct if (found := hazards(recorded.text(name)))}
    assert accused == {}


def test_other_clears_the_hazard():
    text = recorded.text("3.6.0/sm_90/softmax_bad.ttir")
    assert hazards(text)
    assert hazards(recorded.text("3.6.0/sm_90/softmax.ttir")) == []


@pytest.mark.parametrize("text", ["", "not MLIR at all", "tt.load %a, %b : !tt.ptr<f32>\n}\n}\n"])
def test_text_that_is_no_module(text):
    assert hazards(text) == []
