"""Change points over nights with a known truth: steps found where they are, and quiet series left alone.

    PYTHONPATH=.:tests python -P tests/benchmarks/trend_steps.py

Log-normal noise of 0.5 % a night over 60 nights, as in ``tests/test_trends.py``; some seconds.
"""

from __future__ import annotations

from test_trends import NOISE, nights

from matrix.nights.change_points import change_points

NIGHTS, STEP_AT, STEPS, QUIET = 60, 40, 200, 1000


def main() -> None:
    for step in (1.02, 1.05):
        found = [change_points(nights(NIGHTS, {STEP_AT: step}, seed=seed)) for seed in range(STEPS)]
        at_night = sum(each == [STEP_AT] for each in found)
        near = sum(len(each) == 1 and abs(each[0] - STEP_AT) <= 1 for each in found)
        print(f"steps of {step - 1:.0%}: {at_night} of {STEPS} at their night, {near} within a night of it")
    called = sum(bool(change_points(nights(NIGHTS, {}, seed=seed))) for seed in range(QUIET))
    print(f"quiet series called, with {NOISE:.1%} of noise: {called} of {QUIET}")


if __name__ == "__main__":
    main()
