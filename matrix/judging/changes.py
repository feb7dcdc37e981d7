"""One difference between two cells, and the closed vocabulary of differences in code.

Every rule of the judge speaks in :class:`Change`; a verdict row keeps all of its changes as JSON.
"""

from __future__ import annotations

import enum
import functools
import json
import math
from dataclasses import dataclass
from json.encoder import encode_basestring as _text
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Direction(enum.StrEnum):
    """Which way a change points, seen from someone about to take the candidate."""

    WORSE = "worse"
    BETTER = "better"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference. ``severity``: 1 to 100, whichever way it points; ``cause``: the failure's own line."""

    reason_code: str
    direction: Direction
    severity: int
    text: str
    kernel: str = ""
    stage: str = ""
    baseline_value: float | None = None
    candidate_value: float | None = None
    cause: str = ""

    @property
    def signed_severity(self) -> int:
        """Higher is worse; negative for what got better."""
        match self.direction:
            case Direction.WORSE:
                return self.severity
            case Direction.BETTER:
                return -self.severity
            case Direction.NEUTRAL:
                return 0

    @property
    def factor(self) -> float:
        """How many times one value is of the other, at least 1; infinite from or to zero."""
        if self.baseline_value is None or self.candidate_value is None:
            return 1.0
        small, large = sorted((abs(self.baseline_value), abs(self.candidate_value)))
        return large / small if small else (float("inf") if large else 1.0)

    @property
    def said(self) -> str:
        """The text with what the failing side said; where it failed before, the words are the baseline's."""
        if not self.cause:
            return self.text
        return (
            f"{self.text} (before: {self.cause})"
            if self.direction is Direction.BETTER
            else f"{self.text}: {self.cause}"
        )


def encode(changes: Iterable[Change]) -> str:
    """The ``detail`` column of a verdict row."""
    return _encoded(tuple(changes))


@functools.lru_cache(maxsize=4096)
def _encoded(changes: tuple[Change, ...]) -> str:
    return f"[{', '.join(map(_json, changes))}]"


def encode_alike(
    change: Change, texts: Iterable[str], baseline: Iterable[float | None], candidate: Iterable[float | None]
) -> list[str]:
    """As :func:`encode` of this change alone, each time with a text and values of its own."""
    return [f"[{each}]" for each in _jsons(change, zip(texts, baseline, candidate, strict=True))]


def _json(change: Change) -> str:
    return next(_jsons(change, [(change.text, change.baseline_value, change.candidate_value)]))


def _jsons(change: Change, own: Iterable[tuple[str, float | None, float | None]]) -> Iterator[str]:
    """As ``json.dumps`` writes the change's fields, in a tenth of the time: a night has a row for each cell."""
    head = (
        f'{{"reason_code": {_text(change.reason_code)}, "direction": "{change.direction}", '
        f'"severity": {change.severity}, "text": '
    )
    place = f', "kernel": {_text(change.kernel)}, "stage": {_text(change.stage)}, "baseline_value": '
    tail = f', "cause": {_text(change.cause)}}}'
    for text, baseline, candidate in own:
        yield f'{head}{_text(text)}{place}{_figure(baseline)}, "candidate_value": {_figure(candidate)}{tail}'


def _figure(value: float | None) -> str:
    return "null" if value is None else repr(value) if math.isfinite(value) else json.dumps(value)


def decode(detail: str) -> list[Change]:
    """The changes of a ``detail`` column, worst first as they were written."""
    return [*_decoded(detail)]


@functools.lru_cache(maxsize=4096)
def _decoded(detail: str) -> tuple[Change, ...]:
    rows = json.loads(detail) if detail else []
    return tuple(Change(**{**row, "direction": Direction(row["direction"])}) for row in rows)


