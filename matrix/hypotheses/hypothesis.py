"""A hypothesis in one sentence, and the claims in it that figures can confirm or refute.

    because <evidence>, changing <one thing> should <effect on counters and time> without <constraint>

An effect reads ``lower time by 10 %``, ``halve shared wavefronts``, ``raise occupancy share``; several are joined by
``and`` or a comma, and one without a verb takes the verb before it. A constraint reads ``raising registers``,
``raising stack bytes by more than 5 %``, ``spills``, ``wrong values``. What is measured goes by the names of the
columns of evidence.parquet and counters.parquet, ``time`` and ``launch time``. A term that cannot be read is kept
and said: no figure will decide it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.records import CounterRecord, KernelFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME, LAUNCH_TIME = "time", "launch_time"
FORM = "because <evidence>, changing <one thing> should <effect> without <constraint>"
_SENTENCE = re.compile(
    r"\s*because\s+(?P<evidence>\S.*?)\s*,?\s+changing\s+(?P<change>\S.*?)\s+should\s+(?P<effect>\S.*?)"
    r"\s+without\s+(?P<constraint>\S.*?)\s*\.?\s*",
    re.IGNORECASE | re.DOTALL,
)
_JOINED = re.compile(r"\s*(?:[,;]\s*(?:and\s+)?|\b(?:and|or)\b)\s*", re.IGNORECASE)
_DOWN = "lower reduce cut decrease shrink shorten halve lowering reducing cutting decreasing shrinking losing halving"
_UP = "raise increase grow add double raising increasing growing adding doubling"
_VERBS = {**dict.fromkeys(_DOWN.split(), -1), **dict.fromkeys(_UP.split(), 1)}
_TWICE = frozenset(("halve", "halving", "double", "doubling"))
_AMOUNT = re.compile(
    r"(?P<metric>.*?)\s+by\s+(?:more\s+than\s+|at\s+least\s+)?(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|percent|x|times)",
    re.IGNORECASE,
)
_NUMBERS = frozenset(
    field.name
    for record in (KernelFacts, CounterRecord)
    for field in dataclasses.fields(record)
    if str(field.type).removesuffix(" | None") in ("int", "float") and field.name != "index"
)
_ALIASES = {"spills": "stack_bytes", "spilling": "stack_bytes", "launch": LAUNCH_TIME, "median": TIME}
_CORRECT = frozenset(("wrong values", "wrong results", "errors", "a wrong result"))


class Standing(enum.StrEnum):
    """What the figures say about a claim, a row, or a hypothesis."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The ratio of a figure, candidate over baseline, lies at or beyond a bound: an effect beyond 1, not at it."""

    text: str
    metric: str
    at_most: float | None = None
    at_least: float | None = None
    strict: bool = False

    def standing(self, low: float, high: float) -> Standing:
        """What a ratio between ``low`` and ``high`` says."""
        if self._above(low) or self._below(high):
            return Standing.REFUTED
        return Standing.UNDECIDED if self._above(high) or self._below(low) else Standing.CONFIRMED

    def _above(self, ratio: float) -> bool:
        return self.at_most is not None and (ratio > self.at_most or (self.strict and ratio == self.at_most))

    def _below(self, ratio: float) -> bool:
        return self.at_least is not None and (ratio < self.at_least or (self.strict and ratio == self.at_least))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """The sentence, its four parts, what was read in it and what was not."""

    text: str
    evidence: str
    change: str
    effect: str
    constraint: str
    claims: tuple[Claim, ...]
    unread: tuple[str, ...]


def read_hypothesis(text: str) -> Hypothesis:
    """Raises :class:`UsageError` for a sentence of another form."""
    match = _SENTENCE.fullmatch(text)
    if match is None:
        lacking = [word for word in ("because", "changing", "should", "without") if not _has(word, text)]
        what = f"has no {', no '.join(lacking)}" if lacking else "has its parts in another order, or an empty one"
        raise UsageError(f"the hypothesis {what}: {text!r}", hint=f'write "{FORM}"')
    effects = [(term.text, _effect(term)) for term in _terms(match["effect"])]
    # That values stay right is asked of every candidate.
    asked = [term for term in _terms(match["constraint"]) if term.text.lower() not in _CORRECT]
    read = [*effects, *((term.text, _constraint(term)) for term in asked)]
    return Hypothesis(
        text=" ".join(text.split()),
        **{name: " ".join(part.split()) for name, part in match.groupdict().items()},
        claims=tuple(claim for _, claim in read if claim is not None),
        unread=tuple(said for said, claim in read if claim is None),
    )


def _has(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class _Term:
    """A phrase of an effect or a constraint. ``way`` is -1 for less and 1 for more, 0 where no verb says it."""

    text: str
    metric: str
    way: int
    factor: float  # how many times less or more, at least; 1 where no amount is given


def _terms(text: str) -> Iterator[_Term]:
    way = 0
    for phrase in filter(None, _JOINED.split(text.strip())):
        words = phrase.split()
        verb = words[0].lower()
        rest = " ".join(words[1:] if verb in _VERBS else words)
        way = _VERBS.get(verb, way)
        amount = _AMOUNT.fullmatch(rest)
        factor = _factor(float(amount["number"]), amount["unit"], way) if amount else 2.0 if verb in _TWICE else 1.0
        yield _Term(phrase, _metric(amount["metric"] if amount else rest), way, factor)


def _factor(amount: float, unit: str, way: int) -> float:
    """``10 %`` less is a factor of 1/0.9, ``10 %`` more one of 1.1, ``2x`` either way one of 2."""
    if unit.lower() in ("x", "times"):
        return max(amount, 1.0)
    share = amount / 100
    return 1 + share if way > 0 else 1 / (1 - share) if share < 1 else math.inf


def _metric(text: str) -> str:
    """The column's name, or nothing for what no column holds."""
    name = re.sub(r"\s+", "_", re.sub(r"^the\s+", "", text.strip().lower()))
    name = _ALIASES.get(name, name)
    return name if name in _NUMBERS or name in (TIME, LAUNCH_TIME) else ""


def _effect(term: _Term) -> Claim | None:
    if not (term.metric and term.way):
        return None
    strict = term.factor == 1.0
    if term.way < 0:
        return Claim(text=term.text, metric=term.metric, at_most=1 / term.factor, strict=strict)
    return Claim(text=term.text, metric=term.metric, at_least=term.factor, strict=strict)


def _constraint(term: _Term) -> Claim | None:
    """What must not happen: a noun alone (spills) must not grow."""
    if not term.metric:
        return None
    if term.way < 0:
        return Claim(text=f"without {term.text}", metric=term.metric, at_least=1 / term.factor)
    return Claim(text=f"without {term.text}", metric=term.metric, at_most=term.factor)
