"""The case file's vocabulary: what a kernel author writes.

A case file is plain Python: a kernel, a function that launches it, a reference in plain torch, and data.
Ring 0: standard library only. Torch objects pass through here but are never touched.
"""

from __future__ import annotations

import inspect
import itertools
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from matrix.model import ParamValue

    Point = Mapping[str, ParamValue]


class Params(dict):  # type: ignore[type-arg]
    """One point in all axes. ``p.rows`` reads ``p["rows"]``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise AttributeError(f"this point has no parameter {name!r}; it has: {known}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an output may lie from the reference: ``|out - ref| <= atol + rtol * |ref|``."""

    atol: float
    rtol: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """A known difference, as data: expected to fail rather than skipped, and shown when it passes.

    An expectation holds for the environments whose Triton satisfies ``triton`` (a version specifier such
    as ``">=3.3,<3.6"``; empty: all), for ``targets`` (empty: all) and for the params that contain
    ``params``. It names either an ``outcome`` at a ``stage``, or the reason code of a ``change``
    (``"shared_memory"``, say) that the environment shows as candidate.
    """

    reason: str
    link: str
    stage: str = "compile"
    outcome: str = ""
    change: str = ""
    triton: str = ""
    targets: Sequence[str] = ()
    params: Mapping[str, ParamValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.outcome) == bool(self.change):
            raise ValueError(f"Expect(reason={self.reason!r}): give an outcome or a change, one of the two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel under test with its inputs, reference, tolerances and axes.

    ``run(*inputs)`` launches the kernel, allocates its outputs and returns them (one tensor or several).
    ``reference(*inputs)`` gives the truth with plain torch operations; it is called with float inputs
    upcast to float64. Keyword-only arguments of ``run`` and ``reference`` are filled from the params by
    name, so that ``def matmul(a, b, *, block_m)`` reads the axis ``block_m``.

    ``inputs(make, p)`` returns the positional arguments; ``make`` is the input generator
    (:mod:`matrix.inputs`), ``p`` the :class:`Params`.

    ``axes`` are crossed with each other and with each stage's points: the points of a stage are
    ``product(axes) x points``, and a point's own value wins over an axis of the same name. Without points of
    its own ``compile`` takes those of timing, correctness or interpret, the first that there are, and
    ``correctness`` those of interpret; ``interpret`` and ``timing`` then do not run.
    """

    name: str
    run: Callable[..., Any]
    inputs: Callable[[Any, Params], Sequence[Any]]
    reference: Callable[..., Any] | None = None
    axes: Mapping[str, Sequence[ParamValue]] = field(default_factory=dict)
    compile: Sequence[Point] = ()
    interpret: Sequence[Point] = ()
    correctness: Sequence[Point] = ()
    timing: Sequence[Point] = ()
    tolerance: Mapping[str, Tolerance] | Tolerance | None = None  # by dtype name, or one for all
    kernels: Sequence[str] = ()  # kernel names that must be launched; empty: at least one, any
    targets: Sequence[str] = ()  # targets that the case exists for; empty: all
    triton: str = ""  # version specifier of the releases that the case exists for
    modifies: Sequence[int] = ()  # positions of inputs that run() may change
    deterministic: bool = True
    torch_compile: bool = False  # run() goes through torch.compile: the kernels that it generates are the case's
    backward: bool = False  # correctness also checks gradients through torch's autograd
    exact: bool = False  # integer-valued inputs must match bit for bit
    without: Mapping[str, str] = field(default_factory=dict)  # correctness dimensions it has no part in: why
    bytes_moved: Callable[[Params], float] | None = None
    flops: Callable[[Params], float] | None = None
    competitor: Callable[..., Any] | None = None
    expectations: Sequence[Expect] = ()
    tags: Sequence[str] = ()

    def points(self, stage: str) -> list[Params]:
        """Every point of the stage, in file order: the product of the axes and the stage's own points."""
        own: dict[str, Sequence[Point]] = {
            "compile": self.compile or self.timing or self.correctness or self.interpret,
            "interpret": self.interpret,
            "correctness": self.correctness or self.interpret,
            "timing": self.timing,
        }
        chosen = own[stage]
        if not chosen and stage != "compile":
            return []
        points: dict[tuple[tuple[str, ParamValue], ...], Params] = {}
        for point in chosen or [{}]:
            free = {axis: values for axis, values in self.axes.items() if axis not in point}
            for combination in itertools.product(*free.values()):
                merged = Params({**point, **dict(zip(free, combination))})
                points.setdefault(tuple(merged.items()), merged)
        return list(points.values())


def keyword_params(function: Callable[..., Any], params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """The params that ``function`` asks for by keyword-only arguments.

    Raises ``ValueError`` where a keyword-only argument has neither a default nor a param of its name.
    """
    wanted = [p for p in _signature(function) if p.kind is inspect.Parameter.KEYWORD_ONLY]
    missing = [p.name for p in wanted if p.default is inspect.Parameter.empty and p.name not in params]
    if missing:
        name = getattr(function, "__name__", repr(function))
        raise ValueError(f"{name} wants {', '.join(missing)}, and no axis or point gives it a value")
    return {p.name: params[p.name] for p in wanted if p.name in params}


def _signature(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a C function such as torch.softmax: it takes no params of ours
        return ()
