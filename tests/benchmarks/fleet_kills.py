"""Runs of a fleet with a random kill each, under load: is the result that of a run that nobody disturbed?

    PYTHONPATH=.:tests MATRIX_TEST_WORKSHOP=FOLDER python -P tests/benchmarks/fleet_kills.py [--runs 20] [--seed 1]

A Ray cluster of four hosts on this machine: two without a GPU, two that say they have one of sm_90. The work without a
GPU is the product's own: kernels of two cases are compiled for two targets and interpreted in two environments, nothing
of it taken from a cache. What would be checked on a GPU is a wait and made-up rows. One kill a run, at a random moment
between the first answer and the last: a host (its raylet, with all that runs there), a worker, or the driver, which
then takes its run up again. Processes that do nothing but compute take this machine's cores all along (--load). Says of
each run what was killed when, how long it took, and in how many rows cells, evidence and verdicts differ from the
undisturbed run: none, or it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import fleet_work
from conftest import Project
from ray_cluster import SOURCES, TESTS, Driver, LocalCluster, rows

HOSTS = {
    "ada": {"num_cpus": 1},
    "ben": {"num_cpus": 1},
    "hopper": {"num_cpus": 1, "num_gpus": 1, "resources": {"sm_90": 1}},
    "grace": {"num_cpus": 1, "num_gpus": 1, "resources": {"sm_90": 1}},
}
CASES = ("vector_add",)
WANTED = ("--baseline", "3.8.0", "--candidate", "3.9.0", "--targets", "sm_90,sm_100", "--no-builtin",
          *(word for name in CASES for word in ("--kernels", str(TESTS.parent / "kernels" / f"{name}.py"))),
          "--kernels", "cases", "--stages", "import,compile,interpret,correctness")  # fmt: skip
CASE = (
    fleet_work.DOUBLE
    + """\
            correctness=[{"n": n} for n in range(256, 320, 4)], interpret=[{"n": n} for n in range(1, 17)],
            compile=[{"n": n} for n in range(256, 272, 4)])
"""
)
# Of a kernel's row: what an environment's own folder or the clock decides.
_APART = ("options", "artifacts", "cubin_hash", "ptx_hash", "llir_hash", "ttgir_hash", "ttir_hash")


def results(project: Project) -> dict[str, Counter[str]]:
    """All rows of the three tables, each as often as it is there."""
    found = {}
    for table in ("cells", "evidence", "verdicts"):
        kept = ({k: v for k, v in row.items() if not k.startswith("seconds") and k not in _APART}
                for row in rows(project, table))  # fmt: skip
        found[table] = Counter(json.dumps(row, sort_keys=True) for row in kept)
    return found


def differing(one: dict[str, Counter[str]], other: dict[str, Counter[str]]) -> int:
    return sum(((one[table] - other[table]) + (other[table] - one[table])).total() for table in one)


class Arena:
    """The cluster and a project on it."""

    def __init__(self, root: Path) -> None:
        workshop = os.environ.get("MATRIX_TEST_WORKSHOP")
        environments = Path(workshop, ".matrix", "environments") if workshop else root / "environments"
        diary = root / "diary"
        diary.mkdir()
        self.cluster = LocalCluster(root, environments, {"PYTHONPATH": SOURCES, fleet_work.DIARY: str(diary)})
        self.project = Project(root / "project")
        self.project.write("cases/double.py", CASE)
        for name, has in HOSTS.items():
            self.cluster.add(name, **has)

    def start(self, *more: str) -> Driver:
        return Driver(self.project, self.cluster, *WANTED, *more, work="real_without_gpus")

    def forget(self) -> None:
        """What hosts and driver keep between runs goes."""
        for name in HOSTS:
            for kept in ("cache", "artifacts"):
                shutil.rmtree(self.cluster.folder(name) / ".matrix" / kept, ignore_errors=True)
        shutil.rmtree(self.project.root / ".matrix", ignore_errors=True)

    def journal(self) -> int:
        """Bytes that the driver has recorded."""
        return sum(path.stat().st_size for path in (self.project.root / ".matrix" / "fleet").glob("*.journal"))

    def mend(self) -> None:
        """Hosts that were killed come back."""
        for name in HOSTS.keys() - self.cluster.nodes.keys():
            self.cluster.add(name, **HOSTS[name])

    def until_answers_come(self, driver: Driver) -> None:
        while self.journal() < 200:
            assert driver.process.poll() is None, driver.end()[1]
            time.sleep(0.1)

    def kill(self, kind: str, draw: random.Random, driver: Driver) -> tuple[str, Driver]:
        """What was killed, and the driver that goes on."""
        if kind == "driver":
            driver.process.kill()
            driver.end()
            return "driver", self.start("--run-id", driver.run_id)
        working = {pid: name for name in HOSTS for pid in self.cluster.workers(name)}
        if kind == "worker" and working:
            pid = draw.choice(list(working))
            os.kill(pid, signal.SIGKILL)
            return f"worker of {working[pid]}", driver
        name = draw.choice(list(HOSTS))
        self.cluster.kill(name)
        return f"host {name}", driver


def busy() -> None:
    while True:
        sum(range(10**6))


def undisturbed(arena: Arena) -> tuple[dict[str, Counter[str]], float]:
    """Its results, and for how long answers came."""
    arena.forget()
    driver = arena.start()
    arena.until_answers_come(driver)
    began = time.monotonic()
    code, said = driver.end(timeout=900)
    assert code in {0, 1}, said
    return results(arena.project), time.monotonic() - began


def disturbed(arena: Arena, draw: random.Random, seconds: float) -> tuple[dict[str, object], dict[str, Counter[str]]]:
    arena.mend()
    arena.forget()
    began = time.monotonic()
    driver = arena.start()
    arena.until_answers_come(driver)
    after = draw.uniform(0, 0.9 * seconds)
    time.sleep(after)
    if driver.process.poll() is not None:
        return {"killed": "nothing: it was over"}, results(arena.project)
    recorded = arena.journal()
    what, driver = arena.kill(draw.choice(["host", "host", "worker", "driver"]), draw, driver)
    code, said = driver.end(timeout=900)
    told = {"killed": what, "after_s": round(after, 1), "journal_kb": recorded >> 10, "exit": code,
            "wall_s": round(time.monotonic() - began), "load": round(os.getloadavg()[0], 1)}  # fmt: skip
    if code not in {0, 1}:
        print(said, file=sys.stderr)
    return told, results(arena.project)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=int, default=2, help="processes that compute all along")
    wanted = parser.parse_args()
    draw, apart = random.Random(wanted.seed), 0
    load = [multiprocessing.Process(target=busy, daemon=True) for _ in range(wanted.load)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        arena = Arena(Path(scratch))
        try:
            for process in load:
                process.start()
            expected, seconds = undisturbed(arena)
            counts = {table: rows.total() for table, rows in expected.items()}
            print(json.dumps({"undisturbed_s": round(seconds), "rows": counts}), flush=True)
            for number in range(wanted.runs):
                told, found = disturbed(arena, draw, seconds)
                different = differing(expected, found)
                apart += bool(different)
                print(json.dumps({"run": number, **told, "rows_differing": different}), flush=True)
        finally:
            for process in load:
                process.kill()
            arena.cluster.shutdown()
    print(json.dumps({"runs": wanted.runs, "with_other_results": apart}))
    sys.exit(bool(apart))


if __name__ == "__main__":
    main()
