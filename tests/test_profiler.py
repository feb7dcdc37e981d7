"""Counters: ncu's table is read as it is written, and nothing that ncu or the case says crashes us."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Workshop
from worker_client import FAKE_GPU

from matrix.gpus import counters
from matrix.gpus.profiler import Call, Counted, count, rows
from matrix.model import Outcome
from matrix.storage import store

_COLUMNS = "ID|Process ID|Process Name|Host Name|Kernel Name|Context|Stream|Block Size|Grid Size|Device|CC"
HEADER = ",".join(f'"{name}"' for name in _COLUMNS.split("|"))
STALLS = {
    "barrier": 15.9,
    "long_scoreboard": 3.25,
    "wait": 1.5,
    "selected": 1.0,
    "not_selected": 0.4,
    "mio_throttle": 0.2,
    "sleeping": 0.0,
    "barrier_not_issued": 15.9,
    "no_instruction": 0.1,
}
VALUES = {
    "dram__bytes_read.sum": ("byte", "134,217,728"),
    "dram__bytes_write.sum": ("byte", "67108864"),
    "gpu__time_duration.sum": ("nsecond", "36320"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "18000"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", "8,090,000"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("request", "100"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": ("request", "0"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sector", "1600"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": ("sector", "0"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", "n/a"),
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("%", "42.5"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "62.5"),
    **{f"smsp__average_warps_issue_stalled_{k}_per_issue_active.ratio": ("inst", str(v)) for k, v in STALLS.items()},
}


def table(*kernels: str) -> str:
    names = list(VALUES)
    lines = [
        "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
        '==PROF== Profiling "softmax_kernel" - 0: 0%....50%....100% - 8 passes',
        HEADER + "".join(f',"{name}"' for name in names),
        '""' + ',""' * 10 + "".join(f',"{VALUES[name][0]}"' for name in names),
        *(
            f'"{i}","4711","python3.12","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(8192, 1, 1)","0","9.0"'
            + "".join(f',"{VALUES[name][1]}"' for name in names)
            for i, kernel in enumerate(kernels)
        ),
    ]
    return "\n".join(lines) + "\n"


def recorded(name: str) -> str:
    """What ncu 2025.3.1 wrote on an H200."""
    return (Path(__file__).parent / "data" / "ncu" / f"{name}.csv").read_text()


def test_what_ncu_wrote_of_a_matmul_on_an_h200() -> None:
    (launch,) = counters.parse(recorded("matmul"))
    assert launch.kernel == "matmul_kernel"
    assert launch.kernel_us == pytest.approx(232.224)
    assert launch.matrix_pipe_share == 0.7228
    assert launch.global_load_sectors_per_request == launch.global_store_sectors_per_request == 16
    assert launch.dram_read_bytes == 188_330_240
    assert list(launch.stalls)[:3] == ["dispatch_stall", "wait", "barrier"]
    assert counters.problem(recorded("matmul")) == ""


def test_what_ncu_wrote_of_the_tma_reduction_on_an_h200() -> None:
    (launch,) = counters.parse(recorded("column_max_tma"))
    assert launch.shared_bank_conflicts == 8_094_686  # fact F6b: 8.09 million under 3.6.0
    assert launch.global_load_sectors_per_request is None  # by TMA alone
    assert launch.stalls["barrier"] == 15.16
    # That table was asked for without the matrix pipe.
    assert all("pipe_tensor" in name for name in counters.missing(recorded("column_max_tma")))


def test_the_raw_page_is_read_in_base_units() -> None:
    first, second = counters.parse(table("softmax_kernel", "other"))
    assert (first.kernel, second.kernel) == ("softmax_kernel", "other")
    assert first.kernel_us == pytest.approx(36.32)
    assert first.dram_read_bytes == 134217728
    assert first.dram_write_bytes == 67108864
    assert first.global_load_sectors_per_request == 16
    assert first.global_store_sectors_per_request is None  # no request, and no division by it
    assert first.shared_wavefronts == 8.09e6
    assert first.occupancy_share == 0.625
    assert first.matrix_pipe_share == 0.425  # the first alternative is not counted on this GPU


def test_the_largest_stalls_are_kept_and_none_is_counted_twice() -> None:
    stalls = counters.parse(table("k"))[0].stalls
    assert list(stalls) == ["barrier", "long_scoreboard", "wait", "not_selected", "mio_throttle"]
    assert stalls["barrier"] == 15.9


def test_no_table_is_no_launch_and_a_foreign_one_is_an_error() -> None:
    assert counters.parse("==WARNING== No kernels were profiled.\n") == []
    with pytest.raises(ValueError, match="raw page"):
        counters.parse('"ID","Kernel Name","Metric Name"\n"0","softmax_kernel","dram__bytes.sum"\n')


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU ...", "may not read"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "cannot be loaded"),
        ("==ERROR== Something nobody has seen yet", "Something nobody has seen yet"),
        ("==PROF== Connected to process 1", ""),
        ("==ERROR== The application returned an error code (1).", ""),
    ],
)
def test_problems_are_told_in_words(said: str, word: str) -> None:
    found = counters.problem(said)
    assert word in found
    assert bool(word) == bool(found)


# An ncu that answers from a file: what it is asked for goes into the same folder.
FAKE = """#!{python}
import json, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
with (here / "asked.jsonl").open("a") as file:
    file.write(json.dumps(arguments) + "\\n")
