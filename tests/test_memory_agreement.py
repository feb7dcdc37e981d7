"""The comparison of predicted traffic with a GPU's counters: rows to launches, errors, directions, alarms."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from matrix.resources import sample_folder
from matrix.storage.runfolder import load

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"


@pytest.fixture(scope="module")
def agreement():
    return _loaded("memory_agreement")


@pytest.fixture(scope="module")
def counters():
    return _loaded("memory_counters")


def _loaded(name):
    spec = importlib.util.spec_from_file_location(f"_benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


NCU = """==PROF== Connected to process 788 (/usr/bin/python3.12)
"ID","Kernel Name","Block Size","Grid Size","l1tex__shared.sum","gpu__time_duration.sum"
"","","","","","ns"
"0","softmax_kernel","(256, 1, 1)","(8192, 1, 1)","1,024","31,968"
"1","void at::fill(int)","(256, 1, 1)","(8, 1, 1)","","1,000"
"2","softmax_kernel","(256, 1, 1)","(16, 2, 1)","12","2,000"
==ERROR== The application returned an error code (1).
"""


def test_rows_of_ncu_under_our_names(agreement):
    rows = agreement.counters(NCU, {"wavefronts": "l1tex__shared.sum", "time_ns": "gpu__time_duration.sum"})
    assert rows[0] == {"kernel": "softmax_kernel", "grid": [8192, 1, 1], "wavefronts": 1024.0, "time_ns": 31968.0}
    assert rows[1] == {"kernel": "void at::fill", "grid": [8, 1, 1], "time_ns": 1000.0}
    assert len(rows) == 3


def test_rows_meet_their_launches_in_order(agreement):
    launches = [{"kernel": name, "grid": [size, 1, 1]} for name, size in [("a", 1), ("b", 1), ("a", 1), ("a", 2)]]
    rows = [{"kernel": name, "grid": [size, 1, 1]} for name, size in [("fill", 1), ("a", 1), ("a", 1), ("a", 2)]]
    assert agreement.match(launches, rows) == [rows[1], None, rows[2], rows[3]]


def test_a_case_that_did_not_end_is_left_out_and_repeats_are_medians(agreement, tmp_path):
    launches = [{"case": "a", "kernel": "k", "grid": [1, 1, 1], "repeat": i, "ptx": "" if i else "x"} for i in range(3)]
    broken = {"case": "b", "kernel": "k", "grid": [1, 1, 1], "repeat": 0, "ptx": "x"}
    lines = [{"counters": {"time_ns": "t"}}, *launches, {"end": "a", "failure": ""}, {"begin": "b"}, broken]
    (tmp_path / "3.6.0.0.launches.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    rows = "\n".join(f'"{i}","k","(1, 1, 1)","{time}"' for i, time in enumerate((5, 9, 7, 100)))
    (tmp_path / "3.6.0.0.csv").write_text(f'"ID","Kernel Name","Grid Size","t"\n{rows}\n')
    (found,) = agreement.kept(tmp_path)
    assert (found["environment"], found["case"], found["measured"]) == ("3.6.0", "a", {"time_ns": 7.0})


def test_errors_count_only_where_nothing_is_unknown(agreement):
    rows = [
        _row(agreement, "1", wavefronts=(100, 100)),
        _row(agreement, "2", wavefronts=(100, 80)),
        _row(agreement, "3", wavefronts=(900, 100), unknown=0.5),
        _row(agreement, "4", wavefronts=(0, 0)),
    ]
    shared = next(line for line in agreement.summary(rows) if line.startswith("| shared wavefronts"))
    assert shared == "| shared wavefronts | 2 | 12.5% | 50% | 1 of 1 predicted | 1 | 800.0% |"


def test_launches_whose_blocks_read_the_same_are_told_apart(agreement):
    """64 bytes a block of a tensor of 64 bytes in the first, of one of 128 in the second; two blocks each."""
    rows = [
        _read(agreement, "1", fetched=4, dram=64, measured=3),
        _read(agreement, "2", fetched=4, dram=128, measured=4),
    ]
    found = [line for line in agreement.summary(rows) if "read the same" in line]
    assert [line.split("|")[2:5] for line in found] == [[" 1 ", " 0.0% ", " 100% "], [" 1 ", " 33.3% ", " 0% "]]


def _read(agreement, environment, *, fetched, dram, measured):
    row = _row(agreement, environment, wavefronts=(1, 1))
    predicted, counted = {"l2_read": fetched, "dram_read": dram}, {"l2_read_l1": measured}
    return replace(row, predicted=predicted, measured=counted)


def test_directions_and_false_alarms(agreement):
    rows = [
        *_pair(agreement, "right", measured=(100, 150), estimated=(80, 130)),
        *_pair(agreement, "wrong", measured=(100, 150), estimated=(80, 70)),
        *_pair(agreement, "blind", measured=(100, 150), estimated=(80, 80)),
        *_pair(agreement, "alarm", measured=(100, 101), estimated=(80, 160)),
        *_pair(agreement, "quiet", measured=(100, 101), estimated=(80, 80)),
        *_pair(agreement, "between", measured=(100, 103), estimated=(80, 160)),
    ]
    moved, still, *rest = agreement.directions(rows)
    misses = [line for line in rest if line.startswith("- ")]
    assert moved == "Time moved by more than 5%: 3, predicted in that direction: 1 (33.3%)"
    assert "less than 2%: 2, of them flagged by the judge's rule: 1 (50.0%)" in still
    assert [line.split(": ")[1].split()[0] for line in misses] == ["wrong", "blind", "alarm"]
    assert [line.split()[1] for line in rest if line.endswith(("agrees |", "misses |"))] == ["blind", "right", "wrong"]


def test_equal_machine_code_tells_how_times_scatter(agreement):
    rows = [
        *(replace(row, code="same") for row in _pair(agreement, "noise", measured=(100, 107), estimated=(80, 80))),
        *_pair(agreement, "right", measured=(100, 150), estimated=(80, 130)),
    ]
    scatter, moved, *_ = agreement.directions(rows)
    assert scatter.startswith("Equal machine code: 1 pairs, times apart by 7.0%")
    assert moved == "Time moved by more than 5%: 1, predicted in that direction: 1 (100.0%)"


def test_figures_that_were_not_counted_are_left_out(agreement):
    received = next(
        line
        for line in agreement.summary([_row(agreement, "1", wavefronts=(1, 1))])
        if line.startswith("| L2 sectors received")
    )
    assert received == "| L2 sectors received | 0 | - | - | 0 of 0 predicted | 0 | - |"


def test_a_run_with_timings_is_held_against_its_own_evidence(agreement):
    lines = list(agreement.timed(load(sample_folder())))
    assert lines[0].endswith("timed comparisons have an estimate on both sides.")
    assert any(line.startswith("Time moved by more than 5%: ") for line in lines)
    table = [line for line in lines if "column_max_tma" in line and line.endswith("agrees |")]
    assert table


def _pair(agreement, case, *, measured, estimated):
    for environment, time, estimate in zip(("3.5.1", "3.6.0"), measured, estimated):
        yield _row(agreement, environment, case=case, wavefronts=(1, 1), time=time, estimate=estimate)


def _row(agreement, environment, *, case="softmax", wavefronts, unknown=0.0, time=1.0, estimate=1.0):
    predicted, measured = wavefronts
    return agreement.Row(
        environment=environment,
        case=case,
        kernel="k",
        index=0,
        unknown=unknown,
        note="",
        bound="dram",
        predicted={"wavefronts": predicted, "us": estimate},
        measured={"wavefronts": measured, "time_ns": time * 1e3},
    )


def test_the_process_after_a_crash_goes_on_behind_it(counters, tmp_path, monkeypatch):
    asked = []

    def run(command, cache, log, timeout):
        request = json.loads(command[-1])
        asked.append(request["skip"])
        ended = ["a", "b"] if len(asked) == 1 else ["c"]
        lines = [{"counters": {}}]
        for name in ended:
            lines += [{"begin": name}]
            lines += [] if name == "b" else [{"end": name, "failure": "ValueError: no" if name == "c" else ""}]
        Path(command[3]).write_text("\n".join(json.dumps(line) for line in lines))
        return "exit -6" if len(asked) == 1 else "exit 0"

    monkeypatch.setattr(counters, "_run", run)
    found = counters._to_the_end(tmp_path / "3.6.0", "python", {"skip": []}, tmp_path)
    assert asked == [[], ["a", "b"]]
    assert found.failures == [("b", "ended its process: exit -6"), ("c", "ValueError: no")]


def test_a_second_call_goes_on_with_the_cases_that_have_no_rows(counters, tmp_path, monkeypatch):
    _part(tmp_path, "3.6.0.0", ["a", "b"], NCU)
    _part(tmp_path, "3.6.0.1", ["c"], "==PROF== Connected to process 1\n")  # killed: ncu never wrote its rows
    _part(tmp_path, "3.6.0.compile0.0", ["d"], "")
    asked = []

    def run(command, cache, log, timeout):
        part = Path(command[command.index("--child") - 1]).name
        asked.append((part, json.loads(command[-1])["skip"]))
        (tmp_path / part).write_text(json.dumps({"left": 4}))
        return "exit 0"

    monkeypatch.setattr(counters, "_run", run)
    before = counters.counted_before(tmp_path, "3.6.0")
    found = counters._to_the_end(tmp_path / "3.6.0", "python", {"skip": before}, tmp_path, under_ncu=True)
    assert asked == [("3.6.0.1.launches.jsonl", ["a", "b"])]
    assert found.left == 4


def _part(folder, stem, cases, rows):
    lines = [{"counters": {}}, *({"begin": case} for case in cases)]
    (folder / f"{stem}.launches.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    (folder / f"{stem}.csv").write_text(rows)


def test_a_release_after_the_time_is_up_is_left_out(counters, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(counters, "_run", lambda *_: pytest.fail("a process was started"))
    monkeypatch.setattr(counters, "_to_the_end", lambda *_, under_ncu=False: counters.Progress())
    counters.measure(tmp_path, {"3.6.0": "python"}, {"until": 0.0}, 1, tmp_path)
    assert "3.6.0: left out, the time is up" in capsys.readouterr().out
