"""A reproducer as whoever gets it runs it, and what it is said to show."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from conftest import Workshop


def executed(workshop: Workshop, version: str, file: Path) -> tuple[int, dict[str, object]]:
    """The reproducer in an environment, far from this package."""
    built = workshop.environment(version)
    done = subprocess.run(
        [str(built.interpreter), "-P", str(file)], capture_output=True, text=True, check=False, env={}
    )
    first = done.stdout.splitlines()[0]
    return done.returncode, json.loads(first.removeprefix("figures: "))


def shown(text: str) -> dict[str, tuple[str, str]]:
    """The plain figures that are said to differ, good and bad side, as `repro` prints them and its file has them."""
    found = (re.fullmatch(r" *(\w+) +(\w+) +(\w+)", line) for line in text.splitlines())
    return {each[1]: (each[2], each[3]) for each in found if each}
