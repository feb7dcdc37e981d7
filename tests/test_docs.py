"""What the README and the pages of docs say is so: links, commands and options, columns, words, examples."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import duckdb
import pytest
from conftest import ROOT, Workshop

from matrix.case import Case
from matrix.commands.main import main
from matrix.errors import ConfigurationError, ExitCode
from matrix.judging.accuracy import AccuracyReason
from matrix.judging.changes import CodeReason
from matrix.judging.speed import Speed, SpeedReason
from matrix.judging.waivers import read_waivers
from matrix.model import DIMENSIONS, Outcome
from matrix.records import Verdict
from matrix.resources import sample_folder
from matrix.running.profiles import profiles
from matrix.settings import config
from matrix.storage import store

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted([README, *DOCS.glob("*.md")])
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (\S.*(?:\\\n.*)*)$", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_OURS = re.compile(r"(?:triton-matrix|(?P<nox>nox -s)) (?P<command>[a-z]+)\b(?P<rest>.*)")


def text(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return [block for found, block in _BLOCK.findall(page) if found == language]


def spans(page: str) -> set[str]:
    """The words that a page names as code."""
    return {word for span in _SPAN.findall(page) for word in span.split()}


def first_column(page: str, heading: str) -> list[str]:
    """The code spans in the first cells of the table whose first heading this is."""
    rows = page[page.index(f"\n| {heading} |") :].partition("\n\n")[0].strip().split("\n")[2:]
    return [name for row in rows for name in _SPAN.findall(row.split("|")[1])]


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", _BLOCK.sub("", page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    content = page.read_text(encoding="utf-8")
    for target in _LINK.findall(content):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{page.name}: {target}"


def test_every_page_is_linked_from_the_readme():
    linked = {target.partition("#")[0] for target in _LINK.findall(README.read_text(encoding="utf-8"))}
    assert {f"docs/{page.name}" for page in PAGES if page != README} <= linked


def code_lines(page: Path) -> list[str]:
    content = page.read_text(encoding="utf-8")
    indented = [line.replace("\\\n", " ") for line in _INDENTED.findall(_BLOCK.sub("", content))]
    return [*indented, *_SPAN.findall(content)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path):
    context = click.Context(main)
    for line in code_lines(page):
        for said in _OURS.finditer(line.split("  #")[0]):
            name, rest = said["command"], said["rest"]
            if said["nox"]:
                if name not in ("matrix", "report"):
                    continue
                name, rest = {"matrix": "run", "report": "report"}[name], rest.partition(" -- ")[2]
            command = main.get_command(context, name)
            assert command is not None, f"{page.name}: no command {name!r} in {line!r}"
            known = {option for each in command.params for option in each.opts}
            asked = re.findall(r"(?<!\S)--?[a-z][a-z-]*", re.sub(r"'[^']*'|\"[^\"]*\"", "''", rest))
            assert set(asked) <= {*known, "--help"}, f"{page.name}: {line!r}"


def test_the_readme_names_every_command():
    section = README.read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    # `environment` is what `nox -s "env(...)"` calls.
    assert set(main.commands) - {"environment"} <= spans(section)


def test_the_test_command_of_the_readme_is_what_ci_calls():
    (line,) = [line for line in code_lines(README) if "nox -s tests" in line]
    install, call = line.partition("  #")[0].strip().split(" && ")
    ci = ROOT / ".ci" / "run"
    assert (install, call) == ('pip install "nox[uv]"', "nox -s tests")
    if ci.exists():  # in a clone, and not in a source distribution
        assert all(re.search(rf"(?m)^(?:\S*/)?{re.escape(shlex.split(part)[0])} .*{re.escape(part.split()[-1])}",
                             ci.read_text()) for part in (install, call))  # fmt: skip


def test_exit_codes_are_those_of_the_program():
    for page in (README.read_text(encoding="utf-8"), text("verdicts")):
        rows = page[page.index("\n| exit code |") :].partition("\n\n")[0].split("\n")[3:]
        assert [int(row.split("|")[1]) for row in rows] == [int(code) for code in ExitCode]


def test_the_page_of_verdicts_has_every_word():
    words = spans(re.sub(r"[,;:]", " ", text("verdicts")))
    assert set(first_column(text("verdicts"), "verdict")) == {str(each) for each in Verdict}
    assert set(first_column(README.read_text(encoding="utf-8"), "verdict")) == {str(each) for each in Verdict}
    assert set(first_column(text("verdicts"), "`speed`")) == {str(each) for each in Speed}
    for known in (CodeReason, SpeedReason, AccuracyReason, Outcome):
        assert {str(each) for each in known} <= words, known.__name__
    assert set(first_column(text("verdicts"), "profile")) == set(profiles())


def test_the_page_of_measuring_has_every_dimension():
    assert tuple(first_column(text("measuring"), "dimension")) == DIMENSIONS


def test_the_page_of_cases_has_every_field():
    assert set(first_column(text("cases"), "field")) == {field.name for field in dataclasses.fields(Case)}


def test_the_page_of_results_has_every_column():
    said: dict[str, set[str]] = {}
    for row in text("results").partition("## Columns")[2].split("\n"):
        cells = row.split("|")
        if len(cells) == 4 and "`" in cells[2]:
            names = " ".join(_SPAN.findall(cells[2])).split()
            said.setdefault(cells[1].split(",")[0].strip(), set()).update(names)
    said["evidence"] = {f"seconds{name}" if name.startswith("_") else name for name in said["evidence"]}
    tables = ("cells", "evidence", "verdicts", "dimensions", "timings", "rounds", "counters", "assemblies")
    assert said == {name: set(getattr(store, name.upper()).names) for name in tables}


def test_the_examples_of_configurations_are_read(tmp_path: Path):
    (tmp_path / "tests" / "kernels").mkdir(parents=True)
    example, *_ = blocks(text("environments"), "toml")
    (tmp_path / "matrix.toml").write_text(example, encoding="utf-8")
    assert config.load(tmp_path).candidates == ("3.9.0", "nightly")
    thresholds, waivers = blocks(text("verdicts"), "toml")
    (tmp_path / "matrix.toml").write_text(thresholds, encoding="utf-8")
    assert config.load(tmp_path).thresholds.slower_ratio == 1.05
    (tmp_path / "waivers.toml").write_text(waivers, encoding="utf-8")
    assert read_waivers(tmp_path / "waivers.toml", today=dt.date(2026, 12, 1))


def test_no_key_of_the_configuration_is_made_up(tmp_path: Path):
    page = text("environments")
    top = [key for key in first_column(page, "key") if "[" not in key]
    own = first_column(page, "key of an environment")
    lines = [*(f"{key} = []" for key in top), "[[environments]]", *(f"{key} = []" for key in own)]
    (tmp_path / "matrix.toml").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        config.load(tmp_path)
    assert not [problem for problem in caught.value.problems if "unknown" in problem]


@pytest.mark.parametrize("query", "".join(blocks(text("results"), "sql")).split(";")[:-1])
def test_the_examples_for_duckdb_answer(query: str):
    assert duckdb.sql(query.replace(".matrix/runs/latest", str(sample_folder()))).fetchall()


def test_the_example_for_pandas_answers(capsys: pytest.CaptureFixture[str]):
    (example,) = blocks(text("results"), "python")
    assert "1.25 *" in example  # of the sample's kernels none grew by so much
    code = example.replace(".matrix/runs/latest", str(sample_folder())).replace("1.25 *", "0.9 *")
    exec(code, {})
    assert "sm_90" in capsys.readouterr().out


def test_the_case_of_the_readme_is_right(workshop: Workshop, tmp_path: Path):
    (case,) = blocks(README.read_text(encoding="utf-8"), "python")
    (tmp_path / "case.py").write_text(case, encoding="utf-8")
    (tmp_path / "mykernels.py").write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def scale_kernel(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, 2 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)\n",
        encoding="utf-8",
    )
    script = (
        "import json, torch, case\n"
        "x = torch.arange(1023.0)\n"
        "assert torch.equal(case.case.run(x, block=512), case.case.reference(x))\n"
        "print(json.dumps([len(case.case.points('interpret')), case.case.points('compile')[0]]))\n"
    )
    done = subprocess.run(
        [str(workshop.environment("newest").interpreter), "-P", "-c", script],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    points, first = json.loads(done.stdout)
    assert points == 12
    params = ",".join(f"{key}={value}" for key, value in first.items())
    assert f"/scale:{params}`" in README.read_text(encoding="utf-8")
