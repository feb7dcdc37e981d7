"""Comparing an output with its float64 reference under an error budget.

Budget, per element: ``multiple`` times the largest relative error that the same-precision plain torch path
makes against float64, plus a rounding floor of ``FLOOR_ULPS`` units in the last place of the output type;
both relative to the element's own size or the output's root mean square, whichever is larger. A case may
state a tolerance instead. NaN must meet NaN, infinity the same infinity.

Not judged: an element where the same-precision path itself is NaN or infinite and the reference is not (or
the other way round), and one as large as the output type goes. Where that leaves too little, or the
budget is larger than the output itself, the gate is *invalid*: it has shown nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from matrix.worker.inputs import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.case import Tolerance

MULTIPLE = 4.0
FLOOR_ULPS = 2.0
# The share of elements that must be judged for the gate to say anything.
JUDGED_SHARE = 0.5
# Beyond this share of the type's largest value, rounding decides between finite and infinite.
_NEARLY_OVERFLOWS = 0.98


@dataclass(frozen=True)
class Comparison:
    """How one output compares: ``worst`` is the largest share of its allowance that an element used."""

    passed: bool
    worst: float
    largest_error: float
    wrong_elements: int
    first_wrong: list[int]
    budget: str
    text: str
    invalid: bool = False


def compare(
    out: torch.Tensor,
    truth: torch.Tensor,
    same: torch.Tensor | None,
    tolerance: Tolerance | Mapping[str, Tolerance] | None,
    usual_error: float = 0.0,
    scale: float = 1.0,
) -> Comparison:
    """``out`` against ``truth`` (float64); ``same`` is the plain path in the output's own precision.

    ``usual_error`` is what the plain path errs by with other inputs, where this output has too few elements
    to tell. It and a stated ``atol`` are for outputs of ordinary size; ``scale`` is how much larger these are.
    """
    if tuple(out.shape) != tuple(truth.shape):
        text = f"shape {list(out.shape)}, the reference's is {list(truth.shape)}"
        return Comparison(False, float("inf"), float("inf"), out.numel(), [], "", text)
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0, [], "empty", "empty")
    if not out.dtype.is_floating_point:
        return _exact(out, truth)
    value, truth = out.double(), _saturated(truth.double().to(out.device), out.dtype)
    judged = _judged(truth, same, out.dtype)
    stated = tolerance.get(NAMES[out.dtype]) if hasattr(tolerance, "get") else tolerance  # type: ignore[union-attr]
    if stated is not None:
        atol = stated.atol * scale
        allowed = atol + stated.rtol * _finite(truth).abs()
        return _verdict(value, truth, allowed, f"atol {atol:g}, rtol {stated.rtol:g}", judged)
    allowed, name, why_not = _budget(truth, same, judged, out.dtype, usual_error * scale)
    return _verdict(value, truth, allowed, name, judged, why_not)


def _exact(out: torch.Tensor, truth: torch.Tensor) -> Comparison:
    # float64 cannot hold every int64, so whole numbers are compared as they are.
    value = out.cpu()
    expected = truth.cpu().to(value.dtype)
    everything = torch.ones_like(value, dtype=torch.bool)
    zero = torch.zeros(value.shape, dtype=torch.float64)
    equal = value == expected
    nearest = torch.where(equal, expected.double(), value.double())
    return _verdict(nearest, torch.where(equal, nearest, expected.double()), zero, "exact", everything)


def _saturated(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The reference as the output type can show it: what lies beyond its range is infinite."""
    limit = torch.finfo(dtype).max
    if dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return truth  # fp8 types saturate or have no infinity
    return torch.where(truth.abs() > limit, torch.copysign(torch.full_like(truth, torch.inf), truth), truth)


