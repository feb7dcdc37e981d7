"""The decision: one sentence for each candidate, the key figures, and how far they reach."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.decision import summarise
from matrix.errors import ExitCode
from matrix.groups import Section
from matrix.model import CPU, Outcome, Stage
from matrix.picture import unique_pairs
from matrix.records import Verdict
from matrix.wording import NOTHING, by_target, listing, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.groups import Group
    from matrix.records import VerdictRecord
    from matrix.runfolder import RunFolder

_ON_A_GPU = (Stage.CORRECTNESS, Stage.TIMING)
_NOT_JUDGED = {Verdict.INCOMPLETE, Verdict.UNSUPPORTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A key figure; ``anchor`` is the section that explains it."""

    value: str
    label: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one candidate."""

    baseline: str
    candidate: str
    tone: str
    word: str
    sentence: str
    top: Sequence[Group]


def decisions(runs: Sequence[RunFolder], groups: Sequence[Group]) -> list[Decision]:
    return [_decision(runs, groups, pair) for pair in unique_pairs(runs)]


def _decision(runs: Sequence[RunFolder], groups: Sequence[Group], pair: tuple[str, str]) -> Decision:
    own = [group for group in groups if group.pair == pair]
    kinds = collections.Counter(group.finding.verdict for group in own)
    verdicts = [v for run in runs for v in run.verdicts if (v.baseline, v.candidate) == pair]
    incomplete = sum(verdict.verdict == Verdict.INCOMPLETE for verdict in verdicts)
    decided = summarise(verdicts)
    findings = [group for group in own if group.section == Section.FINDING]
    return Decision(
        baseline=pair[0],
        candidate=pair[1],
        tone=_TONES.get(decided.exit_code, "missing"),
        word=decided.sentence,
        sentence=_sentence(own, kinds, incomplete, verdicts),
        top=findings[:3],
    )


_TONES = {ExitCode.REGRESSED: "bad", ExitCode.INCOMPLETE: "missing", ExitCode.CLEAN: "good"}


def _sentence(
    own: Sequence[Group],
    kinds: collections.Counter[Verdict],
    incomplete: int,
    verdicts: Sequence[VerdictRecord],
) -> str:
    parts = [
        _counted(own, kinds, Verdict.REGRESSED, "regression"),
        _counted(own, kinds, Verdict.CODE_RISK, "code risk"),
        _counted(own, kinds, Verdict.MIXED, "mixed change"),
        _counted(own, kinds, Verdict.UNEXPECTED_PASS, "unexpected pass", "unexpected passes"),
        plural(incomplete, "cell") + " without a verdict" if incomplete else "",
        _counted(own, kinds, Verdict.IMPROVED, "improvement"),
    ]
    told = [part for part in parts if part]
    return f"{'; '.join(told)}." if told else f"All {plural(len(verdicts), 'verdict')} flat."


def _counted(
    own: Sequence[Group], kinds: collections.Counter[Verdict], verdict: Verdict, noun: str, many: str = ""
) -> str:
    if not kinds[verdict]:
        return ""
    targets = by_target(t for group in own if group.finding.verdict == verdict for t in group.targets)
    places = ["the CPU interpreter" if target == CPU else target for target in targets]
    return f"{plural(kinds[verdict], noun, many)} on {listing(places)}"


def reach(runs: Sequence[RunFolder]) -> str:
    """How far the verdict reaches: what no stage of these runs could have seen."""
    ran = {cell.stage for run in runs for cell in run.cells if cell.outcome != Outcome.NOT_RUN}
    targets = by_target(cell.target for run in runs for cell in run.cells if cell.stage == Stage.COMPILE)
    seen = [f"compiled for {listing(targets)}"] if targets else []
    seen += ["interpreted on the CPU"] if Stage.INTERPRET in ran else []
    seen += [f"run on a GPU ({stage})" for stage in _ON_A_GPU if stage in ran]
    text = f"The kernels were {listing(seen)}." if seen else "No kernel was built or run."
    if not ran & set(_ON_A_GPU):
        text += " None ran on a GPU, so nothing here is a timing: code risks are read off the generated code."
    return text


def figures(runs: Sequence[RunFolder], groups: Sequence[Group]) -> list[Figure]:
    sections = collections.Counter(group.section for group in groups)
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    kinds = collections.Counter(verdict.verdict for verdict in verdicts)
    judged = sum(verdict.verdict not in _NOT_JUDGED for verdict in verdicts)
    code = [v for v in verdicts if v.stage == Stage.COMPILE and v.verdict not in _NOT_JUDGED]
    same = f"{kinds[Verdict.IDENTICAL] / len(code):.0%}".replace("%", " %") if code else NOTHING
    return [
        Figure(
            value=f"{sections[Section.FINDING]}",
            label=_noun(sections[Section.FINDING], "finding"),
            anchor="findings",
        ),
        Figure(
            value=f"{sections[Section.IMPROVEMENT]}",
            label=_noun(sections[Section.IMPROVEMENT], "improvement"),
            anchor="improvements",
        ),
        Figure(value=f"{judged:,} of {len(verdicts):,}", label="comparisons judged", anchor="not-tested"),
        Figure(value=same, label="have identical machine code", anchor="matrix"),
        Figure(
            value=f"{sections[Section.KNOWN]}",
            label=_noun(sections[Section.KNOWN], "known difference"),
            anchor="known",
        ),
        Figure(value=f"{sum(len(run.kernels) for run in runs):,}", label="kernels compiled", anchor="run"),
    ]


def _noun(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def title(runs: Sequence[RunFolder]) -> str:
    """``Triton 3.5.1 → 3.6.0, 3.9.0``: versions where they tell the environments apart, else the ids."""
    pairs, names = unique_pairs(runs), short_names(runs)
    baselines = dict.fromkeys(names[baseline] for baseline, _ in pairs)
    candidates = dict.fromkeys(names[candidate] for _, candidate in pairs)
    if not pairs:
        return "Nothing compared"
    text = f"{', '.join(baselines)} → {', '.join(candidates)}"
    return text if any(name == short for name, short in names.items()) else f"Triton {text}"


def short_names(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Environment ids to Triton versions; to themselves where two of one version are compared."""
    names = list(dict.fromkeys(name for pair in unique_pairs(runs) for name in pair))
    known = {name: str(entry["triton"]) for run in runs for name, entry in run.environments.items()}
    versions = {name: known.get(name, name) for name in names}
    return versions if len(set(versions.values())) == len(names) else {name: name for name in names}
