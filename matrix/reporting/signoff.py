"""The sign-off page: what was decided, every figure with its eight fields, locks and digests, for A4 paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import markupsafe

from matrix import __version__
from matrix.errors import StorageError
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.groups import Section, group
from matrix.judging.waivers import Waiver
from matrix.reporting.eight_fields import Figures, Stated
from matrix.reporting.gaps import gaps
from matrix.reporting.gpu_facts import gpu_facts
from matrix.reporting.headline import decisions, full_names, reach, short_names, title
from matrix.reporting.provenance import comparison, run_facts
from matrix.reporting.report import templates
from matrix.resources import reports_folder
from matrix.storage.atomic import write_atomically
from matrix.storage.runfolder import load
from matrix.storage.seal import digests_of, read_seal
from matrix.wording import LOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.storage.runfolder import RunFolder

_NAME = "signoff.html"
# Where a reader looks for what speaks against the candidate, in this order.
_OPEN = (Section.FINDING, Section.UNDECIDED, Section.WAIVED, Section.STANDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The figures of one candidate."""

    baseline: str
    candidate: str
    figures: Sequence[Stated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """The files and their digests; ``seal`` is empty where nobody sealed the run, and they are of today."""

    seal: str
    files: Mapping[str, str]

    @property
    def tables(self) -> Mapping[str, str]:
        return {name: digest for name, digest in self.files.items() if not name.startswith("artifacts/")}

    @property
    def artifacts(self) -> int:
        return len(self.files) - len(self.tables)


def render_signoff(run_dir: Path) -> str:
    """The page of one run. Raises :class:`StorageError` where the folder is not a run's."""
    return templates().get_template("signoff.html").render(_page(load(run_dir)))


def write_signoff(run_dir: Path, output: Path | None = None) -> Path:
    """Write the page into the run's folder, or to ``output``, whole or not at all."""
    path = output or run_dir / _NAME
    write_atomically(path, render_signoff(run_dir).encode())
    return path


def _page(run: RunFolder) -> Mapping[str, object]:
    groups = group([run])
    return {
        "title": title([run]),
        "short": short_names([run]),
        "named": full_names([run]),
        "run": run,
        "decisions": decisions([run], groups),
        "reach": reach([run]),
        "open": [each for section in _OPEN for each in groups if each.section is section],
        "waivers": _waivers(run),
        "compared": _compared(run),
        "instruments": gpu_facts([run]),
        "gaps": gaps([run]),
        "comparison": comparison([run]),
        "facts": run_facts(run),
        "digests": _digests(run),
        "looks": LOOKS,
        "version": __version__,
        "style": markupsafe.Markup((reports_folder() / "signoff.css").read_text(encoding="utf-8")),  # noqa: S704 - ours
    }


def _compared(run: RunFolder) -> list[Compared]:
    figures = Figures(run, ArmPairs(run.timings))
    pairs = dict.fromkeys((row.baseline, row.candidate) for row in run.verdicts)
    stated = [Compared(baseline=one, candidate=other, figures=figures.of(other)) for one, other in pairs]
    return [each for each in stated if each.figures]


def _waivers(run: RunFolder) -> list[tuple[Waiver, int]]:
    """As the run was given them, each with how many rows it covers."""
    given = [Waiver(**{**entry, **_tuples(entry)}) for entry in run.meta.get("waivers") or ()]
    return [(waiver, sum(row.waived == str(waiver) for row in run.verdicts)) for waiver in given]


def _tuples(entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}


def _digests(run: RunFolder) -> Digests:
    try:
        sealed = read_seal(run.path)
    except StorageError:
        return Digests(seal="", files=digests_of(run.path))
    return Digests(seal=sealed.digest, files=sealed.files)
