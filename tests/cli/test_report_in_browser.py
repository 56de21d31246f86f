"""The page of `simsched report` in a real browser: on a phone, at a desk, on paper."""

import contextlib
import functools
import http.server
import json
import re
import shutil
import subprocess
import threading

import matplotlib.image
import numpy as np
import pytest
from click.testing import CliRunner

from simsched.cli.main import cli

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium (for instance Debian's package 'chromium')"),
    pytest.mark.usefixtures("in_this_process"),
]

PHONE, DESK, HEIGHT = 375, 1280, 2400
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage "
    "--enable-logging=stderr --host-resolver-rules=MAP\t*\t~NOTFOUND,EXCLUDE\t127.0.0.1"
)
TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))
EXPERIMENT = """\
name: page
description: Policies with labels of the usual length on a replayed trace, and values from elsewhere beside.
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay, sample: 10}
policies:
  - {name: fifo, label: "First come, first served (Philly)"}
  - {name: tiresias, label: "Tiresias+Oracle, realistic", params: {interval_s: 30}}
  - {name: tiresias, label: "Tiresias-with-one-very-long-name-of-no-spaces", params: {interval_s: 60}}
seeds: 2
published: {"Tiresias+Oracle, realistic": {jct_mean_min: 12.3, makespan_min: 45.6}}
failures: {outages_path: outages.csv}
report: {plots: false}
"""
OUTAGES = "node,down,up,kind\n1,900,1000,maintenance\n"
#: Runs in a copy of the page, which has no such script.
MEASURE = """<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const inside = document.documentElement.clientWidth;
  const stickOut = [...document.querySelectorAll("body *")].filter(
    one => !one.closest(".scroll") && one.getBoundingClientRect().right > inside + 1).map(one => one.tagName);
  const scrolls = [...document.querySelectorAll(".scroll")];
  const scales = [...document.querySelectorAll("svg")].map(one => one.clientWidth / one.viewBox.baseVal.width);
  parent.postMessage({
    name: NAME, width: inside, pageWidth: document.documentElement.scrollWidth, stickOut,
    scrolling: scrolls.filter(one => one.scrollWidth > one.clientWidth + 1).length,
    reachable: scrolls.every(one => ["auto", "scroll"].includes(getComputedStyle(one).overflowX)),
    leastScale: Math.min(...scales), figures: scales.length,
    leastText: Math.min(...[...document.querySelectorAll("td, th, p, li, dd, figcaption, code")].map(
      one => parseFloat(getComputedStyle(one).fontSize))),
    requests: performance.getEntriesByType("resource").length,
    title: document.title,
  }, "*");
});
</script>"""
FRAMES = """<!DOCTYPE html><meta charset="utf-8"><title>frames</title><body style="margin: 0"><pre id="found"></pre>
<script>
const found = [];
addEventListener("message", event => {
  found.push(event.data);
  document.getElementById("found").textContent = "FOUND" + JSON.stringify(found) + "DNUOF";
});
</script>
"""


