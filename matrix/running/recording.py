"""From parts to rows: cell records and kernel records of one run."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.judging.expectations import met
from matrix.model import CPU, Cell, Outcome, Stage, format_params
from matrix.records import CellRecord, KernelFacts, KernelRecord
from matrix.storage.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from matrix.case import Expect
    from matrix.running.execute import Measured
    from matrix.running.plan import CaseInfo, Collected


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One environment of a run, as rows name it; ``problem`` says why it could not be built."""

    environment: str
    triton_version: str
    torch_version: str
    problem: str = ""

    def names(self, cell: Cell) -> dict[str, Any]:
        """The columns of a row that say which cell it is about, and under which versions."""
        return {**names_of(cell), "triton_version": self.triton_version, "torch_version": self.torch_version}


def names_of(cell: Cell) -> dict[str, Any]:
    """The columns of a row that say which cell it is about."""
    return {
        "environment": cell.environment,
        "target": cell.target,
        "case": cell.case,
        "params": format_params(dict(cell.params)),
        "cell_id": cell.id,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Clerk:
    """Writes rows for one run on one host."""

    run_id: str
    host: str
    arms: Mapping[str, Arm]
    expectations: Mapping[str, Sequence[Expect]]

    def rows(self, measured: Iterable[Measured]) -> list[CellRecord]:
        """A row for every part of what was measured."""
        return [record for item in measured for record in self._measured(item)]

    def cells(
        self,
        collected: Sequence[Collected],
        measured: Iterable[Measured],
        names: Collection[str],
        timed: Sequence[CellRecord] = (),
    ) -> list[CellRecord]:
        """Every row of the run: imports first, then what was measured, then what failed imports left undone.

        ``names`` are the cases that were asked for; ``timed`` are rows that come as they are.
        """
        done = [*self.rows(measured), *timed]
        imports = self._imports(collected, names)
        undone = self._undone(imports, done)
        return [self._expected(record) for record in (*imports, *done, *undone)]

    def kernels(self, measured: Iterable[Measured], facts: Mapping[str, tuple[KernelFacts, str]]) -> list[KernelRecord]:
        """A row for every compiled kernel. ``facts`` gives facts and SASS digest by cubin digest and target."""
        rows = []
        for item in measured:
            for part in item.parts:
                for kernel in part["kernels"]:
                    found = facts.get(fact_key(item.planned.cell.target, kernel))
                    if found is not None:
                        rows.append(self._kernel(item, part["config"], kernel, *found))
        return rows

    def _measured(self, item: Measured) -> Iterable[CellRecord]:
        cell, stage = item.planned.cell, item.planned.stage
        for part in item.parts:
            yield self.row(
                _configured(cell, part["config"]),
                stage,
                part["outcome"],
                reason=part["reason"],
                detail=part["detail"] or _figures(part),
                seconds=part["seconds"],
                started_at=item.started_at,
                cached=item.cached,
            )

    def _imports(self, collected: Sequence[Collected], names: Collection[str]) -> list[CellRecord]:
        """The import stage: a row for every case in every environment, whether or not its file imported there."""
        held: dict[Path, dict[str, None]] = {}
        for item in collected:
            held.setdefault(item.path, {}).update(dict.fromkeys(case.name for case in item.cases))
        rows = []
        for item in collected:
            for name in held[item.path] or {item.path.stem: None}:
                if name in names:
                    cell = Cell.of(item.environment, CPU, name, {})
                    rows.append(
                        self.row(
                            cell,
                            Stage.IMPORT,
                            item.outcome,
                            reason=item.reason,
                            detail=item.detail,
                            seconds=item.seconds,
                        )
                    )
        return rows

    def _undone(self, imports: Sequence[CellRecord], done: Sequence[CellRecord]) -> list[CellRecord]:
        """Cells of cases that did not import in one environment, named after those of another that did."""
        failed = {(r.environment, r.case): r for r in imports if r.outcome != Outcome.PASSED}
        shapes = {(r.case, r.target, r.params, r.stage): r for r in done}
        have = {(r.environment, r.case, r.target, r.params, r.stage) for r in done}
        rows = []
        for (environment, name), cause in failed.items():
            for (case, target, params, stage), shape in shapes.items():
                if case == name and (environment, case, target, params, stage) not in have:
                    rows.append(
                        replace(
                            cause,
                            # What the case does not exist for does not fail to import there.
                            **_absent(shape),
                            target=target,
                            params=params,
                            stage=stage,
                            seconds=0.0,
                            cell_id=f"{environment}/{shape.cell_id.split('/', 1)[1]}",
                        )
                    )
        return rows

    def row(
        self,
        cell: Cell,
        stage: Stage,
        outcome: str,
        *,
        reason: str,
        detail: str = "",
        seconds: float = 0.0,
        started_at: datetime.datetime | None = None,
        cached: bool = False,
    ) -> CellRecord:
        """What became of a cell at a stage."""
        return CellRecord(
            **self.arms[cell.environment].names(cell),
            run_id=self.run_id,
            host=self.host,
            stage=str(stage),
            outcome=str(outcome),
            reason=reason,
            detail=detail,
            seconds=seconds,
            started_at=started_at or datetime.datetime.now(datetime.UTC),
            cached=cached,
        )

    def _expected(self, record: CellRecord) -> CellRecord:
        expect = met(self.expectations.get(record.case, ()), record)
        return replace(record, expected=expect.reason) if expect else record

    def _kernel(
        self, item: Measured, config: str, kernel: Mapping[str, Any], facts: KernelFacts, sass: str
    ) -> KernelRecord:
        cell = _configured(item.planned.cell, config)
        return KernelRecord(
            **self.arms[cell.environment].names(cell),
            run_id=self.run_id,
            kernel=kernel["name"],
            index=kernel["index"],
            config=config,
            num_warps=kernel["num_warps"],
            num_stages=kernel["num_stages"],
            num_ctas=kernel["num_ctas"],
            options=kernel["options"],
            signature=kernel["signature"],
            grid=kernel["grid"],
            arguments=kernel["arguments"],
            source_file=kernel["source_file"],
            source_line=kernel["source_line"],
            ptxas_version=kernel["ptxas_version"],
            seconds=kernel["seconds"],
            artifacts={**kernel["artifacts"], **({"sass": sass} if sass else {})},
            facts=facts,
        )


def fact_key(target: str, kernel: Mapping[str, Any]) -> str:
    """What a kernel's facts depend on: its artefacts, its launch and the target's limits."""
    digests = ",".join(f"{kind}={digest}" for kind, digest in sorted(kernel["artifacts"].items()))
    launch = key_of({name: kernel.get(name) for name in ("grid", "arguments", "signature")})
    return f"{target}|{kernel['num_warps']}|{kernel['shared_bytes']}|{launch}|{digests}"


def expectations_of(collected: Iterable[Collected]) -> dict[str, CaseInfo]:
    """The cases by name, as the first environment in which they imported describes them."""
    cases: dict[str, CaseInfo] = {}
    for item in collected:
        for case in item.cases:
            cases.setdefault(case.name, case)
    return cases


def _absent(shape: CellRecord) -> dict[str, Any]:
    if shape.outcome != Outcome.UNSUPPORTED:
        return {}
    return {"outcome": shape.outcome, "reason": shape.reason, "detail": ""}


def _configured(cell: Cell, config: str) -> Cell:
    return replace(cell, params=(*cell.params, ("config", config))) if config else cell


def _figures(part: Mapping[str, Any]) -> str:
    figures = part.get("figures")
    if not figures:
        return ""
    return (
        f"largest error {figures['largest_error']:.3g}, {figures['worst']:.1%} of the allowance ({figures['budget']})"
    )
