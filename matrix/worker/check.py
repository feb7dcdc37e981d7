"""Correctness of one cell in several dimensions, each with its own outcome; on a GPU or the interpreter.

Every run here is observed: its inputs lie between guard bands, what it allocates is guarded and poisoned,
its launches are noted. Dimensions of the first run come first; where they fail, nothing further is run.

===================  ================================================================================
``launched``         the case's named kernels (or any) were launched in this call
``bounds``           nothing outside the inputs and outputs was written
``written``          every output element was written
``inputs``           inputs are as they were, but for those that the case declares
``values``           outputs against the float64 reference under the error budget
``fresh``            the same with other values of the same shapes (a cached answer shows)
``repeat``           the same bits again, unless the case declares itself non-deterministic
``races``            no program uses what another one of the launch stores (interpreter only)
``undefined_lanes``  the same bits with poison in the lanes that masked loads leave undefined
``special_values``   NaN and infinities propagate as the reference's do
``large_values``     inputs scaled up by a power of two; ``small_values``: scaled down
``strided``          non-contiguous inputs; ``misaligned``: inputs off their alignment by one element
``exact``            whole-number inputs must match bit for bit, where the case says ``exact``
``gradients``        gradients against float64's, where the case says ``backward``
===================  ================================================================================

A dimension that the case names in ``without`` is not run, for the reason given there. A run that raises
``ValueError``, ``TypeError``, ``AssertionError`` or ``NotImplementedError`` of its own at inputs that a
dimension made difficult has *refused* them, which is no failure.
"""

from __future__ import annotations

import hashlib

import torch

from matrix.case import Params
from matrix.model import DIMENSIONS, FIRST_DIMENSIONS, FURTHER_DIMENSIONS, NO_FAILURE, Outcome
from matrix.worker import cases, dimensions, failures, lanes, observe, races, variants
from matrix.worker.cuda import is_cuda_error, outcome_of
from matrix.worker.dimensions import Dimension, Point
from matrix.worker.gradients import gradients
from matrix.worker.judging import judge, plain_errors, reference, same_bits
from matrix.worker.seeds import inputs_of
from matrix.worker.trial import Trial, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_REFUSALS = (ValueError, TypeError, AssertionError, NotImplementedError)


