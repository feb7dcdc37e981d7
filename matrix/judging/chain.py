"""From source to time, link by link: what changed first between two cells, whose change that is, and what does not fit.

A chain is read from the left: source, options, TTIR, TTGIR, LLIR, PTX, ptxas, SASS, static evidence, counters, kernel
time and, where a call launches several kernels, pass time. The first link that differs names the owner of a change in
code. Differences that end in the same machine code explain nothing that was measured; then the owner is looked for
among what else differs: torch, driver, GPU, clocks. What is not recorded is unknown, and no owner is made up for it.

A *broken* chain has a link that the one before it does not explain: code unchanged and time moved, counters better
and time not, kernels faster and the pass not, code worse and time not.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from matrix.judging.changes import CodeReason
from matrix.judging.code_risk import identical
from matrix.judging.crossed import Whose, whose
from matrix.judging.kinds import Kind, kind_of
from matrix.judging.speed import Speed, SpeedReason
from matrix.model import Outcome, Stage
from matrix.records import KernelFacts, Verdict
from matrix.wording import change, listing, number, phrase, plural, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matrix.judging.arm_pairs import ArmPair
    from matrix.records import AssemblyRecord, CounterRecord, KernelRecord, VerdictRecord

    Pairs = Sequence[tuple[KernelRecord, KernelRecord]]

# Hardware counts of two launches that differ by less count as the same: a choice, there is no noise floor for them.
NOTABLE_COUNT = 1.1
_NAMED = 3


class Step(enum.StrEnum):
    """The links of a chain, in order."""

    SOURCE = "source"
    OPTIONS = "options"
    TTIR = "TTIR"
    TTGIR = "TTGIR"
    LLIR = "LLIR"
    PTX = "PTX"
    PTXAS = "ptxas"
    SASS = "SASS"
    STATIC = "static evidence"
    COUNTERS = "counters"
    KERNEL_TIME = "kernel time"
    PASS_TIME = "pass time"  # noqa: S105 - no password


class State(enum.StrEnum):
    SAME = "same"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class Owner(enum.StrEnum):
    """Whose change it is."""

    CASE = "the case's own source"
    FRONT_END = "Triton's front end"
    OPTIMISER = "Triton's optimiser"
    LLVM = "LLVM"
    ASSEMBLER = "the assembler"
    TRITON_AND_ASSEMBLER = "Triton and the assembler together"
    TUNER = "the tuner"
    LAUNCHER = "Triton's launcher"
    TORCH = "torch"
    DRIVER = "the driver"
    GPU = "the GPU"
    CLOCKS = "the clocks"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link. ``first``: the first that changed and had an effect."""

    step: Step
    state: State
    note: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All links between two cells, the owner of the change with the reason, and what the links leave unexplained."""

    links: tuple[Link, ...] = ()
    owner: Owner = Owner.UNKNOWN
    why: str = ""
    broken: tuple[str, ...] = ()

    @property
    def first(self) -> Link | None:
        return next((link for link in self.links if link.first), None)

    @property
    def said(self) -> str:
        """In one line; empty where nothing is known."""
        if self.first is None and self.owner is Owner.UNKNOWN:
            return self.why
        first = f"first change: {self.first.step}" if self.first else "no link of the code changed"
        return f"{first}; whose: {self.owner}"


class Beside(NamedTuple):
    """What differs between the two sides beside the code, and whose change a difference could be."""

    owner: Owner
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is recorded of two cells. ``row`` is the verdict to explain, ``timed`` and ``coded`` those of the same cell
    on time and on code. ``sources`` are digests of the case's files; ``counters`` the launches that were counted;
    ``assembled`` is each side's PTX with each side's ptxas, where that was asked for.
    """

    row: VerdictRecord
    pairs: Pairs = ()
    unmatched: Sequence[str] = ()
    sources: tuple[str, str] = ("", "")
    own_files: frozenset[str] = frozenset()
    arms: ArmPair | None = None
    timed: VerdictRecord | None = None
    coded: VerdictRecord | None = None
    counters: tuple[Sequence[CounterRecord], Sequence[CounterRecord]] = ((), ())
    beside: Callable[[], Sequence[Beside]] = tuple
    assembled: Sequence[AssemblyRecord] = ()


