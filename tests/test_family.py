"""All cells of a comparison tested together: stated rates, what two workers differ by, the mirror, the edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import timed
from simulated import SHAPES, simulate

from matrix.judging.arm_pairs import ArmPair, NoiseFloor
from matrix.judging.family import PRIOR_CELLS, examine, process_noise
from matrix.judging.thresholds import Thresholds
from matrix.records import Decision, Role

QUIET = Thresholds(process_noise=0.0)
D = math.log(Thresholds().slower_ratio)


def pair(log_ratio: float, error: float = 0.001, *, blocks: int = 12, looks: int = 1, **given: object) -> ArmPair:
    """A cell measured as this log-ratio with this standard error, in time and in cycles."""
    figures = {"ratio": math.exp(log_ratio), "cycles_ratio": math.exp(log_ratio), "blocks": blocks, "looks": looks}
    arm = timed.arm(**{**figures, "standard_error": error, "cycles_error": error, **given})  # type: ignore[arg-type]
    return ArmPair(baseline=timed.arm(Role.BASELINE), candidate=arm, control=None, floor=0.0)


def night(truth: float, cells: int, *, seed: int, error: float = 0.003, blocks: int = 8) -> list[ArmPair]:
    """Cells whose blocks scatter normally about one true log-ratio, each with its own estimate of its error."""
    random = np.random.default_rng(seed)
    drawn = truth + error * math.sqrt(blocks) * random.standard_normal((cells, blocks))
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(blocks)
    return [pair(mean, float(own), blocks=blocks) for mean, own in zip(drawn.mean(axis=1), errors)]


def at_most(share: float, tries: int) -> float:
    """What a binomial count with this share exceeds once in ten thousand times, about."""
    return share * tries + 3.7 * math.sqrt(share * (1 - share) * tries) + 1


def test_a_night_of_3000_cells_at_the_threshold_is_no_alarm() -> None:
    """Every cell is as slow as the threshold allows: tested one by one, dozens would be called."""
    found = examine(night(D, 3000, seed=3), QUIET)
    alone = sum(one.p_value < 0.05 for one in found)
    assert 50 <= alone <= 110  # half of 5 %: the other side of the test is never reached
    assert sum(one.called is Decision.SLOWER for one in found) <= 1
    assert sum(one.beyond is Decision.SLOWER for one in found) <= at_most(0.0025, 3000)


def test_real_ones_are_found_in_such_a_night_and_few_others() -> None:
    real, rest = night(D + 0.04, 60, seed=4), night(D, 2940, seed=5)
    found = examine([*real, *rest], QUIET)
    hits = sum(one.called is Decision.SLOWER for one in found[:60])
    false = sum(one.called is not Decision.UNDECIDED for one in found[60:])
    assert hits >= 55
    assert false <= at_most(0.05, hits + false)


def test_the_q_value_is_benjamini_and_hochberg_s() -> None:
    found = examine([pair(D + step, 0.001) for step in (0.0030, 0.0035, 0.0042, 0.0005)], QUIET)
    p_values = sorted(one.p_value for one in found)
    steps = [p * len(p_values) / (rank + 1) for rank, p in enumerate(p_values)]
    assert sorted(one.q_value for one in found) == pytest.approx([min(steps[rank:]) for rank in range(4)])


def test_more_looks_ask_for_more() -> None:
    once, often = (examine([pair(D + 0.005, looks=looks)], QUIET)[0] for looks in (1, 6))
    assert often.p_value == pytest.approx(6 * once.p_value)
    assert often.low is not None and once.low is not None
    assert often.low < once.low


def test_a_cell_of_many_is_called_at_its_own_level_and_at_the_family_s() -> None:
    strong, weak = pair(D + 0.02), pair(D + 0.0045)
    assert examine([weak], QUIET)[0].called is Decision.SLOWER
    alone = examine([weak, *[pair(0.0)] * 400], QUIET)[0]
    assert (alone.beyond, alone.called) == (Decision.SLOWER, Decision.UNDECIDED)
    assert alone.q_value > 0.05
    among = examine([weak, *[strong] * 100, *[pair(0.0)] * 300], QUIET)[0]
    assert among.called is Decision.SLOWER


def test_what_a_cell_could_have_seen_is_found_as_often_as_stated() -> None:
    seen = float(np.median([one.smallest_detectable or 0 for one in examine(night(0.0, 400, seed=6), QUIET)]))
    rest = night(0.0, 399, seed=7)
    hits = [examine([one, *rest], QUIET)[0].called is Decision.SLOWER for one in night(math.log1p(seen), 60, seed=8)]
    assert 0.85 <= np.mean(hits) <= 1.0


@pytest.mark.parametrize("blocks", [0, 1])
def test_without_two_blocks_nothing_is_known(blocks: int) -> None:
    (found,) = examine([pair(0.5, blocks=blocks, standard_error=None)], Thresholds())
    assert (found.called, found.p_value, found.low, found.smallest_detectable) == (Decision.UNDECIDED, 1.0, None, None)


def test_no_cells_are_no_test() -> None:
    assert examine([], Thresholds()) == []


def test_what_two_workers_differ_by_is_taken_from_the_controls() -> None:
    """Known truth: workers off by 0.4 %, samples by 0.1 %; the prior of 0.25 % gives way to 200 controls."""
    random = np.random.default_rng(9)
    offsets = random.normal(0, math.hypot(0.004, 0.001), 200)
    floor = NoiseFloor(cells=200, median=0, p95=0, largest=0, offsets=tuple(offsets), errors=(0.001,) * 200)
    noise = process_noise(floor, 0.0025)
    assert noise.error == pytest.approx(0.004, rel=0.1)
    assert PRIOR_CELLS + 100 < noise.freedom < PRIOR_CELLS + 200
    assert process_noise(None, 0.0025).error == 0.0025


def test_noisy_controls_say_little_about_workers() -> None:
    floor = NoiseFloor(cells=20, median=0, p95=0, largest=0, offsets=(0.02, -0.02) * 10, errors=(0.02,) * 20)
    noise = process_noise(floor, 0.0025)
    assert noise.error == pytest.approx(0.0025, rel=0.05)
    assert noise.freedom < PRIOR_CELLS + 0.1


def test_without_what_two_workers_differ_by_the_stated_rate_would_not_hold() -> None:
    """Cells at the threshold, workers off by 0.4 % and samples by 0.1 %, as on an H200 more was the workers'."""
    random = np.random.default_rng(10)
    cells = [pair(D + offset, 0.001) for offset in random.normal(0, 0.004, 1000)]
    offsets = tuple(random.normal(0, math.hypot(0.004, 0.001), 100))
    floor = NoiseFloor(cells=100, median=0, p95=0, largest=0, offsets=offsets, errors=(0.001,) * 100)
    knowing = examine([replace(cell, noise=floor) for cell in cells], Thresholds())
    assert sum(one.beyond is not Decision.UNDECIDED for one in knowing) <= at_most(0.005, 1000)
    assert sum(one.beyond is not Decision.UNDECIDED for one in examine(cells, QUIET)) > 200


@pytest.mark.parametrize("shape", SHAPES)
def test_the_whole_decision_keeps_its_stated_rates(shape: str) -> None:
    """Stopping rule, cycles, workers and correction together; tests/benchmarks/decision_rates.py prints more cells."""
    rates = simulate(shape, comparisons=2, cells=150, seed=11)
    alpha, promised = 0.005, Thresholds().false_discovery_rate
    assert rates.flat_called <= at_most(alpha, rates.flat)
    assert rates.edge_called <= at_most(alpha, rates.edge)
    assert rates.edge_equivalent <= at_most(alpha, rates.edge)
    assert rates.discoveries <= promised


def test_what_matters_is_found() -> None:
    rates = simulate("as recorded, all arms", comparisons=2, cells=300, seed=12)
    cells, found = rates.slower[1.1]
    assert found >= cells - at_most(0.02, cells)
    cells, found = rates.slower[1.05]
    assert found >= 0.7 * cells
    assert rates.flat_equivalent >= 0.85 * rates.flat
