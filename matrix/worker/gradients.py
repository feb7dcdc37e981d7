"""Gradients of a case through torch's autograd, beside those of its reference."""

from __future__ import annotations

import torch

from matrix.worker import cases, outputs, variants
from matrix.worker.inputs import NAMES, Make
from matrix.worker.seeds import seed_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from matrix.case import Case, Params

Gradients = tuple["list[torch.Tensor]", "list[torch.Tensor]", "list[torch.Tensor] | None"]


def gradients(case: Case, inputs: Sequence[Any], params: Params, seed: str) -> Gradients:
    """Of the case, of its reference in float64, and of its reference in the inputs' own precision.

    One gradient per float input that the outputs depend on, for one random gradient of the outputs.
    Raises ``LookupError`` where no output of ``run()`` depends on an input through autograd.
    """
    own, upstream = _of(case, case.run, inputs, params, seed, None, exact=False)
    truth, _ = _of(case, case.reference, inputs, params, seed, upstream, exact=True)
    try:
        same: list[torch.Tensor] | None = _of(case, case.reference, inputs, params, seed, upstream, exact=False)[0]
    except (RuntimeError, NotImplementedError) as error:
        if "CUDA error" in str(error):
            raise
        same = None
    return own, truth, same


def _of(
    case: Case,
    function: Any,
    inputs: Sequence[Any],
    params: Params,
    seed: str,
    upstream: list[torch.Tensor] | None,
    *,
    exact: bool,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    arguments = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    wanted = []
    for position in variants.floats(inputs):
        leaf = arguments[position].double() if exact else arguments[position]
        arguments[position] = leaf.detach().requires_grad_()
        wanted.append(arguments[position])
    results = [out for out in outputs.tensors(cases.call(function, arguments, params)) if out.requires_grad]
    if not results:
        raise LookupError("the case says `backward`, but no output depends on an input through autograd")
    given = upstream or _upstream(case, params, seed, results)
    weights = [weight.to(out.dtype) for weight, out in zip(given, results)]
    found = torch.autograd.grad(results, wanted, weights, allow_unused=True)
    zeros = (torch.zeros_like(leaf) for leaf in wanted)
    return [g if g is not None else zero for g, zero in zip(found, zeros)], given


def _upstream(case: Case, params: Params, seed: str, results: list[torch.Tensor]) -> list[torch.Tensor]:
    make = Make(f"{seed_of(case, params)}@{seed}gradients", results[0].device)
    return [make.normal(tuple(out.shape), NAMES[out.dtype]) for out in results]
