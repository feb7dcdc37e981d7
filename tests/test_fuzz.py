"""Which points fuzzing tries, and how a failing one is made small."""

from __future__ import annotations

import random

import pytest

from matrix.gpus.fuzz import FUZZ, draw, replayed, shrink, sizes_of

POINTS = [{"n": 64, "block": 16, "dtype": "fp16"}, {"n": 1000, "block": 16, "dtype": "fp32"}]


def test_only_what_the_case_varies_is_varied() -> None:
    assert sizes_of(POINTS) == {"n": 1000}
    drawn = [draw(POINTS, random.Random(seed)) for seed in range(200)]
    assert {point["block"] for point in drawn} == {16}
    assert {point["dtype"] for point in drawn} == {"fp16", "fp32"}
    sizes = {point["n"] for point in drawn}
    assert min(sizes) >= 1
    assert max(sizes) <= 1000
    assert len(sizes & {2**i + d for i in range(10) for d in (-1, 0, 1)}) > 15
    assert len({point[FUZZ] for point in drawn}) == 200


@pytest.mark.parametrize("smallest", [1, 2, 33, 700])
def test_the_smallest_failing_size_is_found(smallest: int) -> None:
    tried: list[int] = []

    def fails(point: dict[str, object]) -> bool:
        tried.append(int(str(point["n"])))
        return int(str(point["n"])) >= smallest

    found = shrink({"n": 1000, FUZZ: "ab"}, ["n"], fails)
    assert found["n"] == smallest
    assert found[FUZZ] == "ab"
    assert len(tried) <= 60


def test_a_cell_id_gives_its_point_back() -> None:
    point = {"n": 33, "block": 16, "dtype": "fp16", FUZZ: "00ff00ff"}
    assert replayed("n=33,block=16,dtype=fp16,fuzz=00ff00ff", POINTS) == point
    assert replayed("n=33,block=16,dtype=fp16", POINTS) is None