def chain_of(sides: Sides) -> Chain:
    """The chain between two cells; without links where neither code nor time is recorded of both."""
    code = list(_code_links(sides))
    effects = [_static(sides), _counted(sides), *_times(sides)]
    links = _marked(code, effects, same_code=_same_code(sides))
    if all(link.state is State.UNKNOWN for link in links if link.step is not Step.SOURCE):
        return Chain()
    owner, why = _owner(sides, links)
    return Chain(links=tuple(links), owner=owner, why=why, broken=tuple(_broken(sides, links)))


def _code_links(sides: Sides) -> Iterator[Link]:
    yield Link(step=Step.SOURCE, state=_source(sides))
    pairs = _telling(sides.pairs)
    options = list(dict.fromkeys(text for pair in pairs for text in _moved_options(*pair)))
    state = State.UNKNOWN if not pairs else State.CHANGED if options else State.SAME
    yield Link(step=Step.OPTIONS, state=state, note=", ".join(options))
    for step, name in _HASHES.items():
        states = [_state(getattr(one.facts, name), getattr(other.facts, name)) for one, other in pairs]
        changed = [one.kernel for (one, _), state in zip(pairs, states, strict=True) if state is State.CHANGED]
        yield Link(step=step, state=_joined(states), note=_of_several(changed, len(sides.pairs)))
        if step is Step.PTX:
            yield _assembler(pairs)


def _telling(pairs: Pairs) -> Pairs:
    """The kernels whose machine code differs; all of them where none does. What the others differ in had no effect."""
    return [pair for pair in pairs if not identical(pair[0].facts, pair[1].facts)] or pairs


_HASHES = {
    Step.TTIR: "ttir_hash",
    Step.TTGIR: "ttgir_hash",
    Step.LLIR: "llir_hash",
    Step.PTX: "ptx_hash",
    Step.SASS: "sass_hash",
}


def _state(one: str, other: str) -> State:
    if not (one and other):
        return State.UNKNOWN
    return State.SAME if one == other else State.CHANGED


def _joined(states: Sequence[State]) -> State:
    """Of all kernels: one that changed is enough, and one that is unknown keeps the rest from being the same."""
    for state in (State.CHANGED, State.UNKNOWN):
        if state in states:
            return state
    return State.SAME if states else State.UNKNOWN


def _of_several(changed: Sequence[str], kernels: int) -> str:
    """Which of several kernels changed."""
    if kernels < 2 or not changed:
        return ""
    return f"in {len(changed)} of {kernels} kernels: {listing(dict.fromkeys(changed), limit=_NAMED)}"


def _source(sides: Sides) -> State:
    """By the text of each kernel where it is kept, and the digests of the case's files where it lies in them."""
    states = [_kernel_source(sides, *pair) for pair in _telling(sides.pairs)]
    return _joined(states) if states else _state(*sides.sources)


def _kernel_source(sides: Sides, one: KernelRecord, other: KernelRecord) -> State:
    kept = _state(one.artifacts.get("source", ""), other.artifacts.get("source", ""))
    if kept is State.CHANGED:
        return kept
    own = one.source_file == other.source_file and other.source_file in sides.own_files
    files = _state(*sides.sources) if own else State.UNKNOWN
    return kept if files is State.UNKNOWN else files


def _assembler(pairs: Pairs) -> Link:
    versions = [tuple(dict.fromkeys(side.ptxas_version for side in sides)) for sides in zip(*pairs, strict=True)]
    if not versions or not all(all(each) for each in versions):
        return Link(step=Step.PTXAS, state=State.UNKNOWN)
    before, after = (", ".join(each) for each in versions)
    same = all(one.ptxas_version == other.ptxas_version for one, other in pairs)
    note = after if same else f"{before} → {after}"
    return Link(step=Step.PTXAS, state=State.SAME if same else State.CHANGED, note=note)


# Not the user's to choose: where files lie, and what the compiler itself found out.
_NOT_OPTIONS = {
    "backend_name",
    "extern_libs",
    "global_scratch_align",
    "global_scratch_size",
    "hash",
    "profile_scratch_align",
    "profile_scratch_size",
}


def _moved_options(before: KernelRecord, after: KernelRecord) -> list[str]:
    """Options that both releases know and resolve differently; a release adds options all the time.

    Lists are what a release supports (``supported_fp8_dtypes``), not what the kernel was compiled with.
    """
    shared = before.options.keys() & after.options.keys() - _NOT_OPTIONS
    moved = {key: (before.options[key], after.options[key]) for key in sorted(shared)}
    return [f"{key} {old} → {new}" for key, (old, new) in moved.items() if old != new and not isinstance(new, list)]


