"""One dimension of correctness and its outcome; what a single run shows by itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import torch

from matrix.model import FIRST_DIMENSIONS, NO_FAILURE, Outcome
from matrix.worker import failures
from matrix.worker.judging import judge, same_precision
from matrix.worker.outputs import untouched
from matrix.worker.trial import Trial, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matrix.case import Case, Params


_BITS_OF_BF16 = (
    "perhaps not the kernel's: Triton's interpreter does some arithmetic on the bits of bfloat16 (triton#11584);"
    " the same point in float32 or on a GPU tells"
)


@dataclass(frozen=True)
class Dimension:
    """One dimension's outcome."""

    name: str
    outcome: Outcome
    reason: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """The case at one point, with inputs and truth ready."""

    case: Case
    params: Params
    device: torch.device
    seed: str
    inputs: list[Any]
    truth: list[torch.Tensor]
    usual_errors: list[float]


def launched(case: Case, trial: Trial) -> Dimension:
    missing = [name for name in case.kernels if name not in trial.launched]
    if all(result.numel() == 0 for result in trial.results) and trial.results:
        return Dimension("launched", Outcome.PASSED, "", {"launched": trial.launched})  # nothing to do
    if trial.launched and not missing:
        return Dimension("launched", Outcome.PASSED, "", {"launched": trial.launched})
    if not trial.launched:
        return Dimension("launched", Outcome.NOT_LAUNCHED, "run() launched no Triton kernel")
    reason = f"run() did not launch {', '.join(missing)}; it launched {', '.join(dict.fromkeys(trial.launched))}"
    return Dimension("launched", Outcome.NOT_LAUNCHED, reason)


def bounds(trial: Trial) -> Dimension:
    outcome = Outcome.OUT_OF_BOUNDS if trial.breached else Outcome.PASSED
    return Dimension("bounds", outcome, "; ".join(trial.breached))


def inputs(case: Case, trial: Trial) -> Dimension:
    changed = [i for i in trial.modified if i not in case.modifies]
    if not changed:
        return Dimension("inputs", Outcome.PASSED)
    reason = f"run() changed input {', '.join(map(str, changed))}, and the case does not declare it in `modifies`"
    return Dimension("inputs", Outcome.INPUT_MODIFIED, reason)


def written(point: Point, trial: Trial) -> Dimension:
    suspects = [untouched(result, 0) for result in trial.results]
    if any(bool(s.any()) for s in suspects):
        again = attempt(point.case, point.inputs, point.params, pattern=1)
        never = [s & untouched(r, 1) for s, r in zip(suspects, again.results)]
        texts = [
            f"output {i}: {int(n.sum())} of {n.numel()} elements never written, first at {torch.nonzero(n)[0].tolist()}"
            for i, n in enumerate(never)
            if bool(n.any())
        ]
        if texts:
            return Dimension("written", Outcome.UNWRITTEN, "; ".join(texts))
    return Dimension("written", Outcome.PASSED)


def values(point: Point, name: str, inputs: list[Any], truth: list[torch.Tensor], trial: Trial) -> Dimension:
    same = same_precision(point.case, inputs, point.params)
    found = Dimension(name, **judge(point.case, trial.results, truth, same, point.truth, point.usual_errors))
    if found.outcome == Outcome.WRONG and _is_bf16_interpreted([*inputs, *trial.results]):
        return replace(found, reason=f"{found.reason}; {_BITS_OF_BF16}")
    return found


def _is_bf16_interpreted(values: Sequence[Any]) -> bool:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(value.dtype == torch.bfloat16 and value.device.type == "cpu" for value in tensors)


def all_of(name: str, parts: Sequence[Dimension]) -> Dimension:
    """The first failure among ``parts``, or the last of them, under the dimension's name."""
    chosen = next((part for part in parts if part.outcome not in NO_FAILURE), parts[-1])
    return Dimension(name, chosen.outcome, chosen.reason, chosen.figures)


def overall(dimensions: list[Dimension]) -> dict[str, Any]:
    values = next((d for d in dimensions if d.name == "values"), None)
    failed = next((d for d in dimensions if d.outcome not in NO_FAILURE), None)
    if failed is None and values is not None and values.outcome == Outcome.INVALID:
        failed = values
    prefix = "" if failed is None or failed.name in FIRST_DIMENSIONS else f"{failed.name}: "
    return {
        "outcome": failed.outcome if failed else Outcome.PASSED,
        "reason": f"{prefix}{failed.reason}" if failed else "",
        "figures": values.figures if values else {},
        "dimensions": [asdict(d) for d in dimensions],
    }


def raised(outcome: Outcome, error: BaseException) -> dict[str, Any]:
    result = {"outcome": outcome, "reason": failures.reason(error), "detail": failures.detail(error)}
    return {**result, "figures": {}, "dimensions": []}
