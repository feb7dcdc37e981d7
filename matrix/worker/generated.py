"""Kernels that ``torch.compile`` generates, compiled for a GPU that is not there and recorded like any other launch.

Inductor decides by device and by what ``torch.cuda`` answers. So a case goes through it with fake tensors on ``cuda``,
whose operations run nothing, and where it would ask the driver it is answered that there is nothing to do. The code
around the kernels runs on the fake tensors; each generated kernel comes to :func:`Recorder.generated` in every
configuration that inductor would try. What is patched are internals of torch: a torch that has others is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
from unittest import mock

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Record = Callable[[Any, str, Callable[[], Any]], None]


class Uncaptured(RuntimeError):
    """The torch of this environment cannot be led through its compiler without a GPU."""


@contextlib.contextmanager
def capturing(record: Record) -> Iterator[Callable[[Sequence[Any]], list[Any]]]:
    """While active, generated kernels go to ``record(function, label, compile)``; yields what makes inputs fake.

    Raises :class:`Uncaptured` where this torch lacks what it takes.
    """
    with contextlib.ExitStack() as stack:
        try:
            import torch._dynamo
            from torch._inductor.runtime import triton_helpers, triton_heuristics
            from torch._subclasses.fake_tensor import FakeTensorMode

            for patch in _patches(triton_heuristics, triton_helpers, record):
                stack.enter_context(patch)
        except (ImportError, AttributeError) as error:
            raise Uncaptured(f"torch {torch.__version__}: torch.compile cannot be captured here ({error})") from error
        # What was compiled for another point would count against a limit.
        torch._dynamo.reset()
        mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield lambda inputs: [_fake(mode, each) for each in inputs]


def _patches(heuristics: Any, helpers: Any, record: Record) -> Iterator[Any]:
    from torch._inductor import config, select_algorithm
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._subclasses import fake_tensor

    def run(self: Any, *_args: Any, **_kwargs: Any) -> None:
        for label, chosen in _labelled(self.configs):
            record(self.fn, label, functools.partial(_compiled, self, chosen))

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    tuner = heuristics.CachingAutotuner
    yield mock.patch.object(tuner, "run", run)
    yield mock.patch.object(tuner, "precompile", nothing)
    # The driver that stands in stays.
    yield mock.patch.object(helpers, "set_driver_to_gpu", nothing)
    # With the process goes what it generated.
    yield mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": os.environ["TRITON_CACHE_DIR"]})
    # A launcher of torch's own would keep the binary and drop the code.
    yield mock.patch.object(heuristics.StaticTritonCompileResult, "can_statically_launch", nothing)
    # Patterns are traced on real tensors of the GPU.
    yield mock.patch.object(joint_graph, "lazy_init", nothing)
    yield mock.patch.object(post_grad, "lazy_init", nothing)
    yield mock.patch.object(select_algorithm, "extern_kernels", _Others(select_algorithm.extern_kernels))
    yield config.patch(compile_threads=1, force_disable_caches=True)
    state = torch.empty(0, dtype=torch.uint8)
    for name, answer in {
        "_lazy_init": nothing,
        "is_initialized": lambda: False,
        "get_rng_state": lambda *_a, **_k: state,
        "set_rng_state": nothing,
        "_DeviceGuard": lambda _device: contextlib.nullcontext(),
    }.items():
        yield mock.patch.object(torch.cuda, name, answer)
    # A tensor of the GPU's own would be made first, for its context; under torch 2.13 only where there is one.
    for name in ("init_gpu_context", "init_cuda_context"):
        if hasattr(fake_tensor, name):
            yield mock.patch.object(fake_tensor, name, nothing)
    # Dynamo would ask the driver for its stream; a build without CUDA answers that there is no accelerator.
    if accelerator := getattr(torch, "accelerator", None):
        yield mock.patch.object(accelerator, "is_available", return_value=False)
        yield mock.patch.object(accelerator, "current_accelerator", nothing)
    # What a build of torch without CUDA lacks.
    yield mock.patch.object(torch._C, "_cuda_getCurrentRawStream", return_value=0, create=True)
    yield mock.patch.object(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided)


class _Others:
    """The kernels that are not Triton's, products above all: what they write to is returned as it is."""

    def __init__(self, real: Any) -> None:
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._real, name)

        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if out is None else out

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


def _compiled(tuner: Any, chosen: Any) -> Any:
    return tuner._precompile_config(chosen).kernel


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _labelled(configs: Sequence[Any]) -> list[tuple[str, Any]]:
    """Configurations by name; where inductor would try one alone it needs none."""
    if len(configs) == 1:
        return [("", configs[0])]
    return [
        (".".join([*(f"{name}{value}" for name, value in each.kwargs.items()), f"warps{each.num_warps}"]), each)
        for each in configs
    ]


def _fake(mode: Any, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
