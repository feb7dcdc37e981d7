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
    from collections.abc import Iterator, Mapping, Sequence

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
from matrix.worker.described import Described


def call(*values):
    described = Described(values, {function!r})
    result = {function}(*values)
    pathlib.Path({told!r}).write_text(json.dumps(described.after(result)))
    return result


case = Case(name="adopted", run=call, inputs=lambda make, p: [{arguments}], compile=[{{}}])
"""
_DRAFT = '''\
"""{function} of {module}: drafted by `triton-matrix adopt`. Fill in the reference, and shapes at the boundaries.

One call launched
{launches}
"""

{imports}

from matrix import Case


{run}def reference({names}):
    raise NotImplementedError("what {function} computes, in plain torch operations")


case = Case(
    name="{function}",
    run={name},
    # reference=reference,  # without one values are not judged
    inputs=lambda make, p: {inputs},
    kernels=[{kernels}],
{modifies}    compile=[{{}}],
    # interpret=[{{}}],
)
'''
_IN_PLACE = '''\
def run({names}):
    """{function} returns nothing. Of these, leave what it writes: that is compared with what the reference returns."""
    {function}({names})
    return {tensors}


'''
_FILL_IN = """\
def fill_in(what):
    raise NotImplementedError(f"the draft of {function} is not complete: fill in {{what}}")


"""
_WIDTH = 120  # of a line


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
        if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", function):
            told = f"{text!r}: {function} lies in a class, and a case is of a function"
            raise UsageError(told, hint=f"wrap it in a function of {module}: def launch(x): return {function}(x)")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The text of a case file, and a line for each thing that its author has to do, or to know."""

    text: str
    notes: tuple[str, ...]


def draft(adoption: Adoption, home: WorkerHome, triton_version: str, scratch: Path, *, project: Path) -> Draft:
    """A case file for the folder ``project``.

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
    text = _text(adoption, kernels, known)
    return Draft(text=text, notes=tuple(_notes(text, known)))


def _text(adoption: Adoption, kernels: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> str:
    arguments = known["arguments"]
    names = [f"x{i}" for i in range(len(arguments))]
    tensors = [i for i, argument in enumerate(arguments) if argument["tensors"]]
    in_place = not known["returns"]
    helpers = _FILL_IN.format(function=adoption.function) if any(each["missing"] for each in arguments) else ""
    if in_place:
        returned = ", ".join(names[i] for i in tensors) or "None"
        helpers += _IN_PLACE.format(function=adoption.function, names=", ".join(names), tensors=returned)
    own = f"from {adoption.module} import {adoption.function}"
    return _DRAFT.format(
        module=adoption.module,
        function=adoption.function,
        imports="\n".join(["import torch  # noqa: F401 - for the reference", *sorted({own, *known["imports"]})]),
        name="run" if in_place else adoption.function,
        run=helpers,
        launches="\n".join(f"    {line}" for kernel in kernels for line in _launch(kernel)),
        names=", ".join(names),
        inputs=_inputs(arguments),
        kernels=", ".join(f'"{name}"' for name in dict.fromkeys(kernel["name"] for kernel in kernels)),
        modifies=_modifies(tensors if in_place else known["changed"], in_place=in_place),
    )


def _inputs(arguments: Sequence[Mapping[str, Any]]) -> str:
    """The list of inputs, on one line where it fits and nothing is to be said of any."""
    plain = f"[{', '.join(each['text'] for each in arguments)}]"
    notes = [[*(f"TODO: {what}" for what in each["missing"]), *each["remarks"]] for each in arguments]
    if not any(notes) and len(plain) + len("    inputs=lambda make, p: ,") <= _WIDTH:
        return plain
    lines = [
        line
        for each, told in zip(arguments, notes, strict=True)
        for line in (*(f"        # {note}" for note in told), f"        {each['text']},")
    ]
    return "\n".join(["[", *lines, "    ]"])


def _modifies(changed: Sequence[int], *, in_place: bool) -> str:
    if not changed:
        return ""
    why = "those that it writes, as returned by run() above" if in_place else "returned, or written by torch"
    positions = ", ".join(map(str, changed))
    return f"    modifies=({positions}{',' if len(changed) == 1 else ''}),  # positions of inputs: {why}\n"


def _notes(text: str, known: Mapping[str, Any]) -> Iterator[str]:
    for argument in known["arguments"]:
        yield from (f"left to do: fill in {what}" for what in argument["missing"])
        yield from (f"note: {remark}" for remark in argument["remarks"])
    if not known["returns_tensors"]:
        yield f"left to do: it returns a value of {known['returns']}: wrap it in a function that returns the tensors"
    try:
        compile(text, "draft", "exec")
    except SyntaxError as error:
        yield f"left to do: line {error.lineno} of the draft is no Python ({error.msg})"


class _NoImportError(Exception):
    """The module of the launch function, or something that it imports."""


def _where_it_lies(module: str, said: str, project: Path) -> str:
    """What to write where, if the module itself is what was not found; nothing, where something else is wrong."""
    top = module.partition(".")[0]
    if f"No module named {top!r}" not in said:
        missing = re.search(r"REQUIRES = \[\"(\w+)\"\]", said)
        return f'for adopt itself: requires = ["{missing[1]}"] under [defaults] in matrix.toml' if missing else ""
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
