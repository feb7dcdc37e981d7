"""The report of a run on a GPU: timing, correctness, the instrument; in Chromium, narrow, wide, dark, on paper."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import run_folders
from browser import chromium, opened, overflowing
from click.testing import CliRunner
from test_report import CONTRAST

from matrix import resources
from matrix.commands import main as cli
from matrix.errors import ExitCode, UsageError
from matrix.judging.compare import judge_again
from matrix.judging.groups import Section, group
from matrix.judging.thresholds import Thresholds
from matrix.reporting import report
from matrix.reporting.show import as_data, as_text, matching
from matrix.reporting.summary import summary_markdown, summary_text
from matrix.storage.runfolder import load

ROOT = Path(__file__).resolve().parent.parent
TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = run_folders.build(tmp_path_factory.mktemp("gpu") / "run", gpu=True)
    report.write_page(load(folder))
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_overflows_and_everything_can_be_read(browser, run, width, scheme):
    with opened(browser, run / "report.html", viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert overflowing(page, "#timing *, #correctness *, #matrix *", width) == []
        assert page.evaluate(CONTRAST) == []


def test_every_link_and_id_resolves(browser, run):
    with opened(browser, run / "report.html") as page:
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        links = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map((a) => a.hash.slice(1))")
        assert set(links) <= set(ids)
        assert {"timing", "correctness", "noted"} <= set(links)


def test_the_plot_puts_each_cell_where_its_ratio_is(browser, run):
    with opened(browser, run / "report.html") as page:
        points = page.evaluate(
            """[...document.querySelectorAll('#timing .point')].map((li) => {
              const at = (e) => { const r = e.getBoundingClientRect(); return (r.left + r.right) / 2; };
              const circle = li.querySelector('circle'), zero = li.querySelector('.zero');
              const bar = li.querySelector('.whisker').getBoundingClientRect();
              return {name: li.dataset.timed, text: li.querySelector('b').textContent, x: at(circle) - at(zero),
                      inside: bar.left <= at(circle) + .5 && at(circle) <= bar.right + .5};
            })"""
        )
        assert [p["x"] for p in points] == sorted((p["x"] for p in points), reverse=True)
        assert all(p["inside"] for p in points)
        assert (points[0]["name"], points[0]["text"]) == ("column_max_tma", f"{TIMES}3.14")
        assert points[0]["x"] > 100
        assert (points[-1]["name"], points[-1]["text"]) == ("top_k", f"{TIMES}0.62")
        assert points[-1]["x"] < -50
        flat = next(p for p in points if p["name"] == "cross_entropy_gradient")
        assert abs(flat["x"]) < 3


def test_a_point_leads_to_its_finding(browser, run):
    with opened(browser, run / "report.html") as page:
        page.locator("#timing .point a", has_text="column_max_tma").first.click()
        assert "column_max_tma: slower" in page.locator(":target").inner_text()


def test_a_slow_down_shows_both_arms_and_what_could_have_been_seen(browser, run):
    with opened(browser, run / "report.html") as page:
        card = page.locator("#findings article", has_text="column_max_tma: slower").first.inner_text()
        assert re.search(rf"61\.9 us\s+193\.9 us\s+{TIMES}3\.14", card)
        assert "61.3 us to 62.3 us" in card
        assert re.search(rf"{TIMES}3\.14 \({TIMES}3\.1\d to {TIMES}3\.1\d\)", card)
        assert re.search(r"Throughput\s+2,441 GB/s\s+779 GB/s", card)
        assert re.search(r"Share of this GPU's own copy rate\s+57 %\s+18 %", card)
        assert "Competitor: torch 2.11.0" in card
        assert re.search(r"smallest slow-down that this cell would have been called for: \d\.\d %\.", card)
        assert "Benjamini-Hochberg over the comparison: p = " in card
        assert "within 0.28 % (p95)" in card
        assert "false-alarm rate 0.5 %" in card
        assert "--targets sm_90 --cases column_max_tma" in card


def test_a_speed_up_shows_as_clearly(browser, run):
    with opened(browser, run / "report.html") as page:
        card = page.locator("#improvements article", has_text="top_k: faster").first
        assert f"{TIMES}0.62" in card.locator("tr.better").first.inner_text()
        assert "1 speed-up on sm_90" in page.locator(".decision .sentence").inner_text()
        assert "2 slow-downs on sm_90; 1 dearer launch on sm_90" in page.locator(".decision .sentence").inner_text()


def test_a_slow_down_shows_the_raw_samples_of_its_arms(browser, run):
    with opened(browser, run / "report.html") as page:
        card = page.locator("#findings article", has_text="column_max_tma: slower").first
        assert card.locator(".strip svg").count() == 3
        ends = page.evaluate(
            """(e) => [...e.querySelectorAll('.strip svg')].map((svg) => {
              const box = svg.querySelector('path').getBBox(); return [box.x, box.x + box.width];
            })""",
            card.element_handle(),
        )
        (_, before), (after, _), (_, control) = ends
        assert before < 200 and control < 200 and after > 800
        assert re.search(r"264", card.locator(".strip.candidate").inner_text())
        assert re.search(r"drawn anew 2,000 times: \W3\.\d+ \(\W3\.\d+ to \W3\.\d+\)", card.inner_text())
    # A folder whose raw samples were left out still has its report.
    assert "column_max_tma: slower" in text_without_rounds(run)


def text_without_rounds(run):
    rounds = (run / "rounds.parquet").rename(run / "rounds.away")
    try:
        return report.render([run])
    finally:
        rounds.rename(run / "rounds.parquet")


def test_what_the_tuner_did_is_told_apart(browser, run):
    with opened(browser, run / "report.html") as page:
        card = page.locator("#findings article", has_text="matmul_autotuned").first.inner_text()
        assert "slower, for the tuner chose differently" in card
        assert "with the baseline's configuration 0.00 %" in card
        assert "BLOCK_M 128 → 64" in page.locator("#timing .drift").inner_text()


def test_what_was_not_decided_is_said_and_why(browser, run):
    with opened(browser, run / "report.html") as page:
        gaps = page.locator("#not-tested").inner_text()
        assert "swiglu" in page.locator("#not-tested").inner_text()
        assert re.search(r"a slow-down under \d+(\.\d)? % would not have shown", gaps)
        assert "hw_thermal_slowdown" in gaps


def test_the_instrument_states_its_limits(browser, run):
    with opened(browser, run / "report.html") as page:
        box = page.locator("#timing .instrument").inner_text()
        for said in ("NVIDIA H200", "580.159.04", "700 W", "4,297 GB/s", "742 TFLOP/s", "read +0.20% off"):
            assert said in box
        assert re.search(r"median 0\.\d+ %, p95 0\.28 %, largest 0\.44 % \(16 cells\)", box)
        assert "at most 0.5 % a cell" in box
        assert "86 % of it in arms" in box
        assert "median cell" in box


def test_correctness_counts_every_dimension_and_compares_outputs(browser, run):
    with opened(browser, run / "report.html") as page:
        section = page.locator("#correctness")
        moved = section.locator("tr.moved").inner_text()
        assert re.search(r"special values.*5 passed\s+4 passed, 1 wrong", moved, re.DOTALL)
        assert "1 less accurate, within budget" in section.inner_text()
        finding = page.locator("#findings article", has_text="matmul_tma: gives wrong values").first.inner_text()
        assert "special_values: NaN at [3, 7] did not propagate" in finding
        noted = page.locator("#noted").inner_text()
        assert "cross_entropy: the reference itself gives other values" in noted
        assert "rms_norm: less accurate, within budget" in noted


def test_targets_without_a_gpu_are_visibly_not_run(browser, run):
    with opened(browser, run / "report.html", viewport={"width": 400, "height": 900}) as page:
        note = page.locator("#matrix .note").inner_text()
        assert note == "Only sm_90 ran on a GPU. Correctness and timing were not run for sm_80, sm_100 and sm_120."
        assert "run on NVIDIA H200 (correctness, timing; sm_90 alone)" in page.locator(".reach").inner_text()
        assert "nothing here is a timing" not in page.locator(".reach").inner_text()


def test_on_paper_the_plot_keeps_its_colours_and_breaks_between_rows(browser, run):
    with opened(browser, run / "report.html") as page:
        page.emulate_media(media="print")
        assert page.locator("#timing .forest").first.is_visible()
        assert page.locator("#timing .point").first.evaluate("e => getComputedStyle(e).breakInside") == "avoid"
        assert len(page.pdf(prefer_css_page_size=True, print_background=True)) > 10_000


def test_without_a_gpu_there_are_no_such_sections(tmp_path):
    page = report.render([run_folders.build(tmp_path / "run")])
    assert 'id="timing"' not in page
    assert 'id="correctness"' not in page
    assert "#timing" not in page.partition("</style>")[2]


def test_run_json_may_say_nothing_about_its_gpus(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    meta = json.loads((folder / "run.json").read_text())
    for gpus in ([], [{}], [{"uuid": "x", "proofs": [], "timing_wall_s": None}]):
        (folder / "run.json").write_text(json.dumps({**meta, "gpus": gpus}))
        assert "NVIDIA H200" in report.render([folder])
    del meta["gpus"]
    (folder / "run.json").write_text(json.dumps(meta))
    assert "Noise floor" in report.render([folder])


def test_the_sections_of_the_groups(run):
    told = {found.title: found.section for found in group([load(run)])}
    assert told["column_max_tma: slower"] is Section.FINDING
    assert told["softmax: slower launches"] is Section.FINDING
    assert told["top_k: faster"] is Section.IMPROVEMENT
    assert told["rms_norm: less accurate, within budget"] is Section.NOTED
    assert not any("within the threshold" in title for title in told)


def test_summaries_tell_time_too(run):
    folder = load(run)
    text = summary_text(folder)
    assert "column_max_tma: slower  [sm_90]" in text
    assert "run on NVIDIA H200" in text
    assert "noise floor over 16 timed cells" in summary_markdown(folder)


def test_show_knows_arms_and_dimensions(run):
    folder = load(run)
    cells = matching(folder, "*3.6.0*/sm_90/column_max_tma:*block_m=16*")
    text = as_text(folder, cells)
    assert "timed as candidate on NVIDIA H200" in text
    assert re.search(r"  ratio: 3\.1\d+", text)
    assert "slower: time of a call" in text
    checked = as_text(folder, matching(folder, "*3.6.0*/sm_90/matmul_tma:rows=4097,dtype=fp16"))
    assert "dimension special_values: wrong  NaN at [3, 7] did not propagate" in checked
    assert "dimension values: passed, 20% of the allowance (4 x plain torch's error)" in checked
    data = as_data(folder, cells)
    assert json.loads(json.dumps(data, default=str))["timings"][0]["role"] == "candidate"


def test_compare_judges_recorded_arms_anew(run):
    again, code = judge_again([run], run_folders.BASELINE, [run_folders.NEXT], Thresholds(slower_ratio=4.0))
    reasons = {row.case: row.reason_code for row in again.verdicts if row.stage == "timing"}
    assert reasons["column_max_tma"] == "slower_within_threshold"
    assert code is ExitCode.REGRESSED  # what is wrong stays wrong
    turned, _ = judge_again([run], run_folders.NEXT, [run_folders.BASELINE], Thresholds())
    reasons = {row.case: row.reason_code for row in turned.verdicts if row.stage == "timing"}
    assert (reasons["column_max_tma"], reasons["top_k"]) == ("faster", "slower")
    assert {row.reason_code for row in turned.verdicts if row.case == "matmul_tma"} >= {"wrong_gone"}


def test_the_sample_is_rendered_where_one_stands(run, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path)
    shutil.copytree(run, tmp_path / "data" / "sample")
    (tmp_path / "builtin").symlink_to(ROOT)  # templates and cases, as a wheel carries them
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["report", "--sample"], standalone_mode=False)
    assert result.output.strip() == "sample-report.html"
    assert "column_max_tma: slower" in (tmp_path / "sample-report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["--sample"], ["--sample", "a-run"]])
def test_no_sample_or_a_run_beside_it_is_a_usage_error(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path)
    result = CliRunner().invoke(cli.main, ["report", *arguments], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert result.exception.hint
