"""The configuration: the stock pairs, then what the user's own TOML adds, replaces and selects."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import ConfigurationError, UsageError, all_of
from matrix.judging.thresholds import PRESETS, Thresholds, read_thresholds
from matrix.model import Stage, Target, safe
from matrix.resources import data_file
from matrix.settings.environments import CpuTorch, Environment, find, requirement, select
from matrix.settings.tomlfile import TomlFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from matrix.settings.tomlfile import Table

DATA = data_file("environments.toml")
USER_FILE = "matrix.toml"
_FALLBACK_FILE = "pyproject.toml"
_TABLE = ("tool", "triton-matrix")

# Seconds that one request may stay silent (a compile, a case under the interpreter), by stage.
TIMEOUTS_S: Mapping[str, float] = {
    Stage.IMPORT: 120.0,
    Stage.COMPILE: 300.0,
    Stage.INTERPRET: 300.0,
    Stage.CORRECTNESS: 300.0,
    Stage.TIMING: 300.0,
    Stage.COUNTERS: 600.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a run starts from; the command line has the last word.

    ``baseline`` and ``candidates`` are names for :func:`matrix.settings.environments.find`. ``kernels`` are folders
    and files of cases beside the built-in ones. Empty ``stages`` and ``cases`` mean all, empty ``targets`` the
    usual four.
    """

    environments: tuple[Environment, ...]
    cpu: CpuTorch
    baseline: str
    candidates: tuple[str, ...]
    targets: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    kernels: tuple[Path, ...] = ()
    pythonpath: tuple[Path, ...] = ()
    builtin: bool = True
    thresholds: Thresholds = field(default_factory=Thresholds)
    timeouts_s: Mapping[str, float] = field(default_factory=lambda: dict(TIMEOUTS_S))
    requires: tuple[str, ...] = ()  # what the case files of a run need in every environment
    sources: tuple[Path, ...] = ()
    wheels: Mapping[str, Environment] = field(default_factory=dict)  # what wheels stand for, by path and by id

    def environment(self, name: str) -> Environment:
        """Raises :class:`UsageError` for a name that means no environment."""
        return (self.wheels.get(name) or find(self.environments, name, folder=Path.cwd())).apart(self.requires)

    def select(self, names: Iterable[str]) -> list[Environment]:
        """The environments of these names, each once. Raises :class:`MatrixError` with every name that means none."""
        found = all_of(*(functools.partial(self._selected, name) for name in names))
        return list({each.id: each for some in found for each in some}.values())

    def _selected(self, name: str) -> list[Environment]:
        if name in self.wheels:
            return [self.wheels[name]]
        return select(self.environments, [name], folder=Path.cwd())

    def with_wheels(self, names: Iterable[str], *, folder: Path) -> Configuration:
        """Knowing what each wheel among the names stands for: its path is its only mark, which its id does not hold.

        Raises :class:`UsageError` for a wheel that is not there.
        """
        found = {name: find(self.environments, name, folder=folder) for name in names if name.endswith(".whl")}
        return replace(self, wheels={**self.wheels, **found, **{each.id: each for each in found.values()}})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    python: str = "3.11"
    requires: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    offline: bool = False


def load(root: Path, *, file: Path | None = None) -> Configuration:
    """The configuration for a folder: the data file, and ``matrix.toml`` or ``pyproject.toml`` in it.

    ``file`` names the user's file instead. Raises :class:`ConfigurationError` with every mistake in it.
    """
    stock = TomlFile.read(DATA)
    shipped = _read(stock, stock.table(), None)
    # Absolute: workers, which are told of the folders beside it, run elsewhere.
    path = Path(file).absolute() if file else _user_file(root.absolute())
    user = TomlFile.read(path) if path else None
    configuration = shipped
    if user:
        where = _TABLE if user.path.name == _FALLBACK_FILE else ()
        configuration = _read(user, user.table(*where), shipped)
    problems = [*stock.sorted_problems(), *(user.sorted_problems() if user else ())]
    if problems:
        raise ConfigurationError(problems, hint="docs/environments.md lists every key; nothing was run")
    return configuration.with_wheels(
        [configuration.baseline, *configuration.candidates], folder=path.parent if path else root
    )


