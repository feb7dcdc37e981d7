"""The case file's vocabulary: what a kernel author writes.

A case file is plain Python: a kernel, a function that launches it, a reference in plain torch, and data.
Ring 0: standard library only. Torch objects pass through here but are never touched.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matrix.model import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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

    def __post_init__(self) -> None:
        for name in ("atol", "rtol"):
            value = getattr(self, name)
            if not (_is_number(value) and math.isfinite(value) and value >= 0):
                raise ValueError(f"Tolerance({name}={value!r}): give a number that is not negative")


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

    def __post_init__(self) -> None:
        if mistakes := list(_mistakes(self)):
            raise ValueError(f"case {self.name!r}: {'; '.join(mistakes)}")

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


def _mistakes(case: Case) -> Iterator[str]:
    """Everything in the fields that would test nothing, or something else than was meant."""
    for name in ("run", "inputs"):
        if not callable(getattr(case, name)):
            yield f"{name} is no function"
    for name in ("kernels", "targets", "tags", "modifies", "expectations"):
        if not _is_list(getattr(case, name)):
            yield f"{name}={getattr(case, name)!r} is no list"
    yield from _wrong_axes(case.axes)
    for stage in ("compile", "interpret", "correctness", "timing"):
        yield from _wrong_points(stage, getattr(case, stage))
    known = [str(target) for target in Target]
    if wrong := [str(each) for each in case.targets if str(each) not in known] if _is_list(case.targets) else []:
        yield f"targets: {', '.join(wrong)} unknown; known are {', '.join(known)}"
    if _is_list(case.modifies) and any(type(each) is not int or each < 0 for each in case.modifies):
        yield f"modifies={case.modifies!r}: give the positions of inputs, from 0 on"
    if _is_list(case.expectations) and any(not isinstance(each, Expect) for each in case.expectations):
        yield "expectations holds what is no Expect"
    tolerances = case.tolerance.values() if isinstance(case.tolerance, Mapping) else (case.tolerance,)
    if any(not isinstance(each, Tolerance) for each in tolerances if each is not None):
        yield f"tolerance={case.tolerance!r}: give Tolerance(atol=..., rtol=...), or one for each dtype"


def _wrong_axes(axes: object) -> Iterator[str]:
    if not isinstance(axes, Mapping):
        yield f"axes={axes!r} is no mapping of names to lists"
        return
    for name, values in axes.items():
        if not _is_list(values) or not values:
            yield f"axes: {name}={values!r} is no list of values" if values != [] else f"axes: {name} has no values"
        else:
            yield from _wrong_values(f"axes: {name}", values)


def _wrong_points(stage: str, points: object) -> Iterator[str]:
    if not _is_list(points):
        yield f"{stage}={points!r} is no list of points"
        return
    for point in points:  # type: ignore[attr-defined]  # a list, as was seen
        if isinstance(point, Mapping):
            yield from _wrong_values(stage, point.values())
        else:
            yield f"{stage}: the point {point!r} is no mapping of params"


def _wrong_values(where: str, values: Iterable[object]) -> Iterator[str]:
    """Params are written into ids, files and requests: nothing else goes there."""
    for value in values:
        if not isinstance(value, (str, bool)) and not _is_number(value):
            hint = "a dtype by its name, fp16" if type(value).__name__ == "dtype" else "text, a number or a bool"
            yield f"{where}: {value!r} cannot be a param; give {hint}"


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


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
