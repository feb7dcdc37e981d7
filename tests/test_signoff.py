"""The sign-off page: eight fields for every figure, what speaks against it, locks and digests, on A4."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import re

import pypdfium2
import pytest
import run_folders
from browser import chromium, opened
from click.testing import CliRunner

from matrix.commands import main as cli
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.waivers import Waiver, waive
from matrix.records import Role
from matrix.reporting.arm_table import competitor_name
from matrix.reporting.eight_fields import Figures, untuned
from matrix.reporting.signoff import render_signoff, write_signoff
from matrix.resources import sample_folder
from matrix.storage.runfolder import load
from matrix.storage.seal import read_seal, seal
from matrix.storage.store import write_verdicts
from matrix.wording import microseconds

EIGHT = [
    "Median and spread",
    "GB/s or TFLOP/s",
    "GPU and clocks",
    "Shapes and dtypes",
    "Competitor",
    "Correctness",
    "Warm-up and repetition",
    "Not tested",
]
SOFTMAX = "rows=4096,dtype=fp16"
WAIVER = Waiver(
    cells=("*/column_max_tma:*",),
    stages=(),
    reasons=(),
    reason="replaced by its <b>twin</b>",
    owner="kernels",
    link="triton#9703",
    expires=str(dt.date(2999, 12, 31)),
    place="waivers.toml:1",
)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a GPU under a waiver, sealed, with its page."""
    folder = run_folders.build(tmp_path_factory.mktemp("signoff") / "run", gpu=True)
    write_verdicts(folder, waive(load(folder).verdicts, [WAIVER]))
    meta = json.loads((folder / "run.json").read_text())
    meta["waivers"] = [dataclasses.asdict(WAIVER)]
    (folder / "run.json").write_text(json.dumps(meta))
    seal(folder)
    write_signoff(folder)
    return folder


@pytest.fixture(scope="module")
def sample():
    return load(sample_folder())


@pytest.fixture(scope="module")
def recorded(sample):
    """Every figure of the recorded run, by candidate, case and params."""
    figures = Figures(sample, ArmPairs(sample.timings))
    stated = {(name, one.case, one.params): one for name in sample.meta["request"]["candidates"]
              for one in figures.of(name)}  # fmt: skip
    return {key: dict(one.fields) for key, one in stated.items()}


def arms(sample, role):
    return {(arm.environment, arm.case, arm.params): arm for arm in sample.timings if arm.role is role}


def test_every_recorded_figure_states_all_eight_and_none_is_empty(recorded, sample):
    candidates = arms(sample, Role.CANDIDATE)
    assert set(recorded) == set(candidates)
    assert len(recorded) > 100
    (gpu,) = sample.meta["gpus"]
    for key, fields in recorded.items():
        arm = candidates[key]
        assert list(fields) == EIGHT
        assert all(len(text) > 10 for text in fields.values())
        assert f"{gpu['name']}, driver {gpu['driver']}, power limit 700 W" in fields["GPU and clocks"]
        assert microseconds(arm.median_us) in fields["Median and spread"]
        assert "p20 to p80" in fields["Median and spread"]
        assert "_matrix_case_" not in fields["Competitor"]
        assert arm.competitor.rpartition(" of ")[2] in fields["Competitor"]
        assert (
            f"{arm.samples:,} samples in {arm.rounds} rounds of {arm.blocks} blocks" in fields["Warm-up and repetition"]
        )
        assert "time on any target but sm_90" in fields["Not tested"]


def test_the_regression_reads_as_it_was_measured(recorded, sample):
    key = ("host", "column_max_tma", "rows=8192,cols=8192,dtype=fp16,block_m=16,block_n=128")
    fields, arm = recorded[key], arms(sample, Role.CANDIDATE)[key]
    base = arms(sample, Role.BASELINE)[(arm.baseline, *key[1:])]
    assert 3.0 < arm.median_us / base.median_us < 3.3
    assert f"{microseconds(base.median_us)} (p20" in fields["Median and spread"]
    assert f"→ {microseconds(arm.median_us)} (" in fields["Median and spread"]
    assert "x_ptr 8192x8192 fp16" in fields["Shapes and dtypes"]
    assert f"→ {arm.gb_s:.0f} GB/s" in fields["GB/s or TFLOP/s"]


def test_correctness_is_stated_with_its_tolerance_and_the_run_that_checked_it(tmp_path):
    run = load(run_folders.build(tmp_path / "run", gpu=True, hostile=False))
    timed_too = [dataclasses.replace(row, params=SOFTMAX) for row in run.dimensions if row.case == "softmax"]
    ids = {row.environment: f"{row.environment}/sm_90/softmax:{SOFTMAX}" for row in timed_too}
    rows = [dataclasses.replace(row, cell_id=ids[row.environment]) for row in timed_too]

    def said(rows):
        figures = Figures(dataclasses.replace(run, dimensions=rows), ArmPairs(run.timings)).of(run_folders.NEXT)
        (one,) = (figure for figure in figures if (figure.case, figure.params) == ("softmax", SOFTMAX))
        return dict(one.fields)

    checked = "2 dimensions checked, all passed; largest error against float64 0.0001, allowed 4 x plain torch's error"
    assert checked in said(rows)["Correctness"]
    assert "correctness: launched, bounds" in said(rows)["Not tested"]
    assert "strided" in said(rows)["Not tested"]  # refused
    other = [dataclasses.replace(row, run_id="another") for row in rows]
    assert "2 dimensions checked in run another, all passed" in said(other)["Correctness"]
    assert said([])["Correctness"] == "Not checked in this run."
    wrong = [dataclasses.replace(row, outcome="wrong") if row.dimension == "values" else row for row in rows]
    assert "failed: values" in said(wrong)["Correctness"]