def _same_code(sides: Sides) -> bool:
    """The same kernels, each the same machine code with the same resources."""
    return bool(sides.pairs) and not sides.unmatched and all(identical(a.facts, b.facts) for a, b in sides.pairs)


_NOT_STATIC = frozenset(("hazards", "memory_lines", "memory_note", "dtypes"))
_STATIC = tuple(
    field.name
    for field in dataclasses.fields(KernelFacts)
    if not field.name.endswith("_hash") and field.name not in _NOT_STATIC
)


def _static(sides: Sides) -> Link:
    if not sides.pairs:
        return Link(step=Step.STATIC, state=State.UNKNOWN)
    moved = dict.fromkeys(text for one, other in sides.pairs for text in _moved_facts(one.facts, other.facts))
    state = State.CHANGED if moved or sides.unmatched else State.SAME
    said = [f"{listing(sides.unmatched, limit=_NAMED)} on one side alone"] if sides.unmatched else []
    return Link(step=Step.STATIC, state=state, note=listing([*said, *moved], limit=_NAMED))


def _moved_facts(before: KernelFacts, after: KernelFacts) -> Iterator[str]:
    for name in _STATIC:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, int | float) and isinstance(new, int | float):
            yield f"{phrase(name)} {number(old)} → {number(new)}"
        else:
            yield f"{phrase(name)} changed"


class _Counted(NamedTuple):
    """One figure of the hardware's over all launches of a call: less is better of each."""

    name: str
    before: float
    after: float

    @property
    def way(self) -> int:
        """-1 for less, 1 for more, 0 within what counts as the same."""
        small, large = sorted((self.before, self.after))
        if large == small or (small and large / small < NOTABLE_COUNT):
            return 0
        return 1 if self.after > self.before else -1


_COUNTS: Mapping[str, Callable[[CounterRecord], float | None]] = {
    "DRAM bytes": lambda row: _sum(row.dram_read_bytes, row.dram_write_bytes),
    "shared wavefronts": lambda row: row.shared_wavefronts,
    "bank conflicts": lambda row: row.shared_bank_conflicts,
    "sectors a load": lambda row: row.global_load_sectors_per_request,
    "sectors a store": lambda row: row.global_store_sectors_per_request,
}


def _sum(*values: float | None) -> float | None:
    return None if any(value is None for value in values) else sum(value for value in values if value is not None)


def _passed(rows: Iterable[CounterRecord]) -> list[CounterRecord]:
    return [row for row in rows if row.outcome == Outcome.PASSED]


def _total(rows: Sequence[CounterRecord], read: Callable[[CounterRecord], float | None]) -> float | None:
    return _sum(*map(read, rows)) if rows else None


def _counts(sides: Sides) -> list[_Counted]:
    before, after = map(_passed, sides.counters)
    totals = ((name, _total(before, read), _total(after, read)) for name, read in _COUNTS.items())
    return [_Counted(name, one, other) for name, one, other in totals if one is not None and other is not None]


def _counted(sides: Sides) -> Link:
    found = _counts(sides)
    moved = [f"{each.name} {change(each.before, each.after)}" for each in found if each.way]
    state = State.UNKNOWN if not found else State.CHANGED if moved else State.SAME
    return Link(step=Step.COUNTERS, state=state, note=", ".join(moved))


_SPEEDS = {
    Speed.SLOWER: State.CHANGED,
    Speed.FASTER: State.CHANGED,
    Speed.EQUIVALENT: State.SAME,
}


def _times(sides: Sides) -> Iterator[Link]:
    """Of one kernel the time of a call; of several what the profiler saw of each, and the call's as the pass's."""
    call = Link(step=Step.KERNEL_TIME, state=State.UNKNOWN)
    if sides.timed is not None and sides.timed.speed:
        state = _SPEEDS.get(Speed(sides.timed.speed), State.UNKNOWN)
        ratio = sides.timed.ratio
        call = dataclasses.replace(call, state=state, note=f"{times(ratio)}" if ratio else "")
    if not _is_pass(sides):
        yield call
        return
    yield _kernels_time(sides)
    yield dataclasses.replace(call, step=Step.PASS_TIME)


def _is_pass(sides: Sides) -> bool:
    return len(sides.pairs) + len(sides.unmatched) > 1


def _profiled(sides: Sides) -> _Counted | None:
    one, other = (_total(_passed(rows), lambda row: row.kernel_us) for rows in sides.counters)
    return None if not one or not other else _Counted("kernels", one, other)


