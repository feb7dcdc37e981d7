"""Watching the index: what is newer, the pair with the torch that pins it, and a run of it; over a real index."""

from __future__ import annotations

import datetime as dt
import functools
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Project
from wheels import make_wheel

from matrix.errors import EnvironmentBuildError, ExitCode, StorageError
from matrix.provisioning.upstream import Newest, ask, declare, unknown_pairs
from matrix.settings import config
from matrix.settings.environments import Environment
from matrix.storage.runfolder import load

TODAY = dt.date(2026, 11, 30)
KNOWN = [
    Environment(id="old", triton="triton==3.8.0", torch="torch==2.14.1", tags=("stock",)),
    Environment(id="new", triton="triton==3.9.0", torch="torch==2.15.0", tags=("stock",)),
]


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@dataclass(frozen=True)
class Index:
    """A simple index (PEP 503) on loopback."""

    url: str
    folder: Path

    def add(self, name: str, version: str, *requires: str) -> None:
        make_wheel(self.folder / "simple" / name, name, version, *requires)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "index"
    (folder / "simple").mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Index(url=f"http://127.0.0.1:{server.server_port}/simple", folder=folder)
    server.shutdown()
    server.server_close()
    thread.join()


def stocked(index: Index) -> Index:
    for version, pinned in (("2.15.0", "3.9.0"), ("2.16.0", "3.10.0")):
        index.add("torch", version, f"triton=={pinned}")
    for version in ("3.9.0", "3.10.0", "3.11.0rc1"):
        index.add("triton", version)
    index.add("torch", "2.13.0")  # what a host without a GPU takes in every environment
    index.add("numpy", "2.3.5")
    return index


def test_the_index_is_asked_for_the_newest_torch_and_what_it_pins(index: Index) -> None:
    assert ask("3.11", stocked(index).url) == Newest(triton="3.10.0", torch="2.16.0", pinned="3.10.0")


def test_an_index_without_them_is_an_error_that_says_so(index: Index) -> None:
    with pytest.raises(EnvironmentBuildError, match="torch"):
        ask("3.11", index.url)


def test_only_what_is_newer_than_declared_makes_a_pair() -> None:
    def pairs(triton: str, torch: str, pinned: str) -> list[tuple[str, bool]]:
        found = unknown_pairs(Newest(triton=triton, torch=torch, pinned=pinned), KNOWN, today=TODAY)
        return [(each.id, "stock" in each.tags) for each in found]

    assert pairs("3.9.0", "2.15.0", "3.9.0") == []
    assert pairs("3.10.0", "2.16.0", "3.10.0") == [("triton3.10.0-torch2.16.0", True)]
    # The same Triton under a newer torch is another pair.
    assert pairs("3.9.0", "2.15.1", "3.9.0") == [("triton3.9.0-torch2.15.1", True)]
    # A Triton that no torch pins yet, and as text 3.10 would be older than 3.9.
    assert pairs("3.10.0", "2.15.0", "3.9.0") == [("triton3.10.0-torch2.15.0", False)]
    both = [("triton3.10.0-torch2.16.0", True), ("triton3.11.0-torch2.16.0", False)]
    assert pairs("3.11.0", "2.16.0", "3.10.0") == both


@pytest.mark.parametrize("own", ["", "# mine\nbaseline = '3.8.0'\n"])
def test_a_pair_is_declared_in_the_project_s_own_file(tmp_path: Path, own: str) -> None:
    if own:
        (tmp_path / "matrix.toml").write_text(own, encoding="utf-8")
    (pair,) = unknown_pairs(Newest(triton="3.10.0", torch="2.16.0", pinned="3.10.0"), KNOWN, today=TODAY)
    path = declare(tmp_path, [pair])
    assert path == tmp_path / "matrix.toml" and path.read_text(encoding="utf-8").startswith(own)
    read = config.load(tmp_path)
    assert read.environment("newest") == read.environment("3.10.0")
    assert (read.environment(pair.id).torch, read.environment(pair.id).as_of) == ("torch==2.16.0", "2026-11-30")


def test_a_pair_goes_under_the_tool_s_table_of_a_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.triton-matrix]\nbaseline = '3.8.0'\n", encoding="utf-8")
    (pair,) = unknown_pairs(Newest(triton="3.10.0", torch="2.16.0", pinned="3.10.0"), KNOWN, today=TODAY)
    assert declare(tmp_path, [pair]).name == "pyproject.toml"
    assert config.load(tmp_path).environment(pair.id).triton_version == "3.10.0"


def test_a_file_that_cannot_take_it_is_left_as_it_was(tmp_path: Path) -> None:
    text = "environments = [{id = 'mine', triton = '3.9.0', torch = '2.15.0'}]\n"
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    (pair,) = unknown_pairs(Newest(triton="3.10.0", torch="2.16.0", pinned="3.10.0"), KNOWN, today=TODAY)
    with pytest.raises(StorageError, match="does not take further environments"):
        declare(tmp_path, [pair])
    assert (tmp_path / "matrix.toml").read_text(encoding="utf-8") == text


def test_a_new_pair_is_added_run_and_reported(project: Project, index: Index) -> None:
    # The wheels of this index are empty, so nothing imports in the new release: that is what is to be told.
    environments = project.root / ".matrix" / "environments"
    shared = environments.resolve()
    environments.unlink()
    environments.mkdir()
    (environments / "triton3.9.0-torch2.15.0").symlink_to(shared / "triton3.9.0-torch2.15.0")
    done = project.matrix("watch", "--index", stocked(index).url, "--cases", "vector_add", "-q")
    assert done.returncode == ExitCode.REGRESSED, done.stdout + done.stderr
    assert "added to" in done.stderr and "triton3.10.0-torch2.16.0" in done.stderr
    run = load(project.latest)
    assert run.meta["request"]["baseline"] == "triton3.9.0-torch2.15.0"
    assert run.meta["request"]["candidates"] == ["triton3.10.0-torch2.16.0"]
    assert {row.reason_code for row in run.verdicts if row.stage == "import"} == {"import_error"}
    again = project.matrix("watch", "--index", index.url, "--cases", "vector_add", "-q")
    assert again.returncode == ExitCode.CLEAN and "nothing newer than triton3.10.0-torch2.16.0" in again.stdout
