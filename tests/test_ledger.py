"""The ledger: append-only, chained; filled by the run; an edited, removed or moved row is noticed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import threading

import pyarrow.parquet as pq
import pytest
import run_folders
from browser import chromium, opened
from click.testing import CliRunner

from matrix.commands import main as cli
from matrix.errors import StorageError
from matrix.hypotheses.hypothesis import read_hypothesis
from matrix.hypotheses.ledger import HYPOTHESIS, RESULT, SCHEMA, Ledger, broken, checked_rows, read_copy, write_copy
from matrix.hypotheses.trials import moved_between, open_hypotheses, results, revision_of
from matrix.hypotheses.trials import opened as row_of
from matrix.reporting import report
from matrix.storage.runfolder import load
from matrix.storage.runs import Home
from matrix.storage.seal import seal

SLOWER = (
    "because 3.6.0 exchanges through shared memory, changing Triton to 3.6.0 should raise time by 100 % and "
    "double barriers without raising registers by more than 50 %"
)
FASTER = "because the notes say so, changing Triton to 3.6.0 should lower time without wrong values"


@pytest.fixture
def ledger(tmp_path):
    return Ledger(folder=tmp_path / "ledger")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(run_folders.build(tmp_path_factory.mktemp("ledger") / "run", gpu=True, hostile=False))


def write(ledger, *sentences, cases=()):
    return [ledger.append([row_of(read_hypothesis(sentence), cases, "abc")])[0] for sentence in sentences]


def rewrite(path, edit):
    rows = pq.read_table(path, schema=SCHEMA).to_pylist()
    table = pq.read_table(path).schema
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(edit(rows), schema=table), path)


def test_rows_are_numbered_bound_and_read_back(ledger):
    assert ledger.rows() == []
    one, two = write(ledger, SLOWER, FASTER)
    assert [row.number for row in ledger.rows()] == [1, 2]
    assert (one.previous_hash, two.previous_hash) == ("", one.hash)
    assert ledger.rows() == [one, two]
    assert one.hypothesis == 1
    assert broken([one, two]) == ""


def test_what_was_written_is_never_written_again(ledger, tmp_path):
    write(ledger, SLOWER)
    first = ledger.folder / "00000001.parquet"
    before, stamp = first.read_bytes(), first.stat().st_mtime_ns
    write(ledger, FASTER)
    assert (first.read_bytes(), first.stat().st_mtime_ns) == (before, stamp)
    rows = ledger.rows()
    write_copy(tmp_path, rows)
    with pytest.raises(StorageError, match="overwrites nothing"):
        write_copy(tmp_path, rows)


def edited(ledger):
    rewrite(ledger.folder / "00000002.parquet", lambda rows: [{**rows[0], "effect": "double time"}])
    return "row 2 was edited"


def rehashed(ledger):
    """An edit by somebody who knows how a row is hashed."""
    rows = ledger.rows()
    forged = dataclasses.replace(rows[1], effect="double time").sealed(rows[0].hash)
    rewrite(ledger.folder / "00000002.parquet", lambda _: [dataclasses.asdict(forged)])
    return "row 3 does not follow"


def removed(ledger):
    (ledger.folder / "00000002.parquet").unlink()
    return "row 2 is missing"


def last_removed(ledger):
    (ledger.folder / "00000003.parquet").unlink()
    return "missing at the end"


def swapped(ledger):
    two, three = (ledger.folder / f"0000000{n}.parquet" for n in (2, 3))
    other = ledger.folder / "x"
    two.rename(other)
    three.rename(two)
    other.rename(three)
    return "row 2 is missing"


def no_head(ledger):
    (ledger.folder / "head.json").unlink()
    return "head.json is missing"


def negative_head(ledger):
    (ledger.folder / "head.json").write_text(json.dumps({"rows": -9, "hash": ""}))
    return "head.json cannot be right: it counts -9 rows"


def other_types(ledger):
    path = ledger.folder / "00000002.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index("text")
    pq.write_table(table.set_column(place, "text", table["text"].cast("binary")), path)
    return "of another type than it was written: text"


def no_column(ledger):
    path = ledger.folder / "00000002.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["effect"]), path)
    return "00000002.parquet cannot be read"


def garbage(ledger):
    (ledger.folder / "00000002.parquet").write_bytes(b"PAR1")
    return "cannot be read"


@pytest.mark.parametrize(
    "harm", [edited, rehashed, removed, last_removed, swapped, no_head, negative_head, other_types, no_column, garbage]
)
def test_harm_is_noticed_named_and_nothing_is_added(ledger, harm):
    write(ledger, SLOWER, FASTER, SLOWER)
    said = harm(ledger)
    with pytest.raises(StorageError, match=said):
        ledger.rows()
    files = sorted(ledger.folder.iterdir())
    with pytest.raises(StorageError, match=said):
        write(ledger, FASTER)
    assert sorted(ledger.folder.iterdir()) == files


def test_a_ledger_that_is_a_file_is_no_empty_ledger(ledger):
    ledger.folder.parent.mkdir(parents=True, exist_ok=True)
    ledger.folder.write_text("not a folder")
    with pytest.raises(StorageError, match="is no folder"):
        ledger.rows()


def test_a_crash_between_rows_and_head_is_no_harm(ledger):
    write(ledger, SLOWER, FASTER)
    head = (ledger.folder / "head.json").read_bytes()
    write(ledger, SLOWER)
    (ledger.folder / "head.json").write_bytes(head)
    assert len(ledger.rows()) == 3
    write(ledger, FASTER)
    assert len(ledger.rows()) == 4


def test_two_writers_take_turns(ledger):
    threads = [threading.Thread(target=write, args=(ledger, SLOWER, FASTER)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.number for row in ledger.rows()] == list(range(1, 9))


def test_a_run_fills_what_is_open_and_says_what_came_of_it(ledger, run):
    write(ledger, SLOWER, FASTER, cases=["column_max_tma"])
    filled = ledger.append(results(run, ledger.rows(), "rev-dirty"))
    assert open_hypotheses(ledger.rows()) == []
    assert results(run, ledger.rows(), "rev") == []
    assert {row.kind for row in filled} == {RESULT}
    first = [row for row in filled if row.hypothesis == 1]
    assert len(first) == 3  # the timed shapes of the case
    worst = max(first, key=lambda row: row.ratio or 0)
    assert worst.workload.endswith("block_m=16,block_n=128")
    assert worst.ratio > 3
    assert worst.p20_us <= worst.median_us <= worst.p80_us
    assert worst.revision == "rev-dirty"
    assert (worst.run_id, worst.host) == (run.run_id, run.host)
    assert worst.change == "Triton 3.5.1 → 3.6.0"
    assert not worst.several_changes
    second = [row for row in filled if row.hypothesis == 2]
    assert {row.verdict for row in second} == {"refuted"}
    assert "not so: lower time" in second[0].reason


def test_counters_of_compiled_cells_decide_without_a_gpu(ledger, tmp_path):
    run = load(run_folders.build(tmp_path / "run", hostile=False))
    sentence = "because of the notes, changing Triton should double barriers without raising stack bytes"
    write(ledger, sentence, cases=["*/sm_90/column_max_tma:*"])
    rows = results(run, ledger.rows(), "")
    assert len(rows) == 2
    for row in rows:
        assert json.loads(row.counters)["barriers"] == [5, 10]
        assert row.verdict == "confirmed"
        assert row.median_us is None
        assert row.correct == "passed"


def test_wrong_values_refute_whatever_the_time(ledger, run):
    sentence = "because of it, changing Triton should lower barriers by 1 % without wrong values"
    write(ledger, sentence, cases=["associative_scan"])
    rows = results(run, ledger.rows(), "")
    assert rows
    assert {(row.verdict, row.correct) for row in rows} == {("refuted", "wrong")}


def test_what_was_not_measured_or_not_read_stays_undecided(ledger, run):
    sentence = "because of it, changing Triton should lower dram read bytes and make tea without wrong values"
    write(ledger, sentence, cases=["softmax"])
    rows = results(run, ledger.rows(), "")
    assert {row.verdict for row in rows} == {"undecided"}
    assert "not measured: lower dram read bytes" in rows[0].reason
    assert "not a figure that this program reads: make tea" in rows[0].reason


def test_a_flawed_timing_decides_nothing(ledger, run):
    write(ledger, FASTER, cases=["cumsum"])  # throttled in one arm
    (row,) = results(run, ledger.rows(), "")
    assert row.verdict == "undecided"
    assert "not measured: lower time" in row.reason


def test_a_run_that_changes_several_things_is_marked(ledger, run):
    environments = [dict(each) for each in run.meta["environments"]]
    environments[1]["numpy"] = "2.4.0"
    environments[1]["lock"] = [*environments[1]["lock"], {"name": "mykernels", "version": "1.8", "sha256": ""}]
    several = dataclasses.replace(run, meta={**run.meta, "environments": environments})
    assert list(moved_between(several, run_folders.BASELINE, run_folders.NEXT)) == ["Triton", "NumPy", "packages"]
    write(ledger, FASTER, cases=["column_max_tma"])
    rows = results(several, ledger.rows(), "")
    assert all(row.several_changes for row in rows)
    assert rows[0].change == "Triton 3.5.1 → 3.6.0, NumPy 2.3.5 → 2.4.0, mykernels \N{EN DASH} → 1.8"


def test_the_revision_is_the_working_tree_s(tmp_path, monkeypatch):
    # The suite's temporary files may lie in a working tree themselves.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision_of(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.email=a@example.org", "-c", "user.name=a"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    clean = revision_of(tmp_path)
    assert len(clean) == 40
    (tmp_path / "kernel.py").write_text("x")
    subprocess.run([*git, "add", "."], check=True)
    assert revision_of(tmp_path) == f"{clean}-dirty"


def test_the_report_shows_the_ledger(run, tmp_path):
    ledger = Ledger(folder=tmp_path / "ledger")
    write(ledger, SLOWER, FASTER, cases=["column_max_tma"])
    ledger.append(results(run, ledger.rows(), ""))
    write(ledger, FASTER)
    folder = shutil.copytree(run.path, tmp_path / "run")
    write_copy(folder, ledger.rows())
    with chromium() as browser, opened(browser, report.write_page(load(folder))) as page:
        section = page.locator("#ledger")
        cards = section.locator("article").all_inner_texts()
        assert [text.splitlines()[0] for text in cards] == [
            f"… open: hypothesis {len(ledger.rows())}",
            "✖ refuted: hypothesis 2",
            "✖ refuted: hypothesis 1",
        ]
        assert "46.5 us → 104.5 us" in cards[2]
        assert "not measured: double barriers" in cards[2]
    rows = read_copy(folder)
    (folder / "ledger.parquet").unlink()
    write_copy(folder, [rows[0], dataclasses.replace(rows[1], effect="another"), *rows[2:]])
    assert "row 2 was edited" in report.render([folder])


def test_a_run_folder_s_copy_tells_what_the_ledger_lost(run, tmp_path):
    home = Home(root=tmp_path)
    ledger = Ledger(folder=home.path / "ledger")
    write(ledger, SLOWER, FASTER)
    folder = shutil.copytree(run.path, home.runs / run.run_id)
    write_copy(folder, ledger.rows())
    seal(folder)
    assert len(checked_rows(home)) == 2
    shutil.rmtree(ledger.folder)
    write(ledger, FASTER)
    with pytest.raises(StorageError, match=run.run_id):
        checked_rows(home)


def test_the_command_writes_lists_and_refuses(tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_PROJECT", str(tmp_path))

    def call(*arguments):
        return CliRunner().invoke(cli.main, ["hypothesis", *arguments], standalone_mode=False)

    assert "0 rows, the chain holds" in call().output
    said = call(SLOWER, "--cases", "column_max_tma").output
    assert "hypothesis 1 is open: the next run of column_max_tma" in said
    assert "raise time by 100 % (time)" in said
    (row,) = json.loads(call("--json").output)
    assert (row["kind"], row["cases"], row["text"]) == (HYPOTHESIS, "column_max_tma", SLOWER)
    assert "1. open: because 3.6.0" in call().output
    assert "no because" in str(call("make it faster").exception)
