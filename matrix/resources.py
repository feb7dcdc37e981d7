"""Where the data that travels with the program lies: built-in cases, report templates, a sample run, the noxfile.

A wheel carries them inside the package (``matrix/builtin``); in a clone they lie beside it.
"""

from __future__ import annotations

from pathlib import Path

from matrix.errors import StorageError, UsageError

_PACKAGE = Path(__file__).resolve().parent


def data_file(name: str) -> Path:
    """A file of ``matrix/data``: what is known of releases, targets and GPUs, and the declared environments."""
    return _PACKAGE / "data" / name


def package_folder() -> Path:
    """The package's own folder, of which a worker loads its rings by path."""
    return _PACKAGE


def worker_file(name: str) -> Path:
    """A file of ring 1, which runs inside an environment."""
    return _PACKAGE / "worker" / name


def kernels_folder() -> Path:
    """The folder of the built-in case files."""
    return _find("kernels")


def catalogue_folder() -> Path:
    """Documented regressions as cases. They test this program more than an upgrade: a run takes them by name."""
    return kernels_folder() / "regressions"


def suites_folder() -> Path:
    """Other people's kernels as cases; each file needs packages of its own and is run by its name alone."""
    return kernels_folder() / "suites"


def passes_folder() -> Path:
    """Passes of several kernels. They take as long to compile as all other cases together: a run takes them by name."""
    return kernels_folder() / "passes"


def reports_folder() -> Path:
    """The folder of the report's templates, style sheet and script."""
    return _find("reports")


def sample_folder() -> Path:
    """The folder of the recorded run that the package carries. Raises :class:`UsageError` where it is left out."""
    path = _PACKAGE / "data" / "sample"
    if not (path / "run.json").is_file():
        raise UsageError(
            f"this installation carries no sample run: {path} has no run.json",
            hint="render a run of your own: `triton-matrix run`, then `triton-matrix report`",
        )
    return path


def noxfile() -> Path:
    """The noxfile that builds the environments and drives a run."""
    return _find("noxfile.py")


def _find(name: str) -> Path:
    candidates = (_PACKAGE / "builtin" / name, _PACKAGE.parent / name)
    for path in candidates:
        if path.exists():
            return path
    looked = " nor ".join(str(path) for path in candidates)
    raise StorageError(
        f"{name} is missing: neither {looked} exists",
        hint="the installation is incomplete: reinstall triton-matrix, or run from a complete clone",
    )
