"""What a function was called with, as Python expressions that a drafted case file can hold."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import math
import re
import sys

import torch

from matrix.worker.inputs import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PLAIN = (bool, int, str, bytes, complex, type(None))
_SPAN = 1 << 53  # of `make.integers`
_TAKEN = frozenset(("Case", "case", "fill_in", "make", "p", "reference", "run", "torch"))


class Described:
    """The arguments of one call, described before it; ``function`` is a name that no import may take."""

    def __init__(self, values: Sequence[Any], function: str) -> None:
        self._values = values
        self._names: dict[str, Any] = dict.fromkeys((*_TAKEN, function))
        self._imports: dict[str, None] = {}
        self._versions = [_versions(value) for value in values]
        self.arguments = [self._argument(i, value) for i, value in enumerate(values)]

    def after(self, result: Any) -> dict[str, Any]:
        """Everything that the draft needs to know, as JSON-able data, once the call has returned ``result``."""
        returned = {_place(tensor) for tensor in held(result)} - {0}  # what holds nothing lies at 0
        changed = [
            i
            for i, value in enumerate(self._values)
            if returned & {_place(tensor) for tensor in held(value)} or self._versions[i] != _versions(value)
        ]
        return {
            "arguments": self.arguments,
            "imports": list(self._imports),
            "changed": changed,
            "returns": "" if result is None else type(result).__name__,
            "returns_tensors": _only_tensors(result),
        }

    def _argument(self, index: int, value: Any) -> dict[str, Any]:
        self._missing: list[str] = []
        self._remarks: list[str] = []
        text = self._text(value, f"x{index}")
        tensors = bool(held(value))
        return {"text": text, "tensors": tensors, "missing": self._missing, "remarks": self._remarks}

    def _text(self, value: Any, name: str) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, name)
        if type(value) in (list, tuple, set, dict, torch.Size):
            return self._container(value, name)
        return _literal(value) or self._member(value, name) or self._imported(value) or self._unknown(value, name)

    def _member(self, value: Any, name: str) -> str:
        """An enum's member, or a dataclass by its fields; empty for anything else, or where its class has no import."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            own = self._imported(kind) if value.name in kind.__members__ else ""
            return f"{own}.{value.name}" if own else ""
        if not dataclasses.is_dataclass(kind):
            return ""
        fields = [field.name for field in dataclasses.fields(kind) if field.init]
        if not set(fields) <= set(inspect.signature(kind).parameters) or not (own := self._imported(kind)):
            return ""
        given = [f"{field}={self._text(getattr(value, field), f'{name}.{field}')}" for field in fields]
        return f"{own}({', '.join(given)})"

    def _container(self, value: Any, name: str) -> str:
        if isinstance(value, dict):
            items = [f"{self._text(k, name)}: {self._text(v, f'{name}[{k!r}]'[:40])}" for k, v in value.items()]
            return f"{{{', '.join(items)}}}"
        parts = [self._text(each, f"{name}[{i}]") for i, each in enumerate(value)]
        if isinstance(value, list):
            return f"[{', '.join(parts)}]"
        if isinstance(value, set):
            return f"{{{', '.join(parts)}}}" if parts else "set()"
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

    def _imported(self, thing: Any) -> str:
        """The name of a class or function that its module has under that name, imported; empty for anything else."""
        module, own = getattr(thing, "__module__", None), getattr(thing, "__name__", None)
        if (
            not isinstance(module, str)
            or not isinstance(own, str)
            or getattr(sys.modules.get(module), own, 0) is not thing
        ):
            return ""
        if module == "builtins":
            return own
        if module.startswith(("_matrix_case_", "__main__")) or not own.isidentifier():
            return ""
        name = own
        while self._names.setdefault(name, thing) is not thing:
            name += "_"
        self._imports[f"from {module} import {own}" + (f" as {name}" if name != own else "")] = None
        return name

    def _unknown(self, value: Any, name: str) -> str:
        what = f"{name}, {_kind(value)}"
        self._missing.append(what)
        return f"fill_in({json.dumps(what, ensure_ascii=False)})"

    def _tensor(self, value: torch.Tensor, name: str) -> str:
        dtype = NAMES.get(value.dtype)
        if dtype is None or value.layout != torch.strided:
            return self._unknown(value, name)
        text = _laid_out(value, dtype)
        if not text:
            self._remarks.append(f"{name}: its strides were {tuple(value.stride())}; drawn contiguous")
            text = _drawn(value, tuple(value.shape), dtype)
        return f"{text}.requires_grad_()" if value.requires_grad else text


