"""How many records a second one driver of a fleet takes, by the number of hosts that send them.

    PYTHONPATH=.:tests python -P tests/benchmarks/fleet_scale.py [--hosts 1,2,4,8] [--units 400]

Hosts are nodes of a Ray cluster on this machine with one CPU each. They send the rows of timed cells that were recorded
on an H200 (about 470 records a unit: arms, rounds with their samples, cells) as fast as they can, through the product's
own dispatch into its journal, so that nothing but sending and taking costs time. Nodes and driver share this machine's
cores: beside the rate stands what a record costs in the driver's own processor time, which is the ceiling where hosts
have cores of their own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import fleet_work
from ray_cluster import SOURCES, TESTS, LocalCluster

from matrix.fleet.cluster import connected
from matrix.fleet.dispatch import Dispatch
from matrix.fleet.journal import Journal
from matrix.fleet.orders import Answer, Order
from matrix.fleet.pools import host_pool
from matrix.fleet.project import Roots, packed
from matrix.running.plan import Request


def order() -> Order:
    request = Request(baseline="x", candidates=("y",), targets=("sm_90",), case_files=())
    return Order(run_id="scale", request=request, config=None, requires=(), roots=Roots.here(TESTS), code="")


def taken(dispatch: Dispatch, workers: int, units: int, journal: Path) -> dict[str, float]:
    """The rate from the first answer to the last."""
    pool = host_pool(dispatch.cluster.nodes())
    assert pool.workers == workers
    began, cpu, records = 0.0, 0.0, 0
    with Journal(journal, "scale") as kept:
        for answer in dispatch.answers({pool: [f"timing sm_90 {n}" for n in range(units)]}):
            assert isinstance(answer, Answer), answer
            if not began:
                began, cpu = time.monotonic(), time.process_time()
            else:
                records += answer.records
            assert kept.keep(answer)
        seconds, busy = time.monotonic() - began, time.process_time() - cpu
        assert len(kept.answers) == units
    return {
        "hosts": workers,
        "records_per_s": round(records / seconds),
        "mb_per_s": round(journal.stat().st_size / seconds / 1e6, 1),
        "driver_cpu_share": round(busy / seconds, 2),
        "driver_us_per_record": round(1e6 * busy / records, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="1,2,4,8")
    parser.add_argument("--units", type=int, default=400)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cluster = LocalCluster(Path(scratch), variables={"PYTHONPATH": SOURCES})
        try:
            with connected(cluster.address) as connection:
                connection.share(packed(TESTS, []))
                dispatch = Dispatch(cluster=connection, order=order(), work=fleet_work.recorded, say=print)
                for count in map(int, wanted.hosts.split(",")):
                    while len(cluster.nodes) <= count:
                        cluster.add(f"host{len(cluster.nodes)}", num_cpus=1)
                    taken(dispatch, count, 16 * count, Path(scratch, f"warm{count}"))  # every host has read the rows
                    found = taken(dispatch, count, wanted.units, Path(scratch, f"journal{count}"))
                    print(json.dumps(found), flush=True)
                    Path(scratch, f"journal{count}").unlink()
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