def _judged(truth: torch.Tensor, same: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    limit = torch.finfo(dtype).max
    size = _finite(truth).abs()
    judged = ~((size > _NEARLY_OVERFLOWS * limit) & torch.isfinite(truth))
    if same is not None and same.shape == truth.shape:
        plain = same.double().to(truth.device)
        alike = (torch.isnan(plain) == torch.isnan(truth)) & (torch.isinf(plain) == torch.isinf(truth))
        judged &= alike & ~(torch.isinf(plain) & (plain != truth))
    return judged


def _budget(
    truth: torch.Tensor, same: torch.Tensor | None, judged: torch.Tensor, dtype: torch.dtype, usual_error: float
) -> tuple[torch.Tensor, str, str]:
    """The allowance of each element, its description, and why it is worth nothing ("" where it is not)."""
    info = torch.finfo(dtype)
    size = torch.where(judged, _finite(truth).abs(), torch.zeros_like(truth))
    rms = size.square().mean().sqrt() if size.max() < 1e150 else size.max()
    # The second term is the distance of the smallest (subnormal) values.
    scale = torch.maximum(size, rms)
    floor = FLOOR_ULPS * (info.eps * scale + info.tiny * info.eps)
    if same is None or same.shape != truth.shape:
        return floor, f"{FLOOR_ULPS:g} ulp of {NAMES[dtype]} (no same-precision path)", ""
    error = torch.where(judged, _finite(same.double().to(truth.device) - truth), torch.zeros_like(truth))
    if not rms > 0:  # nothing but zeros: there is no size for an error to be relative to
        own = error.abs().max().clamp_min(usual_error)
        return floor + MULTIPLE * own, f"{MULTIPLE:g} x {own.item():.3g} + {FLOOR_ULPS:g} ulp of {NAMES[dtype]}", ""
    own = (error.abs() / scale).max().clamp_min(usual_error / float(rms))
    text = f"{MULTIPLE:g} x {own.item():.3g} of its size + {FLOOR_ULPS:g} ulp of {NAMES[dtype]}"
    why_not = ""
    if MULTIPLE * own > 1:
        why_not = f"ill-conditioned: the plain path errs by {own.item():.1%} of the output's size, {rms.item():.3g}"
    return floor + MULTIPLE * own * scale, text, why_not


def _verdict(
    value: torch.Tensor,
    truth: torch.Tensor,
    allowed: torch.Tensor,
    budget: str,
    judged: torch.Tensor,
    why_not: str = "",
) -> Comparison:
    error = (value - truth).abs()
    special = ~(torch.isfinite(value) & torch.isfinite(truth))
    agree = (torch.isnan(value) & torch.isnan(truth)) | (value == truth)
    bad = torch.where(special, ~agree, error > allowed) & judged
    share = torch.where(special | ~judged, torch.zeros_like(error), error / allowed.clamp_min(1e-300))
    wrong = int(bad.sum())
    largest = float(_finite(torch.where(judged, error, torch.zeros_like(error))).max())
    worst = float("inf") if bool((special & ~agree & judged).any()) else float(share.max())
    first = [int(i) for i in torch.nonzero(bad)[0]] if wrong and bad.dim() else []
    text = "" if not wrong else _explain(value, truth, wrong, first, largest, budget)
    part = float(judged.double().mean())
    if not why_not and part < JUDGED_SHARE:
        why_not = f"only {part:.0%} of the elements are finite in plain torch of the same precision"
    # An ill-conditioned gate may still see what no budget allows; it just cannot pass anything.
    invalid = bool(why_not) and not wrong
    return Comparison(not wrong and not invalid, worst, largest, wrong, first, budget, text or why_not, invalid)


def _explain(
    value: torch.Tensor, truth: torch.Tensor, wrong: int, first: list[int], largest: float, budget: str
) -> str:
    index = tuple(first)
    return (
        f"{wrong} of {value.numel()} elements wrong; first at {first}: {value[index].item():.6g}, "
        f"reference {truth[index].item():.6g}; largest error {largest:.3g}; allowed: {budget}"
    )


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0)
