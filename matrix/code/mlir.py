"""A small reader of the MLIR text that Triton prints, for the facts that are read off TTIR.

It knows no dialect: operations with their operands, results, regions and locations, with every value made
unique (MLIR reuses names in sibling regions). It reads what Triton 3.0 to 3.9 print, one operation a line.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_QUOTED_OR_LOC = re.compile(r'"(?:[^"\\]|\\.)*"|\bloc\(')
_ONE_LOCATION = re.compile(r" ?\bloc\((#?[\w.$-]*)\)$")
_QUOTED_OR_PAREN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')
_RESULTS = re.compile(r"^(%[\w.$-]+(?::\d+)?(?:, %[\w.$-]+(?::\d+)?)*) = ")
_NAME = re.compile(r'^"?([A-Za-z_][\w.]*)"?')
_TYPED_ARGUMENT = re.compile(r"(%[\w.$-]+): ((?:[^,()<>]|<[^<>]*(?:<[^<>]*(?:<[^<>]*>[^<>]*)*>[^<>]*)*>)+)")
_ITER_ARGUMENT = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")
_TENSOR = re.compile(r"^\(?tensor<((?:\d+x)*)")
_LOCATION = re.compile(r'"(?P<file>[^"]*)":(?P<line>\d+):\d+|#[\w.$-]+')
_COMPARISONS = {"arith.cmpi", "arith.cmpf"}
_ELEMENT = re.compile(r"^(tensor<(?:\d+x)+)?[^x>,]+(.*)$")
_ATTRIBUTES = re.compile(r"<?\{[^{}]*\}>?")


@dataclass(slots=True, kw_only=True, eq=False)
class Value:
    """One SSA value; ``shape`` is empty for scalars. ``definition`` is None for an argument of a block."""

    name: str
    type: str
    definition: Operation | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        match = _TENSOR.match(self.type)
        return tuple(int(size) for size in match[1].split("x")[:-1]) if match else ()


@dataclass(slots=True, kw_only=True, eq=False)
class Block:
    """Operations in order; ``label`` is ``^bb1`` or empty."""

    label: str = ""
    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """``text`` is the line without results and location, ``attributes`` its ``{...}`` parts."""

    name: str
    text: str
    attributes: str
    location: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)

    def integer(self, attribute: str) -> int:
        """The integer attribute of that name. Raises ``ValueError`` where it is missing."""
        match = re.search(rf"\b{attribute} = (-?\d+)", self.attributes)
        if match is None:
            raise ValueError(f"{self.name} without {attribute}: {self.text}")
        return int(match[1])

    def blocks(self) -> Iterator[Block]:
        return itertools.chain.from_iterable(self.regions)


@dataclass(slots=True, kw_only=True)
class Module:
    """The functions of one file of IR, and where its location names point."""

    functions: list[Operation]
    locations: dict[str, str]

    def source(self, location: str) -> tuple[str, int]:
        """(file, line) of a location; of a call site, that of the callee. ``("", 0)`` when unknown."""
        return next(self._sources(location, set()), ("", 0))

    def caller(self, location: str) -> tuple[str, int]:
        """As :meth:`source`, but of a call site the outermost caller: the line in the kernel's own body."""
        return [("", 0), *self._sources(location, set())][-1]

    def _sources(self, location: str, seen: set[str]) -> Iterator[tuple[str, int]]:
        for match in _LOCATION.finditer(location):
            if match["line"]:
                yield match["file"], int(match["line"])
            elif match[0] not in seen:
                yield from self._sources(self.locations.get(match[0], ""), {*seen, match[0]})


def parse(text: str) -> Module:
    """Reads a module. Lines that are not understood define nothing; they are never an error."""
    return _Reader().read(text)


def without_locations(line: str) -> tuple[str, str]:
    """The line with every ``loc(...)`` removed, and the content of the last one."""
    if line.count("loc(") < 2 and (only := _ONE_LOCATION.search(line)):  # as nearly all lines are
        return line[: only.start()].rstrip(), only[1]
    kept, last, position = [], "", 0
    while match := _QUOTED_OR_LOC.search(line, position):
        if match[0].startswith('"'):
            kept.append(line[position : match.end()])
            position = match.end()
            continue
        end = _closing(line, match.end())
        kept.append(line[position : match.start()])
        last = line[match.end() : end - 1]
        position = end
    kept.append(line[position:])
    return "".join(kept).rstrip(), last


def _closing(line: str, position: int) -> int:
    """The position after the parenthesis that closes the one before ``position``."""
    depth = 1
    for match in _QUOTED_OR_PAREN.finditer(line, position):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(line)


