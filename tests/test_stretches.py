"""What of a slab is handed out: never what is still in use, and the same to whoever asks for the same."""

from __future__ import annotations

import random

from matrix.worker.stretches import GRANULE_BYTES, Stretches

MB = 1 << 20


def test_stretches_follow_each_other_on_large_pages() -> None:
    stretches = Stretches(64 * MB)
    assert [stretches.take(size) for size in (3 * MB, 20 * MB, 1)] == [0, 4 * MB, 24 * MB]


def test_what_does_not_fit_is_not_given() -> None:
    stretches = Stretches(8 * MB)
    assert stretches.take(8 * MB + 1) is None
    assert stretches.take(8 * MB) == 0
    assert stretches.take(1) is None


def test_a_new_start_passes_over_what_is_in_use() -> None:
    stretches = Stretches(64 * MB)
    first, kept, last = (stretches.take(4 * MB) for _ in range(3))
    assert first is not None
    assert last is not None
    stretches.give_back(first)
    stretches.give_back(last)
    stretches.restart(0)
    assert stretches.in_use == 1
    assert [stretches.take(4 * MB), stretches.take(4 * MB)] == [0, 8 * MB]
    assert kept == 4 * MB


def test_nothing_in_use_is_ever_handed_out_again() -> None:
    draw = random.Random(20261130)
    stretches, live = Stretches(512 * MB), {}
    for _ in range(2000):
        if live and draw.random() < 0.4:
            stretches.give_back(start := draw.choice(sorted(live)))
            del live[start]
        elif draw.random() < 0.1:
            stretches.restart(draw.randrange(512) * MB)
        elif (start := stretches.take(size := draw.randrange(1, 40 * MB))) is not None:
            assert start % GRANULE_BYTES == 0
            assert all(start + size <= other or other + length <= start for other, length in live.items())
            live[start] = size


def test_two_that_ask_alike_are_given_alike() -> None:
    """What two workers rely on that share a slab."""
    sizes = [random.Random(1).randrange(1, 30 * MB) for _ in range(10)]
    one, other = Stretches(512 * MB), Stretches(512 * MB)
    for each in (one, other):
        each.restart(74 * MB)
    assert [one.take(size) for size in sizes] == [other.take(size) for size in sizes]
