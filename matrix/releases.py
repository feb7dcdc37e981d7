"""What is known of whole releases, whatever the case: data, with reason and link."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import tomllib

from matrix.expectations import read_expectations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from matrix.case import Expect


@cache
def release_expectations() -> tuple[Expect, ...]:
    """The rows of ``data/releases.toml``."""
    with (Path(__file__).parent / "data" / "releases.toml").open("rb") as file:
        return read_expectations(tomllib.load(file)["known"], case="(any)")