#: The policy of the page allows its own scripts alone, so copies with scripts of a test go without it.
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def browse(tmp_path, address, *arguments):
    """Open a page in a browser that has never run before; give its output and what it complained about."""
    profile = tmp_path / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [BROWSER, *(flag.replace("\t", " ") for flag in FLAGS.split(" ")), f"--user-data-dir={profile}"]
    done = subprocess.run([*command, *arguments, address], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served_folder(folder):
    """Serve a folder on this machine, since a browser keeps no account of what a page from a file asks for."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "page.yaml").write_text(EXPERIMENT)
    (folder / "outages.csv").write_text(OUTAGES)
    for arguments in (["run", folder / "page.yaml", "--out", folder, "--workers", 1], ["report", folder / "page"]):
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="simsched")
        assert done.exit_code == 0, done.output
    return folder / "page" / "report.html"


@pytest.fixture(scope="module")
def measured(page, tmp_path_factory):
    """Measure the page at both widths in one visit, and a page that is broken on purpose."""
    folder = tmp_path_factory.mktemp("measured")
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    broken = '<div style="width: 900px">too wide</div><img src="http://nowhere.invalid/a.png" alt="">'
    broken += '<script>console.error("!")</script>'
    pages = {"phone": (PHONE, ""), "desk": (DESK, ""), "broken": (PHONE, broken)}
    frames = FRAMES
    for name, (width, more) in pages.items():
        script = MEASURE.replace("NAME", json.dumps(name))
        (folder / f"{name}.html").write_text(text.replace("</body>", f"{more}{script}</body>"), encoding="utf-8")
        frames += f'<iframe src="{name}.html" style="width: {width}px; height: 900px; border: 0"></iframe>\n'
    (folder / "frames.html").write_text(frames, encoding="utf-8")
    with served_folder(folder) as served:
        out, complaints = browse(folder, f"{served}/frames.html", "--virtual-time-budget=10000", "--dump-dom")
    found = re.search(r"FOUND(.*?)DNUOF", out, re.DOTALL)
    assert found, out[:500]
    return {one["name"]: one for one in json.loads(found[1].replace("&amp;", "&"))}, complaints


def test_the_policy_of_the_page_allows_all_that_it_does_and_no_more(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    assert POLICY.search(text)
    out, complaints = browse(tmp_path, page.as_uri(), "--virtual-time-budget=5000", "--dump-dom")
    assert complaints == []
    assert re.search(r'class="[^"]*\blive\b', out)  # its script ran
    (tmp_path / "page.html").write_text(text.replace("</body>", "<script>alert(1)</script></body>"), encoding="utf-8")
    assert browse(tmp_path, (tmp_path / "page.html").as_uri(), "--dump-dom")[1]


def test_nothing_sticks_out_on_a_phone_and_text_can_be_read(measured):
    phone = measured[0]["phone"]
    assert phone["title"] == "page"
    assert phone["width"] == PHONE
    assert phone["pageWidth"] <= PHONE
    assert phone["stickOut"] == []
    assert phone["scrolling"] >= 3  # tables and figures are wider than a phone, and scroll by themselves
    assert phone["reachable"]
    assert phone["figures"] >= 3
    assert phone["leastScale"] >= 0.99  # a point of a figure is a pixel at least, so its text is 8 pixels high
    assert phone["leastText"] >= 12


def test_at_a_desk_everything_is_in_view_without_scrolling(measured):
    desk = measured[0]["desk"]
    assert desk["width"] == DESK
    assert desk["pageWidth"] <= DESK
    assert desk["stickOut"] == []
    assert desk["scrolling"] == 0
    assert desk["leastScale"] >= 1  # the occupancy is drawn pixel by pixel, the pictures are enlarged


def test_the_browser_asks_for_nothing_and_complains_about_nothing(measured):
    found, complaints = measured
    assert found["phone"]["requests"] == found["desk"]["requests"] == 0
    assert [line for line in complaints if "broken.html" not in line] == []


def test_these_checks_do_see_a_broken_page(measured):
    found, complaints = measured
    assert found["broken"]["pageWidth"] > PHONE
    assert "DIV" in found["broken"]["stickOut"]
    assert found["broken"]["requests"] == 1
    assert any("broken.html" in line for line in complaints)


def test_the_page_shows_its_figures_on_both_screens(page, tmp_path):
    frames = "".join(
        f'<iframe src="{page.as_uri()}" style="width: {width}px; height: {HEIGHT}px; border: 0; float: left"></iframe>'
        for width in (PHONE, DESK)
    )
    both = tmp_path / "both.html"  # a window cannot be as narrow as a phone, a frame can
    both.write_text(f'<!DOCTYPE html><title>both</title><body style="margin: 0">{frames}', encoding="utf-8")
    shot = tmp_path / "both.png"
    browse(tmp_path, both.as_uri(), f"--window-size={PHONE + DESK},{HEIGHT}", f"--screenshot={shot}")
    pixels = np.round(matplotlib.image.imread(shot)[..., :3] * 255).astype(int)
    assert pixels.shape == (HEIGHT, PHONE + DESK, 3)
    for screen in (pixels[:, :PHONE], pixels[:, PHONE:]):
        dark = (screen.sum(axis=2) < 200).mean()
        assert 0.005 < dark < 0.2  # text: neither blank nor black
        orange = (np.abs(screen - [0xD5, 0x5E, 0x00]).max(axis=2) <= 2).sum()
        assert orange > 200  # the colour of Tiresias's bars and lines


def test_on_paper_it_has_a4_pages_and_the_manifest_unfolded(page, tmp_path):
    paper = tmp_path / "page.pdf"
    browse(tmp_path, page.as_uri(), "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    boxes = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert 2 <= len(boxes) <= 8
    assert {(round(float(width)), round(float(height))) for width, height in boxes} <= {
        (595, 842),
        (594, 841),
        (595, 841),
    }
    if shutil.which("pdftotext") is None:
        return
    done = subprocess.run(["pdftotext", "-layout", paper, "-"], capture_output=True, text=True, timeout=60, check=True)
    for words in ("Policies compared", "(12.3)", "How to reproduce this", "simsched run page.yaml", "told about"):
        assert words in done.stdout


#: Clicks through the occupancy of a copy of the page and writes down what it saw.
CLICKS = """<script>
addEventListener("load", () => {
  const root = document.querySelector(".occupancy"), seen = {};
  const bars = () => [...root.querySelectorAll("rect[data-job]")];
  seen.live = root.classList.contains("live");
  seen.bars = bars().length;
  seen.panels = root.querySelectorAll("svg").length;
  const keys = [...root.querySelectorAll(".key span")].map(one => getComputedStyle(one).backgroundColor);
  const painted = [...new Set(bars().map(one => getComputedStyle(one).fill))];
  seen.unexplained = keys.length ? painted.filter(one => !keys.includes(one)).length : 0;
  seen.explained = root.querySelector(".keys, .hint + .hint") !== null;
  bars()[0].dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  seen.story = root.querySelector(".story").textContent;
  root.querySelector("[data-outage]").dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  seen.outage = root.querySelector(".story").textContent;
  const labels = () => [...root.querySelectorAll("svg")].map(one => one.lastElementChild.textContent);
  seen.before = labels();
  root.querySelector(".in").click();
  seen.zoomed = labels();
  bars()[0].dispatchEvent(new MouseEvent("click", {bubbles: true}));
  seen.faded = root.querySelectorAll("rect[opacity='0.25']").length;
  const choice = root.querySelector("select");
  choice.value = "2"; choice.dispatchEvent(new Event("change"));
  seen.chosen = root.querySelector(".panel").textContent;
  root.querySelector(".all").click();
  seen.after = labels();
  document.title = "done";
  const out = document.createElement("pre");
  out.textContent = "FOUND" + JSON.stringify(seen) + "DNUOF";
  document.body.appendChild(out);
});
</script>"""


def test_the_occupancy_can_be_zoomed_and_asked(page, tmp_path):
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    (tmp_path / "clicked.html").write_text(text.replace("</body>", f"{CLICKS}</body>"), encoding="utf-8")
    out, complaints = browse(tmp_path, (tmp_path / "clicked.html").as_uri(), "--virtual-time-budget=5000", "--dump-dom")
    found = re.findall(r"FOUND(\{.*?\})DNUOF", out, re.DOTALL)
    assert found, out[-500:]
    seen = json.loads(found[-1].replace("&amp;", "&"))
    assert complaints == []
    assert (seen["live"], seen["panels"]) == (True, 2)
    assert seen["bars"] >= 20
    assert seen["explained"]
    assert seen["unexplained"] == 0  # every colour of a bar is in the legend, where there is one
    assert "asked for" in seen["story"]
    assert "waited" in seen["story"]
    assert (
        seen["outage"]
        == "node 1 under First come, first served (Philly) · maintenance · from 15.0 min · to 16.7 min · in all 100 s"
    )
    assert len(set(seen["zoomed"])) == 1  # both panels share their time
    assert seen["zoomed"] != seen["before"] == seen["after"]
    assert seen["faded"] > 0
    assert seen["chosen"] == "Tiresias-with-one-very-long-name-of-no-spaces"
