"""The links of the code, from its source to the machine code: what both sides compiled, and into what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.explaining.links import Link, State, Step, joined, state_of
from matrix.judging.code_risk import identical
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.explaining.sides import Pairs, Sides
    from matrix.records import KernelRecord

_NAMED = 3


def code_links(sides: Sides) -> Iterator[Link]:
    yield Link(step=Step.SOURCE, state=_source(sides))
    pairs = _telling(sides.pairs)
    options = list(dict.fromkeys(text for pair in pairs for text in _moved_options(*pair)))
    state = State.UNKNOWN if not pairs else State.CHANGED if options else State.SAME
    yield Link(step=Step.OPTIONS, state=state, note=", ".join(options))
    for step, name in _HASHES.items():
        states = [state_of(getattr(one.facts, name), getattr(other.facts, name)) for one, other in pairs]
        changed = [one.kernel for (one, _), state in zip(pairs, states, strict=True) if state is State.CHANGED]
        yield Link(step=step, state=joined(states), note=_of_several(changed, len(sides.pairs)))
        if step is Step.PTX:
            yield _assembler(pairs)


def _telling(pairs: Pairs) -> Pairs:
    """The kernels whose machine code differs; all of them where none does. What the others differ in had no effect."""
    if len(pairs) < 2:
        return pairs
    return [pair for pair in pairs if not identical(pair[0].facts, pair[1].facts)] or pairs


_HASHES = {
    Step.TTIR: "ttir_hash",
    Step.TTGIR: "ttgir_hash",
    Step.LLIR: "llir_hash",
    Step.PTX: "ptx_hash",
    Step.SASS: "sass_hash",
}


def _of_several(changed: Sequence[str], kernels: int) -> str:
    """Which of several kernels changed."""
    if kernels < 2 or not changed:
        return ""
    return f"in {len(changed)} of {kernels} kernels: {listing(dict.fromkeys(changed), limit=_NAMED)}"


def _source(sides: Sides) -> State:
    """By the text of each kernel where it is kept, and the digests of the case's files where it lies in them."""
    states = [_kernel_source(sides, *pair) for pair in _telling(sides.pairs)]
    return joined(states) if states else state_of(*sides.sources)


def _kernel_source(sides: Sides, one: KernelRecord, other: KernelRecord) -> State:
    kept = state_of(one.artifacts.get("source", ""), other.artifacts.get("source", ""))
    if kept is State.CHANGED:
        return kept
    own = one.source_file == other.source_file and other.source_file in sides.own_files
    files = state_of(*sides.sources) if own else State.UNKNOWN
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
