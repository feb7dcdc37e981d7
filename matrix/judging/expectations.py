"""Known differences as data: which expectation holds for a cell, and which one it meets."""

from __future__ import annotations

import functools
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from matrix.case import Expect
from matrix.errors import ConfigurationError
from matrix.judging.accuracy import accuracy_titles
from matrix.judging.changes import code_titles
from matrix.judging.speed import speed_titles
from matrix.model import CPU, Outcome, Stage, Target, format_params

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.records import CellRecord

_STAGES = frozenset(str(stage) for stage in Stage)
_OUTCOMES = frozenset(str(outcome) for outcome in Outcome)
_CHANGES = frozenset((*code_titles(), *speed_titles(), *accuracy_titles()))
_TARGETS = frozenset((CPU, *(str(target) for target in Target)))


def read_expectations(rows: Iterable[Mapping[str, object]], *, case: str) -> tuple[Expect, ...]:
    """Expectations from what a worker serialised.

    Raises :class:`ConfigurationError` with every mistake of the case at once: an expectation that can never
    be met (a misspelt outcome, say) would otherwise wait in silence.
    """
    problems: list[str] = []
    expectations: list[Expect] = []
    for number, row in enumerate(rows, start=1):
        wrong = _problems(row)
        if wrong:
            problems += [f"case {case}: expectation {number}: {problem}" for problem in wrong]
        else:
            expectations.append(Expect(**row))  # type: ignore[arg-type]  # _problems looked at every field
    if problems:
        raise ConfigurationError(problems, hint="an expectation names an outcome at a stage, or a change")
    return tuple(expectations)


def holds(expect: Expect, cell: CellRecord, *, stage: str = "") -> bool:
    """Whether ``expect`` speaks about this cell at ``stage`` (by default the cell's own), met or not."""
    if expect.stage != (stage or cell.stage) or (expect.targets and cell.target not in expect.targets):
        return False
    return _has_params(cell.params, expect.params) and _in_versions(expect.triton, cell.triton_version)


def concerns(triton: str, version: str) -> bool:
    """Whether an expectation of these releases speaks about this one at all."""
    return _in_versions(triton, version)


def met(expectations: Sequence[Expect], cell: CellRecord, *, stage: str = "", outcome: str = "") -> Expect | None:
    """The first expectation that foresaw the outcome of ``cell`` (or ``outcome`` in its place)."""
    seen = outcome or cell.outcome
    return next((e for e in expectations if e.outcome == seen and holds(e, cell, stage=stage)), None)


def unmet(expectations: Sequence[Expect], cell: CellRecord) -> Expect | None:
    """The expectation of a failure that a passing cell did not show; None where the cell failed after all."""
    if cell.outcome != Outcome.PASSED or met(expectations, cell):
        return None
    return next((e for e in expectations if e.outcome and holds(e, cell)), None)


def covering(expectations: Sequence[Expect], candidate: CellRecord, reason_code: str) -> Expect | None:
    """The expectation that foresaw this change in the candidate."""
    return next((e for e in expectations if e.change == reason_code and holds(e, candidate)), None)


def _has_params(point: str, wanted: Mapping[str, str | int | float | bool]) -> bool:
    """Whether ``rows=8,dtype=fp16`` holds all of ``wanted``; a value there can hold no comma."""
    parts = set(point.split(","))
    return all(format_params({key: value}) in parts for key, value in wanted.items())


@functools.lru_cache(maxsize=1024)
def _in_versions(specifier: str, version: str) -> bool:
    if not specifier:
        return True
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:  # an environment that was never built has no version: nothing is known about it
        return False


def _problems(row: Mapping[str, object]) -> list[str]:
    known = {field.name for field in fields(Expect)}
    required = {f.name for f in fields(Expect) if f.default is MISSING and f.default_factory is MISSING}
    problems = [f"unknown field {key!r}" for key in row if key not in known]
    problems += [f"{key} is missing or empty" for key in sorted(required) if not row.get(key)]
    if bool(row.get("outcome")) == bool(row.get("change")):
        problems.append("give an outcome or a change, one of the two")
    problems += _unknown_words("outcome", row.get("outcome"), _OUTCOMES - {str(Outcome.PASSED)})
    problems += _unknown_words("change", row.get("change"), _CHANGES)
    problems += _unknown_words("stage", row.get("stage"), _STAGES)
    problems += _unknown_targets(row.get("targets", ()))
    if not isinstance(row.get("params", {}), dict):
        problems.append(f"params = {row['params']!r} is not a mapping")
    return problems + _specifier_problems(row.get("triton", ""))


def _unknown_words(name: str, value: object, allowed: frozenset[str]) -> list[str]:
    if not value or value in allowed:
        return []
    return [f"{name} = {value!r} is not one of {', '.join(sorted(allowed))}"]


def _unknown_targets(value: object) -> list[str]:
    if not isinstance(value, (list, tuple)):
        return [f"targets = {value!r} is not a list"]
    return [f"target {item!r} is not one of {', '.join(sorted(_TARGETS))}" for item in value if item not in _TARGETS]


def _specifier_problems(value: object) -> list[str]:
    try:
        SpecifierSet(str(value))
    except InvalidSpecifier:
        return [f"triton = {value!r} is not a version specifier such as '>=3.3,<3.6'"]
    return []