log = pathlib.Path(arguments[arguments.index("--log-file") + 1])
metrics = arguments[arguments.index("--metrics") + 1].split(",")
answer = json.loads((here / "answer.json").read_text())
unknown = [name for name in metrics if name in answer.get("unknown", [])]
if unknown:
    log.write_text(f"==ERROR== Failed to find metric {{unknown[0]}}\\n")
    sys.exit(1)
print(json.dumps({{"kernels": answer.get("launched", [])}}))
sys.stderr.write(answer.get("errors", ""))
log.write_text(answer["log"])
if answer.get("hang"):
    import time
    time.sleep(60)
sys.exit(answer.get("code", 0))
"""


@pytest.fixture
def ncu(tmp_path: Path) -> Path:
    path = tmp_path / "ncu"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return path


def counted(ncu: Path, timeout_s: float = 30.0, **answer: object) -> Counted:
    (ncu.parent / "answer.json").write_text(json.dumps(answer))
    call = Call(
        interpreter=Path(sys.executable),
        variables={"CUDA_VISIBLE_DEVICES": "GPU-1"},
        path=Path("/cases/softmax.py"),
        case="softmax",
        params={"rows": 8192},
        pinned={},
    )
    return count(call, ncu=str(ncu), timeout_s=timeout_s)


def test_only_the_triton_kernels_of_the_call_are_kept(ncu: Path) -> None:
    found = counted(ncu, log=table("vectorized_elementwise_kernel", "softmax_kernel"), launched=["softmax_kernel"])
    assert found.outcome is Outcome.PASSED
    assert [launch.kernel for launch in found.launches] == ["softmax_kernel"]
    asked = json.loads((ncu.parent / "asked.jsonl").read_text())
    assert asked[asked.index("--clock-control") + 1] == "none"
    assert json.loads(asked[-1])["params"] == {"rows": 8192}


def test_metrics_that_an_ncu_refuses_are_left_out(ncu: Path) -> None:
    unknown = [name for name in counters.METRICS if "pipe_tensor" in name]
    found = counted(ncu, log=table("k"), launched=["k"], unknown=unknown)
    assert found.outcome is Outcome.PASSED
    assert len((ncu.parent / "asked.jsonl").read_text().splitlines()) == 3


def test_metrics_that_are_left_out_in_silence_are_named(ncu: Path) -> None:
    silent = table("k").replace("dram__bytes_write.sum", "something_else")
    assert counted(ncu, log=silent, launched=["k"]).missing == ("dram__bytes_write.sum",)
    assert counted(ncu, log=table("k"), launched=["k"]).missing == ()


def test_absent_rights_are_said(ncu: Path) -> None:
    found = counted(ncu, log="==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", launched=["k"], code=1)
    assert found.outcome is Outcome.NOT_RUN
    assert "may not read" in found.reason


def test_a_call_that_fails_gives_its_own_last_line(ncu: Path) -> None:
    log = "==PROF== Connected to process 927\n==ERROR== The application returned an error code (1).\n"
    found = counted(ncu, log=log, errors="Traceback ...\nLookupError: /cases/softmax.py holds no case\n", code=1)
    assert found.outcome is Outcome.RUN_ERROR
    assert "holds no case" in found.reason


def test_a_call_without_kernels_and_a_damaged_table(ncu: Path) -> None:
    assert counted(ncu, log="==WARNING== No kernels were profiled.\n").outcome is Outcome.NOT_LAUNCHED
    torn = table("k").rsplit(",", 3)[0]
    assert counted(ncu, log=torn, launched=["k"]).outcome is Outcome.RUN_ERROR


def test_a_profiler_that_hangs_is_ended(ncu: Path) -> None:
    assert counted(ncu, log=table("k"), hang=True, timeout_s=1.0).outcome is Outcome.TIMEOUT


def test_the_profiled_process_names_what_it_launched(workshop: Workshop) -> None:
    path = FAKE_GPU.parent / "planted" / "slowdown.py"
    request = json.dumps({"path": str(path), "case": "planted_stream", "params": {"n": 4096, "extra": 0}})
    done = subprocess.run(
        [workshop.environment("3.6.0").interpreter, "-I", FAKE_GPU, request],
        env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"kernels": ["stream_kernel"]}


def test_no_ncu_is_said() -> None:
    call = Call(interpreter=Path("python"), variables={}, path=Path("x.py"), case="x", params={}, pinned={})
    found = count(call, ncu="")
    assert found.outcome is Outcome.NOT_RUN
    assert "not installed" in found.reason


def test_rows_are_written_and_read_back(ncu: Path, tmp_path: Path) -> None:
    names = ("run_id", "host", "gpu_uuid", "environment", "target", "case", "params", "cell_id")
    identity = {name: name for name in names}
    seen = rows(counted(ncu, log=table("k", "k"), launched=["k"]), **identity)
    not_seen = rows(counted(ncu, log="==ERROR== ERR_NVGPUCTRPERM\n", code=1), **identity)
    assert [row.index for row in seen] == [0, 1]
    assert not_seen[0].kernel_us is None
    store.write_counters(tmp_path, [*seen, *not_seen])
    assert store.read_counters(tmp_path) == [*seen, *not_seen]
