"""The fleet on a real Ray cluster of several nodes on this machine: placed, streamed, merged, and kept through kills.

What nodes say they have is made up (no GPU is here); the cluster, its failures and everything of ours are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
from click.testing import CliRunner
from conftest import Project, Workshop
from fleet_work import DOUBLE
from ray_cluster import SOURCES, Driver, LocalCluster, rows

import matrix.fleet.cluster
from matrix.commands import main as cli
from matrix.errors import ExitCode, UsageError
from matrix.fleet.journal import Journal
from matrix.fleet.orders import Answer
from matrix.fleet.pools import Node, apart, gpu_pool, host_pool, offered
from matrix.fleet.project import Roots, pack
from matrix.fleet.units import slices, units_of
from matrix.running.host import this_host
from matrix.running.plan import CaseInfo, Collected, Request, cells_of
from matrix.settings import config

TESTS = Path(__file__).resolve().parent
PAIR = ("--baseline", "3.8.0", "--candidate", "3.9.0")
# Of the built-in files this one alone, so that no time goes into reading the others on every host.
KERNELS = ("--no-builtin", "--kernels", str(TESTS.parent / "kernels" / "vector_add.py"))
# Ray leaves the log of its client's server open to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*ray_client_server:pytest.PytestUnraisableExceptionWarning")
GPU_HOST = {"num_cpus": 2, "num_gpus": 2, "resources": {"sm_90": 1}}


def node(name: str, **resources: float) -> Node:
    return Node(id=name, name=name, resources={"CPU": 8.0, **resources})


def test_hosts_are_known_by_what_their_operator_declared_or_by_rays_own_types() -> None:
    declared, typed = node("a", GPU=8.0, sm_90=1.0), node("b", GPU=4.0, **{"accelerator_type:A100": 1.0})
    pool = gpu_pool([declared, typed, node("c")], "sm_90")
    assert pool and (pool.resource, pool.gpus, pool.cpus) == ("sm_90", 8, 1)
    assert pool.fits(declared) and not pool.fits(typed)
    other = gpu_pool([declared, typed], "sm_80")
    assert other and (other.resource, other.gpus, other.cpus) == ("accelerator_type:A100", 4, 2)
    assert gpu_pool([declared, typed], "sm_120") is None
    assert gpu_pool([node("d", sm_90=1.0)], "sm_90") is None  # declared, and no GPU that Ray could give us
    assert "8 GPUs (sm_90)" in offered([declared, typed]) and "4 GPUs (A100)" in offered([declared, typed])


def test_any_host_of_a_target_can_take_over_from_another() -> None:
    large, small = node("a", GPU=8.0, sm_90=1.0), node("b", GPU=2.0, sm_90=1.0)
    pool = gpu_pool([large, small], "sm_90")
    assert pool and pool.gpus == 2 and pool.fits(large) and pool.fits(small)


def test_nothing_is_compiled_beside_a_timing() -> None:
    gpus, without = node("a", GPU=2.0, sm_90=1.0), node("b")
    pool = gpu_pool([gpus, without], "sm_90")
    assert pool
    assert apart([gpus, without], [pool])
    assert not apart([gpus], [pool])
    assert host_pool([gpus, without]).workers == 16


def planned(points: int = 5) -> list:
    case = CaseInfo(
        name="c", path=Path("c.py"), points={"compile": [{"n": n} for n in range(points)], "interpret": [{"n": 1}],
        "correctness": [{"n": 2}], "timing": [{"n": 2}]}, targets=(), triton="", tags=(), expectations=(), files={},
    )  # fmt: skip
    request = Request(
        baseline="x", candidates=("y",), targets=("sm_80", "sm_90"), case_files=(Path("c.py"),),
        stages=("compile", "interpret", "correctness", "timing"), gpu_targets=("sm_90",),
    )  # fmt: skip
    return [
        cell
        for name in ("x", "y")
        for cell in cells_of(
            name,
            "3.9.0",
            [Collected(environment=name, path=case.path, outcome="passed", reason="", detail="", seconds=0,
                       cases=(case,))],
            request,
        )
    ]  # fmt: skip


def test_what_is_compared_is_never_parted() -> None:
    units = units_of(planned())
    assert {cell.cell.environment for cells in units.values() for cell in cells} == {"x", "y"}
    assert all(len({cell.cell.environment for cell in cells}) == 2 for cells in units.values())
    assert {str(cell.stage) for cell in units["gpu sm_90 c:n=2"]} == {"correctness", "timing"}
    assert sum(map(len, units.values())) == len(planned())
    cut = slices(list(units), 2)
    assert [unit for each in cut for unit in each] == list(units)
    assert max(map(len, slices([str(n) for n in range(10_000)], 4))) == 64


def answer(unit: str) -> Answer:
    return Answer(unit=unit, host=this_host(), locks={})


def test_the_journal_takes_a_unit_once_and_survives_being_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "head") as journal:
        assert journal.keep(answer("a")) and journal.keep(answer("b"))
        assert not journal.keep(answer("a"))
    whole = path.read_bytes()
    for cut in (1, 10, len(pickle.dumps(answer("b"))) // 2):
        path.write_bytes(whole[:-cut])
        with Journal(path, "head") as journal:
            assert set(journal.answers) == {"a"}
            assert journal.keep(answer("b"))
        assert path.read_bytes() == whole
    with pytest.raises(UsageError, match="another request"), Journal(path, "other"):
        pass


def test_the_project_travels_and_its_paths_are_the_drivers_again(tmp_path: Path) -> None:
    root = tmp_path / "project"
    for name in ("cases/a.py", "cases/x/b", "src/lib/m.py", ".git/c", "other/big", "cases/__pycache__/a.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "matrix.toml").write_text('kernels = ["cases"]\npythonpath = ["src"]\n')
    configuration, case = config.load(root), root / "cases" / "a.py"
    project = pack(root, configuration, [case])
    assert project.digest == pack(root, configuration, [case]).digest
    place = project.unpack(tmp_path / "host")
    assert project.unpack(tmp_path / "host") == place
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert found == {"matrix.toml", "cases/a.py", "cases/x/b", "src/lib/m.py"}
    driver, host = Roots.here(root), Roots.here(place)
    assert driver.moved(case, host) == place / "cases" / "a.py"
    assert host.retold({"text": [f"at {place}/cases/a.py:3"]}, driver) == {"text": [f"at {case}:3"]}
    with pytest.raises(UsageError, match=r"outside of .*elsewhere"):
        pack(root, configuration, [tmp_path / "elsewhere" / "d.py"])


def test_without_ray_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = CliRunner().invoke(cli.main, ["fleet"], standalone_mode=False)
    assert isinstance(done.exception, UsageError) and "not installed" in str(done.exception)
    assert done.exception.hint == 'pip install "triton-matrix[fleet]"'


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nonsense", "local"])
def test_where_no_cluster_is_one_error_comes_at_once(address: str) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"no Ray cluster at|is none of auto"), matrix.fleet.cluster.connected(address):
        pass
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_head_too_busy_to_serve_a_client_is_asked_again(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    """What Ray's client raises then (ray/util/client/worker.py): nothing real is that busy at will."""
    ray = pytest.importorskip("ray")
    left = iter(range(refusals))

    def busy(**_told: object) -> None:
        if next(left, None) is not None:
            raise ConnectionAbortedError(
                "Initialization failure from server:\nTraceback ...\nRuntimeError: Proxy failed"
            )

    monkeypatch.setattr(ray, "init", busy)
    with socket.create_server(("127.0.0.1", 0)) as head, contextlib.ExitStack() as stack:
        if refusals == 3:
            stack.enter_context(pytest.raises(UsageError, match=r"served no client in 3 attempts: RuntimeError: Proxy"))
        with matrix.fleet.cluster.connected(f"127.0.0.1:{head.getsockname()[1]}"):
            assert next(left, None) is None


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diary")


