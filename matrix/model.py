"""The words of the program as values: stages, outcomes, targets, cells.

Ring 0: standard library only, importable on every Python that a matrix environment may have (3.10 on),
which is why the closed sets are ``str`` enums and not ``enum.StrEnum``.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    ParamValue = str | int | float | bool

# What a cell id is made of: anything else in a name or a value would break globs, shells or file names.
_SAFE = re.compile(r"[^A-Za-z0-9_.+\-]")


class Word(str, enum.Enum):
    """A closed set whose members print, sort and serialise as their value."""

    def __str__(self) -> str:
        return str(self.value)


class Stage(Word):
    """What is done with a cell, in this order; each proves more and needs more."""

    IMPORT = "import"
    COMPILE = "compile"
    INTERPRET = "interpret"
    CORRECTNESS = "correctness"
    TIMING = "timing"
    COUNTERS = "counters"


class Outcome(Word):
    """What happened in one cell at one stage."""

    PASSED = "passed"
    UNSUPPORTED = "unsupported"  # the release itself says no: this target, dtype or feature
    DOES_NOT_FIT = "does_not_fit"  # shared memory, registers or tensor memory of the target exceeded
    REFUSED = "refused"  # the library under test refuses this version, in its own words
    ENVIRONMENT_ERROR = "environment_error"  # the environment could not be built
    IMPORT_ERROR = "import_error"  # the case file (or what it imports) does not import
    CASE_ERROR = "case_error"  # the case's own inputs, reference or run raised
    COMPILE_ERROR = "compile_error"  # the compiler raised
    COMPILER_ABORT = "compiler_abort"  # the compiler took its process down
    CRASH = "crash"  # the process died elsewhere
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_LAUNCHED = "not_launched"  # the right answer, perhaps, but no kernel was launched
    RUN_ERROR = "run_error"  # the kernel raised while it ran
    WRONG = "wrong"
    UNWRITTEN = "unwritten"  # output elements that nobody wrote
    OUT_OF_BOUNDS = "out_of_bounds"  # a guard band around a tensor was written
    INPUT_MODIFIED = "input_modified"  # an input changed that the case did not declare
    NONDETERMINISTIC = "nondeterministic"
    TOO_SHORT = "too_short"  # under the shortest duration that can be timed
    INVALID = "invalid"  # measured, but the measurement cannot be used
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


# Outcomes of a dimension of correctness that are no failure: refused inputs it need not take, an ill-conditioned gate.
NO_FAILURE = frozenset((Outcome.PASSED, Outcome.REFUSED, Outcome.INVALID, Outcome.NOT_RUN))

# The dimensions of correctness in the order in which they are run (:mod:`matrix.worker.check` says what each is):
# what the first run shows by itself, then those that need runs of their own.
FIRST_DIMENSIONS = ("launched", "bounds", "written", "inputs", "values")
FURTHER_DIMENSIONS = (
    "fresh",
    "repeat",
    "races",
    "undefined_lanes",
    "special_values",
    "large_values",
    "small_values",
    "strided",
    "misaligned",
    "exact",
    "gradients",
)
DIMENSIONS = FIRST_DIMENSIONS + FURTHER_DIMENSIONS


class Target(Word):
    """A GPU architecture that kernels are built for: NVIDIA's ``sm_*``, AMD's ``gfx*``."""

    SM_80 = "sm_80"
    SM_86 = "sm_86"
    SM_89 = "sm_89"
    SM_90 = "sm_90"
    SM_100 = "sm_100"
    SM_103 = "sm_103"
    SM_120 = "sm_120"
    SM_121 = "sm_121"
    GFX942 = "gfx942"
    GFX950 = "gfx950"

    @property
    def is_amd(self) -> bool:
        """Whether it is AMD's: compiled to its assembly, which nothing here reads."""
        return self.value.startswith("gfx")


# What a run is about where no target is named; the others are compiled for on request.
DEFAULT_TARGETS = (Target.SM_80, Target.SM_90, Target.SM_100, Target.SM_120)


# Where import and interpret run: on the CPU, once for all targets.
CPU = "cpu"


def format_params(params: Mapping[str, ParamValue]) -> str:
    """``{"rows": 8, "dtype": "fp16"}`` as ``rows=8,dtype=fp16``: the last part of a cell id."""
    return ",".join(f"{key}={safe(format_value(value))}" for key, value in params.items())


def format_value(value: ParamValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def safe(text: str) -> str:
    """Text with every character that a cell id may not hold replaced by ``-``."""
    return _SAFE.sub("-", text)


def selects(globs: Iterable[str], cell_id: str, case: str) -> bool:
    """Whether a glob matches a name of the cell: ``case``, ``case:params``, ``target/case:params``, its whole id."""
    place = cell_id.partition("/")[2]
    names = dict.fromkeys((case, place.partition("/")[2], place, cell_id))
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Environment x target x case x params: the unit that is run, cached, judged and selected.

    ``target`` is a :class:`Target` value, or :data:`CPU` for the stages that no GPU architecture enters.
    """

    environment: str
    target: str
    case: str
    params: tuple[tuple[str, ParamValue], ...] = ()

    @classmethod
    def of(cls, environment: str, target: str, case: str, params: Mapping[str, ParamValue]) -> Cell:
        return cls(environment=environment, target=target, case=case, params=tuple(params.items()))

    @property
    def point(self) -> str:
        """``case:params``, what two environments have in common; ``case`` alone without params."""
        text = format_params(dict(self.params))
        return f"{safe(self.case)}:{text}" if text else safe(self.case)

    @property
    def id(self) -> str:
        return f"{safe(self.environment)}/{safe(self.target)}/{self.point}"

    def __str__(self) -> str:
        return self.id

    def __iter__(self) -> Iterator[str]:
        return iter((self.environment, self.target, self.point))
