"""A case drafted from a launch function that exists: called once, its launches compiled and recorded."""

from __future__ import annotations

import ast
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.model import Outcome, Stage
from matrix.resources import package_folder
from matrix.running.execute import Bench, collect, measure
from matrix.running.plan import Request, cells_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.running.workers import WorkerHome

_EXAMPLE = "--arguments 'torch.randn(64, 64), 8', the positional arguments as Python expressions"
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)".*\n(?:    .*\n)*', re.MULTILINE)
_INSTALLED = re.compile(r"/(site|dist)-packages/")
TARGET = "sm_90"  # whose GPU the function may ask about
_CALLED = """\
import json
import pathlib

import torch
from {module} import {function}

from matrix import Case


def described(value):
    if isinstance(value, torch.Tensor):
        return {{"shape": list(value.shape), "dtype": str(value.dtype)}}
    return {{"value": repr(value)}}


def call(*values):
    told = {{"values": [described(value) for value in values]}}
    result = {function}(*values)
    pathlib.Path({told!r}).write_text(json.dumps({{**told, "returns": result is not None}}))
    return result


case = Case(name="adopted", run=call, inputs=lambda make, p: [{arguments}], compile=[{{}}])
"""
_DRAFT = '''\
"""{function} of {module}: drafted by `triton-matrix adopt`. Fill in the reference, and shapes at the boundaries.

One call launched
{launches}
"""

import torch  # noqa: F401 - for the reference
from {module} import {function}

from matrix import Case


{run}def reference({names}):
    raise NotImplementedError("what {function} computes, in plain torch operations")


case = Case(
    name="{function}",
    run={name},
    # reference=reference,  # without one values are not judged
    inputs=lambda make, p: [{inputs}],
    kernels=[{kernels}],
    compile=[{{}}],
    # interpret=[{{}}],
)
'''
_IN_PLACE = '''\
def run({names}):
    """{function} returns nothing. Of these, leave what it writes: that is compared with what the reference returns."""
    {function}({names})
    return {tensors}


'''
_DTYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The function ``function`` of the module ``module``, called with ``arguments``, Python expressions."""

    module: str
    function: str
    arguments: str

    @classmethod
    def of(cls, text: str, arguments: str) -> Adoption:
        """Raises :class:`UsageError` where ``text`` is not ``module:function``, or ``arguments`` are no expressions."""
        module, _, function = text.partition(":")
        if not (re.fullmatch(r"\w+(\.\w+)*", module) and function.isidentifier()):
            raise UsageError(f"{text!r} is not module:function", hint="write package.module:launch_function")
        if told := _no_expressions(arguments):
            raise UsageError(f"--arguments {arguments!r}: {told}", hint=_EXAMPLE)
        return cls(module=module, function=function, arguments=arguments)


def _no_expressions(text: str) -> str:
    """What is wrong with the text as positional arguments; empty where nothing is."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if isinstance(call, ast.Call) and call.keywords:
            named = ", ".join(keyword.arg or "**" for keyword in call.keywords)
            return f"{named}: an argument by its name is not taken; a keyword-only one goes by its default"
        parsed = ast.parse(f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError) as error:
        return getattr(error, "msg", str(error))
    return "" if isinstance(parsed, ast.List) else "not expressions with commas between them"


