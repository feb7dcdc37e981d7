"""What a run is about: the options of a command over the project's configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.catalogue.suites import requirements_of, suite_files
from matrix.commands.workplace import project_root
from matrix.errors import UsageError, all_of
from matrix.model import DEFAULT_TARGETS, Stage, Target
from matrix.resources import catalogue_folder, kernels_folder, passes_folder, suites_folder
from matrix.running.declared import narrowed
from matrix.running.plan import GPU_STAGES, HOST_STAGES, Request, find_case_files
from matrix.settings import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.judging.waivers import Waiver
    from matrix.nights.history import History
    from matrix.settings.config import Configuration


def configuration_of(selection: dict[str, Any]) -> Configuration:
    """The project's configuration, with the wheels that the command line names as environments."""
    named = filter(None, [selection["baseline"], *flat(selection["candidate"])])
    return config.load(project_root(), file=selection["config_file"]).with_wheels(named, folder=Path.cwd())


def request_of(
    configuration: Configuration, selection: dict[str, Any], gpus_of: Sequence[str], *, where: str = "here"
) -> Request:
    """The command line over the configuration. Raises :class:`UsageError` for what is not there."""
    wanted = selection["profile"].targets if selection["profile"] else ()
    asked = flat(selection["targets"]) or wanted or configuration.targets or tuple(map(str, DEFAULT_TARGETS))
    candidates = flat(selection["candidate"]) or list(configuration.candidates)
    baseline, chosen, targets, _, all_files = all_of(
        lambda: configuration.environment(selection["baseline"] or configuration.baseline).id,
        lambda: [each.id for each in configuration.select(candidates)],
        lambda: words("target", asked, list(Target)),
        lambda: words("stage", flat(selection["stages"]), list(Stage)),
        lambda: _all_case_files(configuration, selection),
    )
    if baseline in chosen and len(chosen) > 1:
        chosen.remove(baseline)
    if chosen == [baseline]:
        raise UsageError(f"baseline and candidate are both {baseline}", hint="name two environments")
    gpu_targets = tuple(target for target in targets if target in gpus_of)
    cases = tuple(flat(selection["cases"]) or configuration.cases)
    (files, left_out), stages = all_of(
        lambda: narrowed(all_files, cases, (baseline, *chosen)) if cases else (all_files, ()),
        lambda: _stages(configuration, selection, gpu=bool(gpu_targets), where=where),
    )
    return Request(
        baseline=baseline,
        candidates=tuple(chosen),
        targets=targets,
        case_files=files,
        cases=cases,
        stages=stages,
        gpu_targets=gpu_targets,
        configs=selection["configs"],
        other_cases=left_out,
    )


def _all_case_files(configuration: Configuration, selection: dict[str, Any]) -> tuple[Path, ...]:
    """The built-in files, those of the suites, and the user's. Raises :class:`UsageError`."""
    builtin = configuration.builtin and not selection["no_builtin"]
    suites = flat(selection["suite"])
    shipped = find_case_files([kernels_folder()]) if builtin and not suites else ()
    cases = flat(selection["cases"]) or configuration.cases
    by_name_alone = [suites_folder(), *([] if cases else [catalogue_folder(), passes_folder()])]
    shipped = tuple(file for file in shipped if not any(map(file.is_relative_to, by_name_alone)))
    others, own = all_of(
        lambda: suite_files(suites),
        lambda: find_case_files([*configuration.kernels, *selection["kernels"]]),
    )
    files = tuple(dict.fromkeys((*shipped, *others, *own)))
    if not files:
        raise UsageError("no case files to run", hint="name some with --kernels")
    return files


def _stages(configuration: Configuration, selection: dict[str, Any], *, gpu: bool, where: str) -> tuple[Stage, ...]:
    """The stages asked for; by default all that can be run. Raises :class:`UsageError` for one that cannot."""
    asked = flat(selection["stages"])
    if not asked and selection["profile"]:
        return tuple(selection["profile"].stages_here(gpu=gpu))
    asked = asked or list(configuration.stages)
    if not asked:
        return (*HOST_STAGES, *GPU_STAGES) if gpu else HOST_STAGES
    stages = tuple(map(Stage, words("stage", asked, list(Stage))))
    if beyond := [str(stage) for stage in stages if stage in GPU_STAGES and not gpu]:
        hint = "see `triton-matrix doctor`; --targets may have left the GPU's own target out"
        raise UsageError(f"no GPU {where} for {', '.join(beyond)}", hint=hint)
    return stages


def with_requirements(configuration: Configuration, request: Request) -> Configuration:
    return dataclasses.replace(configuration, requires=requirements_of(request.case_files))


def history_of(address: str | None) -> History | None:
    from matrix.nights.history import History

    return History.of(address) if address else None


def waivers_of(path: Path | None) -> tuple[Waiver, ...]:
    import datetime

    from matrix.judging.waivers import read_waivers

    return read_waivers(path, today=datetime.datetime.now(datetime.UTC).date()) if path else ()


def words(what: str, given: Sequence[str], allowed: Sequence[Any]) -> tuple[str, ...]:
    known = [str(word) for word in allowed]
    if wrong := [word for word in given if word not in known]:
        raise UsageError(f"unknown {what}: {', '.join(wrong)}", hint=f"known: {', '.join(known)}")
    return tuple(word for word in known if word in given) if given else tuple(known)


def flat(lists: Sequence[Sequence[str]]) -> list[str]:
    return [item for part in lists for item in part]
