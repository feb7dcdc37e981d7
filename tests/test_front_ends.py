"""Exotic front ends compile where the release has them, and are left out by name where not."""

from __future__ import annotations

import pandas as pd
import pytest
from conftest import ROOT, Project

from matrix.errors import ExitCode

FOLDER = ROOT / "kernels" / "front_ends"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, workshop) -> pd.DataFrame:
    root = tmp_path_factory.mktemp("front_ends")
    (root / ".matrix").mkdir()
    for version in ("3.3.1", "3.9.0"):
        workshop.environment(version)
    (root / ".matrix" / "environments").symlink_to(workshop.root / ".matrix" / "environments")
    project = Project(root)
    done = project.matrix("run", "--no-builtin", "--kernels", str(FOLDER), "--stages", "import,compile",
                          "--baseline", "3.3.1", "--candidate", "3.9.0", "--targets", "sm_90,sm_100")  # fmt: skip
    assert done.returncode in {ExitCode.CLEAN, ExitCode.REGRESSED}, done.stderr
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells[cells.stage == "import"].outcome) == {"passed"}
    return cells[cells.stage == "compile"].set_index(["triton_version", "target", "case"]).outcome


NEW = ("gluon_scale", "host_descriptor", "warp_specialized")
OLD = ("dot_scaled", "inline_assembly", "libdevice")


def test_the_newest_release_has_all_of_them(compiled: pd.DataFrame) -> None:
    for case in (*NEW, *OLD):
        assert compiled["3.9.0", "sm_100", case] == "passed"
    assert compiled["3.9.0", "sm_90", "warp_specialized"] == "unsupported"


def test_an_older_one_has_some(compiled: pd.DataFrame) -> None:
    assert {compiled["3.3.1", "sm_90", case] for case in OLD} == {"passed"}
    assert {compiled["3.3.1", "sm_90", case] for case in NEW} == {"unsupported"}