def _user_file(root: Path) -> Path | None:
    if (own := root / USER_FILE).exists() or own.is_symlink():
        return own  # a folder, or a link that leads nowhere, is said to be one
    project = root / _FALLBACK_FILE
    if not project.is_file() or "triton-matrix" not in project.read_text(encoding="utf-8", errors="replace"):
        return None  # somebody's project: its syntax is not ours to judge
    file = TomlFile.read(project)
    return project if file.problems or file.table(*_TABLE).values else None


def _read(file: TomlFile, table: Table, base: Configuration | None) -> Configuration:
    """One file over what came before it."""
    defaults_table = table.table("defaults")
    defaults = _defaults(defaults_table, file.path.parent)
    environments = _merged(base.environments if base else (), _environments(table, defaults, file.path.parent))
    baseline = _named(table, defaults_table, "baseline", [base.baseline] if base else ["newest-but-one"])
    candidates = _named(table, defaults_table, "candidate", base.candidates if base else ["newest"])
    configuration = Configuration(
        environments=environments,
        cpu=_cpu(table, base),
        baseline=baseline[0],
        candidates=candidates,
        targets=table.words("targets", [str(each) for each in Target], base.targets if base else ()),
        stages=table.words("stages", [str(each) for each in Stage], base.stages if base else ()),
        cases=table.texts("cases", base.cases if base else ()),
        kernels=tuple(_kernels(table, file.path.parent)),
        pythonpath=tuple(file.path.parent / each for each in table.texts("pythonpath", ())),
        builtin=table.flag("builtin", default=base.builtin if base else True),
        thresholds=_thresholds(table),
        timeouts_s=_timeouts(table),
        sources=(*(base.sources if base else ()), file.path),
    )
    _check_names(file, table, configuration)
    defaults_table.finish()
    table.finish()
    return configuration


def _named(table: Table, defaults: Table, key: str, default: Iterable[str]) -> tuple[str, ...]:
    """``baseline`` and ``candidate``, at the top or under ``[defaults]``; a list is several candidates."""
    source = table if key in table else defaults
    other = defaults if source is table else table
    other.text(key, "") if key not in other else other.texts(key)
    names = source.texts(key, default)
    if not names or (key == "baseline" and len(names) != 1):
        source.problem(key, "must name one environment" if key == "baseline" else "must name an environment")
        return tuple(default)
    return names


def _check_names(file: TomlFile, table: Table, configuration: Configuration) -> None:
    for key, names in (("baseline", [configuration.baseline]), ("candidate", configuration.candidates)):
        where = (*table.where, key) if key in table else (*table.where, "defaults", key)
        for name in names:
            try:
                select(configuration.environments, [name], folder=file.path.parent)
            except UsageError as error:
                file.problem(where, str(error), hint=error.hint, value=name)


def _defaults(table: Table, folder: Path) -> _Defaults:
    return _Defaults(
        python=table.text("python", "3.11"),
        requires=_requires(table, folder),
        find_links=_links(table, "find_links", folder),
        index=table.text("index"),
        extra_indexes=table.texts("extra_indexes"),
        offline=table.flag("offline"),
    )


def _environments(table: Table, defaults: _Defaults, folder: Path) -> Iterator[Environment]:
    seen: dict[str, int] = {}
    for each in table.tables("environments"):
        environment = _environment(each, defaults, folder)
        each.finish()
        if not environment:
            continue
        line = each.file.line((*each.where, "id"))
        if environment.id in seen:
            each.problem("id", f"{environment.id!r} is already used in line {seen[environment.id]}")
        seen.setdefault(environment.id, line)
        yield environment