class _Reader:
    """Follows the nesting of regions line by line."""

    def __init__(self) -> None:
        self.functions: list[Operation] = []
        self.locations: dict[str, str] = {}
        self.open: list[Operation] = []
        self.scopes: list[dict[str, Value]] = [{}]

    def read(self, text: str) -> Module:
        for raw in text.splitlines():
            line = raw.strip()
            if line.startswith("#"):
                name, _, target = line.partition(" = loc(")
                self.locations[name] = target.removesuffix(")")
            elif line:
                self._line(*without_locations(line))
        return Module(functions=self.functions, locations=self.locations)

    def _line(self, line: str, location: str) -> None:
        if line.startswith("^"):
            self._block(line)
        elif line.startswith("}"):
            self._close(line, location)
        elif not line.startswith(("module", "//", "{")):
            self._operation(line, location)

    def _block(self, line: str) -> None:
        if not self.open:
            return
        label = re.split(r"[:(]", line, maxsplit=1)[0]
        block = Block(label=label, arguments=self._arguments(line))
        region = self.open[-1].regions[-1]
        if len(region) == 1 and not region[0].operations and not region[0].label:
            block.arguments[:0] = region[0].arguments
            region.clear()
        region.append(block)

    def _close(self, line: str, location: str) -> None:
        if not self.open:
            return
        self.scopes.pop()
        operation = self.open[-1]
        if line.endswith("{"):  # the next region of the same operation: else, do
            self._enter(operation)
            return
        self.open.pop()
        operation.location = location or operation.location
        _, colon, types = _ATTRIBUTES.sub("", line).partition(" : ")
        if colon:
            for result, kind in zip(operation.results, _result_types(types), strict=False):
                result.type = kind

    def _enter(self, operation: Operation) -> None:
        if operation not in self.open[-1:]:
            self.open.append(operation)
        operation.regions.append([Block()])
        self.scopes.append({})

    def _operation(self, line: str, location: str) -> None:
        results = _RESULTS.match(line)
        text = line[results.end() :] if results else line
        name = _NAME.match(text)
        if name is None:
            return
        operation = Operation(
            name=name[1], text=text, attributes=" ".join(_ATTRIBUTES.findall(text)), location=location
        )
        entered = _ITER_ARGUMENT.findall(text) if name[1] in {"scf.for", "scf.while"} else []
        inner = {inner for inner, _ in entered}
        if name[1] != "tt.func":
            operation.operands = [
                value for n in _VALUE.findall(text) if n not in inner and (value := self._find(n)) is not None
            ]
        self._results(operation, results[1] if results else "")
        self._place(operation)
        if text.endswith("{"):
            self._enter(operation)
            self._entry_arguments(operation, entered)

    def _place(self, operation: Operation) -> None:
        if self.open:
            self.open[-1].regions[-1][-1].operations.append(operation)
        else:
            self.functions.append(operation)

    def _results(self, operation: Operation, names: str) -> None:
        bare = _ATTRIBUTES.sub("", operation.text).removesuffix("({").removesuffix("{")
        types = _result_types(_types_of(operation.name, bare))
        for part in filter(None, names.split(", ")):
            name, _, count = part.partition(":")
            for index in range(int(count or 1)):
                kind = types[min(len(operation.results), len(types) - 1)] if types else ""
                if operation.name in _COMPARISONS:  # printed with the type of the operands
                    kind = _ELEMENT.sub(r"\1i1\2", kind)
                value = self._define(f"{name}#{index}" if count else name, kind)
                value.definition = operation
                operation.results.append(value)

    def _entry_arguments(self, operation: Operation, entered: list[tuple[str, str]]) -> None:
        block = operation.regions[-1][-1]
        if operation.name == "tt.func":
            block.arguments = self._arguments(operation.text)
        for name, initial in entered:
            source = self._find(initial)
            block.arguments.append(self._define(name, source.type if source else ""))

    def _arguments(self, text: str) -> list[Value]:
        found = _TYPED_ARGUMENT.findall(_ATTRIBUTES.sub("", text))
        return [self._define(name, kind.strip()) for name, kind in found]

    def _define(self, name: str, kind: str) -> Value:
        value = Value(name=name, type=kind)
        self.scopes[-1][name] = value
        return value

    def _find(self, name: str) -> Value | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None


def _types_of(name: str, text: str) -> str:
    """The part of an operation's line that gives its types."""
    if name in {"scf.for", "scf.while", "scf.if"}:  # scf.for ends with the type of its bounds
        results = text.partition(" -> ")[2]
        return " -> " + (results.rpartition(" : ")[0] or results)
    return text.rpartition(" : ")[2]


def _result_types(types: str) -> list[str]:
    """The result types in ``A, B -> C``, ``A to B``, or ``A`` where operands and results share a type."""
    if " -> " in types:
        types = types.rpartition(" -> ")[2]
    elif " to " in types:
        types = types.rpartition(" to ")[2]
    else:
        return _split(types)[-1:]
    types = types.strip()
    return _split(types[1:-1]) if types.startswith("(") and types.endswith(")") else _split(types)


def _split(types: str) -> list[str]:
    """Splits at the commas that are not inside brackets."""
    parts, depth, current = [], 0, ""
    for character in types:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [part for part in [*parts, current.strip()] if part]
