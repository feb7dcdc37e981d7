"""Puts the built-in cases, the report's templates and the noxfile into the wheel, as data of the package.

Not into an editable install: a folder ``matrix`` in site-packages would hide the package of the clone.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CARRIED = ("kernels", "reports", "noxfile.py")


class CarriedData(BuildHookInterface):  # type: ignore[type-arg]  # generic in hatchling's stubs only
    """Hatchling's hook."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"].update({name: f"matrix/builtin/{name}" for name in CARRIED})
