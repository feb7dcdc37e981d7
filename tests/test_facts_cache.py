"""Facts from the cache: the same artefacts are read once, and again when what reads them is another."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
import recorded

from matrix.resources import package_folder
from matrix.running import facts
from matrix.running.execute import Bench
from matrix.storage import cache


@pytest.fixture
def bench(tmp_path):
    return Bench.make(tmp_path, store=tmp_path / "store", slots=1)


@pytest.fixture
def measured(bench):
    """One kernel of one cell, with its artefacts kept."""
    kernel = recorded.kernel("3.9.0/sm_90/add")
    hashes = {kind: bench.artifacts.put(recorded.read(name)) for kind, name in kernel["artifacts"].items()}
    cell = SimpleNamespace(cell=SimpleNamespace(target="sm_90"))
    return SimpleNamespace(planned=cell, parts=({"kernels": [{**kernel, "artifacts": hashes}]},))


@pytest.fixture
def read(monkeypatch):
    """How many kernels were read anew, call by call."""
    counts = []

    def counted(kernels, *rest):
        counts.append(len(kernels))
        return original(kernels, *rest)

    original = facts.kernel_facts_batch
    monkeypatch.setattr(facts, "kernel_facts_batch", counted)
    return counts


@pytest.fixture
def change(tmp_path, monkeypatch):
    """Let the package be one in which one file has another line."""

    def changed(name):
        edited = tmp_path / "edited"
        shutil.copytree(package_folder(), edited, ignore=shutil.ignore_patterns("sample", "__pycache__"))
        (edited / name).write_text((edited / name).read_text() + "\n# changed\n")
        monkeypatch.setattr(cache, "package_folder", lambda: edited)
        cache.evidence_digest.cache_clear()

    yield changed
    cache.evidence_digest.cache_clear()


def test_facts_are_read_once(bench, measured, read):
    first = facts.facts_of(bench, [measured], lambda _: None)
    second = facts.facts_of(bench, [measured], lambda _: None)
    assert first == second != {}
    assert read == [1]


@pytest.mark.parametrize("name", ["memory/cost.py", "code/sass.py", "data/rates.toml"])
def test_facts_are_read_again_by_another_evaluator(bench, measured, read, change, name):
    facts.facts_of(bench, [measured], lambda _: None)
    change(name)
    facts.facts_of(bench, [measured], lambda _: None)
    assert read == [1, 1]


def test_facts_stay_when_something_else_changes(bench, measured, read, change):
    facts.facts_of(bench, [measured], lambda _: None)
    change("judging/judge.py")
    facts.facts_of(bench, [measured], lambda _: None)
    assert read == [1]
