"""The text of a reproducer: what of the case's file and of our own worker it is put together from. Runs nothing."""

from __future__ import annotations

import ast
import pprint
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from matrix.causes.excerpt import excerpt
from matrix.errors import UsageError
from matrix.model import CPU, Stage, safe
from matrix.resources import reports_folder, worker_file
from matrix.running.workers import profile
from matrix.settings.environments import requirement_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.causes.redcell import RedCell
    from matrix.settings.environments import Environment

_ALLOWED = frozenset(("torch", "triton", "numpy"))  # Triton's interpreter takes NumPy itself
_STOOD_IN = frozenset(("Case", "Expect", "Tolerance"))
# What of a case a reproducer has a use for.
_KEYWORDS = frozenset(("name", "run", "reference", "inputs", "tolerance"))
LIMIT_S = 300.0  # that the file waits for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What both sides showed: the figure that decides with its values, and all of it in words."""

    decides: str
    good: Any
    bad: Any
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What the file is made of."""

    red: RedCell
    stage: Stage
    params: Mapping[str, Any]
    path: Path
    good: Environment
    bad: Environment

    def text(self, seen: Seen | None = None) -> str:
        """The file, with what both sides showed where that is known."""
        verdict, file = self.red.verdict, self.red.file()
        source = file.read_text(encoding="utf-8")
        name, rewritten = case_statement(source, verdict.case)
        case = excerpt(source, () if self.stage is Stage.IMPORT else roots(source, name), rewritten=rewritten)
        _check(file, case.packages, case.ours)
        on_target = self.stage not in (Stage.IMPORT, Stage.INTERPRET) and verdict.target not in ("", CPU)
        values = {
            "title": f"Triton {self.bad.triton_version}: {_title(self.red)}",
            "about": f"Cell {self.red.place}, against Triton {self.good.triton_version}: {placeless(verdict.change)}",
            "good_line": uv_line(self.good, self.path.name),
            "bad_line": uv_line(self.bad, self.path.name),
            "shown": seen.said if seen else "Not run yet.",
            "future": sorted({*case.future}),
            "ours": case.ours,
            "case_text": case.text.rstrip(),
            "case_name": name or _any_case(verdict.case),
            "philox_text": _part("philox.py", "by_torch"),
            "inputs_text": _part("inputs.py", "Make", "NAMES"),
            "target_text": _part("target.py", "stand_in", "Profile"),
        }
        literals = {
            "stage": str(self.stage),
            "target": verdict.target or CPU,
            "params": dict(self.params),
            "seed": self.red.point,
            "decides": seen.decides if seen else "",
            "good": seen.good if seen else None,
            "bad": seen.bad if seen else None,
            "limit_s": LIMIT_S,
            "profile": profile(verdict.target) if on_target else {},
        }
        told = {key: pprint.pformat(value, width=110, sort_dicts=False) for key, value in literals.items()}
        told["profile"] = told["profile"] if literals["profile"] else ""
        return templates().get_template("reproducer.py.jinja").render(**values, **told)


def default_name(red: RedCell) -> str:
    """What the file is called where nobody says."""
    return f"repro-{safe(red.verdict.case)}.py"


def uv_line(environment: Environment, file: str = "") -> str:
    """The command that runs a file in the environment, made on the spot by uv."""
    wanted = [each for each in (environment.triton, environment.torch, *environment.requires) if each]
    closest = {requirement_name(each): each for each in sorted(wanted, key=len)}  # numpy<2.4, and not numpy beside it
    options = [part for each in wanted if each in closest.values() for part in ("--with", each)]
    sources = ["--default-index", environment.index] if environment.index else []
    sources += [part for index in environment.extra_indexes for part in ("--index", index)]
    sources += [part for link in environment.find_links for part in ("--find-links", link)]
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.variables.items()]
    command = ["uv", "run", "--no-project", "--python", environment.python, *sources, *options]
    return " ".join([*variables, shlex.join([*command, *([file] if file else [])])])


def placeless(text: str) -> str:
    """Without the folders in which this machine keeps its packages: what is shown to others names none of them."""
    return re.sub(r"/\S*/site-packages/", "", text)


def case_statement(source: str, case: str) -> tuple[str, dict[str, str]]:
    """The name that the case has in its file, and its statement with only what a reproducer uses.

    No name where it is made in a loop, a list or a function: it is then looked up when the file runs.
    """
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _makes_case(node.value)):
            continue
        target = node.targets[0]
        keywords = {word.arg: word for word in node.value.keywords if word.arg}
        named = keywords.get("name")
        if not (named and isinstance(target, ast.Name) and isinstance(named.value, ast.Constant)):
            continue
        if named.value.value == case:
            kept = [word for word in node.value.keywords if not word.arg or word.arg in _KEYWORDS]
            parts = [
                (f"{word.arg}=" if word.arg else "**", ast.get_source_segment(source, word.value)) for word in kept
            ]
            inner = "".join(f"    {before}{text},\n" for before, text in parts)
            return target.id, {target.id: f"{target.id} = Case(\n{inner})"}
    return "", {}


def roots(source: str, name: str) -> list[str]:
    """The name of the case, or those of all statements that make cases."""
    if name:
        return [name]
    made = [node for node in ast.parse(source).body if any(_makes_case(each) for each in ast.walk(node))]
    return [each.id for node in made for each in ast.walk(node) if isinstance(each, ast.Name)]


def _makes_case(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Case"


def _any_case(case: str) -> str:
    lines = (
        "each",
        "for value in list(globals().values())",
        "for each in (value if isinstance(value, (list, tuple)) else [value])",
        f"if isinstance(each, SimpleNamespace) and each.name == {case!r}",
    )
    return "next(\n" + "".join(f"    {line}\n" for line in lines) + ")"


def _check(file: Path, packages: Iterable[str], ours: Iterable[str]) -> None:
    foreign = [*(name for name in packages if name not in _ALLOWED), *(name for name in ours if name not in _STOOD_IN)]
    if foreign:
        hint = "write a case that holds the kernel itself, and ask for its cell"
        raise UsageError(f"{file} needs more than torch and triton: {', '.join(dict.fromkeys(foreign))}", hint=hint)


def _part(file: str, *names: str) -> str:
    return excerpt(worker_file(file).read_text(encoding="utf-8"), names, imports=False).text.rstrip() + "\n"


def _title(red: RedCell) -> str:
    return f"{red.verdict.case}, {red.verdict.reason_code.replace('_', ' ')}"


def templates() -> jinja2.Environment:
    """Templates of text: what they are given is not escaped. ``cell`` makes text fit a Markdown table."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(reports_folder()),
        autoescape=False,  # noqa: S701 - Python and Markdown, no page
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda value: str(value).replace("|", "\\|").replace("\n", " ")
    environment.filters["placeless"] = placeless
    return environment
