"""Every documented regression under kernels/regressions shows its figure, on its good and on its bad release.

A row whose ``STAGE`` is correctness or timing needs a GPU. Its ``FIGURE`` is what was reported and not what we saw, of
an outcome or of the verdict's reason code; here such a row is skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workshop

from matrix.environments import child_environment
from matrix.execute import Bench, Measured, collect, measure
from matrix.facts import facts_of
from matrix.model import Stage, format_params
from matrix.plan import Collected, PlannedCell, Request, cells_of
from matrix.recording import fact_key
from matrix.workers import WorkerHome

FILES = sorted((ROOT / "kernels" / "regressions").glob("*.py"))
ON_A_GPU = {Stage.CORRECTNESS, Stage.TIMING}
OLDEST = "3.0.0"  # rows whose good release is older cannot be shown on both sides


@dataclass(frozen=True)
class Arm:
    """One side of a row: a release, a target and a point."""

    path: Path
    version: str
    target: str
    stage: str
    params: dict[str, Any]


def constants(path: Path) -> dict[str, Any]:
    """The file's plain data, read without importing it: torch and triton are not installed here."""
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign):
            continue
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                found |= {name.id: item for name, item in zip(target.elts, value, strict=True)}
            elif isinstance(target, ast.Name):
                found[target.id] = value
    return found


def arms(path: Path) -> tuple[Arm, Arm]:
    data = constants(path)
    good = Arm(path, data["GOOD"], data["TARGET"], data["STAGE"], data["PARAMS"])
    return good, Arm(
        path,
        data["BAD"],
        data.get("BAD_TARGET", good.target),
        good.stage,
        data.get("BAD_PARAMS", good.params),
    )


def shown(arm: Arm) -> bool:
    return arm.version >= OLDEST and arm.stage not in ON_A_GPU


@dataclass(frozen=True)
class Bed:
    """Everything that the rows need, measured in one go."""

    collected: dict[tuple[str, Path], Collected]
    measured: dict[tuple[str, Path, str, str, str], Measured]
    facts: dict[str, Any]

    def figure(self, arm: Arm, name: str) -> Any:
        if arm.stage == Stage.IMPORT:
            return getattr(self.collected[arm.version, arm.path], name)
        key = (arm.version, arm.path, arm.target, arm.stage, format_params(arm.params))
        part = self.measured[key].parts[0]
        if name in {"outcome", "reason"}:
            return part[name]
        kernel = part["kernels"][0]
        if name in kernel and name != "shared_bytes":
            return kernel[name]
        value = getattr(self.facts[fact_key(arm.target, kernel)][0], name)
        return sorted({hazard["kind"] for hazard in value}) if name == "hazards" else value


@pytest.fixture(scope="module")
def bed(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    scratch = tmp_path_factory.mktemp("bed")
    bench = Bench.make(scratch, store=scratch, slots=2)
    wanted = [arm for path in FILES for arm in arms(path) if shown(arm)]
    built = {version: workshop.environment(version) for version in sorted({arm.version for arm in wanted})}
    homes = {
        version: WorkerHome(
            environment=version,
            interpreter=each.interpreter,
            variables=child_environment(each.environment),
            pythonpath=(),
            scratch=scratch,
            memory_bytes=16 << 30,
        )
        for version, each in built.items()
    }
    locks = {version: each.digest for version, each in built.items()}
    collected = {(item.environment, item.path): item for item in collect(bench, homes, locks, FILES, lambda: None)}
    planned = [cell for arm in wanted for cell in cells(arm, collected[arm.version, arm.path])]
    unique = list({(cell.stage, cell.cell.id): cell for cell in planned}.values())
    measured = measure(bench, homes, locks, unique, lambda: None)
    return Bed(
        collected=collected,
        measured={
            (m.planned.cell.environment, m.planned.case.path, m.planned.cell.target, str(m.planned.stage),
             format_params(m.planned.params)): m
            for m in measured
        },
        facts=facts_of(bench, measured, lambda count: None),
    )  # fmt: skip


def cells(arm: Arm, item: Collected) -> Iterator[PlannedCell]:
    """The one cell of the row in that release; none for a row of the import stage."""
    if arm.stage == Stage.IMPORT:
        return
    request = Request(
        baseline=arm.version,
        candidates=(),
        targets=(arm.target,),
        case_files=(arm.path,),
        stages=(Stage(arm.stage),),
    )
    for cell in cells_of(arm.version, arm.version, [item], request):
        if format_params(cell.params) == format_params(arm.params):
            yield cell


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_row_s_figures_are_seen(bed: Bed, path: Path) -> None:
    if constants(path)["STAGE"] in ON_A_GPU:
        pytest.skip("only a GPU shows it")
    seen = 0
    for side, arm in enumerate(arms(path)):
        if not shown(arm):
            continue
        for name, wanted in constants(path)["FIGURE"].items():
            found = bed.figure(arm, name)
            if name == "reason":
                assert wanted[side] in found
            else:
                assert found == wanted[side], f"{name} in {arm.version}"
            seen += 1
    assert seen
