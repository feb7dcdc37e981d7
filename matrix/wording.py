"""How the report says things: the look of each verdict, numbers, changes, lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.model import CPU
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    Number = int | float

_BIG_RATIO = 1.5
_SMALL_RATIO = 1 / _BIG_RATIO
# Named, because in source they look like a hyphen and a letter.
NOTHING = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A verdict as it is drawn: colour (tone), glyph and word each say it alone."""

    word: str
    glyph: str
    tone: str
    meaning: str


# Worst first: the order in which a cell of the matrix picture chooses what to show.
LOOKS: dict[Verdict, Look] = {
    Verdict.REGRESSED: Look(
        word="regressed",
        glyph="✖",
        tone="bad",
        meaning="worked in the baseline, fails or is wrong in the candidate",
    ),
    Verdict.INCOMPLETE: Look(
        word="incomplete", glyph="?", tone="missing", meaning="something needed for a verdict is missing"
    ),
    Verdict.CODE_RISK: Look(
        word="code risk", glyph="▲", tone="risk", meaning="builds, but the generated code lost something"
    ),
    Verdict.MIXED: Look(word="mixed", glyph="◆", tone="risk", meaning="lost here and gained there"),
    Verdict.UNEXPECTED_PASS: Look(
        word="passes now",
        glyph="!",
        tone="odd",
        meaning="a known difference did not show: remove its expectation",
    ),
    Verdict.IMPROVED: Look(word="improved", glyph="✔", tone="good", meaning="better than in the baseline"),
    Verdict.KNOWN: Look(word="known", glyph="○", tone="known", meaning="a difference that the case expects"),
    Verdict.CHANGED: Look(word="changed", glyph="~", tone="changed", meaning="other code or other bits, no risk seen"),
    Verdict.IDENTICAL: Look(word="identical", glyph="=", tone="same", meaning="the same machine code"),
    Verdict.EQUAL: Look(word="equal", glyph="=", tone="same", meaning="the same outcome, no code to compare"),
    Verdict.UNSUPPORTED: Look(word="n/a", glyph=NOTHING, tone="none", meaning="unsupported in both environments"),
}
RANK: dict[Verdict, int] = {verdict: place for place, verdict in enumerate(LOOKS)}


def plural(count: int, noun: str, many: str = "") -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def listing(items: Iterable[str], *, limit: int = 6) -> str:
    """``a, b and 3 more``."""
    texts = list(items)
    if len(texts) <= limit:
        return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))
    return f"{', '.join(texts[:limit])} and {len(texts) - limit} more"


def phrase(code: str) -> str:
    """A reason code or outcome in words: ``shared_memory`` as ``shared memory``."""
    return code.replace("_", " ")


def number(value: Number | None, unit: str = "") -> str:
    if value is None:
        return NOTHING
    if unit == "%":
        return f"{value * 100:.0f} %"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    return f"{text} {unit}".rstrip()


def change(before: Number | None, after: Number | None) -> str:
    """What moved, as a person would say it: a ratio when it is large, else a percentage."""
    if before is None or after is None:
        return ""
    if before == after:
        return "="
    if not before:
        return "appeared"
    if not after:
        return "gone"
    ratio = after / before
    if ratio >= _BIG_RATIO or ratio <= _SMALL_RATIO:
        return f"{TIMES}{ratio:.3g}"
    return f"{(ratio - 1) * 100:+.1f} %"


def times(ratio: float | None) -> str:
    """A ratio of times as a person would say it: ``+3.1 %`` or, where it is large, times 3.13."""
    if ratio is None or not 1e-6 < ratio < 1e6:  # an interval without an end among them
        return "?"
    if not _SMALL_RATIO < ratio < _BIG_RATIO:
        return f"{TIMES}{ratio:.2f}" if 0.1 <= ratio < 10 else f"{TIMES}{ratio:.3g}"
    percent = (ratio - 1) * 100
    if abs(percent) >= 0.95:
        return f"{percent:+.1f} %"
    return f"{percent:+.2f} %" if abs(percent) >= 0.005 else "0.00 %"


def percent(share: float) -> str:
    """A share to two digits: ``0.55 %``."""
    return f"{number(float(f'{share * 100:.2g}'))} %"


def microseconds(value: float | None) -> str:
    """Three digits at least, and never more decimals than a timer has."""
    if value is None:
        return NOTHING
    return f"{value:,.0f} us" if value >= 1000 else f"{value:.2f} us" if value < 10 else f"{value:.1f} us"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def place(target: str) -> str:
    return "CPU" if target == CPU else target


def unique(items: Iterable[str]) -> list[str]:
    """Each text once, in the order of first sight."""
    return list(dict.fromkeys(items))


def by_target(names: Iterable[str]) -> list[str]:
    """Targets in the order of their number; what is not a target (the CPU) comes last."""
    return sorted(set(names), key=target_key)


def target_key(name: str) -> tuple[int, int, str]:
    """Sorts targets by number: sm_80 before sm_100."""
    digits = name.rpartition("_")[2]
    return (0, int(digits), name) if digits.isdigit() else (1, 0, name)
