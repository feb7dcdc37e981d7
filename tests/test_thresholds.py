"""Thresholds: presets, overrides from a table, and every mistake reported at once."""

from __future__ import annotations

import dataclasses

import pytest
import tomllib

from matrix.errors import ConfigurationError
from matrix.judging.thresholds import PRESETS, Thresholds, read_thresholds


def test_an_empty_table_is_the_default() -> None:
    assert read_thresholds({}) == Thresholds() == PRESETS["default"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_by_name(preset: str) -> None:
    assert read_thresholds({"preset": preset}) == PRESETS[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_passes_its_own_validation(preset: str) -> None:
    table = dataclasses.asdict(PRESETS[preset])
    assert read_thresholds(table) == PRESETS[preset]


def test_keys_override_the_preset() -> None:
    table = tomllib.loads('preset = "strict"\ncode_ratio = 3\nshared_limits_bytes = [166912, 101376]')
    thresholds = read_thresholds(table)
    assert thresholds.code_ratio == 3.0
    assert isinstance(thresholds.code_ratio, float)
    assert thresholds.shared_limits_bytes == (101_376, 166_912)
    assert thresholds.exchange_signals == PRESETS["strict"].exchange_signals


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"preset": "loose"}, "preset = 'loose' is not one of default, strict, lenient"),
        ({"preset": 3}, "preset = 3 is not one of"),
        ({"code_ration": 2.0}, "unknown threshold 'code_ration'; did you mean 'code_ratio'?"),
        ({"zzz": 2.0}, "unknown threshold 'zzz'"),
        ({"code_ratio": "2"}, "code_ratio = '2' is not a number"),
        ({"code_ratio": True}, "code_ratio = True is not a number"),
        ({"code_ratio": 1.0}, "code_ratio = 1.0 must be above 1"),
        ({"code_ratio": float("nan")}, "code_ratio = nan must be above 1"),
        ({"compile_time_growth_s": -1.0}, "must not be negative"),
        ({"false_discovery_rate": 5}, "false_discovery_rate = 5 must lie between 0 and 1"),
        ({"false_discovery_rate": 0.0}, "must lie between 0 and 1"),
        ({"spill_growth_bytes": 1.5}, "is not a whole number"),
        ({"spill_growth_bytes": 0}, "would call code that did not move a change"),
        ({"exchange_signals": 4}, "must be 1, 2 or 3"),
        ({"shared_limits_bytes": [1, "x"]}, "is not a list of whole numbers"),
        ({"shared_limits_bytes": 5}, "is not a list of whole numbers"),
    ],
)
def test_a_mistake_is_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_thresholds(table, source="matrix.toml: [thresholds]")
    (problem,) = error.value.problems
    assert problem.startswith("matrix.toml: [thresholds]: ")
    assert message in problem


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        read_thresholds({"preset": "x", "code_ratio": 0.5, "nonsense": 1})
    assert len(error.value.problems) == 3
    assert "exchange_ratio" in error.value.hint
