"""``verify``: an edited, removed or added file is named, each for what it is."""

from __future__ import annotations

import json
import shutil

import pytest
import run_folders
from click.testing import CliRunner

from matrix.commands import main as cli
from matrix.errors import ExitCode, StorageError
from matrix.reporting import report
from matrix.storage.runfolder import load
from matrix.storage.seal import NAME, Wrong, faults, read_seal, seal


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    folder = run_folders.build(tmp_path_factory.mktemp("seal") / "run", quiet=True, hostile=False)
    report.write_page(load(folder))
    seal(folder)
    return folder


@pytest.fixture
def run(sealed, tmp_path):
    return shutil.copytree(sealed, tmp_path / "run")


def wrong(folder, **given):
    return {(fault.path, fault.wrong) for fault in faults(folder, read_seal(folder), **given)}


def verify(*arguments):
    return CliRunner().invoke(cli.main, ["verify", *map(str, arguments)], standalone_mode=False)


def test_an_untouched_run_verifies_also_where_its_page_was_rendered_anew(run):
    assert wrong(run) == set()
    (run / "report.html").write_text("another program's page")
    (run / "signoff.html").write_text("likewise")
    assert wrong(run) == set()
    done = verify(run)
    assert done.return_value == ExitCode.CLEAN
    assert read_seal(run).digest in done.output
    named = verify(run / "run.json").exception
    assert f"run.json is a file, and a run is a folder name the folder: {run}" in f"{named} {named.hint}"
    assert str(verify(run / "nowhere").exception) == f"there is no run at {run / 'nowhere'}"


def test_the_list_covers_every_table_and_every_artifact(run):
    files = read_seal(run).files
    assert {"run.json", "cells.parquet", "evidence.parquet", "verdicts.parquet"} <= set(files)
    assert sum(name.startswith("artifacts/") for name in files) == len(list((run / "artifacts").iterdir()))


def test_each_fault_is_named_for_what_it_is(run):
    artifact = min((run / "artifacts").iterdir())
    artifact.unlink()
    table = run / "verdicts.parquet"
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    (run / "notes.txt").write_text("by hand")
    (run / "cells.parquet").rename(run / "artifacts" / "cells.parquet")
    assert wrong(run) == {
        (f"artifacts/{artifact.name}", Wrong.MISSING),
        ("cells.parquet", Wrong.MISSING),
        ("artifacts/cells.parquet", Wrong.EXTRA),
        ("notes.txt", Wrong.EXTRA),
        ("verdicts.parquet", Wrong.TAMPERED),
    }
    done = verify(run)
    assert done.return_value == ExitCode.INCOMPLETE
    for words in ("tampered  verdicts.parquet", "missing   cells.parquet", "extra     notes.txt"):
        assert words in done.output
    told = json.loads(verify(run, "--json").output)
    assert {(fault["path"], fault["wrong"]) for fault in told["faults"]} == wrong(run)


def test_a_file_that_became_a_link_to_the_same_bytes_is_tampered(run, tmp_path):
    moved = shutil.move(run / "run.json", tmp_path / "elsewhere.json")
    (run / "run.json").symlink_to(moved)
    assert wrong(run) == {("run.json", Wrong.TAMPERED)}


def test_an_edited_list_is_told_by_the_seal_on_paper(run):
    noted = read_seal(run).digest
    (run / "verdicts.parquet").unlink()
    seal(run)
    assert wrong(run) == set()
    assert wrong(run, expected=noted) == {(NAME, Wrong.TAMPERED)}
    assert verify(run, "--seal", noted).return_value == ExitCode.INCOMPLETE
    assert verify(run, "--seal", read_seal(run).digest.upper()).return_value == ExitCode.CLEAN


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "files": {}}', '{"files": {}}'])
def test_a_list_that_is_not_ours_and_none_at_all_are_errors(run, text):
    (run / NAME).write_text(text)
    with pytest.raises(StorageError):
        read_seal(run)
    (run / NAME).unlink()
    with pytest.raises(StorageError, match="not sealed"):
        read_seal(run)


@pytest.mark.parametrize("asked", [(), ("--signoff",)])
def test_a_run_that_was_altered_is_neither_reported_nor_signed(run, tmp_path, asked):
    assert not CliRunner().invoke(cli.main, ["report", str(run), *asked], standalone_mode=False).exception
    (run / "summary.md").write_text("all is well")
    done = CliRunner().invoke(cli.main, ["report", str(run), *asked], standalone_mode=False)
    assert isinstance(done.exception, StorageError)
    assert "summary.md" in str(done.exception)


def test_the_page_to_sign_says_what_differs_in_words(run):
    CliRunner().invoke(cli.main, ["report", str(run), "--signoff"], standalone_mode=False)
    page = (run / "signoff.html").read_text()
    assert "Confounders(" not in page
    assert "Causes can" in page or "Nothing that is recorded differs" in page


def test_an_empty_seal_is_no_seal_that_was_asked_for(run):
    done = CliRunner().invoke(cli.main, ["verify", str(run), "--seal", ""])
    assert done.exit_code == 2
    assert "is empty" in done.output


def test_the_latest_run_is_no_exception(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_PROJECT", str(tmp_path / "project"))
    runs = tmp_path / "project" / ".matrix" / "runs"
    runs.mkdir(parents=True)
    (runs / "latest").symlink_to(run)
    assert not CliRunner().invoke(cli.main, ["report"], standalone_mode=False).exception
    (run / "summary.md").write_text("all is well")
    assert isinstance(CliRunner().invoke(cli.main, ["report"], standalone_mode=False).exception, StorageError)
