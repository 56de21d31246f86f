"""Every page that simsched writes, in Chromium: quiet, alone, on a phone, by keyboard, dark and light, on paper."""

import re
import shutil
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise

import pandas as pd
import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.report.figures.operators import wait_changes
from simsched.report.page.answers import Section, write_answer
from simsched.report.table import TextTable

driver = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install -e '.[dev]')")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (for instance Debian's package 'chromium')"),
    pytest.mark.usefixtures("in_this_process"),
]

PHONE, DESK = {"width": 375, "height": 800}, {"width": 1280, "height": 900}
LONG = "Tiresias-with-one-very-long-name-of-no-spaces"
JOBS = "submit_time,num_gpus,duration,tenant\n" + "".join(
    f"{37 * i},{1 + i % 4},{100 + 53 * i},{('red', 'blue')[i % 2]}\n" for i in range(12)
)
EXPERIMENT = f"""\
name: page
description: Policies with labels of the usual length on a replayed trace, and values from elsewhere beside.
cluster: {{nodes: 2, gpus_per_node: 4}}
workload: {{path: jobs.csv, recipe: replay, sample: 10}}
policies:
  - {{name: fifo, label: "First come, first served (Philly)"}}
  - {{name: tiresias, label: "Tiresias+Oracle, realistic", params: {{interval_s: 30}}}}
  - {{name: tiresias, label: "{LONG}", params: {{interval_s: 60}}}}
seeds: 2
published: {{"Tiresias+Oracle, realistic": {{jct_mean_min: 12.3, makespan_min: 45.6}}}}
failures: {{outages_path: outages.csv}}
report: {{plots: false}}
"""
NAMES = ("run", "runs", "answers")


def answers_in(folder):
    changes = pd.DataFrame([("tenant", one, 3.0 + place, 2.0, 9, "gains") for place, one in enumerate("ab")],
                           columns=["by", "group", "before_h", "after_h", "jobs", "verdict"])  # fmt: skip
    waits = TextTable("Waits by tenant", ("tenant", "jobs", "mean wait (h)"), (("a", "9", "3.00"), ("b", "12", "4.00")))
    drawn = [wait_changes(changes, title="Who waits")]
    write_answer(Section("calibrate", "Can the replay be trusted?", ["Yes."], [waits], sentence="Yes."), folder, "log")
    section = Section("what-if", "What would eight more nodes do?", ["Halve the wait."], [waits], drawn, trusted=False)
    return write_answer(section, folder, "Answers from a log")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write one run, two runs, and answers of operators; give the page of each."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "page.yaml").write_text(EXPERIMENT)
    (folder / "outages.csv").write_text("node,down,up,kind\n1,900,1000,maintenance\n")
    for arguments in (
        ["run", folder / "page.yaml", "--out", folder, "--workers", 1],
        ["run", folder / "page.yaml", "--out", folder, "--workers", 1, "--name", "again", "-o", "seeds=1"],
        ["report", folder / "page"],
        ["report", folder, "--out", folder / "runs.html"],
    ):
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="simsched")
        assert done.exit_code == 0, done.output
    return {"run": folder / "page/report.html", "runs": folder / "runs.html", "answers": answers_in(folder / "log")}


