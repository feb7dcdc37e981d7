"""Whose change it is that a chain shows: by the first link that changed, or by what else differs."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple, assert_never

from matrix.explaining.crossed import Whose, whose
from matrix.explaining.links import State, Step
from matrix.explaining.sides import same_code
from matrix.judging.changes import CodeReason
from matrix.judging.kinds import Kind, kind_of
from matrix.judging.speed import SpeedReason
from matrix.model import Stage
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.explaining.links import Link
    from matrix.explaining.sides import Pairs, Sides


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


class Beside(NamedTuple):
    """What differs between the two sides beside the code, and whose change a difference could be."""

    owner: Owner
    said: str


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


def owner_of(sides: Sides, links: Sequence[Link]) -> tuple[Owner, str]:
    """``links`` are those of the code."""
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
        case _ if same_code(sides):
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
    if _assembled_otherwise(links):
        text += " The assembler is another version too: --same-ptx-other-ptxas tells the two apart."
    return text


def perhaps_the_assembler(sides: Sides, links: Sequence[Link]) -> bool:
    """Whether the owner by the first change may be the wrong one: the assembler is another version too, and nothing was
    assembled by the other side's.
    """
    return not sides.assembled and not same_code(sides) and _assembled_otherwise(links)


def _assembled_otherwise(links: Sequence[Link]) -> bool:
    assembler = next((link for link in links if link.step is Step.PTXAS), None)
    return assembler is not None and assembler.state is State.CHANGED and not assembler.first


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