def _literal(value: Any) -> str:
    """What Python or torch reads back; empty for anything else."""
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    return f'torch.device("{value}")' if isinstance(value, torch.device) else ""


def held(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument, or of what was returned: itself, or those in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple, dict)):
        return [tensor for each in (value.values() if isinstance(value, dict) else value) for tensor in held(each)]
    return []


def _versions(value: Any) -> list[int]:
    """How often torch has written to each of its tensors; those of inference mode do not count."""
    return [0 if tensor.is_inference() else tensor._version for tensor in held(value)]


def _only_tensors(result: Any) -> bool:
    if isinstance(result, (list, tuple)):
        return all(map(_only_tensors, result))
    return result is None or isinstance(result, torch.Tensor)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _kind(value: Any) -> str:
    """What is to be put in its place; a representation may hold line ends and be long."""
    if isinstance(value, torch.Tensor):
        return f"a {value.layout} tensor of {value.dtype}, {list(value.shape)}".replace("torch.", "")
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(repr(value).split()))
    called = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"a value of {called}: {text[:80]}{'...' if len(text) > 80 else ''}"


def _laid_out(value: torch.Tensor, dtype: str) -> str:
    """The tensor drawn with the strides that it had; empty where its elements overlap."""
    shape, strides = tuple(value.shape), tuple(value.stride())
    if value.is_contiguous() or not value.numel():
        return _drawn(value, shape, dtype)
    if any(repeated := [size > 1 and not stride for size, stride in zip(shape, strides)]):
        once = value[tuple(slice(0, 1) if again else slice(None) for again in repeated)]
        text = _laid_out(once, dtype)
        return f"{text}.expand{shape}" if text else ""
    order = sorted(range(value.dim()), key=lambda i: (-strides[i], -shape[i]))
    if value.permute(order).is_contiguous():
        back = tuple(order.index(i) for i in range(value.dim()))
        base = _drawn(value, tuple(shape[i] for i in order), dtype)
        return f"{base}.t()" if back == (1, 0) else f"{base}.permute{back}"
    extent = 1
    for i in reversed(order):  # from the innermost on: each stride steps over all that lies within
        if shape[i] > 1 and strides[i] < extent:
            return ""
        extent += (shape[i] - 1) * strides[i]
    return f"{_drawn(value, (extent,), dtype)}.as_strided({shape}, {strides})"


def _drawn(value: torch.Tensor, shape: tuple[int, ...], dtype: str) -> str:
    """Over the range that the values had, if they are integers; floats on one side of zero stay there."""
    flat = value.detach().reshape(-1)
    known = flat.numel() > 0 and flat.device.type != "meta"
    if not value.is_floating_point():
        low, high = (int(flat.min()), int(flat.max())) if known else (0, 1)
        return f'make.integers({shape}, {low}, {min(high + 1, low + _SPAN)}, "{dtype}")'
    least, most = (float(flat.double().min()), float(flat.double().max())) if known else (-1.0, 1.0)
    if not math.isfinite(least) or not math.isfinite(most) or least < 0 < most or least == most == 0:
        return f'make.normal({shape}, "{dtype}")'
    if least == most:  # of weights that are all 1, say, few mistakes would show
        least, most = sorted((0.5 * least, 1.5 * most))
    return f'make.uniform({shape}, "{dtype}", low={least:.3g}, high={most:.3g})'