class CodeReason(enum.StrEnum):
    """Reason codes of generated code. Each loss has its mirror; :data:`PAIRS` says which."""

    KERNEL_DOES_NOT_FIT = "kernel_does_not_fit"
    KERNEL_FITS = "kernel_fits"
    MATRIX_CLASS_LOST = "matrix_class_lost"
    MATRIX_CLASS_GAINED = "matrix_class_gained"
    MATRIX_TYPE_WIDENED = "matrix_type_widened"
    MATRIX_TYPE_NARROWED = "matrix_type_narrowed"
    SPILLS_APPEARED = "spills_appeared"
    SPILLS_GONE = "spills_gone"
    SPILLS_GREW = "spills_grew"
    SPILLS_SHRANK = "spills_shrank"
    OCCUPANCY_LOST = "occupancy_lost"
    OCCUPANCY_GAINED = "occupancy_gained"
    VECTOR_WIDTH_LOST = "vector_width_lost"
    VECTOR_WIDTH_GAINED = "vector_width_gained"
    SHARED_TRAFFIC_MULTIPLIED = "shared_traffic_multiplied"
    SHARED_TRAFFIC_REDUCED = "shared_traffic_reduced"
    GLOBAL_TRAFFIC_MULTIPLIED = "global_traffic_multiplied"
    GLOBAL_TRAFFIC_REDUCED = "global_traffic_reduced"
    EXECUTION_MULTIPLIED = "execution_multiplied"
    EXECUTION_REDUCED = "execution_reduced"
    EXCHANGE_MULTIPLIED = "exchange_multiplied"
    EXCHANGE_REDUCED = "exchange_reduced"
    ASYNC_COPIES_LOST = "async_copies_lost"
    ASYNC_COPIES_GAINED = "async_copies_gained"
    HAZARD_APPEARED = "hazard_appeared"
    HAZARD_GONE = "hazard_gone"
    CONTRACTION_LOST = "contraction_lost"
    CONTRACTION_GAINED = "contraction_gained"
    CONFIGURATION_LOST = "configuration_lost"
    CONFIGURATION_GAINED = "configuration_gained"
    SHARED_MEMORY = "shared_memory"
    SHARED_MEMORY_SAVED = "shared_memory_saved"
    CODE_SIZE_MULTIPLIED = "code_size_multiplied"
    CODE_SIZE_CUT = "code_size_cut"
    COMPILE_TIME_MULTIPLIED = "compile_time_multiplied"
    COMPILE_TIME_CUT = "compile_time_cut"
    KERNELS_CHANGED = "kernels_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A loss and its mirror, with how much they weigh and how a headline says them."""

    worse: CodeReason
    better: CodeReason
    severity: int
    worse_title: str
    better_title: str

    def change(
        self,
        direction: Direction,
        text: str,
        *,
        baseline: float | None = None,
        candidate: float | None = None,
    ) -> Change:
        return Change(
            reason_code=self.worse if direction is Direction.WORSE else self.better,
            direction=direction,
            severity=self.severity,
            text=text,
            baseline_value=baseline,
            candidate_value=candidate,
        )


