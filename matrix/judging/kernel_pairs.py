"""All kernels of two cells against each other: who belongs to whom, and what changed in sum.

Kernels match by name, autotuner configuration and launch order among their equals, so that one launch more
does not shift every later pair.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from matrix.judging import changes
from matrix.judging.changes import Change, CodeReason, Direction
from matrix.judging.code_risk import compile_time_changes, identical, risk_changes
from matrix.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.judging.thresholds import Thresholds
    from matrix.records import KernelFacts, KernelRecord

    Identity = tuple[str, str, int]

T = TypeVar("T")


# What a launch hands to the driver beside the grid, with the default where a release does not name it.
_LAUNCH_OPTIONS: Mapping[str, object] = {
    "cluster_dims": [1, 1, 1],
    "launch_cooperative_grid": False,
    "launch_pdl": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelComparison:
    """What changed over all kernels of a cell, worst first; ``identical``: the same code throughout."""

    identical: bool
    changes: tuple[Change, ...]


def compare_kernels(
    baseline: Iterable[KernelRecord], candidate: Iterable[KernelRecord], thresholds: Thresholds
) -> KernelComparison:
    baseline, candidate = list(baseline), list(candidate)
    if len(baseline) == len(candidate) == 1:
        one, other = baseline[0], candidate[0]
        slower = _in_compile_time(baseline, candidate, thresholds)
        if not slower and (one.kernel, one.config) == (other.kernel, other.config):
            return compare_one(one.kernel, one.facts, other.facts, thresholds)
    before, after = _identified(baseline), _identified(candidate)
    if before.keys() == after.keys() and all(identical(before[key].facts, after[key].facts) for key in before):
        return KernelComparison(
            identical=True, changes=tuple(_in_compile_time(before.values(), after.values(), thresholds))
        )
    pairs, gone, new = _paired(before, after)
    found = _folded(pairs, thresholds) + _unmatched(gone, new)
    found += _in_compile_time((one for one, _ in pairs), (other for _, other in pairs), thresholds)
    return KernelComparison(identical=False, changes=tuple(sorted(found, key=_worst_first)))


def compare_one(kernel: str, baseline: KernelFacts, candidate: KernelFacts, thresholds: Thresholds) -> KernelComparison:
    """Of cells that launch one kernel, the same on both sides; compile time is not in it."""
    return _of_one(kernel, _ById(baseline), _ById(candidate), _ById(thresholds))


def matched(
    baseline: Iterable[KernelRecord], candidate: Iterable[KernelRecord]
) -> tuple[list[tuple[KernelRecord, KernelRecord]], list[KernelRecord]]:
    """The kernels that belong together, and those that one side alone has."""
    pairs, gone, new = _paired(_identified(baseline), _identified(candidate))
    return pairs, [*gone, *new]


def _paired(
    before: Mapping[Identity, KernelRecord], after: Mapping[Identity, KernelRecord]
) -> tuple[list[tuple[KernelRecord, KernelRecord]], list[KernelRecord], list[KernelRecord]]:
    return (
        [(before[key], after[key]) for key in before if key in after],
        [record for key, record in before.items() if key not in after],
        [record for key, record in after.items() if key not in before],
    )


@functools.lru_cache(maxsize=1 << 16)
def _of_one(
    kernel: str, before: _ById[KernelFacts], after: _ById[KernelFacts], thresholds: _ById[Thresholds]
) -> KernelComparison:
    """Of cells that launch one kernel, as most do."""
    found = sorted(_worst_by_reason(_risks(before, after, thresholds)).values(), key=_worst_first)
    return KernelComparison(
        identical=identical(before.of, after.of), changes=tuple(replace(change, kernel=kernel) for change in found)
    )


def _in_compile_time(
    baseline: Iterable[KernelRecord], candidate: Iterable[KernelRecord], thresholds: Thresholds
) -> list[Change]:
    """Of kernels that both sides have."""
    return compile_time_changes(sum(map(_seconds, baseline)), sum(map(_seconds, candidate)), thresholds)


def same_launches(baseline: Sequence[KernelRecord], candidate: Sequence[KernelRecord]) -> bool:
    """Whether both sides launch the same machine code with the same geometry, as far as is recorded."""
    before, after = _identified(baseline), _identified(candidate)
    return (
        bool(before)
        and before.keys() == after.keys()
        and all(identical(before[key].facts, after[key].facts) for key in before)
        and all(_geometry(before[key]) == _geometry(after[key]) for key in before)
    )


def _geometry(record: KernelRecord) -> tuple[object, ...]:
    return record.grid, record.num_warps, record.num_ctas, *launch_options(record.options)


def launch_options(options: Mapping[str, object]) -> tuple[object, ...]:
    """Those of a kernel's options that are part of its launch."""
    return tuple(options.get(name, default) for name, default in _LAUNCH_OPTIONS.items())