def _kernels_time(sides: Sides) -> Link:
    found = _profiled(sides)
    if found is None:
        return Link(step=Step.KERNEL_TIME, state=State.UNKNOWN)
    state = State.CHANGED if found.way else State.SAME
    return Link(step=Step.KERNEL_TIME, state=state, note=f"{times(found.after / found.before)}, as profiled")


def _marked(code: Sequence[Link], effects: Sequence[Link], *, same_code: bool) -> list[Link]:
    """The first change marked. Where the machine code is the same, no link before it had an effect; where it is not
    known, neither is what came first.
    """
    links = [*code, *effects]
    searched = effects if same_code else code
    first = next((link for link in searched if link.state is State.CHANGED), None)
    return [dataclasses.replace(link, first=True) if link is first else link for link in links]


_OWNERS = {
    Step.SOURCE: (Owner.CASE, "The source differs: the two sides did not compile the same text"),
    Step.OPTIONS: (Owner.FRONT_END, "The options resolve differently, before any pass has run"),
    Step.TTIR: (Owner.FRONT_END, "The first difference is in the TTIR: Triton's front end built other operations"),
    Step.TTGIR: (
        Owner.OPTIMISER,
        "The first difference is in the TTGIR: Triton's own passes chose another layout or schedule",
    ),
    Step.LLIR: (Owner.LLVM, "The TTGIR is equal: Triton's lowering to LLVM IR, or LLVM's passes over it, changed"),
    Step.PTX: (Owner.LLVM, "The LLVM IR is equal; LLVM's code generator wrote other PTX"),
    Step.PTXAS: (Owner.ASSEMBLER, "The PTX is equal; NVIDIA's assembler (ptxas) is another version"),
    Step.SASS: (
        Owner.ASSEMBLER,
        "The PTX and the assembler's version are equal; what Triton hands the assembler beside them must differ",
    ),
}


def _owner(sides: Sides, links: Sequence[Link]) -> tuple[Owner, str]:
    row = sides.row
    match row.reason_code:
        case SpeedReason.TUNER_SLOWER | SpeedReason.TUNER_FASTER:
            said = "With the baseline's configuration the time is what it was: the tuner chose differently."
            return Owner.TUNER, said
        case CodeReason.CONFIGURATION_LOST | CodeReason.CONFIGURATION_GAINED:
            return Owner.TUNER, "The two sides try other configurations."
        case CodeReason.COMPILE_TIME_MULTIPLIED | CodeReason.COMPILE_TIME_CUT:
            return _slow_stage(sides.pairs)
        case _ if kind_of(row.reason_code, row.stage) is Kind.LAUNCH_COST:
            return _launcher(sides.beside())
        case _ if _same_code(sides):
            return _not_the_code(sides, links)
        case _:
            return _first_owner(sides, links)


def _first_owner(sides: Sides, links: Sequence[Link]) -> tuple[Owner, str]:
    first = next((link for link in links if link.first), None)
    if first is not None:
        owner, why = _OWNERS[first.step]
        if sides.assembled and sides.row.stage == Stage.COMPILE:
            return _crossed(owner, f"{why}.", sides)
        return owner, f"{why}.{_reserve(links, first)}"
    if sides.unmatched:
        return Owner.UNKNOWN, "The two sides launch other kernels: what launches them changed."
    return Owner.UNKNOWN, "The links of the code are not known on both sides."


def _reserve(links: Sequence[Link], first: Link) -> str:
    """What may still be before the first change that is known, and what changed besides it."""
    before = [str(link.step) for link in links[: links.index(first)] if link.state is State.UNKNOWN]
    text = f" Unknown before it: {listing(before)}." if before else ""
    assembler = next(link for link in links if link.step is Step.PTXAS)
    if assembler.state is State.CHANGED and not assembler.first:
        text += " The assembler is another version too: --same-ptx-other-ptxas tells the two apart."
    return text


def _crossed(owner: Owner, why: str, sides: Sides) -> tuple[Owner, str]:
    """The owner of the first change, as crossed assemblies confirm it or not."""
    found, said = whose(sides.assembled, sides.row.reason_code)
    match found:
        case Whose.ASSEMBLER:
            return Owner.ASSEMBLER, f"{why} But it is not what shows. {said}" if owner is not Owner.ASSEMBLER else said
        case Whose.BOTH:
            return Owner.TRITON_AND_ASSEMBLER, f"{why} {said}"
        case Whose.TRITON | Whose.EITHER | Whose.UNKNOWN:
            return owner, f"{why} {said}"
        case _:
            assert_never(found)


