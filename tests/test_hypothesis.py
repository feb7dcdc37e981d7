"""A hypothesis in a sentence: what is read in it, and what figures say about it."""

from __future__ import annotations

import math

import pytest

from matrix.errors import UsageError
from matrix.hypotheses.hypothesis import Standing, read_hypothesis


def claims(effect, constraint="wrong values"):
    read = read_hypothesis(f"because of it, changing one thing should {effect} without {constraint}")
    bounds = [
        (c.metric, INF if c.at_most is None else round(c.at_most, 4), round(c.at_least or 0, 4), c.strict)
        for c in read.claims
    ]
    return bounds, list(read.unread)


INF = math.inf


@pytest.mark.parametrize(
    ("effect", "found"),
    [
        ("lower time", [("time", 1.0, 0.0, True)]),
        ("reduce the time by 10 %", [("time", 0.9, 0.0, False)]),
        ("cut time by at least 10%", [("time", 0.9, 0.0, False)]),
        ("raise occupancy share by 50 percent", [("occupancy_share", INF, 1.5, False)]),
        ("halve shared wavefronts", [("shared_wavefronts", 0.5, 0.0, False)]),
        ("double occupancy_share", [("occupancy_share", INF, 2.0, False)]),
        ("lower dram read bytes by 2x, launch time", [("dram_read_bytes", 0.5, 0, False), ("launch_time", 1, 0, True)]),
        ("lower registers, raise instructions", [("registers", 1.0, 0.0, True), ("instructions", INF, 1.0, True)]),
        ("lower time by 100 %", [("time", 0.0, 0.0, False)]),
    ],
)  # fmt: skip
def test_an_effect_is_a_bound_on_a_ratio(effect, found):
    assert claims(effect) == (found, [])


@pytest.mark.parametrize(
    ("constraint", "found"),
    [
        ("raising registers", [("registers", 1.0, 0.0, False)]),
        # An amount holds for its own term alone.
        ("raising registers by more than 5 % or spills", [("registers", 1.05, 0, False), ("stack_bytes", 1, 0, False)]),
        ("losing occupancy share", [("occupancy_share", INF, 1.0, False)]),
        ("spills", [("stack_bytes", 1.0, 0.0, False)]),
        ("wrong values", []),
    ],
)  # fmt: skip
def test_a_constraint_is_what_must_not_happen(constraint, found):
    assert claims("lower time", constraint) == ([("time", 1.0, 0.0, True), *found], [])


def test_what_no_figure_shows_is_kept_and_said():
    assert claims("make tea and lower time, raise morale") == (
        [("time", 1.0, 0.0, True)],
        ["make tea", "raise morale"],
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no because", "no changing", "no should", "no without"]),
        ("because a, changing b should c", ["no without"]),
        ("changing b should c without d because a", ["another order"]),
        ("because a, changing  should c without d", ["an empty one"]),
    ],
)
def test_a_sentence_of_another_form_says_what_it_lacks(text, words):
    with pytest.raises(UsageError) as caught:
        read_hypothesis(text)
    for word in words:
        assert word in str(caught.value)
    assert "because <evidence>" in caught.value.hint


@pytest.mark.parametrize(
    ("effect", "low", "high", "standing"),
    [
        ("lower time by 10 %", 0.80, 0.89, Standing.CONFIRMED),
        ("lower time by 10 %", 0.80, 0.91, Standing.UNDECIDED),
        ("lower time by 10 %", 0.91, 0.95, Standing.REFUTED),
        ("lower time", 0.9, 0.999, Standing.CONFIRMED),
        ("lower time", 0.9, 1.001, Standing.UNDECIDED),
        ("lower time", 1.0, 1.1, Standing.REFUTED),
        ("lower registers", 1.0, 1.0, Standing.REFUTED),
        ("raise occupancy share", 1.0, 1.0, Standing.REFUTED),
        ("raise occupancy share by 50 %", 1.5, 1.5, Standing.CONFIRMED),
        ("raise stack bytes", INF, INF, Standing.CONFIRMED),
    ],
)
def test_an_interval_confirms_refutes_or_leaves_open(effect, low, high, standing):
    (claim,) = read_hypothesis(f"because a, changing b should {effect} without wrong values").claims
    assert claim.standing(low, high) is standing


def test_a_constraint_holds_at_its_bound():
    (_, claim) = read_hypothesis("because a, changing b should lower time without raising registers").claims
    assert claim.standing(1.0, 1.0) is Standing.CONFIRMED
    assert claim.standing(1.01, 1.01) is Standing.REFUTED