@pytest.fixture(scope="module")
def browser():
    with driver.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def opened(browser, path, size=DESK, scheme="light"):
    """Open a page; give it with a list of all that it complained about or asked for."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page, heard = context.new_page(), []
    page.on("console", lambda message: heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("request", lambda request: request.url == path.as_uri() or heard.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    try:
        yield page, heard
    finally:
        context.close()


#: What is too wide, too small to read or too small to hit, and whose words are too pale.
FAULTS = """() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const seen = one => one.getClientRects().length > 0 && getComputedStyle(one).visibility !== "hidden";
  const all = [...document.querySelectorAll("body *")].filter(seen), inside = document.documentElement.clientWidth;
  const name = one => `${one.tagName} ${one.textContent.trim().slice(0, 30)}`;
  const faults = [];
  if (document.documentElement.scrollWidth > inside) faults.push("the page scrolls sideways");
  for (const one of all) {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one), svg = one.closest("svg");
    if (!one.closest(".scroll") && box.right > inside + 1) faults.push(`sticks out: ${name(one)}`);
    if ([...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) {
      const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
      if (parseFloat(style.fontSize) * scale < 10.99) faults.push(`${style.fontSize} letters: ${name(one)}`);
      if (!svg && contrast(style.color, behind(one)) < 4.5) faults.push(`pale: ${name(one)}`);
    }
    if (one.matches("a[href], button, select, input, summary") && Math.min(box.width, box.height) < 24) {
      faults.push(`${box.width} x ${box.height} px to hit: ${name(one)}`);
    }
  }
  function behind(one) {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  }
  function light(colour) {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  }
  function contrast(one, other) {
    const [a, b] = [light(one), light(other)];
    return Math.max(a, b) / Math.min(a, b);
  }
  return faults;
}"""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_quiet_alone_and_readable_on_both_screens_dark_and_light(pages, browser, name):
    for size, scheme in ((PHONE, "light"), (PHONE, "dark"), (DESK, "light"), (DESK, "dark")):
        with opened(browser, pages[name], size, scheme) as (page, heard):
            assert page.evaluate(FAULTS) == [], (size, scheme)
            assert heard == []
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
            assert dark == (scheme == "dark")
            page.click("#theme")
            assert page.evaluate("document.documentElement.dataset.theme") == {"dark": "light", "light": "dark"}[scheme]
            assert page.evaluate(FAULTS) == []


def test_these_checks_see_a_broken_page(pages, browser, tmp_path):
    broken = '<div style="width: 900px; font-size: 9px; color: #eee">wide</div><img src="http://nowhere.invalid/a.png">'
    text = pages["run"].read_text(encoding="utf-8").replace("</main>", f"{broken}<button>x</button></main>")
    path = tmp_path / "broken.html"
    path.write_text(text.replace("</body>", "<script>alert(1)</script></body>"), encoding="utf-8")
    with opened(browser, path, PHONE) as (page, heard):
        page.add_style_tag(content="main > button { min-height: 0; height: 9px; }")
        faults = " ".join(page.evaluate(FAULTS))
        for words in (
            "scrolls sideways",
            "sticks out: DIV wide",
            "9px letters: DIV",
            "pale: DIV",
            "px to hit: BUTTON x",
        ):
            assert words in faults
        assert any("img-src" in one for one in heard)
        assert any("script-src" in one for one in heard)  # the policy of the page allows its own scripts alone


@pytest.mark.parametrize("name", NAMES)
def test_the_keyboard_reaches_everything(pages, browser, name):
    reach = "a[href], button, select, input, summary, [tabindex='0']"
    with opened(browser, pages[name]) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wanted = page.evaluate(
            f"[...document.querySelectorAll({reach!r})].filter(one => one.getClientRects().length).map((one, place) => "
            "{ one.dataset.place = place; return String(place); })"
        )
        found = set()
        for _ in wanted:
            page.keyboard.press("Tab")
            here = "[document.activeElement.dataset.place, getComputedStyle(document.activeElement).outlineStyle]"
            place, outline = page.evaluate(here)
            assert outline != "none", place
            found.add(place)
        assert found == set(wanted)


def column(page, place, table="#run1-comparison + .scroll table"):
    return page.eval_on_selector_all(f"{table} tbody tr", f"rows => rows.map(row => row.cells[{place}].innerText)")


def test_the_main_table_sorts_by_mouse_and_by_keyboard(pages, browser):
    with opened(browser, pages["run"]) as (page, _):
        head = "#run1-comparison + .scroll thead th"
        values = [float(re.match(r"[\d.]+", cell)[0]) for cell in column(page, 1)]
        page.click(f"{head}:nth-child(2) button")
        sorted_values = [float(re.match(r"[\d.]+", cell)[0]) for cell in column(page, 1)]
        assert sorted_values == sorted(values, reverse=True)
        assert page.get_attribute(f"{head}:nth-child(2)", "aria-sort") == "descending"
        page.focus(f"{head}:nth-child(1) button")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        names = [cell.split("\n")[0] for cell in column(page, 0)]
        assert names == ["First come, first served (Philly)", "Tiresias-with-one-very-long-name-of-no-spaces",
                         "Tiresias+Oracle, realistic"]  # fmt: skip
        assert page.get_attribute(f"{head}:nth-child(2)", "aria-sort") is None


def test_contents_lead_to_every_part(pages, browser):
    for name, least in (("run", 5), ("runs", 3)):
        with opened(browser, pages[name]) as (page, _):
            links = page.eval_on_selector_all("nav a", "links => links.map(link => link.hash)")
            assert len(links) >= least
            for link in links:
                page.click(f'nav a[href="{link}"]')
                assert page.is_visible(link), link
    with opened(browser, pages["run"]) as (page, _):
        page.click("#run1-comparison + .scroll tbody tr:nth-child(2) td a")
        assert page.evaluate("document.activeElement.parentElement.id") == "run1-behind1"
        assert page.get_attribute("#run1-behind1", "open") is not None


def labels(page):
    return page.eval_on_selector_all(".panels > div", "all => all.map(one => [...one.querySelectorAll('.tick')].map("
                                     "tick => tick.textContent).join(' '))")  # fmt: skip


def test_the_occupancy_is_there_once_and_can_be_zoomed_and_asked(pages, browser):
    with opened(browser, pages["run"]) as (page, heard):
        assert page.is_visible(".occupancy svg")
        assert [page.is_visible(one) for one in ("figure.twin", "#run1-figure-jct-cdf")] == [False, True]
        page.hover("rect[data-job]")
        assert re.search(r"asked for \d GPU.* · waited .* to start", page.inner_text(".story"))
        page.dispatch_event("[data-outage]", "pointerover")
        whole = (
            "node 1 under First come, first served (Philly) · maintenance · from 15.0 min · to 16.7 min · in all 100 s"
        )
        assert page.inner_text(".story") == whole
        before = labels(page)
        assert re.fullmatch(r"0( \d+ min)+", before[0])
        minutes = [int(one) for one in re.findall(r"\d+", before[0])]
        assert {after - one for one, after in pairwise(minutes)} in ({5}, {10}, {15})
        page.click(".occupancy .in")
        assert labels(page) != before
        assert len(set(labels(page))) == 1  # both panels share their time
        page.select_option(".occupancy select >> nth=0", label=LONG)
        assert page.inner_text(".panel >> nth=0") == LONG
        page.focus(".panels svg >> nth=0")
        page.keyboard.press("0")
        assert labels(page) == before
        page.keyboard.press("n")
        assert page.inner_text(".story").startswith("job-")
        painted = page.eval_on_selector_all("rect[data-job]", "all => all.map(one => getComputedStyle(one).fill)")
        keys = ".key > span"
        explained = page.eval_on_selector_all(keys, "all => all.map(one => getComputedStyle(one).backgroundColor)")
        assert set(painted) <= set(explained)
        assert heard == []


def test_jobs_are_found_by_id_tenant_and_status(pages, browser):
    with opened(browser, pages["run"]) as (page, _):
        bars = page.locator("rect[data-job]").count()
        page.fill("input[type=search]", "red")
        rows = page.eval_on_selector_all(".hits tbody tr", "rows => rows.map(row => row.cells[2].innerText)")
        assert set(rows) == {"red"}
        assert 0 < page.locator("rect[opacity='0.25']").count() < bars
        page.fill("input[type=search]", "no such job")
        assert page.inner_text(".story") == "0 jobs found"
        assert page.locator("rect[opacity='0.25']").count() == bars
        job = page.get_attribute("rect[data-job] >> nth=0", "data-job")
        page.fill("input[type=search]", job)
        page.click(f".hits button:text-is('{job}')")
        assert page.inner_text(".story").startswith(f"{job} under")
        assert 0 < page.locator("rect[opacity='0.25']").count() < bars
        page.fill("input[type=search]", "")
        page.click(".occupancy .all")
        assert page.is_hidden(".hits")
        assert page.locator("rect[opacity='0.25']").count() == 0


def test_on_paper_it_has_a4_pages_the_picture_instead_of_the_script_and_the_manifest(pages, browser):
    with opened(browser, pages["run"]) as (page, _):
        paper = page.pdf(prefer_css_page_size=True)
        page.emulate_media(media="print")
        assert page.is_visible("figure.twin")
        assert page.is_hidden(".panels")
        assert page.is_visible("#run1-manifest dl")
    boxes = Counter(
        tuple(round(float(side)) for side in one)
        for one in re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", paper)
    )
    assert 2 <= boxes.total() <= 9
    assert all(abs(width - 595) <= 1 and abs(height - 842) <= 1 for width, height in boxes)