def test_a_tuned_cell_goes_by_what_was_checked_without_its_tuning(recorded, sample):
    tuned = [arm for arm in sample.timings if arm.tuning]
    assert {untuned(arm) for arm in tuned} == {arm.cell_id.partition(",tuning=")[0] for arm in tuned}
    # A share of matrix products is one of TFLOP/s.
    for arm in tuned:
        if arm.role is Role.CANDIDATE:
            rates = recorded[arm.environment, arm.case, arm.params]["GB/s or TFLOP/s"]
            assert re.match(r"\d+ TFLOP/s \(\d+ % of its own matmul rate\)", rates)


@pytest.mark.parametrize(
    ("recorded_name", "said"),
    [
        ("_matrix_case_softmax_00ea1e55e4.reference of torch 2.11.0", "reference in case file softmax, torch 2.11.0"),
        ("_matrix_case_sort_de217352b5.<lambda> of torch 2", "an expression in case file sort, torch 2"),
        ("torch.nn.functional.embedding of torch 2", "torch.nn.functional.embedding of torch 2"),
    ],
)
def test_a_competitor_goes_by_a_name_that_a_reader_finds(recorded_name, said):
    assert competitor_name(recorded_name) == said


def test_it_prints_on_a4_with_every_figure_whole(browser, run):
    with opened(browser, run / "signoff.html") as page:
        pdf = pypdfium2.PdfDocument(io.BytesIO(page.pdf(prefer_css_page_size=True, print_background=True)))
        assert {round(side) for side in pdf[0].get_size()} == {595, 842}
        texts = [sheet.get_textpage().get_text_range() for sheet in pdf]
    assert texts[0].count("Signed by") == 1
    assert f"1 / {len(pdf)}" in texts[0]
    for text in texts:  # a figure is never split: as many headings as last fields
        assert text.count("Median and spread:") == text.count("Not tested:")
    assert sum(text.count("Median and spread:") for text in texts) == len(list(run_figures(run)))
    assert read_seal(run).digest in "".join(texts).replace("\r\n", "").replace("\n", "")


def run_figures(folder):
    run = load(folder)
    return Figures(run, ArmPairs(run.timings)).of(run_folders.NEXT)


def test_it_says_what_speaks_against_it_and_who_answers_for_what(browser, run):
    with opened(browser, run / "signoff.html") as page:
        assert "Do not upgrade." in page.locator(".decision").inner_text()
        against = page.locator("#open").inner_text()
        assert "top_k" not in against
        assert "matmul_tma" in against
        assert "waived: replaced by its <b>twin</b> (kernels, until 2999-12-31, triton#9703)" in against
        waivers = page.locator("#waivers").inner_text()
        rows = sum(bool(row.waived) for row in load(run).verdicts)
        assert f"{rows} rows" in waivers
        assert "Nothing." not in against


def test_it_carries_the_locks_and_the_digests(run):
    page = (run / "signoff.html").read_text()
    text = re.sub(r"<wbr>|</?b>", "", page)
    for environment in load(run).environments.values():
        for package in environment["lock"]:
            assert f"{package['name']}=={package['version']} {package['sha256']}" in text
    for name, digest in read_seal(run).files.items():
        assert name.startswith("artifacts/") or (name in page and digest in page)
    assert f"--seal {read_seal(run).digest}" in page


@pytest.mark.parametrize("width", [400, 1000])
def test_it_fits_a_screen_too(browser, run, width):
    with opened(browser, run / "signoff.html", viewport={"width": width, "height": 900}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hostile_name_is_text(run):
    page = (run / "signoff.html").read_text()
    assert "<script>alert" not in page
    assert "<b>twin" not in page
    assert "&lt;b&gt;twin" in page


def test_a_run_without_a_gpu_says_that_it_has_no_figures(tmp_path):
    folder = run_folders.build(tmp_path / "run", quiet=True, hostile=False)
    page = render_signoff(folder)
    assert "nothing was timed in this run" in page
    assert "none: this run was not sealed" in page
    assert "correctness, timing, counters" in page


def test_the_command_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.main, ["report", "--sample", "--signoff"], standalone_mode=False)
    assert done.output.strip() == "sample-signoff.html"
    text = (tmp_path / "sample-signoff.html").read_text()
    assert text.count('class="figure ') == sum(arm.role is Role.CANDIDATE for arm in load(sample_folder()).timings)
    assert len(text) < 1_000_000
    assert "<b>host (Triton 3.6.0)</b>" in text  # whose id says nothing
    two = CliRunner().invoke(cli.main, ["report", "--signoff", "a", "b"])
    assert two.exit_code != 0