def _environment(table: Table, defaults: _Defaults, folder: Path) -> Environment | None:
    name = table.text("id")
    inherit = table.text("inherit")
    environment = Environment(
        id=name,
        triton=table.checked("triton", lambda text: requirement("triton", text, folder)),
        torch=table.checked("torch", lambda text: requirement("torch", text, folder)),
        python=table.text("python", defaults.python),
        python_exact="python" in table and table.file.path != DATA,
        tags=table.texts("tags"),
        as_of=table.day("as_of"),
        variables=table.variables("variables"),
        inherit=inherit if inherit in {"", "host"} else str(Path(folder, Path(inherit).expanduser())),
        find_links=(*_links(table, "find_links", folder), *defaults.find_links),
        index=table.text("index", defaults.index),
        extra_indexes=(*table.texts("extra_indexes"), *defaults.extra_indexes),
        offline=table.flag("offline", default=defaults.offline),
        requires=tuple(dict.fromkeys([*defaults.requires, *_requires(table, folder)])),
    )
    complete = _complete(table, environment)
    return environment if complete else None


def _complete(table: Table, environment: Environment) -> bool:
    """Whether the keys that every environment needs are there and right."""
    if not environment.id:
        if "id" not in table:
            table.problem("id", "missing", hint='every environment needs an id, such as id = "nightly"')
    elif safe(environment.id) != environment.id or "," in environment.id:
        hint = f"write {safe(environment.id)!r}"
        table.problem("id", f"{environment.id!r} holds characters that a cell id may not", hint=hint)
    for key in ("triton",) if environment.inherit else ("triton", "torch"):
        if key not in table:
            example = {"triton": 'triton = "3.9.0"', "torch": 'torch = "2.15.0"'}[key]
            table.problem(key, f"missing in {environment.id or 'this environment'}", hint=example)
    return bool(environment.id and environment.triton and (environment.torch or environment.inherit))


def _requires(table: Table, folder: Path) -> tuple[str, ...]:
    found = []
    for text in table.texts("requires"):
        try:
            found.append(requirement("", text, folder))
        except ValueError as error:
            table.problem("requires", str(error), value=text)
    return tuple(found)


def _links(table: Table, key: str, folder: Path) -> tuple[str, ...]:
    """Folders of wheels, relative to the file, and pages of them."""
    return tuple(
        value if "://" in value else str(Path(folder, Path(value).expanduser()).resolve()) for value in table.texts(key)
    )


def _merged(base: Iterable[Environment], added: Iterable[Environment]) -> tuple[Environment, ...]:
    by_id = {each.id: each for each in base}
    by_id |= {each.id: each for each in added}
    return tuple(by_id.values())


def _cpu(table: Table, base: Configuration | None) -> CpuTorch:
    cpu = table.table("cpu")
    torch = cpu.checked("torch", lambda text: requirement("torch", text, table.file.path.parent))
    as_of = cpu.day("as_of")
    cpu.finish()
    if torch or not base:
        return CpuTorch(torch=torch, as_of=as_of)
    return base.cpu


def _kernels(table: Table, folder: Path) -> Iterator[Path]:
    for text in table.texts("kernels"):
        path = Path(folder, Path(text).expanduser()).resolve()
        if not path.exists():
            table.problem("kernels", f"{text!r} is neither a file nor a folder", value=text)
        yield path


def _thresholds(table: Table) -> Thresholds:
    """Each key is checked alone, so that each mistake gets its own line."""
    values = table.table("thresholds").values
    right: dict[str, object] = {}
    for key, value in values.items():
        try:
            read_thresholds({key: value}, source="")
        except ConfigurationError as error:
            what = "; ".join(problem.removeprefix(": ") for problem in error.problems)
            table.file.problem((*table.where, "thresholds", key), what)
        else:
            right[key] = value
    return read_thresholds({"preset": right.get("preset", next(iter(PRESETS))), **right})


def _timeouts(table: Table) -> dict[str, float]:
    timeouts = table.table("timeouts")
    found = {str(stage): timeouts.seconds(stage, default) for stage, default in TIMEOUTS_S.items()}
    timeouts.finish()
    return found
