"""The report as a release manager meets it: in a browser, on paper, on a phone, without script."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_folders
from browser import chromium, opened, overflowing
from playwright.sync_api import expect

from matrix import resources
from matrix.errors import StorageError
from matrix.judging.groups import Section, group
from matrix.reporting import report
from matrix.storage.runfolder import load

LIMIT_BYTES = 3_000_000


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run with two candidates, a hostile case, and all sections filled."""
    folder = tmp_path_factory.mktemp("report") / "run"
    run_folders.build(folder, candidates=(run_folders.NEXT, run_folders.NEWEST))
    report.write_page(load(folder))
    return folder


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    folder = run_folders.build(tmp_path_factory.mktemp("quiet") / "run", quiet=True, hostile=False)
    report.write_page(load(folder))
    return folder


def text_of(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_overflows_and_nothing_complains(browser, run, width, scheme):
    with opened(browser, run / "report.html", viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert overflowing(page, "body *", width) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_ground(browser, run, scheme):
    with opened(browser, run / "report.html", color_scheme=scheme) as page:
        assert page.evaluate(CONTRAST) == []


# Every element with text of its own, against the nearest solid ground behind it (WCAG: 4.5).
CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => parse(c).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (parse(c).length < 4 || parse(c)[3] === 1) return c;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const said = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!said || !e.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    const name = `${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 30)}`;
    if (ratio < 4.5) bad.push(`${name} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


def test_every_link_resolves(browser, run):
    with opened(browser, run / "report.html") as page:
        links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        anchors = {link[1:] for link in links if link.startswith("#")}
        assert anchors <= set(ids)
        assert anchors >= {"findings", "matrix", "not-tested", "run"}
        assert all(re.match(r"https?://", link) for link in links if not link.startswith("#"))


def test_a_moved_cell_leads_to_its_finding(browser, run):
    with opened(browser, run / "report.html") as page:
        cell = page.locator("tr[data-case=column_max_tma] td a").first
        cell.click()
        target = page.locator(":target")
        assert "column_max_tma" in target.inner_text()
        assert target.is_visible()


def test_filters_narrow_both_findings_and_matrix(browser, run):
    with opened(browser, run / "report.html") as page:
        form = page.locator("#filters")
        everything = page.locator("[data-verdict]:visible").count()
        form.get_by_label("Case", exact=True).fill("embedding")
        assert page.locator("article.card:visible").all_inner_texts()[0].startswith("1 embedding_gather") or (
            "embedding_gather" in page.locator("article.card:visible").first.inner_text()
        )
        assert set(page.locator("tr[data-case]:visible").evaluate_all("rows => rows.map(r => r.dataset.case)")) == {
            "embedding_gather"
        }
        assert form.locator("output").inner_text() == f"1 of {everything} findings and differences shown"
        form.get_by_role("button", name="Reset").click()
        # Not wait_for_function: its second look is an eval, which the page's own policy forbids.
        expect(page.locator("[data-verdict][hidden]")).to_have_count(0)
        form.get_by_label("Target").select_option("sm_120")
        assert 0 < page.locator("[data-verdict]:visible").count() < everything
        form.get_by_label("Target").select_option("")
        form.get_by_label("Candidate").select_option(run_folders.NEWEST)
        assert page.locator(".panel:visible").count() == 1
        form.get_by_label("Verdict").select_option("code risk")
        assert page.locator("#improvements article:visible").count() == 0
        form.get_by_label("only cases that moved").check()
        assert page.locator("tr[data-case=vector_add]:visible").count() == 0


def test_a_link_to_a_filtered_finding_shows_it(browser, run):
    with opened(browser, run / "report.html") as page:
        page.locator("#filters").get_by_label("Verdict").select_option("improved")
        page.locator(".decision .top a").first.click()
        expect(page.locator(":target")).to_be_visible()


def test_the_keyboard_reaches_findings_and_cells(browser, run):
    with opened(browser, run / "report.html") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#findings"
        summary = page.locator("details.diff > summary", has_text="SASS").first
        summary.focus()
        page.keyboard.press("Enter")
        assert summary.evaluate("e => e.parentElement.open")


def test_the_page_lives_without_script(browser, run):
    with opened(browser, run / "report.html", java_script_enabled=False) as page:
        assert page.locator("#filters").is_hidden()
        assert page.locator("article.card:visible").count() > 5
        page.locator("article details.diff:not([open]) > summary").first.click()
        assert page.locator("details.diff[open] pre").first.is_visible()


def test_a_hostile_name_is_text(browser, run):
    with opened(browser, run / "report.html") as page:
        assert run_folders.HOSTILE in page.locator("#matrix").inner_text()
        assert page.locator("script").count() == 1
        assert page.locator("a[href^='javascript']").count() == 0
    assert "<script>alert" not in text_of(run)


def test_control_characters_are_shown_as_escapes(tmp_path):
    run = load(run_folders.build(tmp_path / "run", hostile=False))
    name = "\x1b[2J\x00\x9b<i>"
    rows = [dataclasses.replace(row, case=f"{row.case}{name}", change=name) for row in run.verdicts]
    page = report.render_runs([dataclasses.replace(run, verdicts=rows)])
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", page)
    assert r"\x1b[2J\x00\x9b&lt;i&gt;" in page


def test_paper_shows_evidence_and_leaves_controls_out(browser, run):
    with opened(browser, run / "report.html") as page:
        page.emulate_media(media="print")
        assert page.locator("nav").is_hidden()
        assert page.locator("#filters").is_hidden()
        assert page.locator("table.evidence").first.is_visible()
        assert page.locator("details:not([open])").first.is_hidden()
        pdf = page.pdf(prefer_css_page_size=True, print_background=True)
        pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
        assert 2 <= pages <= 16


def test_the_verdict_comes_first_and_findings_come_worst_first(browser, run):
    with opened(browser, run / "report.html") as page:
        assert page.locator(".decision .word").all_inner_texts() == ["Do not upgrade.", "Do not upgrade."]
        order = page.locator("main > section").evaluate_all("all => all.map((s) => s.id)")
        assert order[:5] == ["compared", "matrix", "findings", "improvements", "known"]
        shown = page.locator("#findings article").evaluate_all("all => all.map((a) => a.dataset.verdict)")
        assert shown.index("regressed") < shown.index("code risk")


def test_a_finding_shows_its_evidence_its_first_change_and_its_code(browser, run):
    with opened(browser, run / "report.html") as page:
        card = page.locator("#findings article", has_text="column_max_tma").first
        rows = {row.split("\t")[0].split(" reason")[0]: row for row in card.locator("tr.reason").all_inner_texts()}
        assert re.search(r"5\s+10\s+\N{MULTIPLICATION SIGN}2", rows["Barriers"])
        assert re.search(r"0\s+16\s+appeared", rows["Shuffles"])
        assert card.locator(".chain .first").first.inner_text().startswith("TTGIR")
        assert "sm_90" in card.locator(".tags").inner_text()
        assert "sm_100" in card.locator(".tags").inner_text()
        assert "sizePerThread = [1, 8]" in card.locator("ins").first.inner_text()
        assert "BAR 5 → 10" in card.locator(".opcodes").text_content()
        assert re.search(r"artifacts/[0-9a-f]{64}\.zst", card.locator(".whole").first.text_content())
        assert "--targets sm_90,sm_100 --cases column_max_tma" in card.locator(".reproduce").inner_text()
        assert page.locator("#findings article", has_text="column_max_pointers").count() == 0


def test_improvements_known_differences_hazards_and_gaps_have_their_place(browser, run):
    with opened(browser, run / "report.html") as page:
        assert "top_k" in page.locator("#improvements").inner_text()
        assert "block pointers" in page.locator("#known").inner_text()
        assert page.locator("#known a[href='https://github.com/triton-lang/triton/issues/11526']").count() > 0
        hazards = page.locator("#hazards").inner_text()
        assert "rms_norm.py:14" in hazards
        assert "tl.load(x_ptr + offs, mask=offs < n)" in hazards
        assert "matmul_persistent" in page.locator("#unfit").inner_text()
        gaps = page.locator("#not-tested").inner_text()
        assert "this host has no GPU" in gaps
        assert "philox_dropout" in gaps


def test_a_flat_run_says_so(browser, quiet):
    with opened(browser, quiet / "report.html") as page:
        assert page.locator(".decision.tone-good .word").inner_text() == "Nothing regressed."
        assert page.locator("#findings").inner_text().endswith("Nothing got worse in what was compared.")
        assert "nothing here is a timing" in page.locator(".reach").inner_text()


def test_what_else_moved_is_said_before_any_number(run):
    page = text_of(run)
    assert "One thing differs: Triton 3.5.1 → 3.6.0 (with ptxas for sm_100 12.8.93 → 12.9.86" in page
    assert page.index("One thing differs") < page.index('class="sentence"') < page.index('class="figures"')


def test_numpy_beside_triton_is_a_confounder(quiet, tmp_path):
    folder = shutil.copytree(quiet, tmp_path / "run")
    meta = json.loads((folder / "run.json").read_text())
    meta["environments"][1]["numpy"] = "2.4.0"
    (folder / "run.json").write_text(json.dumps(meta))
    page = report.render([folder])
    assert "NumPy 2.3.5 → 2.4.0. Causes cannot be told apart by this comparison." in page
    assert "NumPy alone" in page


def test_several_runs_stand_side_by_side(browser, quiet, tmp_path):
    other = run_folders.build(tmp_path / "other", host="builder-2", run_id="20261201T000000Z-0002")
    path = tmp_path / "report.html"
    path.write_text(report.render([quiet, other, quiet]), encoding="utf-8")
    with opened(browser, path) as page:
        header = page.locator("table.picture thead").first.inner_text()
        assert header.count("builder-1") == header.count("builder-2") == 5
        assert "no figure here is averaged" in page.locator("#run").inner_text()
        assert "seen on builder-2" in page.locator("#findings article").first.inner_text()


def test_the_page_is_small_and_alone(run):
    page = text_of(run)
    assert len(page.encode()) < LIMIT_BYTES
    assert not re.search(r"""(?:src|href)=["'](?!#|data:,|https?://)""", page)
    assert not re.search(r"<(?:img|iframe|link rel=.stylesheet)", page)


@pytest.mark.parametrize("name", ["cells.parquet", "evidence.parquet", "verdicts.parquet"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "foreign"])
def test_a_damaged_table_is_named(quiet, tmp_path, name, damage):
    folder = shutil.copytree(quiet, tmp_path / "run")
    path = folder / name
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    else:
        pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StorageError, match=re.escape(name)) as caught:
        report.render([folder])
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 99, "run_id": "x"}'])
def test_a_foreign_run_json_is_named(quiet, tmp_path, text):
    folder = shutil.copytree(quiet, tmp_path / "run")
    (folder / "run.json").write_text(text)
    with pytest.raises(StorageError, match=r"run\.json"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"request": None, "started_at": "once"}, "started_at is no time: 'once'; request is None"),
        ({"environments": [{}]}, "an entry of environments lacks its id"),
        ({"cases": {}}, "cases is {}"),
    ],
)
def test_everything_that_a_run_json_lacks_is_told_at_once(quiet, tmp_path, change, said):
    folder = shutil.copytree(quiet, tmp_path / "run")
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StorageError, match=re.escape(f"run.json is damaged: {said}")):
        load(folder)


def test_a_folder_that_is_no_run_says_what_to_give(tmp_path):
    with pytest.raises(StorageError, match="is not a run folder") as caught:
        load(tmp_path)
    assert "latest" in caught.value.hint


def test_lost_and_damaged_code_costs_only_the_difference(tmp_path):
    folder = run_folders.build(tmp_path / "run")
    for place, path in enumerate(sorted((folder / "artifacts").iterdir())):
        if place % 2:
            path.unlink()
        else:
            path.write_bytes(b"not zstd")
    page = report.render([folder])
    assert "no difference to show" in page
    assert "column_max_tma" in page


def test_a_report_is_whole_or_not_there(quiet, tmp_path, monkeypatch):
    folder = shutil.copytree(quiet, tmp_path / "run")
    (folder / "report.html").write_text("the old one")
    monkeypatch.setattr(report, "write_atomically", _full_disk)
    with pytest.raises(StorageError, match="no space"):
        report.write_page(load(folder))
    assert (folder / "report.html").read_text() == "the old one"


def _full_disk(path, data):
    raise StorageError("no space")


def test_only_web_addresses_become_links():
    assert report.web_address("triton#9703") == "https://github.com/triton-lang/triton/issues/9703"
    assert report.web_address("https://example.org/1") == "https://example.org/1"
    assert report.web_address("javascript:alert(1)") == ""
    assert report.web_address(" data:text/html,x") == ""


def test_resources_lie_beside_the_package_in_a_clone():
    assert (resources.reports_folder() / "report.html").is_file()
    assert resources.kernels_folder().is_dir()


def test_a_missing_resource_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "matrix")
    with pytest.raises(StorageError, match="reports is missing") as caught:
        resources.reports_folder()
    assert "reinstall" in caught.value.hint


def test_of_many_findings_the_worst_have_cards_and_the_others_rows(tmp_path, monkeypatch):
    folder = run_folders.build(tmp_path / "run", hostile=False)
    monkeypatch.setattr(report, "WITH_CARD", 1)
    page = report.render([folder])
    found = [each for each in group([load(folder)]) if each.section is Section.FINDING]
    assert f"{len(found) - 1} more, less grave" in page
    assert all(page.count(f'id="{each.anchor}"') == 1 for each in found)
