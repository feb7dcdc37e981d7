"""The decision: one sentence for each candidate, the key figures, and how far they reach."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import ExitCode
from matrix.judging.arm_pairs import noise_floors
from matrix.judging.decision import failing_in_both, summarise
from matrix.judging.distrust import distrust
from matrix.judging.groups import Section
from matrix.judging.kinds import Kind
from matrix.judging.outcomes import fails_in_both
from matrix.model import CPU, Outcome, Stage
from matrix.records import Verdict
from matrix.reporting.picture import by_pair, unique_pairs
from matrix.storage.rows import column, distinct
from matrix.wording import NOTHING, by_target, listing, plural, unique

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from matrix.judging.groups import Group
    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder

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
    return [_decision(pair, [row for _, row in seen], groups) for pair, seen in by_pair(runs).items()]


def _decision(pair: tuple[str, str], verdicts: Sequence[VerdictRecord], groups: Sequence[Group]) -> Decision:
    own = [group for group in groups if group.pair == pair]
    incomplete = sum(verdict.verdict == Verdict.INCOMPLETE and not verdict.waived for verdict in verdicts)
    decided = summarise(verdicts)
    findings = [group for group in own if group.section == Section.FINDING]
    return Decision(
        baseline=pair[0],
        candidate=pair[1],
        tone=_TONES.get(decided.exit_code, "missing"),
        word=decided.sentence,
        sentence=_sentence(own, incomplete, verdicts),
        top=findings[:3],
    )


_TONES = {ExitCode.REGRESSED: "bad", ExitCode.INCOMPLETE: "missing", ExitCode.CLEAN: "good"}


def _sentence(own: Sequence[Group], incomplete: int, verdicts: Sequence[VerdictRecord]) -> str:
    waived = [group for group in own if group.section is Section.WAIVED]
    own = [group for group in own if group.section is not Section.WAIVED]
    both = failing_in_both(verdicts)
    parts = [
        distrust([verdict for verdict in verdicts if not verdict.waived]),
        *_nouns(own, _LOSSES),
        plural(incomplete, "cell") + " without a verdict" if incomplete else "",
        plural(both, "cell") + " failing in both" if both else "",
        *_nouns(own, _GAINS),
        _counted(waived, "waived finding"),
    ]
    told = [part for part in parts if part]
    return f"{'; '.join(told)}." if told else f"All {plural(len(verdicts), 'verdict')} flat."


_SLOWER, _RISK = frozenset((Verdict.REGRESSED, Verdict.CODE_RISK)), frozenset((Verdict.CODE_RISK,))
_FAILED, _BETTER = frozenset((Verdict.REGRESSED,)), frozenset((Verdict.IMPROVED,))
_ANY = frozenset(Kind)
_CODE = frozenset((Kind.CODE_RISK, Kind.COMPILE, Kind.CORRECTNESS, Kind.IMPORT))
# What findings of these verdicts and kinds are called, one and many; worst first.
_LOSSES = (
    (_FAILED, frozenset((Kind.CORRECTNESS,)), "correctness regression", ""),
    (_FAILED, frozenset((Kind.IMPORT,)), "import regression", ""),
    (_FAILED, frozenset((Kind.COMPILE, Kind.CODE_RISK)), "compile regression", ""),
    (_FAILED, frozenset((Kind.SPEED,)), "slow-down", ""),
    (_FAILED, frozenset((Kind.LAUNCH_COST,)), "dearer launch", "dearer launches"),
    (_RISK, _CODE, "code risk", ""),
    (_SLOWER, frozenset((Kind.COMPILE_TIME,)), "longer compilation", ""),
    (frozenset((Verdict.MIXED,)), _ANY, "mixed change", ""),
    (frozenset((Verdict.UNEXPECTED_PASS,)), _ANY, "unexpected pass", "unexpected passes"),
)
_GAINS = (
    (_BETTER, frozenset((Kind.SPEED,)), "speed-up", ""),
    (_BETTER, frozenset((Kind.LAUNCH_COST,)), "cheaper launch", "cheaper launches"),
    (_BETTER, frozenset((Kind.COMPILE_TIME,)), "shorter compilation", ""),
    (_BETTER, _CODE, "improvement", ""),
)


def _nouns(own: Sequence[Group], table: Iterable[tuple[frozenset[Verdict], frozenset[Kind], str, str]]) -> list[str]:
    return [
        _counted([g for g in own if g.finding.verdict in verdicts and g.finding.kind in kinds], noun, many)
        for verdicts, kinds, noun, many in table
    ]


def _counted(groups: Sequence[Group], noun: str, many: str = "") -> str:
    if not groups:
        return ""
    targets = by_target(target for group in groups for target in group.targets)
    places = ["the CPU interpreter" if target == CPU else target for target in targets]
    return f"{plural(len(groups), noun, many)} on {listing(places)}"


def reach(runs: Sequence[RunFolder]) -> str:
    """How far the verdict reaches: what no stage of these runs could have seen."""
    cells = {each for run in runs for each in distinct(run.cells, "stage", "target", "outcome")}
    ran = {stage for stage, _, outcome in cells if outcome != Outcome.NOT_RUN}
    targets = by_target(target for stage, target, _ in cells if stage == Stage.COMPILE)
    seen = [f"compiled for {listing(targets)}"] if targets else []
    seen += ["interpreted on the CPU"] if Stage.INTERPRET in ran else []
    seen += _on_gpus(runs, ran)
    text = f"The kernels were {listing(seen)}." if seen else "No kernel was built or run."
    if not ran & set(_ON_A_GPU):
        text += " None ran on a GPU, so nothing here is a timing: code risks are read off the generated code."
    return text


def _on_gpus(runs: Sequence[RunFolder], ran: Collection[str]) -> list[str]:
    stages = [str(stage) for stage in _ON_A_GPU if stage in ran]
    if not stages:
        return []
    named = [str(gpu.get("name", "")) for run in runs for gpu in run.meta.get("gpus") or ()]
    named += [gpu for run in runs for gpu in column(run.timings, "gpu")]
    gpus = listing(name for name in unique(named) if name) or "a GPU"
    entered = {place for run in runs for place in distinct(run.cells, "stage", "target")}
    targets = by_target(target for stage, target in entered if stage in stages)
    return [f"run on {gpus} ({', '.join(stages)}; {listing(targets)} alone)"]


def figures(runs: Sequence[RunFolder], groups: Sequence[Group]) -> list[Figure]:
    sections = collections.Counter(group.section for group in groups)
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    kinds = collections.Counter(verdict.verdict for verdict in verdicts)
    judged = sum(verdict.verdict not in _NOT_JUDGED for verdict in verdicts)
    built = (v for v in verdicts if v.stage == Stage.COMPILE and v.verdict not in _NOT_JUDGED)
    code = [v for v in built if not fails_in_both(v.reason_code)]
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
        *_timed_figures(runs),
        Figure(
            value=f"{sections[Section.KNOWN]}",
            label=_noun(sections[Section.KNOWN], "known difference"),
            anchor="known",
        ),
        Figure(value=f"{sum(len(run.kernels) for run in runs):,}", label="kernels compiled", anchor="run"),
    ]


def _timed_figures(runs: Sequence[RunFolder]) -> list[Figure]:
    """What a run on a GPU timed, and what it could tell apart."""
    floors = [floor for run in runs for floor in noise_floors(run.timings).values()]
    if not floors:
        return []
    cells = sum(floor.cells for floor in floors)
    worst = max(floor.p95 for floor in floors)
    return [
        Figure(value=f"{worst * 100:.2g} %", label=f"noise floor over {plural(cells, 'timed cell')}", anchor="timing")
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
    versions = _versions(runs)
    return versions if len(set(versions.values())) == len(versions) else {name: name for name in versions}


def full_names(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Environment ids, with the release of Triton beside an id that does not say it: ``host`` says nothing to sign."""
    return {
        name: name if version in name else f"{name} (Triton {version})" for name, version in _versions(runs).items()
    }


def _versions(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Of Triton in each compared environment; its id where that is not recorded."""
    names = list(dict.fromkeys(name for pair in unique_pairs(runs) for name in pair))
    known = {name: str(entry["triton"]) for run in runs for name, entry in run.environments.items()}
    return {name: known.get(name, name) for name in names}
