"""Is the instrument fit? What each proof of it found, and by what it is judged. Pure: numbers in, words out.

A spin kernel's duration is known from the GPU's own nanosecond timer. A window around nothing is not nothing
(two events and a launch, some 3.5 us on an H200): what an empty kernel takes is subtracted from both.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matrix.records import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPIN_TOLERANCE = 0.01
# A precaution that changes less than this has not been seen to matter here.
_TRAP_SHOWS = 0.01
_AGREEMENT = 0.006


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One proof of the instrument on one GPU. ``figures`` are times in us, and ratios."""

    name: str
    found: str
    fit: bool = True
    hint: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def failed(name: str, part: Mapping[str, Any]) -> Proof:
    """A proof that could not be made."""
    outcome, reason = part.get("outcome", "crash"), part.get("reason", "")
    return Proof(name=name, found=f"could not be measured: {outcome}: {reason}", fit=False)


def spin(part: Mapping[str, Any], duration_ns: int) -> Proof:
    """The timer's window around a kernel of known duration."""
    name = f"spin of {_time(duration_ns / 1e3)}"
    if part.get("outcome") != "passed":
        return failed(name, part)
    known, window = _known_us(part["spin"]), statistics.median(part["spin"]["samples_us"])
    nothing, floor = _known_us(part["empty"]), statistics.median(part["empty"]["samples_us"])
    error = (window - floor) / (known - nothing) - 1
    full = part["spin"]["queue_full"] and part["empty"]["queue_full"]
    return Proof(
        name=name,
        found=f"read {error:+.2%} off; the window's own {floor:.2f} us subtracted"
        + ("" if full else "; the queue ran empty"),
        fit=abs(error) <= SPIN_TOLERANCE and full,
        hint="something else uses this GPU, or its driver's events are coarse: no time measured here is to be trusted",
        figures={
            "known_us": known,
            "window_us": window,
            "empty_window_us": floor,
            "empty_known_us": nothing,
            "error": error,
            "queue_full": full,
        },
    )


def agreement(name: str, ratio: float, decision: str, detectable: float) -> Proof:
    """Two workers of one environment with the same work, and a control beside them."""
    apart = abs(ratio - 1)
    return Proof(
        name=f"A/A {name}",
        found=f"{ratio - 1:+.2%}, called {decision}; a slow-down of {detectable:.2%} would have been found",
        fit=decision not in (Decision.SLOWER, Decision.FASTER) and apart <= _AGREEMENT,
        hint="two workers that do the same differ: verdicts on differences of this size are not to be trusted here",
        figures={"ratio": ratio, "decision": decision, "smallest_detectable": detectable},
    )


def planted(name: str, extra: float, ratio: float, decision: str, problems: Sequence[str] = ()) -> Proof:
    """Work that was made ``extra`` per cent more."""
    return Proof(
        name=f"planted {extra:g} % in {name}",
        found=f"{ratio - 1:+.2%}, called {decision}" + "".join(f"; {problem}" for problem in problems),
        fit=decision == Decision.SLOWER and not problems,
        hint="changes of this size are not found on this GPU as it is now: is it shared, hot or capped?",
        figures={"extra": extra / 100, "ratio": ratio, "decision": decision, "problems": list(problems)},
    )


def trap(name: str, without: float, true: float, how: str) -> Proof:
    """What would have been reported in us ``without`` a precaution, beside the true figure."""
    off = without / true - 1
    shown = abs(off) >= _TRAP_SHOWS
    return Proof(
        name=f"trap: {name}",
        found=f"{how} would have reported {_time(without)}; it is {_time(true)} ({_factor(without / true)})",
        fit=shown and math.isfinite(off),
        hint="the precaution made no difference here, so that this proof shows nothing",
        figures={"without_us": without, "true_us": true, "ratio": without / true},
    )


def unmoved(proof: Proof, median: float, midmean: float) -> Proof:
    """The trap of the mean, with what the figures that we use made of the same samples."""
    true = proof.figures["true_us"]
    figures = {**proof.figures, "median_us": median, "midmean_us": midmean}
    moved = max(abs(median / true - 1), abs(midmean / true - 1))
    return dataclasses.replace(
        proof,
        found=f"{proof.found}; the median of the same samples says {_time(median)}",
        fit=proof.fit and moved < _TRAP_SHOWS,
        hint=proof.hint if moved < _TRAP_SHOWS else "the median moved as well: the GPU's clock did, perhaps",
        figures=figures,
    )


def ceilings(part: Mapping[str, Any]) -> Proof:
    """What the GPU reaches by its own measure; nothing to be right or wrong about."""
    if part.get("outcome") != "passed":
        return failed("ceilings", part)
    copy, matmul = part["copy_gb_s"], part["matmul_bf16_tflop_s"]
    return Proof(
        name="ceilings",
        found=f"copy {copy:.0f} GB/s, bf16 matrix product {matmul:.0f} TFLOP/s",
        figures={"copy_gb_s": copy, "matmul_bf16_tflop_s": matmul},
    )


def _known_us(figures: Mapping[str, Any]) -> float:
    marks: list[tuple[int, int]] = figures["marks_ns"]
    return statistics.median((end - start) / 1e3 for start, end in marks)


def _time(us: float) -> str:
    if us < 1e3:
        return f"{us:.3g} us" if us < 10 else f"{us:.1f} us"
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def _factor(ratio: float) -> str:
    return f"{ratio - 1:+.1%}" if 0.5 < ratio < 2 else f"{ratio:.3g} times"
