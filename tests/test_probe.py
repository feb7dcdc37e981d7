"""What environments are meant where somebody asks about releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.causes.probe import Laboratory, is_on_host
from matrix.causes.redcell import find
from matrix.resources import sample_folder
from matrix.running.progress import Board
from matrix.settings import config
from matrix.storage.runfolder import load
from matrix.storage.runs import Home

if TYPE_CHECKING:
    from pathlib import Path

CELL = "sm_90/column_max_tma:rows=8192,cols=8192,dtype=fp16,block_m=16,block_n=128"


def laboratory(root: Path, *, on_host: bool) -> Laboratory:
    board = Board(quiet=True)
    return Laboratory(configuration=config.load(root), home=Home(root=root), board=board, jobs=1, on_host=on_host)


@pytest.mark.parametrize(("told", "meant"), [("3.5.1@host", True), ("host", True), ("3.5.1", False), ("", False)])
def test_a_name_says_whether_the_host_s_own_torch_is_meant(told: str, meant: bool) -> None:
    assert is_on_host(told) is meant


@pytest.mark.parametrize(("good", "bad"), [("3.5.1@host", "host"), ("3.5.1", "3.6.0"), ("3.5.1@host", "3.6.0")])
def test_a_red_cell_is_found_by_any_name_of_its_environments(tmp_path: Path, good: str, bad: str) -> None:
    lab = laboratory(tmp_path, on_host=is_on_host(good))
    red = find(load(sample_folder()), CELL, good=lab.named(good), bad=lab.named(bad))
    assert (red.version(red.verdict.baseline), red.version(red.verdict.candidate)) == ("3.5.1", "3.6.0")


def test_a_release_stands_for_its_stock_pair_or_lies_over_the_host_s_torch(tmp_path: Path) -> None:
    run = load(sample_folder())
    stock, over = (laboratory(tmp_path, on_host=on_host) for on_host in (False, True))
    assert stock.standing_for("3.5.1", run).id == "triton3.5.1-torch2.9.1"
    assert [over.standing_for(version, run).id for version in ("3.5.1", "3.6.0", "3.3.1")] == [
        "triton3.5.1-host",
        "host",
        "triton3.3.1-host",
    ]
