"""What options are: the types of their values, and those that several commands take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_F = TypeVar("_F", bound="Callable[..., Any]")


class Command(click.Command):
    """A command that tells every wrong value at once; click would tell the first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # click empties the list
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            raise click.UsageError("\n".join(self._wrong(ctx, given)), ctx) from error

    def _wrong(self, ctx: click.Context, args: list[str]) -> Iterator[str]:
        values, _, _ = self.make_parser(ctx).parse_args(args)
        for param in self.get_params(ctx):
            try:
                param.handle_parse_result(ctx, values, [])
            except click.BadParameter as error:
                yield error.format_message()


def command() -> Callable[[Callable[..., Any]], Command]:
    """As ``click.command()``, of :class:`Command`."""
    return click.command(cls=Command)


class Commas(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """``a,b`` as ``["a", "b"]``; the option may be repeated as well."""

    name = "list"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts:
            # An empty variable of a CI job must not come to mean "everything".
            self.fail("is empty; leave the option out to mean all", param, ctx)
        return parts


class Given(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Text that is there: an empty variable of a CI job must not come to mean that nothing was asked for."""

    name = "text"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if not str(value).strip():
            self.fail("is empty; leave the option out", param, ctx)
        return str(value)


class Globs(Commas):
    """Comma-separated globs; a comma inside ``case:a=1,b=2`` or ``*a=1,b=2*`` belongs to the params, parting none."""

    name = "globs"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        globs: list[str] = []
        for part in super().convert(value, param, ctx):
            if globs and _goes_on(globs[-1], part):
                globs[-1] += f",{part}"
            else:
                globs.append(part)
        return globs


def _goes_on(glob: str, part: str) -> bool:
    """Whether the part is a further param of the glob before it."""
    in_params = "=" in part and ":" not in part
    return in_params and (":" in glob or ("=" in glob and part[0] not in "*?["))


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """``90``, ``90s`` or ``2m`` as seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([sm]?)", str(value).strip().lower())
        if not found:
            self.fail(f"{value!r} is no duration; say 90s or 2m", param, ctx)
        return float(found[1]) * (60.0 if found[2] == "m" else 1.0)


class ProfileName(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """The name of a profile, as the :class:`matrix.running.profiles.Profile`."""

    name = "profile"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from matrix.running.profiles import profiles

        known = profiles()
        if value not in known:
            said = "; ".join(f"{name} ({profile.about})" for name, profile in known.items())
            self.fail(f"{value!r} is no profile; there are: {said}", param, ctx)
        return known[value]


class Configurations(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """``first``, ``all`` or a number, as how many; 0 is all."""

    name = "configurations"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        known = {"all": 0, "first": 1}
        if value not in known and not (value.isdecimal() and int(value)):
            self.fail(f"{value!r} is none of first, all and a number from 1 on", param, ctx)
        return known[value] if value in known else int(value)


def together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Options as one decorator, in the order in which ``--help`` lists them."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


waivers = click.option(
    "--waivers",
    "waiver_file",
    type=click.Path(path_type=Path),
    help="A TOML file of findings that somebody answers for until a day.",
)
# What a run is about.
selection = together(
    click.option(
        "--baseline", type=Given(), metavar="ENV", help="Environment to compare with: a version, an id, a glob."
    ),
    click.option("--candidate", type=Commas(), multiple=True, metavar="ENV,...", help="Environments to judge."),
    click.option(
        "--targets", type=Commas(), multiple=True, metavar="SM,...", help="By default sm_80, sm_90, sm_100, sm_120."
    ),
    click.option("--cases", type=Globs(), multiple=True, metavar="GLOB,...", help="Cases or cell ids to run."),
    click.option(
        "--stages",
        type=Commas(),
        multiple=True,
        metavar="STAGE,...",
        help="import, compile, interpret; where there is a GPU also correctness, timing, counters.",
    ),
    click.option(
        "--kernels",
        type=click.Path(path_type=Path),
        multiple=True,
        help="Case files or folders of your own, beside the built-in ones.",
    ),
    click.option(
        "--suite",
        type=Commas(),
        multiple=True,
        metavar="NAME,...",
        help="Other people's kernels: docs/suites.md.",
    ),
    click.option(
        "--configs",
        type=Configurations(),
        default="all",
        show_default=True,
        metavar="first|all|N",
        help="Of a kernel that tunes itself, the configurations to compile and check.",
    ),
    click.option("--no-builtin", is_flag=True, help="Leave the built-in cases out."),
    click.option("--profile", type=ProfileName(), help="quick, nightly or signoff: docs/verdicts.md."),
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="A matrix.toml elsewhere."),
)
# What a run is measured under, and where it goes.
delivery = together(
    click.option("--lock-clocks", type=click.IntRange(1), metavar="MHZ", help="Hold the SM clock while measuring."),
    waivers,
    click.option(
        "--history", "history_at", type=Given(), metavar="DIR-or-URL", help="Add the run to a history over nights."
    ),
    click.option(
        "--share",
        type=Given(),
        metavar="DIR-or-URL",
        help="Copy the run to where other hosts leave theirs, for `report`.",
    ),
)
# What is tried beyond the cells.
further = together(
    click.option("--fuzz", type=Seconds(), default=0.0, help="Try fresh points for so long, 60s say (needs a GPU)."),
    click.option(
        "--same-ptx-other-ptxas",
        "cross_ptxas",
        is_flag=True,
        help="Assemble findings in the code again, each side's PTX with the other's ptxas.",
    ),
)
output = together(
    click.option("--json", "as_json", is_flag=True, help="The verdicts as JSON on stdout."),
    click.option("--quiet", "-q", is_flag=True, help="No progress bars."),
)
