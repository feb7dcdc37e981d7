"""Reads a TOML file for a person: every mistake at once, each with its line and a hint.

``tomllib`` tells no positions, so the lines of keys are found by a scan of the text, which only has to be
right where the file is right.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    Where = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
_QUOTED = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'[^']*'|#.*")
_MOST_SYNTAX_ERRORS = 20


@dataclass(slots=True)
class TomlFile:
    """A parsed file, where its keys are, and what is wrong with it so far."""

    path: Path
    data: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _lines: dict[Where, int] = field(default_factory=dict)
    _text: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """Never raises for what the file holds: mistakes are in ``problems``."""
        file = cls(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            file.problems.append(f"{path}: cannot be read: {error.strerror or error}")
            return file
        except UnicodeDecodeError as error:
            file.problems.append(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})")
            return file
        file._text = text.splitlines()
        file._parse()
        file._lines = dict(_scan(file._text))
        return file

    def table(self, *where: str) -> Table:
        """The table at a path of keys; empty where the file has none."""
        values: Any = self.data
        for key in where:
            values = values.get(key, {}) if isinstance(values, dict) else {}
        if not isinstance(values, dict):
            self.problem(where, f"must be a table ([{'.'.join(where)}]), not {_shown(values)}")
            values = {}
        return Table(self, where, values)

    def line(self, where: Where, value: object = None) -> int:
        """The line of a key, or of one value inside its list; of what surrounds it where it has none."""
        place = where
        while place and place not in self._lines:
            place = place[:-1]
        start = self._lines.get(place, 1)
        if isinstance(value, str):
            quoted = (f'"{value}"', f"'{value}'")
            for number, text in enumerate(self._text[start - 1 : start + 200], start):
                if any(each in text for each in quoted):
                    return number
        return start

    def problem(self, where: Where, what: str, *, hint: str = "", value: object = None) -> None:
        """Note a mistake at a key."""
        key = ".".join(f"{part}" for part in where if isinstance(part, str))
        ending = f" (hint: {hint})" if hint else ""
        self.problems.append(f"{self.path}:{self.line(where, value)}: {key + ': ' if key else ''}{what}{ending}")

    def sorted_problems(self) -> list[str]:
        """The problems in the order of their lines."""
        start = len(f"{self.path}:")
        return sorted(self.problems, key=lambda each: int((re.match(r"\d+", each[start:]) or [0])[0]))

    def _parse(self) -> None:
        """Parse; a line with a syntax error is noted and blanked, so that the next is seen too."""
        lines = list(self._text)
        last = 0
        for _ in range(_MOST_SYNTAX_ERRORS):
            try:
                self.data = tomllib.loads("\n".join(lines))
            except tomllib.TOMLDecodeError as error:
                number, what = _syntax(error, len(lines))
                self.problems.append(f"{self.path}:{number}: {what}{_syntax_hint(lines[number - 1 : number])}")
                # Where an error stands no later than the one before, the rest of the file is anyone's guess.
                if number <= last or not _stands_alone(lines[number - 1]):
                    return
                last = number
                lines[number - 1] = ""
            else:
                return


@dataclass(slots=True)
class Table:
    """One table of a file. Reading a key checks it; :meth:`finish` reports the keys that nobody read."""

    file: TomlFile
    where: Where
    values: Mapping[str, Any]
    _read: set[str] = field(default_factory=set)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def problem(self, key: str, what: str, *, hint: str = "", value: object = None) -> None:
        self.file.problem((*self.where, key), what, hint=hint, value=value)

    def text(self, key: str, default: str = "") -> str:
        value = self._value(key, default)
        if isinstance(value, str) and (value.strip() or value == default):
            return value
        self.problem(key, f"must be a text, not {_shown(value)}")
        return default

    def texts(self, key: str, default: Iterable[str] = ()) -> tuple[str, ...]:
        """A list of texts; one text alone will do."""
        value = self._value(key, list(default))
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            self.problem(key, f"must be a list of texts, not {_shown(value)}")
            return tuple(default)
        # An empty text names nothing, and as a path it would come to mean the file's own folder.
        if any(not each.strip() or "\0" in each for each in values):
            self.problem(key, f"holds an empty text or a null character: {_shown(value)}")
            return tuple(default)
        return tuple(values)

    def words(self, key: str, choices: Iterable[str], default: Iterable[str] = ()) -> tuple[str, ...]:
        """A list of words of a closed set."""
        known = list(choices)
        found = self.texts(key, default)
        for word in found:
            if word not in known:
                what = f"{word!r} is not one of {', '.join(known)}"
                self.problem(key, what, hint=did_you_mean(word, known), value=word)
        return tuple(word for word in found if word in known)

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self._value(key, default)
        if isinstance(value, bool):
            return value
        self.problem(key, f"must be true or false, not {_shown(value)}")
        return default

    def seconds(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.problem(key, f"must be a number of seconds above 0, not {_shown(value)}")
        return default

    def day(self, key: str, default: str = "") -> str:
        """A date as ISO text; TOML's own date or a quoted one."""
        value = self._value(key, default)
        if value == default:
            return default
        try:
            # A datetime is a date too, and loses its time of day here: as_of counts whole days.
            return dt.date.fromisoformat(str(value)[:10]).isoformat()
        except ValueError:
            self.problem(key, f"must be a date such as 2026-10-28, not {_shown(value)}")
            return default

    def variables(self, key: str) -> dict[str, str]:
        """A table of environment variables."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            self.problem(key, f"must be a table of variables, not {_shown(value)}")
            return {}
        for name, text in value.items():
            if not isinstance(text, str):
                hint = f'write {name} = "{_plain(text)}"'
                self.file.problem((*self.where, key, name), f"must be a text, not {_shown(text)}", hint=hint)
        return {name: text for name, text in value.items() if isinstance(text, str)}

    def table(self, key: str) -> Table:
        value = self._value(key, {})
        if not isinstance(value, dict):
            self.problem(key, f"must be a table ([{key}]), not {_shown(value)}")
            value = {}
        return Table(self.file, (*self.where, key), value)

    def tables(self, key: str) -> list[Table]:
        value = self._value(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.problem(key, f"must be written as [[{key}]], once for each")
            return []
        return [Table(self.file, (*self.where, key, at), each) for at, each in enumerate(value)]

    def checked(self, key: str, check: Callable[[str], str]) -> str:
        """A text that ``check`` converts; the ``ValueError`` that it raises is the mistake."""
        text = self.text(key)
        try:
            return check(text) if text else ""
        except ValueError as error:
            self.problem(key, str(error))
            return ""

    def finish(self) -> None:
        """Report the keys that nobody asked for."""
        for key in self.values:
            if key not in self._read:
                known = sorted(self._read)
                hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
                self.problem(key, "unknown key", hint=hint)

    def _value(self, key: str, default: Any) -> Any:
        self._read.add(key)
        return self.values.get(key, default)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    text = _plain(value) if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _syntax(error: tomllib.TOMLDecodeError, count: int) -> tuple[int, str]:
    """Line number and message of a syntax error, whose text ends in ``(at line 3, column 7)``."""
    message = str(error)
    match = re.search(r" \(at line (\d+), column \d+\)$", message)
    number = int(match[1]) if match else max(count, 1)
    return min(number, max(count, 1)), f"syntax: {message[: match.start()] if match else message}"


def _syntax_hint(lines: list[str]) -> str:
    match = re.match(r"\s*[\w.-]+\s*=\s*([A-Za-z_][^\"'#]*?)\s*(#.*)?$", "".join(lines))
    return f' (hint: texts need quotes: "{match[1]}")' if match else ""


def _stands_alone(line: str) -> bool:
    """Whether blanking the line leaves the lines around it as they were."""
    bare = _QUOTED.sub("", line)
    return bool(_HEADER.match(line) or _KEY.match(line)) and not re.search(r"=\s*[\[{]", bare)


def _scan(lines: list[str]) -> Iterator[tuple[Where, int]]:
    """Every key and table header with its line, from 1."""
    counts: dict[Where, int] = {}
    prefix: Where = ()
    depth = 0
    quote = ""
    for number, line in enumerate(lines, 1):
        if not quote and depth == 0:
            if header := _HEADER.match(line):
                prefix = _header_place(_parts(header[2]), counts, array=header[1] == "[[")
                yield prefix, number
                continue
            if key := _KEY.match(line):
                place: Where = prefix
                for part in _parts(key[1]):
                    place = (*place, part)
                    yield place, number
        quote, depth = _after(line, quote, depth)


def _parts(text: str) -> list[str]:
    return [next(group for group in match.groups() if group is not None) for match in _PART.finditer(text)]


def _header_place(parts: list[str], counts: dict[Where, int], *, array: bool) -> Where:
    place: Where = ()
    for at, part in enumerate(parts):
        place = (*place, part)
        if array and at == len(parts) - 1:
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = (*place, counts[place])
    return place


def _after(line: str, quote: str, depth: int) -> tuple[str, int]:
    """Whether the next line is inside a multi-line text, and how deep inside brackets."""
    while quote:
        _, found, line = line.partition(quote)
        if not found:
            return quote, depth
        quote = ""
        if opened := re.search(r"\"\"\"|'''", line):
            quote, line = opened[0], line[opened.end() :]
    bare = ""
    at = 0
    for match in _QUOTED.finditer(line):
        if match.start() < at:
            continue
        bare += line[at : match.start()]
        at = match.end()
        if match[0] in {'"""', "'''"}:
            end = line.find(match[0], at)
            if end < 0:
                return match[0], depth + _opened(bare)
            at = end + 3
    return "", depth + _opened(bare + line[at:])


def _opened(text: str) -> int:
    return text.count("[") + text.count("{") - text.count("]") - text.count("}")