@pytest.fixture(scope="module")
def cluster(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory, diary: Path) -> Iterator[LocalCluster]:
    for version in ("3.8.0", "3.9.0"):
        workshop.environment(version)
    environments = workshop.root / ".matrix" / "environments"
    found = LocalCluster(tmp_path_factory.mktemp("cluster"), environments, {
        "PYTHONPATH": SOURCES, "MATRIX_TEST_DIARY": str(diary)})  # fmt: skip
    try:
        for name in ("ada", "ben"):
            found.add(name, num_cpus=1)
        found.add("hopper", **GPU_HOST)
        yield found
    finally:
        found.shutdown()


def listened(driver: Driver) -> set[str]:
    """Addresses that a driver and its children listened on until it ended."""
    process, found = psutil.Process(driver.process.pid), set()
    while driver.process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in [process, *process.children(recursive=True)]:
                found |= {c.laddr.ip for c in each.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        time.sleep(0.5)
    return found


def test_a_fleet_ends_in_the_run_folder_that_one_host_would_have_left(cluster: LocalCluster, project: Project) -> None:
    # One kernel of two with a finding in its code between these releases.
    found = ("--kernels", str(TESTS.parent / "kernels" / "front_ends" / "dot_scaled.py"), "--same-ptx-other-ptxas")
    wanted = (*PAIR, "--targets", "sm_90", *KERNELS, *found, "--stages", "import,compile,interpret")
    driver = Driver(project, cluster, *wanted)
    heard = listened(driver)
    code, said = driver.end()
    assert code == ExitCode.REGRESSED, said
    assert heard and all(address.removeprefix("::ffff:").startswith("127.") for address in heard)
    fleet, verdicts, crossed = rows(project), rows(project, "verdicts"), rows(project, "assemblies")
    assert [row["case"] for row in crossed] == 4 * ["dot_scaled"]
    meta = json.loads((project.latest / "run.json").read_text())
    assert {host["name"] for host in meta["hosts"]} <= {"ada", "ben", "hopper"}
    assert sum(host["units"] for host in meta["hosts"]) == len(
        {(r["stage"], r["params"]) for r in fleet if r["params"]}
    )
    assert (project.latest / "report.html").is_file() and not list((project.root / ".matrix" / "fleet").iterdir())
    local = project.matrix("run", *wanted, "--quiet")
    assert local.returncode == ExitCode.REGRESSED, local.stderr
    assert rows(project) == fleet and rows(project, "verdicts") == verdicts
    assert rows(project, "assemblies") == crossed


# What the tests of failures run: nothing but waiting, on CPUs and on a host that says it has GPUs. Every answer leaves
# a line in the diary.
WAITING = (*PAIR, "--targets", "sm_80,sm_90", "--no-builtin", "--kernels", "cases", "--stages",
           "import,interpret,correctness")  # fmt: skip
POINTS = (
    DOUBLE
    + """\
            correctness=[{"n": n} for n in range(256, 384, 4)], interpret=[{"n": n} for n in range(1, 25)])
"""
)


@pytest.fixture
def waiting(project: Project) -> Project:
    project.write("cases/double.py", POINTS)
    return project


def answered(diary: Path) -> list[str]:
    return [line for path in diary.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]


def wait_for(diary: Path, lines: int, driver: Driver) -> None:
    while len(answered(diary)) < lines:
        assert driver.process.poll() is None, driver.end()[1]
        time.sleep(0.05)


@pytest.fixture
def fresh_diary(diary: Path) -> Path:
    for path in diary.iterdir():
        path.unlink()
    return diary


@pytest.fixture(scope="module")
def undisturbed(cluster: LocalCluster, diary: Path, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory):
    """Through Ray's client: what is compared with it is run by a driver that is part of the cluster."""
    project = Project(tmp_path_factory.mktemp("undisturbed"))
    project.write("cases/double.py", POINTS)
    driver = Driver(project, cluster, *WAITING, work="slow", address=cluster.client_address)
    heard = listened(driver)
    code, said = driver.end()
    assert code == ExitCode.CLEAN, said
    assert not heard  # it is no part of the cluster
    lines = answered(diary)
    assert len(lines) == len(set(lines)) > 20
    meta = json.loads((project.latest / "run.json").read_text())
    assert {host["name"] for host in meta["hosts"]} == {"ada", "ben", "hopper"}
    on = {row["cell_id"].split("/")[1] for row in pd.read_parquet(project.latest / "cells.parquet").to_dict("records")
          if row["host"] == "hopper"}  # fmt: skip
    # Held for its target, nothing else ran there; or Ray had not given it within the driver's patience, which is said.
    assert on == {"sm_90"} or "every host with a GPU of sm_90 is taken; waiting for one" in said
    return rows(project), rows(project, "verdicts"), len(lines)


def kill(kind: str, draw: random.Random, cluster: LocalCluster, driver: Driver) -> Driver:
    """Lose a worker, a host (which comes back) or the driver; the driver that goes on."""
    match kind:
        case "worker":
            while not (working := [pid for name in ("ada", "ben", "hopper") for pid in cluster.workers(name)]):
                assert driver.process.poll() is None, driver.end()[1]
            os.kill(draw.choice(working), signal.SIGKILL)
        case "host":
            name = draw.choice(["ada", "ben", "hopper"])
            cluster.kill(name)
            cluster.add(name, **(GPU_HOST if name == "hopper" else {"num_cpus": 1}))
        case _:
            driver.process.kill()
            driver.end()
            return Driver(driver.project, cluster, *WAITING, "--run-id", driver.run_id, work="slow")
    return driver


def test_kills_at_any_moment_change_no_result(
    cluster: LocalCluster, waiting: Project, fresh_diary: Path, undisturbed: tuple
) -> None:
    cells, verdicts, count = undisturbed
    draw = random.Random(os.environ.get("MATRIX_TEST_SEED", "1"))
    moments = sorted(draw.sample(range(1, count - 8), 3))
    driver = Driver(waiting, cluster, *WAITING, work="slow")
    for kind, moment in zip(draw.sample(["worker", "host", "driver"], 3), moments, strict=True):
        wait_for(fresh_diary, moment, driver)
        driver = kill(kind, draw, cluster, driver)
    code, said = driver.end()
    # While a host was lost and came back, the rest may have ended: then there was no run to go on with.
    assert code == ExitCode.CLEAN or "came to its end" in said, said
    assert rows(waiting) == cells and rows(waiting, "verdicts") == verdicts
    ids = Counter((row["cell_id"], row["stage"]) for row in rows(waiting))
    assert set(ids.values()) == {1}


def test_what_no_host_is_left_for_is_named_and_the_rest_is_there(
    cluster: LocalCluster, waiting: Project, fresh_diary: Path, undisturbed: tuple
) -> None:
    driver = Driver(waiting, cluster, *WAITING, work="slow")
    wait_for(fresh_diary, 1, driver)
    cluster.kill("hopper")
    code, said = driver.end()
    try:
        assert code == ExitCode.INCOMPLETE, said
        assert "no host with a GPU of sm_90 is left in the cluster" in said
        found = pd.read_parquet(waiting.latest / "cells.parquet")
        lost = found[found.outcome == "not_run"]
        assert set(lost.stage) == {"correctness"} and lost.reason.str.contains("no host with a GPU of sm_90").all()
        meta = json.loads((waiting.latest / "run.json").read_text())
        assert any("no host with a GPU of sm_90" in each["why"] for each in meta["not_run"])
        assert Counter(found.cell_id + found.stage).most_common(1)[0][1] == 1
        assert len(found) == len(undisturbed[0])
    finally:
        cluster.add("hopper", **GPU_HOST)


def test_a_target_that_no_host_has_is_said_before_anything_runs(cluster: LocalCluster, project: Project) -> None:
    code, said = Driver(project, cluster, *PAIR, "--targets", "sm_120", "--stages", "timing").end()
    assert code == ExitCode.USAGE and "timing" in said and "2 GPUs (sm_90)" in said
    assert not list((project.root / ".matrix" / "runs").glob("*"))


def test_a_host_that_was_declared_wrongly_is_named(cluster: LocalCluster, project: Project) -> None:
    code, said = Driver(project, cluster, *PAIR, "--targets", "sm_90", *KERNELS, "--stages", "import,correctness").end()
    assert code == ExitCode.INCOMPLETE, said
    cells = pd.read_parquet(project.latest / "cells.parquet")
    cells = cells[cells.stage == "correctness"]
    assert len(cells) and set(cells.outcome) == {"not_run"}
    assert set(cells.reason) == {"host hopper was declared to have a GPU of sm_90; it has none"}


def test_gpus_are_held_one_a_task_and_their_rows_are_a_runs(cluster: LocalCluster, project: Project) -> None:
    project.write("cases/double.py", CASE)
    project.write("cases/forgets.py", FORGETS)
    driver = Driver(project, cluster, *PAIR, "--targets", "sm_90", "--no-builtin", "--kernels", "cases", "--stages",
                    "import,correctness,timing", "--fuzz", "5s", work="on_fake_gpus")  # fmt: skip
    code, said = driver.end()
    assert code in {ExitCode.CLEAN, ExitCode.REGRESSED, ExitCode.INCOMPLETE}, said  # the fake's figures mean nothing
    cells = pd.read_parquet(project.latest / "cells.parquet")
    outcomes = cells.groupby(["case", "stage"]).outcome.unique().map(list)
    assert outcomes["double", "correctness"] == ["passed"] == outcomes["double", "import"]
    fuzzed = cells[cells.params.str.contains("fuzz=")]
    assert set(fuzzed.outcome) == {"unwritten"} and set(fuzzed.case) == {"forgets"} and set(fuzzed.host) == {"hopper"}
    assert fuzzed.environment.nunique() == 2 and fuzzed.params.str.contains("n=65,").all()  # made small
    timings = pd.read_parquet(project.latest / "timings.parquet")
    # Whichever GPU is ready first takes what is waiting.
    used = set(timings.gpu_uuid)
    assert set(timings.host) == {"hopper"} and used and used <= {"GPU-fake-0", "GPU-fake-1"}
    assert timings.groupby("params").gpu_uuid.nunique().eq(1).all()  # what is compared ran on one GPU
    assert set(timings.role) == {"baseline", "candidate", "control"}
    meta = json.loads((project.latest / "run.json").read_text())
    assert {gpu["host"] for gpu in meta["gpus"]} == {"hopper"} and used <= {gpu["uuid"] for gpu in meta["gpus"]}
    walls = timings[timings.role == "baseline"].groupby("gpu_uuid").wall_seconds.sum()
    told = {gpu["uuid"]: gpu["timing_wall_s"] for gpu in meta["gpus"] if gpu["uuid"] in used}
    assert told == pytest.approx(dict(walls))
    assert pd.read_parquet(project.latest / "dimensions.parquet").host.eq("hopper").all()


CASE = (
    DOUBLE
    + """\
            timing=[{"n": n} for n in range(256, 272, 4)])
"""
)
# The last elements of what needs a second program are forgotten, which no point of the case shows.
FORGETS = (
    DOUBLE.replace("triton.cdiv(x.numel(), 64)", "min(triton.cdiv(x.numel(), 64), 1)").replace('"double"', '"forgets"')
    + """\
            correctness=[{"n": 16}, {"n": 64}, {"n": 300, "tag": "never right"}])
"""
)