def _launcher(beside: Sequence[Beside]) -> tuple[Owner, str]:
    torch = [each.said for each in beside if each.owner is Owner.TORCH]
    if torch:
        return Owner.UNKNOWN, f"Host time of a launch: Triton's launcher or torch, which differs too ({torch[0]})."
    return Owner.LAUNCHER, "Host time of a launch, with the same torch on both sides: Triton's launcher."


_STAGE_OWNERS = {
    "ttir": Owner.FRONT_END,
    "ttgir": Owner.OPTIMISER,
    "llir": Owner.LLVM,
    "ptx": Owner.LLVM,
    "cubin": Owner.ASSEMBLER,
}


def _slow_stage(pairs: Pairs) -> tuple[Owner, str]:
    """The stage of the compiler whose seconds moved most."""
    spent = {
        stage: tuple(sum(side.seconds.get(stage, 0.0) for side in sides) for sides in zip(*pairs, strict=True))
        for stage in _STAGE_OWNERS
        if pairs and all(stage in side.seconds for pair in pairs for side in pair)
    }
    if not spent:
        return Owner.UNKNOWN, "Seconds by stage of the compiler are not known on both sides."
    stage = max(spent, key=lambda name: abs(spent[name][1] - spent[name][0]))
    before, after = spent[stage]
    return _STAGE_OWNERS[stage], f"Most of it is in making the {stage}: {before:.1f} to {after:.1f} s."


def _not_the_code(sides: Sides, links: Sequence[Link]) -> tuple[Owner, str]:
    changed = [str(link.step) for link in links if link.state is State.CHANGED and link.step in _OWNERS]
    text = f"{listing(changed)} differ, and end in the same machine code." if changed else "Every link is equal."
    if _clocks_moved(sides):
        return Owner.CLOCKS, f"{text} Time moved and cycles did not: the clocks ran at another rate."
    beside = sides.beside()
    owners = dict.fromkeys(each.owner for each in beside)
    said = listing(each.said for each in beside)
    if len(owners) == 1:
        return next(iter(owners)), f"{text} Beside Triton one thing differs: {said}."
    if owners:
        return Owner.UNKNOWN, f"{text} Several other things differ: {said}."
    return Owner.UNKNOWN, f"{text} What changed is not in the code, and nothing else that is recorded differs."


def _clocks_moved(sides: Sides) -> bool:
    """Time is beyond what counts as equal, and cycles are within it."""
    row, arms = sides.timed, sides.arms
    if row is None or arms is None or not (row.ratio and row.allowed and arms.candidate.cycles_ratio):
        return False
    allowed = math.log(row.allowed)
    return abs(math.log(row.ratio)) > allowed >= abs(math.log(arms.candidate.cycles_ratio))


def _broken(sides: Sides, links: Sequence[Link]) -> Iterator[str]:
    """What no link explains."""
    speed = Speed(sides.timed.speed) if sides.timed is not None and sides.timed.speed else Speed.NOT_RUN
    ratio = times(sides.timed.ratio) if sides.timed is not None and sides.timed.ratio else ""
    if _same_code(sides) and speed in (Speed.SLOWER, Speed.FASTER):
        yield f"code unchanged, but time moved ({ratio})"
    ways = {each.way for each in _counts(sides)}
    if -1 in ways and 1 not in ways and speed in (Speed.SLOWER, Speed.EQUIVALENT):
        note = next(link.note for link in links if link.step is Step.COUNTERS)
        yield f"counters better ({note}), but time not ({ratio})"
    profiled = _profiled(sides) if _is_pass(sides) else None
    if profiled is not None and profiled.way < 0 and speed in (Speed.SLOWER, Speed.EQUIVALENT):
        kernels = times(profiled.after / profiled.before)
        yield f"{plural(len(sides.pairs), 'kernel')} faster ({kernels}, as profiled), but the pass not ({ratio})"
    worse = sides.coded is not None and sides.coded.verdict is Verdict.CODE_RISK
    if worse and sides.row.stage in (Stage.COMPILE, Stage.TIMING) and speed in (Speed.FASTER, Speed.EQUIVALENT):
        assert sides.coded is not None
        yield f"code worse ({phrase(sides.coded.reason_code)}), but time not ({ratio})"