def draft(adoption: Adoption, home: WorkerHome, triton_version: str, scratch: Path, *, project: Path) -> str:
    """The text of a case file for the folder ``project``.

    Raises :class:`UsageError` with what the call said where it did not end well.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        told, path = Path(folder) / "told.json", Path(folder) / "called.py"
        path.write_text(
            _CALLED.format(
                module=adoption.module, function=adoption.function, arguments=adoption.arguments, told=str(told)
            ),
            encoding="utf-8",
        )
        try:
            kernels = _call(path, home, triton_version, scratch)
        except _NoImportError as error:
            raise UsageError(str(error), hint=_where_it_lies(adoption.module, str(error), project)) from None
        known = json.loads(told.read_text(encoding="utf-8"))
    values = known["values"]
    names = [f"x{i}" for i in range(len(values))]
    tensors = [name for name, value in zip(names, values, strict=True) if "shape" in value]
    in_place = not known["returns"]
    run = _IN_PLACE.format(function=adoption.function, names=", ".join(names), tensors=", ".join(tensors) or "None")
    return _DRAFT.format(
        module=adoption.module,
        function=adoption.function,
        name="run" if in_place else adoption.function,
        run=run if in_place else "",
        launches="\n".join(f"    {line}" for kernel in kernels for line in _launch(kernel)),
        names=", ".join(names),
        inputs=", ".join(_input(value) for value in values),
        kernels=", ".join(f'"{name}"' for name in dict.fromkeys(kernel["name"] for kernel in kernels)),
    )


class _NoImportError(Exception):
    """The module of the launch function, or something that it imports."""


def _where_it_lies(module: str, said: str, project: Path) -> str:
    """What to write where, if the module itself is what was not found; nothing, where something else is wrong."""
    top = module.partition(".")[0]
    if f"No module named {top!r}" not in said:
        return ""
    for folder in (".", "src"):
        near = (project / folder / f"{top}.py").is_file() or (project / folder / top).is_dir()
        if near:
            return f'write pythonpath = ["{folder}"] into {project / "matrix.toml"}: {top} lies there'
    return "matrix.toml's pythonpath says where to look"


def _call(path: Path, home: WorkerHome, triton_version: str, scratch: Path) -> list[dict[str, Any]]:
    name = home.environment
    bench = Bench.make(scratch, store=scratch, slots=1)
    (collected,) = collect(bench, {name: home}, {name: ""}, [path], lambda: None)
    if collected.outcome != Outcome.PASSED:
        raise _NoImportError(f"it does not import: {collected.reason}")
    request = Request(
        baseline=name, candidates=(), targets=(TARGET,), case_files=(path,), stages=(Stage.COMPILE,), configs=1
    )
    planned = list(cells_of(name, triton_version, [collected], request))
    (measured,) = measure(bench, {name: home}, {name: ""}, planned, lambda: None)
    if failed := [part for part in measured.parts if part["outcome"] != Outcome.PASSED]:
        said, where = failed[0]["reason"], _own_frames(failed[0]["detail"], path.parent)
        hint = f"say what it is called with: {_EXAMPLE}" if "required positional argument" in said else where
        raise UsageError(f"the call ended with {failed[0]['outcome']}: {said}", hint=hint)
    return [kernel for part in measured.parts for kernel in part["kernels"]]


def _own_frames(traceback: str, called: Path) -> str:
    """The traceback without the frames of ours, of what is installed, and of the file that calls the function."""
    passed_over = (str(package_folder()), str(called))

    def kept(frame: re.Match[str]) -> str:
        file = frame["file"]
        return "" if _INSTALLED.search(file) or file.startswith(passed_over) else frame[0]

    return _FRAME.sub(kept, traceback)


def _launch(kernel: Mapping[str, Any]) -> list[str]:
    options = [f"{name}={kernel[name]}" for name in ("num_warps", "num_stages", "num_ctas")]
    constants = [f"{name}={value}" for name, value in kernel["constants"].items()]
    lines = [f"{kernel['name']}[{kernel['grid']}] {' '.join([*options, *constants])}"]
    for argument in kernel["arguments"]:
        if "shape" in argument:
            lines.append(f"    {argument['name']}: {argument['dtype']} {argument['shape']}")
        elif "value" in argument:
            lines.append(f"    {argument['name']}: {argument['value']}")
    return lines


def _input(value: Mapping[str, Any]) -> str:
    if "shape" not in value:
        return str(value["value"])
    shape: Sequence[int] = value["shape"]
    plain = value["dtype"].removeprefix("torch.")
    if plain in _DTYPES:
        return f'make.normal({tuple(shape)}, "{_DTYPES[plain]}")'
    return f'make.integers({tuple(shape)}, 0, 2, "{plain}")'
