"""What is known of whole releases, whatever the case: data, with reason and link."""

from __future__ import annotations

from functools import cache

import tomllib

from matrix.judging.expectations import read_expectations
from matrix.resources import data_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from matrix.case import Expect


@cache
def release_expectations() -> tuple[Expect, ...]:
    """The rows of ``data/releases.toml``."""
    with data_file("releases.toml").open("rb") as file:
        return read_expectations(tomllib.load(file)["known"], case="(any)")