def _identified(records: Iterable[KernelRecord]) -> dict[Identity, KernelRecord]:
    records = list(records)
    if len(records) == 1:
        return {(records[0].kernel, records[0].config, 0): records[0]}
    seen: dict[tuple[str, str], int] = defaultdict(int)
    identified: dict[Identity, KernelRecord] = {}
    for record in sorted(records, key=lambda record: (record.config, record.index)):
        equals = (record.kernel, record.config)
        identified[(equals[0], equals[1], seen[equals])] = record
        seen[equals] += 1
    return identified


class _ById(Generic[T]):
    """A key for what is the same object: facts hold dictionaries, and have no hash of their own."""

    __slots__ = ("of",)

    def __init__(self, of: T) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.of is other.of


# Night after night most code is what it was the night before (matrix.storage.store reads it as the same objects).
@functools.lru_cache(maxsize=1 << 16)
def _risks(before: _ById[KernelFacts], after: _ById[KernelFacts], thresholds: _ById[Thresholds]) -> tuple[Change, ...]:
    return tuple(risk_changes(before.of, after.of, thresholds.of))


def _folded(pairs: Sequence[tuple[KernelRecord, KernelRecord]], thresholds: Thresholds) -> list[Change]:
    """One change a kernel and reason: of several launches or configurations the one that moved most."""
    groups: dict[tuple[str, str], list[Change]] = defaultdict(list)
    judged: dict[str, int] = defaultdict(int)
    for before, after in pairs:
        judged[before.kernel] += 1
        found = _risks(_ById(before.facts), _ById(after.facts), _ById(thresholds))
        for reason, change in _worst_by_reason(found).items():
            groups[before.kernel, reason].append(change)
    return [_one(group, kernel, judged[kernel]) for (kernel, _), group in groups.items()]


def _worst_by_reason(found: Iterable[Change]) -> dict[str, Change]:
    worst: dict[str, Change] = {}
    for change in found:
        known = worst.get(change.reason_code)
        if known is None or change.factor > known.factor:
            worst[change.reason_code] = change
    return worst


def _one(group: Sequence[Change], kernel: str, judged: int) -> Change:
    worst = max(group, key=lambda change: change.factor)
    more = f" (the most of {len(group)} of its {judged} builds)" if judged > 1 else ""
    return replace(worst, kernel=kernel, text=worst.text + more)


def _unmatched(gone: Sequence[KernelRecord], new: Sequence[KernelRecord]) -> list[Change]:
    """A configuration that one side lacks is a loss of tuning; another set of kernels only a change."""
    before, after = (_configurations(side) for side in (gone, new))
    found = [configuration_change(Direction.WORSE, *item) for item in _only_in(before, after)]
    found += [configuration_change(Direction.BETTER, *item) for item in _only_in(after, before)]
    for kernel in sorted({record.kernel for record in (*gone, *new) if not record.config}):
        counts = [sum(not r.config and r.kernel == kernel for r in side) for side in (gone, new)]
        text = f"{counts[0]} launches of {kernel} gone, {counts[1]} new"
        found.append(
            Change(
                reason_code=CodeReason.KERNELS_CHANGED,
                direction=Direction.NEUTRAL,
                severity=10,
                text=text,
                kernel=kernel,
            )
        )
    return found


def _configurations(records: Iterable[KernelRecord]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record.config:
            found[record.kernel].add(record.config)
    return found


def _only_in(one: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> list[tuple[str, list[str]]]:
    left = ((kernel, sorted(configs - other.get(kernel, set()))) for kernel, configs in sorted(one.items()))
    return [(kernel, configs) for kernel, configs in left if configs]


def configuration_change(direction: Direction, kernel: str, configs: Sequence[str]) -> Change:
    """Configurations of a kernel's tuner that are gone where ``direction`` is worse, else new."""
    which = "gone" if direction is Direction.WORSE else "new"
    text = f"{len(configs)} autotuner configuration{'s' * (len(configs) > 1)} {which}: {', '.join(configs[:3])}"
    change = changes.CONFIGURATION.change(direction, text + (" ..." if configs[3:] else ""))
    return replace(change, kernel=kernel, stage=Stage.COMPILE)


def _seconds(record: KernelRecord) -> float:
    return sum(record.seconds.values()) - record.seconds.get("total", 0.0)


_LOSSES_FIRST = (Direction.WORSE, Direction.NEUTRAL, Direction.BETTER)


def _worst_first(change: Change) -> tuple[int, int, float, str, str]:
    order = _LOSSES_FIRST.index(change.direction)
    return order, -change.severity, -change.factor, change.kernel, change.reason_code
