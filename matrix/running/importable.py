"""What case files may import that no lock names: the Python files below the folders of ``pythonpath``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.storage.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENDINGS = (".py", ".so")
_PASSED_OVER = frozenset(("__pycache__", "node_modules", "site-packages"))


def importable(folders: Iterable[str | Path]) -> str:
    """The digest of the folders, in their order, and of the names of the files below them.

    What the files hold is no part of it: a result depends on those that its case imported. Their names are: a new file
    may stand in front of one that was imported, or be there where an import had failed.
    """
    return key_of({"pythonpath": [[str(folder), sorted(_names(Path(folder)))] for folder in folders]})


def _names(folder: Path) -> Iterator[str]:
    for place, below, files in os.walk(folder):
        # No module is called so, and environments and repositories are large.
        below[:] = [name for name in below if not name.startswith(".") and name not in _PASSED_OVER]
        for name in files:
            if name.endswith(_ENDINGS):
                yield os.path.relpath(Path(place, name), folder)
