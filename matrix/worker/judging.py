"""The truth that a run's outputs are judged by, and the judgement over all of them."""

from __future__ import annotations

import torch

from matrix.model import Outcome
from matrix.worker import cases, outputs
from matrix.worker.compare import compare
from matrix.worker.seeds import inputs_of
from matrix.worker.trial import same_bits_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matrix.case import Case, Params

_FEW_ELEMENTS = 64
_PLAIN_RUNS = 8


def reference(case: Case, inputs: Sequence[Any], params: Params, *, exact: bool) -> list[torch.Tensor]:
    """The reference's outputs, from float64 copies of the float inputs where ``exact``."""
    if case.reference is None:
        raise LookupError(f"case {case.name} has no reference, so it cannot be judged on its values")
    arguments = [_argument(item, exact=exact) for item in inputs]
    return outputs.tensors(cases.call(case.reference, arguments, params))


def same_precision(case: Case, inputs: Sequence[Any], params: Params) -> list[torch.Tensor] | None:
    """The reference run in the inputs' own precision; None where torch cannot (fp8 on a CPU, say)."""
    try:
        return reference(case, inputs, params, exact=False)
    except (RuntimeError, NotImplementedError) as error:
        if "CUDA error" in str(error):
            raise
        return None


def plain_errors(case: Case, params: Params, truth: Sequence[torch.Tensor], device: torch.device) -> list[float]:
    """What the plain path errs by in each output, from other inputs; 0 where the output has elements enough.

    The largest of a handful of rounding errors may be nothing by luck, and no budget can be made of that.
    """
    few = [0 < true.numel() < _FEW_ELEMENTS for true in truth]
    errors = [0.0] * len(truth)
    for attempt in range(_PLAIN_RUNS if any(few) and case.tolerance is None else 0):
        inputs = inputs_of(case, params, device=device, extra=f"plain{attempt}")
        same = same_precision(case, inputs, params)
        if same is None:
            break
        for i, true in enumerate(reference(case, inputs, params, exact=True)):
            if few[i] and same[i].dtype.is_floating_point and same[i].shape == true.shape:
                error = torch.nan_to_num((same[i].double() - true).abs(), 0.0, 0.0, 0.0)
                errors[i] = max(errors[i], float(error.max()))
    return errors


def judge(
    case: Case,
    results: Sequence[torch.Tensor],
    truth: Sequence[torch.Tensor],
    same: Sequence[torch.Tensor] | None,
    ordinary: Sequence[torch.Tensor] | None = None,
    usual_errors: Sequence[float] = (),
) -> dict[str, Any]:
    """Outcome, reason and figures of all outputs together.

    ``ordinary`` is the truth for unscaled inputs, ``usual_errors`` what :func:`plain_errors` gives.
    """
    found = [
        compare(
            result.detach(),
            true.detach(),
            same[i].detach() if same else None,
            case.tolerance,
            usual_error=usual_errors[i] if usual_errors else 0.0,
            scale=_growth(true, ordinary[i] if ordinary else true),
        )
        for i, (result, true) in enumerate(zip(results, truth))
    ]
    figures = {
        "worst": max((c.worst for c in found), default=0.0),
        "largest_error": max((c.largest_error for c in found), default=0.0),
        "budget": "; ".join(dict.fromkeys(c.budget for c in found)),
    }
    wrong = [(i, c) for i, c in enumerate(found) if not c.passed and not c.invalid]
    invalid = [(i, c) for i, c in enumerate(found) if c.invalid]
    outcome = Outcome.WRONG if wrong else Outcome.INVALID if invalid else Outcome.PASSED
    reason = "; ".join(f"output {i}: {c.text}" for i, c in wrong or invalid)
    return {"outcome": outcome, "reason": reason, "figures": figures}


def _growth(truth: torch.Tensor, ordinary: torch.Tensor) -> float:
    """By how much the largest finite value of ``truth`` exceeds that of ``ordinary``; 1 for the same."""
    if truth is ordinary or not truth.numel() or not truth.dtype.is_floating_point:
        return 1.0
    largest, usual = (float(torch.nan_to_num(t, 0.0, 0.0, 0.0).abs().max()) for t in (truth, ordinary))
    return largest / usual if largest and usual else 1.0


def same_bits(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(same_bits_of(x, y) for x, y in zip(a, b))


def _argument(item: Any, *, exact: bool) -> Any:
    if not isinstance(item, torch.Tensor):
        return item
    return item.double() if exact and item.dtype.is_floating_point else item.clone()
