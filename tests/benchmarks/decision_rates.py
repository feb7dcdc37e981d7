"""How often the whole decision is wrong, and what it finds: simulated comparisons with a known truth.

    PYTHONPATH=.:tests python -P tests/benchmarks/decision_rates.py [--comparisons 10] [--cells 400]

Prints the table of docs/figures.md. Each comparison is judged as a run's: stopping rule, time and cycles, what two
workers differ by, Benjamini-Hochberg over its cells. The noise is drawn from the recorded run (tests/simulated.py).
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from simulated import SHAPES, Rates, simulate

HEADINGS = (
    "noise",
    "cells",
    "flat, called slower or faster",
    "at 3 %, called",
    "at 3 %, called equivalent",
    "false among the called",
    "flat, found equivalent",
    "+5 % found",
    "+10 % found",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=10)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.perf_counter()
    run = partial(simulate, comparisons=given.comparisons, cells=given.cells, seed=given.seed)
    with ProcessPoolExecutor() as pool:
        rates = list(pool.map(run, SHAPES))
    print(table(rates))
    print(f"\n{given.comparisons} comparisons of {given.cells} cells a row; {time.perf_counter() - began:.0f} s")


def table(rates: list[Rates]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    return "\n".join([*lines, *("| " + " | ".join(_cells(one)) + " |" for one in rates)])


def _cells(one: Rates) -> list[str]:
    return [
        one.shape,
        f"{one.cells:,}",
        f"{one.flat_called} of {one.flat:,}",
        f"{one.edge_called} of {one.edge:,}",
        f"{one.edge_equivalent} of {one.edge:,}",
        f"{100 * one.discoveries:.2g} %",
        f"{100 * one.flat_equivalent / one.flat:.3g} %",
        *(f"{100 * found / cells:.3g} %" for cells, found in one.slower.values()),
    ]


if __name__ == "__main__":
    main()