class Checker:
    """Checks one point at a time on its device."""

    def __init__(self, device: torch.device | str, *, repeats: int = 3) -> None:
        self._device = torch.device(device)
        self._repeats = repeats
        self._further: dict[str, Callable[[Point, Trial], Dimension | None]] = {
            "fresh": self._fresh,
            "repeat": self._repeat,
            "races": self._races,
            "undefined_lanes": self._undefined_lanes,
            "special_values": lambda point, _: self._changed(point, "special_values", variants.special(point.inputs)),
            "large_values": lambda point, _: self._scaled(point, large=True),
            "small_values": lambda point, _: self._scaled(point, large=False),
            "strided": self._strided,
            "misaligned": self._misaligned,
            "exact": self._exact,
            "gradients": self._gradients,
        }

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply's outcome, reason, figures, dimensions and digests."""
        # The interpreter has no times to choose a configuration by: it takes the first.
        configs = 1 if self._device.type == "cpu" else int(request.get("configs", 0))
        with observe.at_most(configs):
            return self._check(request)

    def _check(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            point = self._point(request)
        except Exception as error:
            return {**dimensions.raised(Outcome.CASE_ERROR, error), "restart": is_cuda_error(error)}
        wanted = tuple(request.get("dimensions") or DIMENSIONS)
        try:
            trial = attempt(point.case, point.inputs, point.params)
        except Exception as error:
            return {**dimensions.raised(outcome_of(error), error), "restart": is_cuda_error(error)}
        # Taken now: a dimension further on may leave a context in which nothing can be read.
        digests = _digests(point, trial)
        results, restart = self._first(point, trial), False
        for name in (n for n in FURTHER_DIMENSIONS if n in wanted):
            if any(d.outcome not in NO_FAILURE for d in results if d.name in FIRST_DIMENSIONS):
                results.append(Dimension(name, Outcome.NOT_RUN, "an earlier dimension failed"))
                continue
            found, restart = self._guarded(name, point, trial)
            if found is not None:
                results.append(found)
            if restart:
                break
        return {**dimensions.overall(results), "digests": digests, "restart": restart}

    def _point(self, request: dict[str, Any]) -> Point:
        params = Params(request["params"])
        case = cases.find(request["path"], request["case"])
        seed = str(request.get("seed", ""))
        inputs = inputs_of(case, params, device=self._device, extra=seed)
        if beyond := [each for each in case.modifies if each >= len(inputs)]:
            raise IndexError(
                f"modifies names input {beyond[0]}, and the case has {len(inputs)}: positions begin with 0"
            )
        truth = reference(case, inputs, params, exact=True)
        errors = plain_errors(case, params, truth, self._device)
        return Point(case, params, self._device, seed, inputs, truth, errors)

    def _first(self, point: Point, trial: Trial) -> list[Dimension]:
        launched = dimensions.launched(point.case, trial)
        if launched.outcome != Outcome.PASSED:
            return [launched]
        if len(trial.results) != len(point.truth):
            reason = f"run() returned {len(trial.results)} tensors, reference() {len(point.truth)}"
            return [launched, Dimension("values", Outcome.CASE_ERROR, reason)]
        shapes = [(list(out.shape), list(true.shape)) for out, true in zip(trial.results, point.truth)]
        if told := [
            f"output {i}: run() {out}, reference() {true}" for i, (out, true) in enumerate(shapes) if out != true
        ]:
            return [launched, Dimension("values", Outcome.CASE_ERROR, f"not of one shape: {'; '.join(told)}")]
        return [
            launched,
            dimensions.bounds(trial),
            dimensions.written(point, trial),
            dimensions.inputs(point.case, trial),
            dimensions.values(point, "values", point.inputs, point.truth, trial),
        ]

    def _guarded(self, name: str, point: Point, trial: Trial) -> tuple[Dimension | None, bool]:
        """The dimension, and whether it has taken the CUDA context with it."""
        without = point.case.without
        if name in without:
            return Dimension(name, Outcome.NOT_RUN, without[name]), False
        try:
            return self._further[name](point, trial), False
        except Exception as error:
            if is_cuda_error(error):
                return Dimension(name, outcome_of(error), failures.reason(error)), True
            refused = name in ("strided", "misaligned") and _refuses(error)
            outcome = Outcome.REFUSED if refused else outcome_of(error)
            return Dimension(name, outcome, failures.reason(error)), False

    def _fresh(self, point: Point, _: Trial) -> Dimension:
        inputs = inputs_of(point.case, point.params, device=self._device, extra=f"{point.seed}fresh")
        return self._changed(point, "fresh", inputs)

    def _changed(self, point: Point, name: str, inputs: list[Any]) -> Dimension:
        """A run with other inputs, judged like the first, launches and bounds included."""
        truth = reference(point.case, inputs, point.params, exact=True)
        trial = attempt(point.case, inputs, point.params)
        values = dimensions.values(point, name, inputs, truth, trial)
        return dimensions.all_of(name, [dimensions.launched(point.case, trial), dimensions.bounds(trial), values])

    def _scaled(self, point: Point, *, large: bool) -> Dimension | None:
        if not variants.floats(point.inputs):
            return None
        name = "large_values" if large else "small_values"
        return self._changed(point, name, variants.scaled(point.inputs, large=large))

    def _strided(self, point: Point, _: Trial) -> Dimension | None:
        positions = variants.stridable(point.inputs)
        if not positions:
            return None
        strides = {i: variants.padded_strides(point.inputs[i]) for i in positions}
        trial = attempt(point.case, point.inputs, point.params, strides=strides)
        values = dimensions.values(point, "strided", point.inputs, point.truth, trial)
        return dimensions.all_of("strided", [dimensions.bounds(trial), values])

    def _misaligned(self, point: Point, _: Trial) -> Dimension | None:
        if not variants.stridable(point.inputs):
            return None
        trial = attempt(point.case, point.inputs, point.params, shift=1)
        values = dimensions.values(point, "misaligned", point.inputs, point.truth, trial)
        return dimensions.all_of("misaligned", [dimensions.bounds(trial), values])

    def _repeat(self, point: Point, first: Trial) -> Dimension:
        differing = 0
        for _ in range(self._repeats):
            again = attempt(point.case, point.inputs, point.params)
            launched = dimensions.launched(point.case, again)
            if launched.outcome != Outcome.PASSED:
                return dimensions.all_of("repeat", [launched])
            differing += not same_bits(first.results, again.results)
        figures = {"repeats": self._repeats, "differing": differing}
        if differing and point.case.deterministic:
            reason = f"{differing} of {self._repeats} repeats gave other bits for the same inputs"
            return Dimension("repeat", Outcome.NONDETERMINISTIC, reason, figures)
        return Dimension("repeat", Outcome.PASSED, "", figures)

    def _races(self, point: Point, _: Trial) -> Dimension | None:
        if self._device.type != "cpu":
            return None
        with races.noted() as launches:
            attempt(point.case, point.inputs, point.params)
        reason = "; ".join(dict.fromkeys(race for launch in launches if (race := launch.race())))
        return Dimension("races", Outcome.NONDETERMINISTIC if reason else Outcome.PASSED, reason)

    def _undefined_lanes(self, point: Point, first: Trial) -> Dimension:
        functions = list({id(function): function for function in first.functions}.values())
        for poison in lanes.POISONS:
            with lanes.poisoned(functions, poison):
                trial = attempt(point.case, point.inputs, point.params)
            if trial.by_hand:
                names = ", ".join(dict.fromkeys(trial.by_hand))
                reason = f"{names}: launched by hand, of code that was compiled before"
                return Dimension("undefined_lanes", Outcome.INVALID, reason)
            if same_bits(first.results, trial.results):
                continue
            found = dimensions.values(point, "undefined_lanes", point.inputs, point.truth, trial)
            if found.outcome not in NO_FAILURE:  # other code may round otherwise
                reason = f"lanes that a masked load without `other` leaves undefined reach the result: {found.reason}"
                return Dimension("undefined_lanes", Outcome.WRONG, reason, found.figures)
        return Dimension("undefined_lanes", Outcome.PASSED)

    def _exact(self, point: Point, _: Trial) -> Dimension | None:
        case, params = point.case, point.params
        if not case.exact:
            return None
        inputs = inputs_of(case, params, device=self._device, extra=point.seed, make=variants.Whole)
        truth = reference(case, inputs, params, exact=True)
        trial = attempt(case, inputs, params)
        wrong = sum(int((out != true.to(out.dtype)).sum()) for out, true in zip(trial.results, truth))
        if wrong:
            return Dimension("exact", Outcome.WRONG, f"{wrong} elements differ for whole-number inputs")
        return Dimension("exact", Outcome.PASSED)

    def _gradients(self, point: Point, _: Trial) -> Dimension | None:
        if not point.case.backward:
            return None
        found = gradients(point.case, point.inputs, point.params, point.seed)
        return Dimension("gradients", **judge(point.case, *found))


def _refuses(error: BaseException) -> bool:
    """Whether it was the case that raised, and not the compiler; the interpreter wraps what it meets."""
    own = error.__cause__ if type(error).__name__ == "InterpreterError" else error
    return isinstance(own, _REFUSALS)


def _digests(point: Point, trial: Trial) -> dict[str, list[str]]:
    """What environments are compared by: bits of the outputs, and of the reference that judged them."""
    return {"outputs": [digest(t) for t in trial.results], "reference": [digest(t) for t in point.truth]}


def digest(tensor: torch.Tensor) -> str:
    """sha256 of a tensor's values, in row-major order whatever its layout."""
    raw = tensor.detach().cpu().contiguous()
    return hashlib.sha256(raw.reshape(-1).view(torch.uint8).numpy().tobytes() if raw.numel() else b"").hexdigest()