# Worst first. Code is a risk and never a proof, so the whole table stays under the severities of failures
# (matrix.judging.outcomes, 60 and more).
FIT = Pair(
    worse=CodeReason.KERNEL_DOES_NOT_FIT,
    better=CodeReason.KERNEL_FITS,
    severity=55,
    worse_title="a kernel no longer fits the target",
    better_title="a kernel fits the target again",
)
MATRIX_CLASS = Pair(
    worse=CodeReason.MATRIX_CLASS_LOST,
    better=CodeReason.MATRIX_CLASS_GAINED,
    severity=50,
    worse_title="weaker matrix instructions",
    better_title="stronger matrix instructions",
)
MATRIX_TYPE = Pair(
    worse=CodeReason.MATRIX_TYPE_WIDENED,
    better=CodeReason.MATRIX_TYPE_NARROWED,
    severity=48,
    worse_title="matrix instructions on wider types",
    better_title="matrix instructions on narrower types",
)
HAZARD = Pair(
    worse=CodeReason.HAZARD_APPEARED,
    better=CodeReason.HAZARD_GONE,
    severity=46,
    worse_title="undefined lanes can reach a result",
    better_title="undefined lanes no longer reach a result",
)
SPILLS = Pair(
    worse=CodeReason.SPILLS_APPEARED,
    better=CodeReason.SPILLS_GONE,
    severity=45,
    worse_title="registers spill",
    better_title="registers no longer spill",
)
SPILL_SIZE = Pair(
    worse=CodeReason.SPILLS_GREW,
    better=CodeReason.SPILLS_SHRANK,
    severity=42,
    worse_title="more registers spill",
    better_title="fewer registers spill",
)
OCCUPANCY = Pair(
    worse=CodeReason.OCCUPANCY_LOST,
    better=CodeReason.OCCUPANCY_GAINED,
    severity=40,
    worse_title="fewer blocks fit an SM",
    better_title="more blocks fit an SM",
)
VECTOR_WIDTH = Pair(
    worse=CodeReason.VECTOR_WIDTH_LOST,
    better=CodeReason.VECTOR_WIDTH_GAINED,
    severity=38,
    worse_title="narrower global accesses",
    better_title="wider global accesses",
)
SHARED_TRAFFIC = Pair(
    worse=CodeReason.SHARED_TRAFFIC_MULTIPLIED,
    better=CodeReason.SHARED_TRAFFIC_REDUCED,
    severity=37,
    worse_title="more shared-memory traffic",
    better_title="less shared-memory traffic",
)
GLOBAL_TRAFFIC = Pair(
    worse=CodeReason.GLOBAL_TRAFFIC_MULTIPLIED,
    better=CodeReason.GLOBAL_TRAFFIC_REDUCED,
    severity=37,
    worse_title="more global-memory traffic",
    better_title="less global-memory traffic",
)
EXECUTION = Pair(
    worse=CodeReason.EXECUTION_MULTIPLIED,
    better=CodeReason.EXECUTION_REDUCED,
    severity=37,
    worse_title="more instructions executed",
    better_title="fewer instructions executed",
)
EXCHANGE = Pair(
    worse=CodeReason.EXCHANGE_MULTIPLIED,
    better=CodeReason.EXCHANGE_REDUCED,
    severity=36,
    worse_title="more exchange between threads",
    better_title="less exchange between threads",
)
ASYNC_COPIES = Pair(
    worse=CodeReason.ASYNC_COPIES_LOST,
    better=CodeReason.ASYNC_COPIES_GAINED,
    severity=34,
    worse_title="asynchronous copies lost",
    better_title="asynchronous copies gained",
)
CONTRACTION = Pair(
    worse=CodeReason.CONTRACTION_LOST,
    better=CodeReason.CONTRACTION_GAINED,
    severity=32,
    worse_title="products and sums are no longer fused: other rounding, more instructions",
    better_title="products and sums are fused",
)
CONFIGURATION = Pair(
    worse=CodeReason.CONFIGURATION_LOST,
    better=CodeReason.CONFIGURATION_GAINED,
    severity=30,
    worse_title="an autotuner configuration is gone",
    better_title="a new autotuner configuration",
)
SHARED_MEMORY = Pair(
    worse=CodeReason.SHARED_MEMORY,
    better=CodeReason.SHARED_MEMORY_SAVED,
    severity=25,
    worse_title="more shared memory",
    better_title="less shared memory",
)
CODE_SIZE = Pair(
    worse=CodeReason.CODE_SIZE_MULTIPLIED,
    better=CodeReason.CODE_SIZE_CUT,
    severity=15,
    worse_title="much more code",
    better_title="much less code",
)
COMPILE_TIME = Pair(
    worse=CodeReason.COMPILE_TIME_MULTIPLIED,
    better=CodeReason.COMPILE_TIME_CUT,
    severity=12,
    worse_title="compiles much slower",
    better_title="compiles much faster",
)
PAIRS = (
    FIT,
    MATRIX_CLASS,
    MATRIX_TYPE,
    HAZARD,
    SPILLS,
    SPILL_SIZE,
    OCCUPANCY,
    VECTOR_WIDTH,
    SHARED_TRAFFIC,
    GLOBAL_TRAFFIC,
    EXECUTION,
    EXCHANGE,
    ASYNC_COPIES,
    CONTRACTION,
    CONFIGURATION,
    SHARED_MEMORY,
    CODE_SIZE,
    COMPILE_TIME,
)


def code_titles() -> dict[str, str]:
    """Reason code to headline, for every difference in code."""
    worse = {str(pair.worse): pair.worse_title for pair in PAIRS}
    better = {str(pair.better): pair.better_title for pair in PAIRS}
    return {**worse, **better, str(CodeReason.KERNELS_CHANGED): "other kernels are launched"}
