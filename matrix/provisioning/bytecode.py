"""Bytecode that another environment has compiled already.

uv links what it installs to its cache: environments with the same torch hold the very same files. Each would compile
them anew as it first imports them, which takes six seconds of a core for torch.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def link_bytecode(site: Path, others: Iterable[Path]) -> int:
    """Link into ``site`` what the ``others`` have compiled of the same source files; how many files those are.

    The same is the same file on disk: two releases' files may be of one size and date. Python itself looks whether
    bytecode is still its source's, and puts the importing environment's path into it. What cannot be linked is left.
    """
    linked = 0
    wanted = [each.parent for each in site.glob("*/__init__.py")]
    for other in others:
        for package in wanted[:]:
            theirs = other / package.name
            if _same(package / "__init__.py", theirs / "__init__.py") and (count := _link_package(package, theirs)):
                linked += count
                wanted.remove(package)
    return linked


def _link_package(package: Path, theirs: Path) -> int:
    linked = 0
    for compiled in theirs.rglob("__pycache__/*.pyc"):
        folder = compiled.parent.parent
        mine = package / folder.relative_to(theirs)
        source = f"{compiled.name.partition('.')[0]}.py"
        if not _same(mine / source, folder / source):
            continue
        with contextlib.suppress(OSError):
            (mine / compiled.parent.name).mkdir(exist_ok=True)
            os.link(compiled, mine / compiled.parent.name / compiled.name)
            linked += 1
    return linked


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
